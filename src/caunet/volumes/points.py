"""Places of a volume that are compared with another: blocks of voxels with texture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool3d, grid_sample

from caunet.geometry import Matrix
from caunet.volumes.pyramid import Level
from caunet.volumes.spline import read_spline

__all__ = ["Points", "at_voxels", "choose_points", "places", "read_gradient", "read_level"]

_BLOCK = 4  # side of the blocks that are chosen as one
_SLAB = 16  # slices whose gradients are computed at once, a multiple of _BLOCK
_FAINT = 1e-3  # share of the mean squared gradient below which a block shows nothing
_CHANGES = 0.1  # and from which a voxel does
_COUNTS = 0.5  # share of a voxel that must count
_WHOLE = 0.99  # share of a place between voxels that must count


@dataclass(frozen=True)
class Points:
    """Voxels of a level, its values there and how they change."""

    voxels: Tensor
    """(N, 3): x, y, z, whole numbers, float32."""
    values: Tensor
    """(N,)."""
    gradient: Tensor
    """(N, 3): change per millimeter."""
    to_mm: Matrix
    """(4, 4): voxels to millimeters."""

    @cached_property
    def textured(self) -> Tensor:
        """(N,), float: 1 where the values change, 0 in the background."""
        change = self.gradient.square().sum(1)
        return (change > _CHANGES * change.mean()).to(self.values.dtype)

    def __len__(self) -> int:
        return len(self.voxels)


def choose_points(level: Level, count: int) -> Points:
    """At most about ``count`` voxels, in blocks: those whose values change most; all that count if there are few."""
    counts = None if level.mask is None else level.mask > _COUNTS
    if level.values.numel() <= count:
        place = torch.arange(level.values.numel(), device=level.values.device)
        if counts is not None:
            place = place[counts.reshape(-1)]
        return _points(level, place)
    blocks = _texture(level, counts)
    flat = blocks.reshape(-1)
    order = flat.argsort(descending=True, stable=True)[: max(count // _BLOCK**3, 1)]
    order = order[flat[order] > _FAINT * flat.mean()].sort().values
    return _points(level, _voxels_of(order, blocks.shape, level.values.shape, counts))


def _texture(level: Level, counts: Tensor | None) -> Tensor:
    """The mean squared gradient of each block, where voxels count; by slabs: gradients take three times a volume."""
    depth, parts = len(level.values), []
    for top in range(0, max(depth - _BLOCK + 1, 1), _SLAB):
        first, end = max(top - 1, 0), top + _SLAB
        if depth - end < _BLOCK:  # what is left is less than a block
            end = depth
        slab = Level(level.values[first : end + 1], level.to_mm)  # and a slice on either side
        texture = slab.gradient[:, top - first : end - first].square().sum(0)
        if counts is not None:
            texture = texture * counts[top:end]
        parts.append(avg_pool3d(texture[None, None], _BLOCK, ceil_mode=True)[0, 0])
    return torch.cat(parts)


def _voxels_of(order: Tensor, blocks: torch.Size, size: torch.Size, counts: Tensor | None) -> Tensor:
    """Flat indices of the voxels in the blocks of flat indices ``order``."""
    line = torch.arange(_BLOCK, device=order.device)
    z = order // (blocks[1] * blocks[2]) * _BLOCK
    y = order // blocks[2] % blocks[1] * _BLOCK
    x = order % blocks[2] * _BLOCK
    zs, ys, xs = z[:, None] + line, y[:, None] + line, x[:, None] + line  # (K, 4)
    inside = (
        (zs < size[0])[:, :, None, None] & (ys < size[1])[:, None, :, None] & (xs < size[2])[:, None, None]
    )
    place = zs[:, :, None, None] * (size[1] * size[2]) + ys[:, None, :, None] * size[2] + xs[:, None, None]
    place = place[inside]
    return place if counts is None else place[counts.reshape(-1)[place]]


def _points(level: Level, place: Tensor) -> Points:
    _, height, width = level.values.shape
    voxels = torch.stack([place % width, place // width % height, place // (width * height)], 1)
    values = level.values.reshape(-1)
    return Points(voxels.to(values.dtype), values[place], _gradient_at(level, voxels, place), level.to_mm)


def _gradient_at(level: Level, voxels: Tensor, place: Tensor) -> Tensor:
    """(N, 3): the gradient of a level at ``voxels`` (N, 3), whose flat indices are ``place``."""
    values = level.values.reshape(-1)
    changes, step = [], 1
    for axis, length in enumerate(level.values.shape[::-1]):  # x, y, z
        inner = (voxels[:, axis] > 0) & (voxels[:, axis] < length - 1)
        reach = inner * step
        changes.append(values[place + reach] - values[place - reach])
        step *= length
    slopes = torch.from_numpy(level.from_mm[:3, :3] * 0.5).to(values)
    return torch.stack(changes, 1) @ slopes


def at_voxels(level: Level, voxels: Tensor) -> Tensor:
    """Values (N,) of a level at whole ``voxels`` (N, 3)."""
    x, y, z = voxels.long().unbind(1)
    return level.values[z, y, x]


def places(voxels: Tensor, M: Matrix) -> Tensor:
    """(K, N, 3): M ``voxels`` (N, 3) for matrices M (K, 4, 4) without perspective."""
    rows = torch.from_numpy(M[:, :3].copy()).to(voxels)
    return torch.baddbmm(rows[:, None, :, 3], voxels.expand(len(M), -1, 3), rows[..., :3].mT)


def read_level(
    level: Level, voxels: Tensor, M: Matrix, offsets: Matrix | None = None
) -> tuple[Tensor, Tensor]:
    """Values (K, N) of a level at M ``voxels`` (N, 3), for K matrices M (K, 4, 4), and which of them count (K, N).

    Linear, or by splines if the level is one; a place that is outside, or not wholly in the mask, does not count. With
    ``offsets`` (P, 3), the mean over them, in the voxels that are read for.
    """
    total, counts = None, None
    for one in _shifted(M, offsets):
        grid = _grid(level, voxels, one)
        inside = grid.abs().amax(-1) <= 1
        values = _splined(level, voxels, one) if level.spline else _read(level.values[None], grid)[0]
        if level.mask is not None:
            inside &= _read(level.mask[None], grid)[0] > _WHOLE
        total = values if total is None else total.add_(values)
        counts = inside if counts is None else counts & inside
    assert total is not None
    assert counts is not None
    return total if offsets is None else total / len(offsets), counts.to(total.dtype)


def read_gradient(level: Level, voxels: Tensor, M: Matrix, offsets: Matrix | None = None) -> Tensor:
    """(K, N, 3): as `read_level`, the change of the level per millimeter instead of its values."""
    parts = [_read(level.gradient, _grid(level, voxels, one)) for one in _shifted(M, offsets)]
    return torch.stack(parts).mean(0).movedim(0, -1)


def _shifted(M: Matrix, offsets: Matrix | None) -> list[Matrix]:
    """M (K, 4, 4) after a shift by each of the ``offsets``."""
    if offsets is None:
        return [M]
    moved = []
    for offset in offsets:
        one = M.copy()
        one[:, :3, 3] += M[:, :3, :3] @ offset
        moved.append(one)
    return moved


def _grid(level: Level, voxels: Tensor, M: Matrix) -> Tensor:
    """(K, N, 3): M ``voxels`` as torch's kernel for grids counts, from -1 to 1."""
    sides = np.maximum(np.array(level.size[::-1]) - 1, 1)
    normal = M.copy()
    normal[:, :3] *= (2 / sides)[:, None]
    normal[:, :3, 3] -= 1
    return places(voxels, normal)


def _splined(level: Level, voxels: Tensor, M: Matrix) -> Tensor:
    return read_spline(level.values, places(voxels, M))


def _read(values: Tensor, grid: Tensor) -> Tensor:
    """(C, K, N): values (C, D, H, W) at the places of a grid (K, N, 3)."""
    count = math.prod(grid.shape[:-1])
    read = grid_sample(
        values[None],
        grid.view(1, 1, 1, count, 3),
        mode="bilinear",
        padding_mode="border",
        align_corners=True,
    )
    return read.view(len(values), *grid.shape[:-1])
