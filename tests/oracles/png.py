"""PNG files written byte by byte, so that their headers can claim what is not true."""

import struct
import zlib


def png(*chunks):
    """A file of ``chunks`` (name, data), with correct checksums."""
    parts = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def header(width, height):
    """The first chunk of a gray image of 8 bits."""
    return b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)


def claiming(width, height):
    """A file whose header claims a size that its data do not have: decoding it would fail for want of data."""
    return png(header(width, height), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b""))
