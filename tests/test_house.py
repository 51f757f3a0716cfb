"""The shape of the house: which module may import which, what is public, what an import costs."""

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import caunet

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "caunet"

# What each room may know besides the foundation.
ALLOWED = {
    "low_rank": set(),
    "functional": {"low_rank"},
    "geometry": set(),
    "images": set(),
    "metrics": {"geometry"},
    "optim": set(),
    "nn": {"functional", "low_rank"},
    "tasks": {"geometry"},
    "data": {"images", "tasks", "geometry"},
    "models": {"nn", "tasks"},
    "baselines": {"geometry", "tasks"},
    "evaluation": {"metrics", "tasks", "data", "models", "baselines", "geometry"},
    "matching": {"nn", "images", "geometry"},
    "training": {"models", "data", "metrics", "optim", "evaluation", "tasks", "matching"},
    "estimation": {"images", "models", "geometry", "tasks", "data", "matching"},
    "execution": set(),
    "stacks": {"geometry"},
    "export": {"models", "tasks"},
    "benchmark": {"images", "estimation", "geometry", "data", "metrics"},
    "reproduction": {
        "training",
        "models",
        "nn",
        "data",
        "metrics",
        "evaluation",
        "tasks",
        "baselines",
        "geometry",
    },
}
# The foundation: every room may know it, and it knows nothing above it.
FOUNDATION = {
    "cores",
    "drawing",
    "errors",
    "extras",
    "files",
    "locks",
    "progress",
    "provenance",
    "registry",
    "tables",
    "tensor_files",
    "torch_private",
}
TOP = {"cli", "web", "__main__"}  # nothing imports these


def _imports(path: Path) -> set[str]:
    """The rooms of caunet that the module at ``path`` imports, at the top or inside functions."""
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where an arrow points"
            # `from caunet import x` may name a module
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "caunet"
                else [node.module]
            )
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("caunet.")}
    return {room for room in rooms if (SOURCE / room).is_dir() or (SOURCE / f"{room}.py").exists()}


def _modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem != "__init__")


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_imports_point_one_way() -> None:
    """The command line and the page may know anything; every other room only what ALLOWED says."""
    wrong = []
    for path in _modules():
        room = _room(path)
        if room in TOP:
            continue
        allowed = ALLOWED.get(room, set()) | FOUNDATION
        wrong += [
            f"{path.relative_to(SOURCE)} may not know {name}" for name in _imports(path) - {room} - allowed
        ]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_the_command_line_or_the_page() -> None:
    for path in _modules():
        if _room(path) not in TOP:
            assert not TOP & _imports(path), f"{path} imports the command line or the page"


def test_public_names_are_listed_once_and_there() -> None:
    """The list is __init__.pyi; what it names can be had, and nothing else is public."""
    stub = ast.parse((SOURCE / "__init__.pyi").read_text())
    named = [alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert len(named) == len(set(named))
    assert sorted(caunet.__all__) == sorted([*named, "__version__"])
    assert set(named) <= set(dir(caunet))
    assert all(getattr(caunet, name) is not None for name in named)
    with pytest.raises(AttributeError, match="cannot"):
        caunet.cannot  # noqa: B018


def test_every_module_lists_its_names() -> None:
    wrong = []
    for path in _modules():
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        if path.stem == "__main__":
            continue
        module = importlib.import_module(name)
        if not hasattr(module, "__all__"):
            wrong.append(f"{name} has no __all__")
            continue
        wrong += [f"{name}.__all__: no {public}" for public in module.__all__ if not hasattr(module, public)]
    assert not wrong, "\n".join(wrong)


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_nothing_optional() -> None:
    heavy = [
        "matplotlib",
        "skimage",
        "scipy",
        "PIL",
        "rich",
        "tyro",
        "jinja2",
        "cv2",
        "kornia",
        "tensorboard",
        "safetensors",
        "torch",
        "numpy",
    ]
    new = _run(
        "import sys, ast; old = set(sys.modules); import caunet; print(*set(sys.modules) - old)"
    ).split()
    assert "caunet" in new
    assert set(new).isdisjoint([*heavy, "caunet.training", "caunet.data"])
    # A proxy for its cost that does not depend on how busy the machine is.
    assert len(new) <= 10


def test_version_is_stated_once() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert caunet.__version__ == stated
    assert f"version: {stated}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {stated}" in (ROOT / "CHANGELOG.md").read_text()


def test_constraints_pin_every_dependency() -> None:
    pinned = {
        canonicalize_name(line.split("==")[0])
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for group in project["optional-dependencies"].values() for name in group]
    named = {Requirement(text).name.lower() for text in [*project["dependencies"], *extras]}
    wanted = {canonicalize_name(name) for name in named - {"caunet"}}
    assert wanted <= pinned, f"constraints.txt does not pin {sorted(wanted - pinned)}"
