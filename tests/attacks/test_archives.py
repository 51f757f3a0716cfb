"""Hostile and damaged archives of CIFAR-10: refused within bounds of time and memory, or read to the same pixels."""

import functools
import gzip
import io
import struct
import tarfile
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from caunet.data.archives import read_rgb
from caunet.data.batches import OPERATIONS, decode_pickle
from caunet.data.tarball import MEMBER_COUNT, TOTAL_LIMIT
from caunet.errors import DataError
from tests.attacks.harness import attack, cases, mutations
from tests.oracles import cifar_archives as made_up

MEMORY = 300_000_000
GIGABYTE = 1 << 30


@functools.cache
def archive(form: str) -> bytes:
    members = getattr(made_up, f"{form}_members")(made_up.batches())
    with tempfile.TemporaryDirectory() as folder:
        return made_up.write_tar(Path(folder) / "a.tar.gz", members).read_bytes()


def read_archive(content: bytes) -> None:
    """What is accepted must be the pixels that were put in."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar.gz"
        path.write_bytes(content)
        train, test = read_rgb(path)
    made = made_up.batches()
    np.testing.assert_array_equal(train, np.concatenate([made[name] for name in made_up.NAMES[:-1]]))
    np.testing.assert_array_equal(test, made["test_batch"])


def read_unpacked(content: bytes) -> None:
    """The same for the content of the gzip file: its checksum hides most damage from the readers behind it."""
    read_batch_or_tar(gzip.compress(content, 1))


def read_batch_or_tar(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tar.gz"
        path.write_bytes(content)
        read_rgb(path)  # other pixels are found by their SHA-256, later


def read_pickle(content: bytes) -> None:
    found = decode_pickle(content)
    assert found.dtype == np.uint8
    assert found.shape[1:] == (32, 32, 3)


@pytest.mark.parametrize("form", ["official", "binary", "npm"])
def test_damaged_archives(form: str) -> None:
    whole = archive(form)
    inputs = [whole, *mutations(whole, cases(60), seed=1)]
    found = attack(f"archive, {form}", read_archive, inputs, allowed=(DataError,), memory=MEMORY).check()
    assert found.counts["accepted"] >= 1


@pytest.mark.parametrize("form", ["official", "npm"])
def test_damaged_tar_files(form: str) -> None:
    whole = gzip.decompress(archive(form))
    inputs = [whole, *mutations(whole, cases(60), seed=2)]
    attack(f"tar, {form}", read_unpacked, inputs, allowed=(DataError,), memory=MEMORY).check()


def test_damaged_pickles() -> None:
    rgb = made_up.batches()["test_batch"][:1]
    whole = made_up.python2_pickle(rgb)
    # Most bytes of a batch are pixels: half of the damage goes to a batch whose pixels come last and are cut off.
    inputs = [whole, *mutations(whole, cases(100), seed=3), *mutations(whole[:400], cases(100), seed=4)]
    attack("pickled batch", read_pickle, inputs, allowed=(DataError,), memory=100_000_000).check()


def _tar_header(name: bytes, size: int, kind: bytes) -> bytes:
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def _bomb(start: bytes, size: int) -> bytes:
    """gzip of ``start`` and ``size`` zeros, made without holding them."""
    squeeze = zlib.compressobj(1, wbits=31)
    parts = [squeeze.compress(start)]
    zeros = bytes(1 << 20)
    parts += [squeeze.compress(zeros) for _ in range(size >> 20)]
    return b"".join([*parts, squeeze.flush()])


def _attack_on_dtype() -> bytes:
    """An array of objects that are raw bytes: a type with an object field and the flags of a plain one."""
    field = b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R"
    fields = b"}U\x01f" + field + b"K\x00\x86s"
    state = b"(K\x03U\x01|NU\x01f\x85" + fields + b"K\x08K\x08K?tb"
    dtype = b"cnumpy\ndtype\nU\x02V8K\x00K\x01\x87R" + state
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return b"\x80\x02}U\x04data" + array + b"(K\x01K\x08\x85" + dtype + b"\x89U@" + b"A" * 64 + b"tbs."


PICKLES = {
    "objects made of raw bytes": _attack_on_dtype(),
    "a memo of 2^28 places": b"\x80\x02Nr" + struct.pack("<I", 1 << 28) + b".",
    "a string of 4 GB": b"\x80\x02T\xff\xff\xff\xff",
    "nothing but marks": b"\x80\x02" + b"(" * 10_000_000,
    "a deep tuple": b"\x80\x02N" + b"\x85" * (OPERATIONS - 10) + b".",
    "a list of itself": b"\x80\x02]q\x00" + b"h\x00a" * 60_000 + b".",
    "lists that double": b"\x80\x02]q\x00" + b"(h\x00h\x00e" * 40_000 + b".",
}


def test_hostile_pickles() -> None:
    found = attack("hostile pickles", read_pickle, PICKLES.values(), allowed=(DataError,), memory=100_000_000)
    found.check()
    assert found.counts == {"refused": len(PICKLES)}


def test_hostile_archives() -> None:
    """Each is small, and claims or unpacks to far more than memory."""
    wanted = b"cifar-10-batches-py/data_batch_1"
    inputs = [
        _bomb(_tar_header(b"pax", 2 * GIGABYTE, b"x"), 16 << 20),
        _bomb(_tar_header(b"long", 2 * GIGABYTE, b"L"), 1 << 20),
        _bomb(_tar_header(b"global", 2**70, b"g"), 1 << 20),
        _bomb(_tar_header(wanted, 2 * GIGABYTE, b"0"), 1 << 20),
        _bomb(_tar_header(wanted, 60_000_000, b"0"), 1 << 20),
        _bomb(_tar_header(b"other", 2 * GIGABYTE, b"0"), 400 << 20),
        _bomb(b"", 32 << 20),
        gzip.compress(_tar_header(b"empty", 0, b"0") * (MEMBER_COUNT + 10)),
        b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 1_000_000,  # a file name that does not end
        b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff",
    ]
    assert TOTAL_LIMIT < 400 << 20
    found = attack(
        "hostile archives", read_batch_or_tar, inputs, allowed=(DataError,), memory=150_000_000, seconds=30
    )
    found.check()
    assert found.counts == {"refused": len(inputs)}


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_every_tar_program_are_read(kind: int, tmp_path: Path) -> None:
    made = made_up.batches()
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=kind) as writer:
        for name, content in made_up.npm_members(made).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.pax_headers = {"comment": "written by somebody"}
            writer.addfile(info, io.BytesIO(content))
        writer.addfile(tarfile.TarInfo("/".join(["package", "x" * 80, "y" * 80])))
    read_archive((tmp_path / "a.tar.gz").read_bytes())
