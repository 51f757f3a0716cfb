"""Which code made a result: the commit of the checkout this package runs from."""

import functools
import subprocess
from pathlib import Path

__all__ = ["commit"]


@functools.cache
def commit() -> str:
    """The commit of the checkout the package runs from, ``-dirty`` behind it when ``src`` has changed since.

    An installed package has no checkout; it answers ``release-`` and its version.
    """
    folder = Path(__file__).parent
    try:
        revision = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        import caunet

        return f"release-{caunet.__version__}"
    return f"{revision}-dirty" if changed else revision


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
