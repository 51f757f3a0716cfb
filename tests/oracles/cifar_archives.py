"""Small imitations of the three forms of CIFAR-10, written byte by byte and not by the code under test."""

import hashlib
import io
import itertools
import struct
import tarfile
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image

from caunet.data.cifar10 import Expected

NAMES = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
ROWS = 3


def batches(seed=0):
    """Six random batches (ROWS, 32, 32, 3) by name."""
    generator = np.random.default_rng(seed)
    return {name: generator.integers(0, 256, (ROWS, 32, 32, 3), dtype=np.uint8) for name in NAMES}


def gray(rgb):
    """The gray formula of the documentation by exact fractions, one pixel after the other."""
    weights = [Fraction(2989, 10000), Fraction(5870, 10000), Fraction(1140, 10000)]
    values = [
        int(sum(w * int(c) for w, c in zip(weights, pixel, strict=True)) + Fraction(1, 2))
        for pixel in rgb.reshape(-1, 3)
    ]
    return np.array(values, np.uint8).reshape(rgb.shape[:-1])


def expected(made):
    train = np.concatenate([made[name] for name in NAMES[:-1]])
    test = made["test_batch"]
    digests = [hashlib.sha256(part.tobytes()).hexdigest() for part in (train, test, gray(train), gray(test))]
    return Expected(len(train), len(test), *digests)


def python2_pickle(rgb):
    """A batch as Python 2 pickled the official ones: byte strings, protocol 2, ``numpy.core.multiarray``.

    The keys are those of the official batches, in their order; every value is put into the memo, as cPickle does.
    """
    planes = rgb.transpose(0, 3, 1, 2).tobytes()
    memo = itertools.count(1)

    def put(value):
        number = next(memo)
        return value + (b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number))

    def text(value):
        return put(b"U" + bytes([len(value)]) + value)

    labels = b"".join(b"K" + bytes([number % 10]) for number in range(len(rgb)))
    parts = [b"\x80\x02", put(b"}"), b"(", text(b"batch_label"), text(b"training batch 1 of 5")]
    parts += [text(b"labels"), put(b"]"), b"(", labels, b"e", text(b"data")]
    parts += [put(b"cnumpy.core.multiarray\n_reconstruct\n"), put(b"cnumpy\nndarray\n")]
    parts += [b"K\x00", put(b"\x85"), text(b"b"), put(b"\x87"), put(b"R"), b"(K\x01"]
    parts += [b"M" + struct.pack("<H", len(rgb)) + b"M" + struct.pack("<H", 3072), put(b"\x86")]
    parts += [
        put(b"cnumpy\ndtype\n"),
        text(b"u1"),
        b"K\x00K\x01",
        put(b"\x87"),
        put(b"R"),
        b"(K\x03",
        text(b"|"),
    ]
    parts += [b"NNN", b"J\xff\xff\xff\xff" * 2, b"K\x00", put(b"t"), b"b\x89"]
    parts += [put(b"T" + struct.pack("<I", len(planes)) + planes), put(b"t"), b"b"]
    parts += [text(b"filenames"), put(b"]"), b"("]
    parts += [text(b"leptodactylus_pentadactylus_s_%06d.png" % number) for number in range(len(rgb))]
    return b"".join([*parts, b"eu."])


def png(rgb):
    buffer = io.BytesIO()
    Image.fromarray(rgb.reshape(len(rgb), 1024, 3)).save(buffer, "PNG")
    return buffer.getvalue()


def official_members(made):
    return {f"cifar-10-batches-py/{name}": python2_pickle(rgb) for name, rgb in made.items()}


def binary_members(made):
    rows = {name: rgb.transpose(0, 3, 1, 2).reshape(len(rgb), 3072) for name, rgb in made.items()}
    return {
        f"cifar-10-batches-bin/{name}.bin": b"".join(
            bytes([n % 10]) + row.tobytes() for n, row in enumerate(table)
        )
        for name, table in rows.items()
    }


def npm_members(made):
    return {f"package/{name}.png": png(rgb) for name, rgb in made.items()}


def write_tar(path, members):
    """A ``.tar.gz`` of ``members`` (name -> bytes, or a ready ``TarInfo`` without content)."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return Path(path)


def write_folder(path, members):
    for name, content in members.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path / name.split("/")[0]
