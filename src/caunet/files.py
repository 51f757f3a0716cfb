"""Files that are either whole or not there: write beside, flush to disk, rename.

>>> import tempfile, pathlib
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> write_json(folder / "z.json", {"angle": 12.5})
>>> (folder / "z.json").read_text()
'{\\n  "angle": 12.5\\n}\\n'
>>> sorted(p.name for p in folder.iterdir())
['z.json']
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["atomic_write", "cache_dir", "sha256", "write_json", "write_text"]


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; when the block ends well, it becomes ``path``.

    The temporary file is flushed to disk before the rename and the folder after it, so that a reader
    (or a machine that loses power) sees the old file or the new one. When the block fails nothing is left behind.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:  # it names the file beside, which nobody asked for
        raise OSError(error.errno, error.strerror, str(path)) from error
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        _restore_mode(temporary)
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _restore_mode(path: Path) -> None:
    # mkstemp makes files that only their owner can read; a result is an ordinary file.
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` to ``path`` as indented JSON, atomically. NaN and infinity are refused: they are not JSON."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def sha256(data: bytes | bytearray | memoryview) -> str:
    """The SHA-256 of ``data`` in hexadecimal.

    >>> sha256(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(data).hexdigest()


def cache_dir() -> Path:
    """Where fetched data is kept: ``$CAUNET_HOME``, else ``$XDG_CACHE_HOME/caunet``, else ``~/.cache/caunet``."""
    home = os.environ.get("CAUNET_HOME")
    if home:
        return Path(home)
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "caunet"
