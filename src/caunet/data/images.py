"""Gray images by name: one call for the embedded photographs, for CIFAR-10 and for a folder of your own.

>>> images = load_images("photos", split="test")
>>> images.pixels.dtype, tuple(images.pixels.shape[1:])
(torch.uint8, (32, 32))
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

from caunet.data import cifar10, folder, photos
from caunet.errors import DataError
from caunet.files import printable_path

__all__ = ["SPLITS", "ImageSet", "fingerprint", "load_images"]

SPLITS = ("train", "test", "validation", "train-fit")

# A loader takes ``training`` and its own options. It returns the pixels (N, H, W) and where, among the
# training images, the validation images begin.
_LOADERS: dict[str, Callable[..., tuple[npt.NDArray[np.uint8], int]]] = {
    "photos": photos.load,
    "cifar10": cifar10.load,
}


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Gray images of one size.

    ``pixels``: uint8 tensor (N, H, W), possibly mapped from a file; ``name`` and ``split``: what
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
    name: str | os.PathLike[str], split: str = "train", *, skip_bad: bool = False, **options: Any
) -> ImageSet:
    """The images called ``name``: ``"photos"``, ``"cifar10"``, or the path of a directory of images.

    ``split``: ``"train"``, ``"test"``, or the two parts of the training images, ``"train-fit"`` (about the
    first 90 %) and ``"validation"`` (the rest; a photograph is never in both). ``skip_bad`` leaves out files
    and folders of a directory that cannot be read. ``options`` go to the source: ``tile``,
    ``stride`` and ``scales`` for photos and directories.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    loader, shown = _find_loader(name, skip_bad)
    pixels, cut = loader(training=split != "test", **options)
    if split == "train-fit":
        pixels = pixels[:cut]
    elif split == "validation":
        pixels = pixels[cut:]
    if len(pixels) == 0:
        raise DataError(f"{shown}: no {split} images; at least two training images are needed")
    return ImageSet(torch.from_numpy(pixels), shown, split)


def _find_loader(
    name: str | os.PathLike[str], skip_bad: bool
) -> tuple[Callable[..., tuple[npt.NDArray[np.uint8], int]], str]:
    if isinstance(name, str) and name in _LOADERS:
        return _LOADERS[name], name
    path = Path(name)
    if _is_folder(path):
        return lambda **options: folder.load(path, skip_bad=skip_bad, **options), printable_path(path)
    known = ", ".join(_LOADERS)
    raise ValueError(f"images must be one of {known}, or a directory, got {printable_path(name)!r}")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long, or with characters that no path can have
        return False
