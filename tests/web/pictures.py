"""Pictures for the tests, as files in memory."""

import io
import re
import struct
import zlib

import numpy as np
import torch
from PIL import Image
from skimage import data

from caunet import geometry

__all__ = ["ASTRONAUT", "bomb", "carried", "many_comments", "many_scans", "png", "related", "transparent"]

ASTRONAUT = data.astronaut()


def png(pixels, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def related(side=256, place=(150, 60)):
    """Two pictures of ``side`` pixels cut from one photograph, and the H from the first to the second."""
    x, y = place
    H = geometry.compose(
        geometry.translate(9.0, -6.0),
        geometry.center(geometry.compose(geometry.rotate(5.0), geometry.scale(1.04)), (side, side)),
    ).double()
    a = ASTRONAUT[y : y + side, x : x + side]
    # b(p') = photograph(place + H^-1 p'): read from the whole photograph, so that b has no blank border.
    whole = torch.from_numpy(ASTRONAUT).permute(2, 0, 1).double()[None]
    pull = geometry.compose(H, geometry.translate(-float(x), -float(y)).double())
    b = geometry.warp(whole, pull, (side, side), "bicubic")[0].permute(1, 2, 0)
    return a, b.round().clamp(0, 255).to(torch.uint8).numpy(), H.numpy()


def carried(H, size):
    """The corners of a picture of ``size`` (height, width), carried by H."""
    h, w = size[0] - 1, size[1] - 1
    q = np.array([[0, 0, 1], [w, 0, 1], [w, h, 1], [0, h, 1]]) @ np.asarray(H).T
    return q[:, :2] / q[:, 2:]


def bomb(width, height):
    """A PNG of a few hundred bytes that says it has width x height pixels."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(10_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def many_scans(size=2_000_000):
    """A progressive JPEG whose last scan is repeated: each of 31 bytes costs a pass over all coefficients."""
    file = io.BytesIO()
    Image.new("L", (4000, 4000), 128).save(file, "JPEG", progressive=True)
    content = file.getvalue().removesuffix(b"\xff\xd9")
    scan = content[[found.start() for found in re.finditer(b"\xff\xda", content)][-1] :]
    return content + scan * (size // len(scan)) + b"\xff\xd9"


def many_comments(size=4_000_000):
    """A plain PPM that Pillow reads in time proportional to the square of its comments."""
    return b"P3\n16 16 255\n" + b"#\n" * (size // 2) + b"0 " * 768


def transparent(width=6000, height=4000):
    """A PNG of 100 KB with 24 megapixels of four channels."""
    file = io.BytesIO()
    Image.new("RGBA", (width, height), (200, 100, 50, 128)).save(file, "PNG")
    return file.getvalue()
