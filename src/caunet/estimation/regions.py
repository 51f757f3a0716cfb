"""The part of an image that is to be compared."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from caunet.geometry import Matrix
from caunet.images import MIN_SIDE, LoadedImage
from caunet.sizes import size_text

__all__ = ["Part", "part_of"]


class Part(NamedTuple):
    """Gray values (H, W), which of them count, and where they come from."""

    gray: Tensor
    mask: Tensor | None
    into: Matrix
    """(3, 3): pixels of the image to pixels of the part, a shift."""
    cropped: bool

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.gray.shape[0], self.gray.shape[1]


def part_of(image: LoadedImage, mask: Tensor | None, region: Any, argument: str, *, crop: bool) -> Part:
    """The ``region`` (x, y, width, height) of an image; all of it if there is none.

    With ``crop`` it is cut out; otherwise the image stays as it is, and what lies outside of the region is masked.
    """
    if region is None:
        return Part(image.gray, mask, np.eye(3), False)
    x, y, width, height = _checked(region, image.size, argument)
    box = (slice(y, y + height), slice(x, x + width))
    if mask is not None and not bool(mask[box].any()):
        raise ValueError(f"{argument} must hold pixels that count, got {region!r}, in which all are masked")
    if not crop:
        within = torch.zeros(image.size, dtype=torch.bool, device=image.gray.device)
        within[box] = True
        return Part(image.gray, within if mask is None else within & mask, np.eye(3), False)
    into = np.array([[1.0, 0, -x], [0, 1, -y], [0, 0, 1]])
    cut = None if mask is None else mask[box].contiguous()
    return Part(image.gray[box].contiguous(), cut, into, True)


def _checked(region: Any, size: tuple[int, int], argument: str) -> tuple[int, int, int, int]:
    what = f"{argument} must be (x, y, width, height) in whole pixels"
    values = region.tolist() if isinstance(region, np.ndarray | Tensor) else region
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or len(values) != 4:
        raise ValueError(f"{what}, got {region!r}")
    if any(isinstance(v, bool) or not isinstance(v, int | np.integer) for v in values):
        raise ValueError(f"{what}, got {region!r}")
    x, y, width, height = (int(value) for value in values)
    if min(width, height) < MIN_SIDE:
        raise ValueError(f"{what}, of at least {MIN_SIDE} x {MIN_SIDE}, got {region!r}")
    if x < 0 or y < 0 or x + width > size[1] or y + height > size[0]:
        raise ValueError(f"{what} within the image of {size_text(size)}, got {region!r}")
    return x, y, width, height
