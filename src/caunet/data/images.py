"""Gray images and volumes by name: embedded photographs and shapes, CIFAR-10, or a folder of your own.

>>> images = load_images("photos", split="test")
>>> images.pixels.dtype, tuple(images.pixels.shape[1:])
(torch.uint8, (32, 32))
>>> load_images("photos", dimensions=3)
Traceback (most recent call last):
...
ValueError: images must be one of shapes3, or a directory of volumes, for a task in space, got 'photos'
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from caunet.data import cifar10, folder, photos, shapes3
from caunet.errors import DataError
from caunet.files import printable_path

__all__ = ["SPLITS", "ImageSet", "fingerprint", "load_images"]

SPLITS = ("train", "test", "validation", "train-fit")

# A loader takes ``training`` and its own options. It returns the pixels (N, H, W), of volumes (N, D, H, W), and where,
# among the training images, the validation images begin.
_Loader = Callable[..., tuple[npt.NDArray[np.uint8], int]]
_LOADERS: dict[int, dict[str, _Loader]] = {
    2: {"photos": photos.load, "cifar10": cifar10.load},
    3: {"shapes3": shapes3.load},
}


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Gray images of one size, or volumes.

    ``pixels``: uint8 tensor (N, H, W) or (N, D, H, W), possibly mapped from a file; ``name`` and ``split``: what
    :func:`load_images` was asked for.
    """

    pixels: torch.Tensor
    name: str
    split: str

    @cached_property
    def fingerprint(self) -> str:
        """Which images exactly: :func:`fingerprint` of the pixels, computed once."""
        return fingerprint(self.pixels)

    def __len__(self) -> int:
        return int(self.pixels.shape[0])

    def __repr__(self) -> str:
        shape = " x ".join(str(n) for n in self.pixels.shape)
        return f"ImageSet({self.name!r}, {self.split!r}, {shape}, fingerprint {self.fingerprint[:12]})"


def fingerprint(pixels: torch.Tensor) -> str:
    """SHA-256 (hexadecimal) over type, shape and values of a tensor, so that a run can say which images it used.

    A set of CIFAR-10's size takes a twentieth of a second.

    >>> pixels = torch.arange(24, dtype=torch.uint8).view(2, 3, 4)
    >>> fingerprint(pixels)[:16]
    '5e5745de22866806'
    >>> fingerprint(pixels) == fingerprint(pixels.view(2, 4, 3))
    False
    """
    kind = str(pixels.dtype).removeprefix("torch.")
    found = sha256(f"{kind} {'x'.join(map(str, pixels.shape))}\n".encode())
    for start in range(0, len(pixels), 4096):  # a part at a time: only a part is copied if it must be
        part = pixels[start : start + 4096].detach()
        found.update(part.cpu().contiguous().view(torch.uint8).numpy().data)
    return found.hexdigest()


def load_images(
    name: str | os.PathLike[str],
    split: str = "train",
    *,
    dimensions: int | None = None,
    skip_bad: bool = False,
    **options: Any,
) -> ImageSet:
    """The images called ``name``: ``"photos"``, ``"cifar10"``, or the path of a directory of images.

    With ``dimensions=3``, for tasks in space, the volumes called ``name``: ``"shapes3"`` (:mod:`caunet.data.shapes3`),
    or those of a directory of NIfTI, MetaImage and NRRD files. Without ``dimensions`` a name says which it is, and a
    directory holds images.

    ``split``: ``"train"``, ``"test"``, or the two parts of the training images, ``"train-fit"`` (about the
    first 90 %) and ``"validation"`` (the rest; a photograph is never in both). ``skip_bad`` leaves out files
    and folders of a directory that cannot be read. ``options`` go to the source: ``tile``,
    ``stride`` and ``scales`` for photos and directories.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    loader, shown = _find_loader(name, dimensions, skip_bad)
    pixels, cut = loader(training=split != "test", **options)
    if split == "train-fit":
        pixels = pixels[:cut]
    elif split == "validation":
        pixels = pixels[cut:]
    if len(pixels) == 0:
        raise DataError(f"{shown}: no {split} images; at least two training images are needed")
    return ImageSet(torch.from_numpy(pixels), shown, split)


def _find_loader(name: str | os.PathLike[str], dimensions: int | None, skip_bad: bool) -> tuple[_Loader, str]:
    known = {2: _LOADERS[2], 3: _LOADERS[3], None: _LOADERS[2] | _LOADERS[3]}[dimensions]
    if isinstance(name, str) and name in known:
        return known[name], name
    path = Path(name)
    if _is_folder(path):
        load = folder.load_volumes if dimensions == 3 else folder.load
        return lambda **options: load(path, skip_bad=skip_bad, **options), printable_path(path)
    where = ", or a directory of volumes, for a task in space" if dimensions == 3 else ", or a directory"
    raise ValueError(f"images must be one of {', '.join(known)}{where}, got {printable_path(name)!r}")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long, or with characters that no path can have
        return False
