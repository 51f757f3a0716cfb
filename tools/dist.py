"""Wheel and sdist, built from what git knows and checked: ``python -m tools.dist [FOLDER]``.

The description that an index shows stands alone: links and pictures of README.md that lead into the checkout are made
absolute, with the address that pyproject.toml states. Nothing is fetched: the build uses the setuptools that is here.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from caunet.errors import CaunetError

__all__ = ["absolute_links", "build", "main"]

ROOT = Path(__file__).parents[1]
_PICTURES = (".png", ".svg", ".jpg")


def absolute_links(text: str, repository: str) -> str:
    """Markdown whose relative links lead to ``repository``, and pictures to their bytes there.

    >>> absolute_links("[a](docs/a.md#b) ![c](d.png) [e](https://f.org) [g](#h)", "https://x.org/y")
    '[a](https://x.org/y/blob/main/docs/a.md#b) ![c](https://x.org/y/raw/main/d.png) [e](https://f.org) [g](#h)'
    """

    def absolute(match: re.Match[str]) -> str:
        target = match[1]
        kind = "raw" if target.endswith(_PICTURES) else "blob"
        return f"]({repository}/{kind}/main/{target})"

    return re.sub(r"\]\((?!https?:|#|mailto:)([^)]+)\)", absolute, text)


def build(out: Path, kinds: tuple[str, ...] = ("--sdist", "--wheel")) -> list[Path]:
    """Build into ``out``, which is emptied first, and return the files."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
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
        readme.write_text(
            absolute_links(readme.read_text("utf-8"), str(urls["Repository"])), encoding="utf-8"
        )
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
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
