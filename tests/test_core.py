"""The core alone: the built wheel, installed into an environment that has nothing else but what the core requires.

The environment is real, and costs little: a virtual environment whose site-packages holds links to the distributions
that the core requires, found by following the requirements in pyproject.toml through the installed metadata. The wheel
is the one that ``make dist`` makes.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image
from tools.dist import build

ROOT = Path(__file__).parents[1]
CORE = {"torch", "numpy", "pillow", "safetensors", "tyro", "rich", "filelock", "lazy-loader", "loky"}


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _closure(requirements: list[str]) -> set[str]:
    """The distributions that ``requirements`` bring, directly or through others."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        wanted = [{"extra": extra} for extra in requirement.extras] or [{"extra": ""}]
        if name in found:
            continue
        found.add(name)
        for text in distribution(name).requires or []:
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate(extra) for extra in wanted):
                waiting.append(inner)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    (path,) = build(tmp_path_factory.mktemp("dist") / "dist", kinds=("--wheel",))
    return path


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds caunet and what its core requires."""
    home = tmp_path_factory.mktemp("core")
    venv.create(home, with_pip=False, symlinks=True)
    packages = next(home.glob("lib/python*/site-packages"))
    for name in _closure(_project()["dependencies"]):
        installed = distribution(name)
        tops = {file.parts[0] for file in installed.files or [] if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(installed.locate_file(top))
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "-q", "--no-deps",
         "--no-index", "--no-compile", "--disable-pip-version-check", wheel],
        check=True, timeout=120,
    )  # fmt: skip
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of smooth noise: twelve images, and a.png and b.png, which is a moved by (3, 2) pixels."""
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    (folder / "set").mkdir()
    for number in range(12):
        coarse = Image.fromarray(generator.integers(0, 256, (12, 12), dtype=np.uint8))
        coarse.resize((96, 96), Image.Resampling.BICUBIC).save(folder / "set" / f"{number}.png")
    large = Image.fromarray(generator.integers(0, 256, (24, 24), dtype=np.uint8)).resize((160, 160))
    large.crop((10, 10, 138, 138)).save(folder / "a.png")
    large.crop((7, 8, 135, 136)).save(folder / "b.png")
    return folder


def _run(core: Path, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [core, *arguments], capture_output=True, text=True, cwd=folder, env=environment, timeout=120
    )


# One process for everything that is done in Python: importing torch is what takes the time.
SCRIPT = """
import contextlib, importlib.util, io, json, sys
from pathlib import Path

import numpy as np
import torch

import caunet
from caunet.cli import main

found = {"modules": [name for name in json.loads(sys.argv[1]) if importlib.util.find_spec(name)]}
found["matrix"] = caunet.estimate("a.png", "b.png", model="translation").matrix.tolist()
unit = caunet.nn.ContrastAssociation(9, 9, 4, rank=2)
found["unit"] = list(unit(torch.rand(5, 9), torch.rand(5, 9)).shape)
config = caunet.TrainConfig(data="set", updates=5, per_image=3, batch=8, compile="never")
result = caunet.train(config, "run", progress=False)
found["trained"] = result.finished and Path("run/weights.safetensors").exists()

def command(*arguments):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(arguments)
    return code, said.getvalue().strip()

found["estimate"] = command("estimate", "a.png", "b.png", "--model", "translation", "--out", "out.png", "--json")
found["train"] = command("train", "--data", "set", "--updates", "5", "--per-image", "3", "--compile", "never",
                         "--out", "other")
found["missing"] = {
    "report": [command("evaluate", "run", "--data", "set", "--figure", "figure.png"),
               command("data", "show", "--data", "set", "--columns", "2"),
               command("data", "stats", "--data", "photos")],
    "web": [command("serve", "--port", "0")],
    "export": [command("export", "--weights", "run", "out.onnx")],
    "bench": [command("bench", "registration", "--pairs", "1", "--methods", "ecc")],
    "tensorboard": [command("train", "--data", "set", "--updates", "5", "--tensorboard", "--out", "third")],
}
print(json.dumps(found))
"""

# A module of every distribution that an extra brings: none of them may be there.
EXTRA_MODULES = [
    "matplotlib", "skimage", "scipy", "tabulate", "fastapi", "starlette", "uvicorn", "python_multipart", "onnx",
    "onnxscript", "onnxruntime", "cv2", "kornia", "pystackreg", "SimpleITK", "tensorboard", "pytest", "hypothesis",
]  # fmt: skip


def test_the_core_is_these_packages() -> None:
    named = {canonicalize_name(Requirement(text).name) for text in _project()["dependencies"]}
    assert named == CORE


def test_the_core_estimates_and_trains_and_names_what_is_missing(core: Path, images: Path) -> None:
    done = _run(core, ["-W", "error::ImportWarning", "-c", SCRIPT, json.dumps(EXTRA_MODULES)], images)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["modules"] == []
    np.testing.assert_allclose(found["matrix"], [[1, 0, 3], [0, 1, 2], [0, 0, 1]], atol=0.1)
    assert found["unit"] == [5, 4]
    assert found["trained"]
    code, said = found["estimate"]
    assert code == 0
    np.testing.assert_allclose(json.loads(said)["matrix"], found["matrix"], atol=1e-4)
    assert (images / "out.png").exists()
    code, said = found["train"]
    assert code == 0
    assert "not drawn: Drawing needs matplotlib: pip install 'caunet[report]'" in said
    for extra, outcomes in found["missing"].items():
        for code, said in outcomes:
            assert code == 2, said
            assert said.startswith("caunet: ")
            assert said.endswith(f"pip install 'caunet[{extra}]'")
            assert "\n" not in said


def test_the_wheel_is_whole_and_its_description_stands_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in inside if name.endswith(".dist-info/METADATA"))
    package = ROOT / "src"
    wanted = {str(path.relative_to(package)) for path in (package / "caunet").rglob("*") if path.is_file()}
    wanted = {name for name in wanted if "__pycache__" not in name}
    assert {name for name in inside if name.startswith("caunet/")} == wanted
    # Without an address nothing is said that may not exist.
    assert "Project-URL" not in metadata
    assert not re.findall(r"\]\((?!https://)([^)]+)\)", metadata)
    assert "docs/how-to/volumes.md" in metadata


def test_with_an_address_the_description_leads_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOSITORY", "https://example.org/caunet/")
    (wheel,) = build(tmp_path / "dist", kinds=("--wheel",))
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    links = re.findall(r"\]\(([^)]+)\)", metadata)
    assert len(links) > 15
    assert all(link.startswith("https://") for link in links)
    urls = dict(
        line.split(": ", 1)[1].split(", ") for line in metadata.splitlines() if line.startswith("Project-URL")
    )
    assert urls["Repository"] == "https://example.org/caunet"
    assert {"Documentation", "Issues", "Changelog"} <= set(urls)
    # What the links point at is here: the address is the same file in the repository.
    for link in links:
        if link.startswith(urls["Repository"]):
            path = re.sub(r"^/(blob|raw)/main/", "", link.removeprefix(urls["Repository"])).partition("#")[0]
            assert (ROOT / path).exists(), link


def test_its_command_is_installed(core: Path, tmp_path: Path) -> None:
    done = subprocess.run([core.parent / "caunet", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == f"caunet {_project()['version']}\n"


def test_help_answers_without_torch(core: Path, tmp_path: Path) -> None:
    code = "import runpy, sys\n"
    code += "try: runpy.run_module('caunet', run_name='__main__', alter_sys=True)\n"
    code += "finally: assert not {'torch', 'numpy', 'PIL'} & set(sys.modules)"
    for arguments in (["--help"], ["train", "--help"], ["--version"]):
        done = _run(core, ["-c", code, *arguments], tmp_path)
        assert done.returncode == 0, done.stderr
        assert "caunet" in done.stdout
