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

# What each room knows besides the foundation: exactly this.
ALLOWED: dict[str, set[str]] = {
    "low_rank": set(),
    "functional": {"low_rank"},
    "geometry": set(),
    "images": set(),
    "optim": set(),
    "nn": {"functional", "low_rank"},
    "tasks": {"geometry"},
    "metrics": {"geometry"},
    "data": {"geometry", "images", "tasks", "volumes"},
    "models": {"nn", "tasks"},
    "matching": {"geometry", "images", "nn"},
    "stacks": {"estimation", "geometry", "images"},
    "baselines": {"geometry", "tasks"},
    "refinement": {"geometry", "tasks"},
    "evaluation": {"metrics", "tasks"},
    "estimation": {"execution", "geometry", "images", "matching", "models"},
    "volumes": {"estimation", "geometry"},
    "training": {"data", "evaluation", "matching", "models", "optim", "tasks"},
    "execution": set(),
    "export": {"models", "tasks"},
    "reproduction": {"baselines", "data", "evaluation", "execution", "models", "nn", "training"},
    "benchmark": {"data", "estimation", "geometry", "images", "metrics"},
}
# The foundation: every room may know it; it knows nothing above it, and of itself exactly this.
FOUNDATION: dict[str, set[str]] = {
    "errors": set(),
    "cores": set(),
    "extras": {"errors"},
    "files": set(),
    "locks": set(),
    "progress": set(),
    "provenance": set(),
    "registry": {"errors"},
    "sizes": set(),
    "tables": set(),
    "threads": set(),
    "torch_private": set(),
    "drawing": {"extras", "files"},
    "shipped": {"errors", "files"},
    "tensor_files": {"errors", "files"},
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


def test_imports_are_exactly_the_arrows_that_are_allowed() -> None:
    """An arrow that is not listed points where it should not; a listed one that nobody uses hides the next mistake."""
    used: dict[str, set[str]] = {}
    where: dict[tuple[str, str], str] = {}
    for path in _modules():
        room = _room(path)
        found = _imports(path) - {room}
        if room not in TOP:  # the command line and the page may know anything
            known = found if room in FOUNDATION else found - set(FOUNDATION)
            used.setdefault(room, set()).update(known)
            where |= {(room, name): str(path.relative_to(SOURCE)) for name in known}
    allowed = ALLOWED | FOUNDATION
    wrong = [f"{room} is a new room: list what it knows in ALLOWED" for room in used.keys() - allowed.keys()]
    wrong += [f"{room} is listed, and is not there" for room in allowed.keys() - used.keys()]
    for room in used.keys() & allowed.keys():
        wrong += [f"{where[room, name]} imports {name}: not allowed" for name in used[room] - allowed[room]]
        wrong += [f"{room} -> {name} is allowed, and not used" for name in allowed[room] - used[room]]
    assert not wrong, "\n".join(sorted(wrong))


def test_arrows_make_no_circle() -> None:
    order: list[str] = []
    while left := ALLOWED.keys() - set(order):
        free = [room for room in left if ALLOWED[room] <= set(order)]
        assert free, f"these know each other in a circle: {sorted(left)}"
        order += free


def test_the_design_names_every_room() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    rooms = {_room(path) for path in _modules()}
    names = {room: f"`{room}/`" if (SOURCE / room).is_dir() else f"`{room}.py`" for room in rooms}
    assert not [name for name in names.values() if name not in text]


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
