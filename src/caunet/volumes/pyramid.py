"""A volume at several resolutions, each nearly isotropic in millimeters.

An axis is halved until its voxels are about as long as a level asks for; a thick axis is left as it is, never
interpolated. So a level is an array and the matrix of its voxels, and everything above counts in millimeters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.geometry import Matrix

__all__ = ["Level", "halve", "level_sizes", "levels", "smooth"]

_HALVE = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)  # Burt and Adelson's, centered on every second voxel
_LEAST = 5  # voxels that an axis keeps
_PART = 1 << 20  # voxels whose gradients are turned at once
_SPREAD = 2**0.5  # an axis is halved while its voxels are shorter than what is asked for by more than this
COARSEST = 14  # voxels along the mean side of the smaller volume at the coarsest level, about


@dataclass(frozen=True)
class Level:
    """Values (D, H, W), float32, and where their voxels lie."""

    values: Tensor
    to_mm: Matrix
    """(4, 4): voxels (x, y, z) to millimeters."""
    mask: Tensor | None = None
    """(D, H, W), float32: the share of a voxel that counts; all of it if None."""
    spline: bool = False
    """Whether the values are coefficients of cubic splines (`spline.py`) instead of what is seen at the voxels."""

    @cached_property
    def from_mm(self) -> Matrix:
        """(4, 4): millimeters to voxels."""
        return geometry.invert(self.to_mm)

    @cached_property
    def spacing(self) -> Matrix:
        """(3,): the length of a voxel along x, y, z in millimeters."""
        lengths: Matrix = np.sqrt(np.square(self.to_mm[:3, :3]).sum(0))
        return lengths

    @property
    def size(self) -> tuple[int, int, int]:
        """(depth, height, width)."""
        depth, height, width = self.values.shape
        return depth, height, width

    @cached_property
    def gradient(self) -> Tensor:
        """(3, D, H, W): change per millimeter along x, y, z of millimeters; 0 on the border."""
        change = self.values.new_zeros(3, *self.values.shape)
        for axis in range(3):
            length = self.values.shape[axis]
            if length > 2:
                inner = change[2 - axis].narrow(axis, 1, length - 2)
                inner += self.values.narrow(axis, 2, length - 2)
                inner -= self.values.narrow(axis, 0, length - 2)
        slopes = torch.from_numpy(self.from_mm[:3, :3].T * 0.5).to(change)
        flat = change.view(3, -1)
        for start in range(0, flat.shape[1], _PART):  # in place: it takes three times a volume as it is
            part = flat[:, start : start + _PART]
            part.copy_(slopes @ part)
        return change


def halve(values: Tensor, axis: int) -> Tensor:
    """Every second voxel along ``axis`` after a smoothing, the first one staying where it is.

    >>> halve(torch.arange(9.0).reshape(9, 1, 1), 0).flatten()
    tensor([0.3750, 2.0000, 4.0000, 6.0000, 7.6250])
    """
    length = values.shape[axis]
    count = (length + 1) // 2
    half = torch.zeros((), dtype=values.dtype, device=values.device)
    for tap, weight in zip(range(-2, 3), _HALVE, strict=True):
        half = half + weight * _every_second(values, axis, tap, count)
    return half


def _every_second(values: Tensor, axis: int, tap: int, count: int) -> Tensor:
    """Voxels tap, tap + 2, ...: ``count`` of them; beyond the volume its edge continues."""
    length = values.shape[axis]
    inside = [min(max(2 * k + tap, 0), length - 1) for k in range(count)]
    start = 1 if tap < 0 else 0
    stop = count
    while stop > start and 2 * (stop - 1) + tap > length - 1:
        stop -= 1
    if stop - start < 1:
        return values.index_select(axis, torch.tensor(inside, device=values.device))
    strided = values[(slice(None),) * axis + (slice(2 * start + tap, 2 * (stop - 1) + tap + 1, 2),)]
    parts = [strided]
    if start:
        parts.insert(0, values.narrow(axis, 0, 1))
    if stop < count:
        parts.append(values.narrow(axis, length - 1, 1).expand_as(values.narrow(axis, 0, count - stop)))
    return torch.cat(parts, axis) if len(parts) > 1 else strided


def smooth(values: Tensor, axis: int) -> Tensor:
    """(1, 2, 1) / 4 along ``axis``; beyond the volume its edge continues.

    >>> smooth(torch.tensor([0.0, 4.0, 0.0]).reshape(3, 1, 1), 0).flatten()
    tensor([1., 2., 1.])
    """
    length = values.shape[axis]
    if length < 2:
        return values
    total = values * 2
    total.narrow(axis, 1, length - 1).add_(values.narrow(axis, 0, length - 1))
    total.narrow(axis, 0, length - 1).add_(values.narrow(axis, 1, length - 1))
    total.narrow(axis, 0, 1).add_(values.narrow(axis, 0, 1))
    total.narrow(axis, length - 1, 1).add_(values.narrow(axis, length - 1, 1))
    return total.mul_(0.25)


def level_sizes(extents: list[Matrix], finest: float) -> list[float]:
    """The voxel sizes in millimeters that the levels ask for, coarsest first; ``extents`` (3,) are the volumes'.

    >>> level_sizes([np.array([200.0, 200.0, 200.0])], 2.0)
    [16.0, 8.0, 4.0, 2.0]
    """
    side = min(float(np.prod(extent) ** (1 / 3)) for extent in extents)
    sizes = [finest]
    while sizes[0] * _SPREAD < side / COARSEST:
        sizes.insert(0, sizes[0] * 2)
    return sizes


def levels(base: Level, sizes: list[float]) -> list[Level]:
    """One level for each of the ``sizes`` (millimeters, coarsest first), made from ``base``."""
    current, found = base, []
    for size in reversed(sizes):
        for axis in range(3):  # of the array: z, y, x
            while current.spacing[2 - axis] * _SPREAD < size and current.values.shape[axis] > 2 * _LEAST:
                current = _halved(current, axis)
        found.append(current)
    return found[::-1]


def _halved(level: Level, axis: int) -> Level:
    to_mm = level.to_mm.copy()
    to_mm[:3, 2 - axis] *= 2
    if level.mask is None:
        return Level(halve(level.values, axis), to_mm)
    mask = halve(level.mask, axis)
    # What does not count must not leak into what does.
    values = halve(level.values * level.mask, axis) / mask.clamp_min(1e-3)
    return Level(values, to_mm, mask)
