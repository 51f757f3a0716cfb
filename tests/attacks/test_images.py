"""Damaged and hostile images in every format that is read: an image, or an error that names it; nothing else."""

import functools
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from caunet.errors import DataError
from caunet.images import ImageError, read_image
from tests.attacks.harness import attack, cases, mutations
from tests.oracles.png import header, png

MEMORY = 400_000_000
RNG = np.random.default_rng(3)
RGB = RNG.integers(0, 256, (24, 20, 3), dtype=np.uint8)
# Kinds of files: format and what is saved. A few of each format, because each takes another way through its decoder.
KINDS: dict[str, list[tuple[Image.Image, dict[str, object]]]] = {
    "PNG": [
        (Image.fromarray(RGB), {}),
        (Image.fromarray(RGB[..., 0].astype(np.uint16) * 257), {}),
        (Image.fromarray(RGB).convert("P"), {"transparency": 3}),
    ],
    "JPEG": [(Image.fromarray(RGB), {}), (Image.fromarray(RGB), {"progressive": True})],
    "TIFF": [
        (Image.fromarray(RGB), {"compression": "tiff_lzw"}),
        (Image.fromarray(RGB), {"compression": "tiff_adobe_deflate"}),
        (Image.fromarray(RGB[..., 0] / np.float32(255)), {}),
    ],
    "BMP": [(Image.fromarray(RGB), {}), (Image.fromarray(RGB).convert("P"), {})],
    "GIF": [
        (Image.fromarray(RGB).convert("P"), {"save_all": True, "append_images": [Image.new("P", (20, 24))]})
    ],
    "WEBP": [(Image.fromarray(RGB), {}), (Image.fromarray(RGB), {"lossless": True})],
    "PPM": [(Image.fromarray(RGB), {}), (Image.fromarray(RGB).convert("1"), {})],
}


@functools.cache
def files(kind: str) -> list[bytes]:
    found = []
    for image, options in KINDS[kind]:
        exif = Image.Exif()
        exif[0x0112] = 6
        options = options | ({"exif": exif} if kind in ("PNG", "JPEG", "WEBP", "TIFF") else {})
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        found.append(buffer.getvalue())
    return found


def read(content: bytes) -> None:
    image = read_image(content, "a")
    assert image.gray.isfinite().all()
    assert 0 <= float(image.gray.min()) <= float(image.gray.max()) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_images(kind: str) -> None:
    whole = files(kind)
    count = cases(40) // len(whole) + 1
    inputs = [
        *whole,
        *(data for number, file in enumerate(whole) for data in mutations(file, count, seed=number)),
    ]
    found = attack(f"image, {kind}", read, inputs, allowed=(ImageError,), memory=MEMORY).check()
    assert found.counts["accepted"] >= len(whole)


def _bomb(size: int) -> bytes:
    return zlib.compress(bytes(size), 1)


def test_hostile_images() -> None:
    """Small files that claim, or unpack to, a great deal."""
    end, huge = (b"IEND", b""), _bomb(100 << 20)
    bmp = struct.pack("<IiiHHIIiiII", 40, 65535, 65535, 1, 24, 0, 0, 0, 0, 0, 0)
    inputs = {
        "10 gigapixels": png(header(100_000, 100_000), (b"IDAT", _bomb(100)), end),
        "just over the limit": png(header(8000, 5001), (b"IDAT", _bomb(100)), end),
        "a text of 100 MB": png(header(20, 20), (b"zTXt", b"k\0\0" + huge), (b"IDAT", _bomb(420)), end),
        "a profile of 100 MB": png(header(20, 20), (b"iCCP", b"k\0\0" + huge), (b"IDAT", _bomb(420)), end),
        "more pixels than claimed": png(header(20, 20), (b"IDAT", huge), end),
        "a length of 2 GB": png(header(20, 20))[:-4] + b"\0\0\0\0" + b"\x7f\xff\xff\xffIDAT",
        "PPM of 10 gigapixels": b"P6 100000 100000 255\n",
        "PPM with a long number": b"P6 " + b"9" * 100_000 + b" 1 255\n",
        "GIF of 65535 x 65535": b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\x08\0;",
        "TIFF with itself as next page": b"II*\0\x08\0\0\0\0\0\x08\0\0\0",
        "BMP of 4 gigapixels": b"BM" + bytes(12) + bmp,
    }
    found = attack("hostile images", read, inputs.values(), allowed=(ImageError,), memory=MEMORY).check()
    assert sum(found.counts.values()) == len(inputs)


def test_errors_of_images_are_data_errors() -> None:
    assert issubclass(ImageError, DataError)
