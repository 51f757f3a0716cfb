"""The shape of the house: which module may import which, what is public, what an import costs."""

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import caunet

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "caunet"

# What each room of the design may know, besides errors, files, progress and provenance, which know nothing.
ALLOWED = {
    "low_rank": set(),
    "functional": {"low_rank"},
    "geometry": set(),
    "images": set(),
    "metrics": {"geometry"},
    "optim": set(),
    "nn": {"functional"},
    "tasks": {"geometry"},
    "data": {"images", "tasks", "geometry"},
    "models": {"nn", "functional", "tasks"},
    "baselines": {"geometry", "tasks"},
    "evaluation": {"metrics", "tasks", "data", "models", "baselines", "geometry"},
    "training": {"models", "data", "metrics", "optim", "evaluation", "tasks"},
    "estimation": {"images", "models", "geometry", "tasks", "data"},
    "execution": set(),
    "export": {"models", "tasks"},
    "benchmark": {"images", "estimation", "geometry", "data"},
    "reproduction": {"training", "models", "data", "metrics", "evaluation", "tasks", "baselines", "geometry"},
}
FOUNDATION = {
    "cores",
    "errors",
    "extras",
    "files",
    "locks",
    "progress",
    "provenance",
    "tensor_files",
    "torch_private",
}


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


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    found = _imports(path) - {room} - FOUNDATION
    if room in FOUNDATION:
        assert found == set(), f"{path.name} is part of the foundation and knows nothing above it"
    elif room not in {"cli", "web"}:  # the command line and the page may know anything
        assert room in ALLOWED, f"say in ALLOWED what {room} may know"
        assert found <= ALLOWED[room], (
            f"{path.relative_to(SOURCE)} may not know {sorted(found - ALLOWED[room])}"
        )


def test_nothing_imports_the_command_line_or_the_page() -> None:
    for path in _modules():
        if path.relative_to(SOURCE).parts[0] not in {"cli", "web"}:
            assert not {"cli", "web"} & _imports(path), f"{path} imports the command line or the page"


def test_public_names_are_exactly_these() -> None:
    assert sorted(caunet.__all__) == [
        "Estimate",
        "Estimator",
        "HybridOptimizer",
        "MultiplicativeAdam",
        "MultiplicativeUpdate",
        "PairSource",
        "TrainConfig",
        "__version__",
        "create_model",
        "data",
        "estimate",
        "estimate_many",
        "evaluate",
        "functional",
        "geometry",
        "list_models",
        "load_images",
        "load_pretrained",
        "load_weights",
        "metrics",
        "nn",
        "optim",
        "save_weights",
        "tasks",
        "train",
    ]
    assert set(caunet.__all__) <= set(dir(caunet))
    for name in caunet.__all__:
        assert getattr(caunet, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'cannot'"):
        caunet.cannot  # noqa: B018


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_lists_its_names(path: Path) -> None:
    if path.stem == "__main__":
        return
    name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    module = importlib.import_module(name)
    assert hasattr(module, "__all__"), f"{name} has no __all__"
    missing = [public for public in module.__all__ if not hasattr(module, public)]
    assert not missing, f"{name}.__all__ names {missing}, which are not there"


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
    ]
    new = _run(
        "import sys, torch; old = set(sys.modules); import caunet; print(*set(sys.modules) - old)"
    ).split()
    assert "caunet" in new
    assert set(new).isdisjoint([*heavy, "caunet.training", "caunet.data"])


def test_import_is_a_few_modules() -> None:
    # A proxy for its cost that does not depend on how busy the machine is.
    code = (
        "import sys, torch; before = set(sys.modules); import caunet; print(len(set(sys.modules) - before))"
    )
    assert int(_run(code)) <= 10


def test_version_is_stated_once() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert caunet.__version__ == stated
    assert f"version: {stated}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {stated}" in (ROOT / "CHANGELOG.md").read_text()


def test_constraints_pin_every_dependency() -> None:
    pinned = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for group in project["optional-dependencies"].values() for name in group]
    wanted = {name.split(">=")[0].split("[")[0].lower() for name in [*project["dependencies"], *extras]} - {
        "caunet"
    }
    assert wanted <= pinned, f"constraints.txt does not pin {sorted(wanted - pinned)}"
