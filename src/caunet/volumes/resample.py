"""Resample one volume onto another's grid; an array or a tensor comes back as what it was."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.resample import in_dtype
from caunet.geometry import Matrix
from caunet.geometry.sampling import VOLUME_MODES, VolumeMode
from caunet.volumes.read import read_volume
from caunet.volumes.volume import Space, Volume

__all__ = ["resample_volume"]

_BAND = 1 << 21  # voxels that are resampled at a time: bounds the memory


def resample_volume(
    b: Any,
    M: Matrix,
    size: tuple[int, int, int],
    expected: tuple[int, int, int],
    mode: VolumeMode,
    fill: float,
    grid: tuple[Matrix, Space],
) -> Any:
    """``b`` read at M p (voxels) for every voxel p of a grid of ``size``, whose place in the room is ``grid``."""
    if mode not in VOLUME_MODES:
        raise ValueError(f"mode must be one of {', '.join(VOLUME_MODES)}, got {mode!r}")
    if isinstance(b, Tensor):
        if b.ndim != 3 or tuple(b.shape) != expected:
            raise ValueError(f"b must be the volume that was compared, {expected}, got {tuple(b.shape)}")
        return _resample(b, M, size, mode, fill)
    file = isinstance(b, str | os.PathLike | Volume)
    volume = read_volume(b, "b")
    if volume.size != expected:
        raise ValueError(f"b must be the volume that was compared, {expected}, got {volume.size}")
    stored = (fill - volume.intercept) / volume.slope if volume.slope else fill
    values: npt.NDArray[Any] = _resample(_tensor(volume.values), M, size, mode, stored).numpy()
    values = values.astype(volume.values.dtype, copy=False)
    return Volume(values, *grid, volume.slope, volume.intercept) if file else values


def _tensor(values: npt.NDArray[Any]) -> Tensor:
    native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    return torch.from_numpy(native if native.flags.writeable else native.copy())


def _resample(b: Tensor, M: Matrix, size: tuple[int, int, int], mode: VolumeMode, fill: float) -> Tensor:
    if not math.isfinite(fill) and not (math.isnan(fill) and b.is_floating_point()):
        raise ValueError(f"fill must be finite, or NaN for a volume of floats, got {fill}")
    wide = b if b.is_floating_point() and b.dtype.itemsize >= 4 else b.to(_working(b.dtype))
    back = geometry.invert(torch.from_numpy(M)).to(b.device)
    step = max(_BAND // (size[1] * size[2]), 1)
    ones = (
        torch.ones(1, *b.shape, dtype=wide.dtype, device=b.device).expand(1, *b.shape)
        if math.isnan(fill)
        else None
    )
    slabs = []
    for top in range(0, size[0], step):
        part = (min(step, size[0] - top), size[1], size[2])
        origin = (0.0, 0.0, float(top))
        slab = geometry.warp(wide[None], back, part, mode, 0.0 if ones is not None else fill, origin=origin)[
            0
        ]
        if ones is not None:
            share = geometry.warp(ones, back, part, mode, origin=origin)[0]
            slab = torch.where((share - 1).abs() < 1e-4, slab, math.nan)
        slabs.append(in_dtype(slab, b.dtype))
    return torch.cat(slabs)


def _working(dtype: torch.dtype) -> torch.dtype:
    """float32 holds 16 bits exactly; wider whole numbers need more."""
    return torch.float32 if dtype.itemsize <= 2 else torch.float64
