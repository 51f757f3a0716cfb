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
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "address_reason",
    "atomic_write",
    "cache_dir",
    "open_regular",
    "printable_path",
    "sha256",
    "write_json",
    "write_text",
]

_NOT_REGULAR = {
    stat.S_IFIFO: "it is a named pipe",
    stat.S_IFSOCK: "it is a socket",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
}


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


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read bytes; an ``OSError`` that says why if it is not a regular file.

    Opening a named pipe or a device may wait for ever, or do something.
    """
    _check_regular(os.stat(path).st_mode, path)  # noqa: PTH116 - the path may be a string
    # Looked at again when it is open, because it may have been exchanged in between; and that must not wait.
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    )
    descriptor = os.open(path, flags)
    try:
        _check_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def address_reason(path: str | os.PathLike[str]) -> str | None:
    """Why ``path`` cannot be opened if it is an address of the web; None if it is a path.

    >>> address_reason("https://example.org/a.png")
    'is an address, not a file; caunet fetches nothing: save it as a file first'
    >>> address_reason("a.png") is address_reason("C:/a.png") is None
    True
    """
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", os.fspath(path)) is None:
        return None
    return "is an address, not a file; caunet fetches nothing: save it as a file first"


def _check_regular(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        kind = _NOT_REGULAR.get(stat.S_IFMT(mode), "it is not a file")
        raise OSError(errno.EINVAL, f"{kind}, and only regular files are read", os.fspath(path))


def printable_path(path: str | os.PathLike[str]) -> str:
    r"""A path as it can be shown and written anywhere: what is not UTF-8, and control characters, as escapes.

    >>> printable_path("a b.png")
    'a b.png'
    >>> print(printable_path(os.fsdecode(b"caf\xe9\n.png")))
    caf\xe9\x0a.png
    """
    return "".join(_escaped(character) for character in os.fsdecode(path))


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in ("Cc", "Cs"):
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as Python has it
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


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
