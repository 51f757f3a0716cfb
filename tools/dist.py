"""Wheel and sdist, built from what git knows and checked: ``python -m tools.dist [FOLDER]``.

The description that an index shows stands alone: links and pictures of README.md that lead into the checkout are made
absolute where the address of the repository is given (``REPOSITORY=https://...``; see tools/repository.py), which then
also stands in the metadata. Nothing is fetched: the build uses the setuptools that is here.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from caunet.errors import CaunetError
from tools.repository import linked, repository

__all__ = ["build", "main"]

ROOT = Path(__file__).parents[1]
_URLS = """
[project.urls]
Repository = "{0}"
Documentation = "{0}/blob/main/docs/index.md"
Issues = "{0}/issues"
Changelog = "{0}/blob/main/CHANGELOG.md"
"""


def build(out: Path, kinds: tuple[str, ...] = ("--sdist", "--wheel")) -> list[Path]:
    """Build into ``out``, which is emptied first, and return the files."""
    address = repository()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "caunet"
        for name in _run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
            source = ROOT / name
            # Tests, benchmarks and pictures stay in the repository: an sdist is for building the package.
            if not source.is_file() or name.split("/")[0] in ("tests", "benchmarks", "results", "docs"):
                continue
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, tree / name)
        readme = tree / "README.md"
        readme.write_text(linked(readme.read_text("utf-8"), address), encoding="utf-8")
        if address is not None:
            with (tree / "pyproject.toml").open("a", encoding="utf-8") as project:
                project.write(_URLS.format(address))
        _run(
            sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(out), str(tree), cwd=tree
        )
    return sorted(out.iterdir())


def _run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        raise CaunetError(f"{' '.join(command[:3])} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Build, check, and say what there is."""
    out = Path(arguments[0]) if arguments else ROOT / "dist"
    files = build(out.resolve())
    _run(sys.executable, "-m", "twine", "check", "--strict", *map(str, files), cwd=ROOT)
    wheels = [str(path) for path in files if path.suffix == ".whl"]
    _run(sys.executable, "-m", "check_wheel_contents", *wheels, cwd=ROOT)
    for path in files:
        sys.stdout.write(f"{path} ({path.stat().st_size / 1e6:.1f} MB), checked\n")
    if repository() is None:
        sys.stdout.write(
            "The description has no links or pictures: REPOSITORY=https://... says where they lead.\n"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
