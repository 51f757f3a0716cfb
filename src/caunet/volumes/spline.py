"""Cubic splines through the voxels of a volume: what lies between voxels, without the blur of a linear reading.

A linear reading blurs by an amount that depends on where between voxels it is, which pulls answers by hundredths of a
voxel. A spline of a volume sampled finely enough has nearly no such error (Thevenaz, Blu and Unser, 2000).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

__all__ = ["read_spline", "spline_coefficients"]

_POLE = math.sqrt(3.0) - 2.0  # of the cubic spline's filter
_HORIZON = 16  # voxels after which what a voxel adds is below the precision of float32


def spline_coefficients(values: Tensor) -> Tensor:
    """Coefficients of the cubic B-splines through ``values`` (D, H, W); beyond its faces the volume is mirrored.

    >>> spline_coefficients(torch.ones(4, 5, 6)).allclose(torch.ones(4, 5, 6))
    True
    """
    for axis in range(values.ndim):
        if values.shape[axis] > 1:
            line = values.movedim(axis, 0).clone(memory_format=torch.contiguous_format)
            values = _filtered(line).movedim(0, axis)
    return values.contiguous()


def _filtered(line: Tensor) -> Tensor:
    """Along the first axis, in place: forwards, then backwards."""
    count = len(line)
    period = 2 * count - 2
    mirrored = [min(k % period, period - k % period) for k in range(_HORIZON)]
    line[0] = sum(_POLE**k * line[place] for k, place in enumerate(mirrored))
    for k in range(1, count):
        line[k].add_(line[k - 1], alpha=_POLE)
    line[-1] = (line[-1] + _POLE * line[-2]) * (_POLE / (_POLE * _POLE - 1))
    for k in range(count - 2, -1, -1):
        torch.sub(line[k + 1], line[k], out=line[k]).mul_(_POLE)
    return line.mul_(6.0)


def read_spline(coefficients: Tensor, places: Tensor) -> Tensor:
    """Values at ``places`` (..., 3), voxels (x, y, z), of the spline with ``coefficients`` (D, H, W).

    Along an axis, the weighted sum of four coefficients is that of two linear readings (Sigg and Hadwiger, 2005), so
    eight readings of torch's kernel give the 64 terms.
    """
    base = places.floor()
    t = places - base
    cubes = (1 - t).pow(3) / 6, 2 / 3 - t.square() * (2 - t) / 2
    first = (
        cubes[0] + cubes[1]
    )  # the weight of the two coefficients on the left; those on the right have the rest
    left = base - 1 + cubes[1] / first
    right = base + 1 + t.pow(3) / 6 / (1 - first)
    scale = places.new_tensor([2 / max(side - 1, 1) for side in coefficients.shape[::-1]])
    left, right = left * scale - 1, right * scale - 1
    count = math.prod(places.shape[:-1])
    total = places.new_zeros(places.shape[:-1])
    for corner in range(8):
        on_right = torch.tensor([bool(corner >> axis & 1) for axis in range(3)], device=places.device)
        grid = torch.where(on_right, right, left)
        weight = torch.where(on_right, 1 - first, first).prod(-1)
        read = grid_sample(
            coefficients[None, None],
            grid.view(1, 1, 1, count, 3),
            mode="bilinear",
            padding_mode="reflection",
            align_corners=True,
        )
        total = total.addcmul_(weight, read.view(total.shape))
    return total
