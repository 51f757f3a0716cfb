"""A volume as it is compared: float32, values about 0 to 1, of a size that fits, and which voxels count."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet.geometry import Matrix
from caunet.volumes.pyramid import Level, halve
from caunet.volumes.read import read_volume
from caunet.volumes.volume import Volume

__all__ = ["extent", "is_blank", "prepare", "read_volume_mask"]

MOST = 12_000_000
"""Voxels that are compared at most; a larger volume is halved first, along its finest axis."""

_SLAB = 4_000_000  # voxels that are converted at once
_SAMPLES = 200_000  # voxels from which the range of values is taken
_RANGE = (0.005, 0.995)  # quantiles that become 0 and 1
_BEYOND = 1.0  # how far outside of 0..1 a value may lie
_SMALLEST = (
    1e-20  # largest value of a volume below which squares in float32 lose digits; likewise 1 / _SMALLEST
)
_FLAT = 1e-6  # spread of values, as a share of their size, below which there is nothing to see


def read_volume_mask(value: Any, volume: Volume, name: str) -> npt.NDArray[np.bool_] | None:
    """Which voxels count (D, H, W): what is not zero in an array, a tensor or a file of the same size."""
    if value is None:
        return None
    size = tuple(getattr(value, "shape", volume.size))  # of an array, which may be too small for a volume
    mask = read_volume(value, name) if size == volume.size else None
    if mask is None or mask.size != volume.size:
        got = size if mask is None else mask.size
        raise ValueError(f"{name} must have the size of its volume, {volume.size}, got {got}")
    if mask.values.dtype.kind == "f" and not np.isfinite(mask.values).all():
        raise ValueError(f"{name} must hold finite numbers, got some that are not")
    counts = np.asarray(mask.values != 0)
    if not counts.any():
        raise ValueError(f"{name} must have voxels that count, got none")
    return counts


def prepare(volume: Volume, mask: npt.NDArray[np.bool_] | None, device: torch.device) -> Level:
    """The volume as the finest level of a pyramid. Memory beyond the volume itself is that of the level, and a slab."""
    times = _halvings(volume)
    values, counts = _converted(volume, mask, times, device)
    to_mm = volume.to_mm.copy()
    for axis, count in enumerate(times):
        to_mm[:3, 2 - axis] *= 2**count
    low, high = _range(values, counts)
    scale = 1 / (high - low) if high > low else 0.0
    values = values.sub_(low).mul_(scale).clamp_(-_BEYOND, 1 + _BEYOND)
    if counts is not None:
        values.mul_(counts > 0)
    return Level(values, to_mm, counts)


def is_blank(level: Level) -> bool:
    """Whether there is nothing to see: all values that count are the same."""
    values = level.values if level.mask is None else level.values[level.mask > 0]
    return values.numel() == 0 or float(values.max() - values.min()) < _FLAT


def _halvings(volume: Volume) -> tuple[int, int, int]:
    """How often each axis (z, y, x) is halved."""
    times, sides, lengths = [0, 0, 0], list(volume.size), list(volume.spacing[::-1])
    while sides[0] * sides[1] * sides[2] > MOST:
        axis = min(range(3), key=lambda k: (sides[k] < 16, lengths[k]))
        times[axis] += 1
        sides[axis], lengths[axis] = (sides[axis] + 1) // 2, lengths[axis] * 2
    return times[0], times[1], times[2]


def _converted(
    volume: Volume, mask: npt.NDArray[np.bool_] | None, times: tuple[int, int, int], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Values and shares that count, float32, halved within slabs of slices, then across them."""
    depth, height, width = volume.size
    step = max(_SLAB // (height * width), 1)
    floats = volume.values.dtype.kind == "f"
    factor = _into_range(volume.values)
    parts: list[Tensor] = []
    shares: list[Tensor | None] = []
    for top in range(0, depth, step):
        slab = np.asarray(volume.values[top : top + step])
        slab = (slab if factor == 1.0 else slab * factor).astype(np.float32)
        if volume.slope != 1.0 or volume.intercept != 0.0:
            slab = slab * np.float32(volume.slope) + np.float32(volume.intercept * factor)
        counts = None if mask is None else mask[top : top + step]
        if floats and not (finite := np.isfinite(slab)).all():
            counts = finite if counts is None else counts & finite
            slab = np.where(finite, slab, np.float32(0))
        part = torch.from_numpy(slab).to(device)
        share = None if counts is None else torch.from_numpy(counts.astype(np.float32)).to(device)
        parts.append(_halved(part, share, times, (1, 2)))
        shares.append(None if share is None else _halved(share, None, times, (1, 2)))
    values = torch.cat(parts)
    if all(share is None for share in shares):
        del parts
        return _halved(values, None, times, (0,)), None
    whole = [torch.ones_like(part) if one is None else one for part, one in zip(parts, shares, strict=True)]
    share = torch.cat(whole)
    return _halved(values, share, times, (0,)), _halved(share, None, times, (0,))


def _into_range(values: npt.NDArray[Any]) -> float:
    """What values must be multiplied by, so that float32 can hold them: 1 but for very large and very small ones."""
    if values.dtype.kind != "f" or values.dtype.itemsize < 8:
        return 1.0
    slices = (np.abs(plane[np.isfinite(plane)]).max(initial=0.0) for plane in values)
    largest = float(max(slices))
    return 1.0 if largest == 0.0 or _SMALLEST < largest < 1 / _SMALLEST else 1.0 / largest


def _halved(
    values: Tensor, share: Tensor | None, times: tuple[int, int, int], axes: tuple[int, ...]
) -> Tensor:
    """``values`` halved along ``axes``; what does not count does not leak into what does."""
    for axis in axes:
        for _ in range(times[axis]):
            if share is None:
                values = halve(values, axis)
            else:
                both = halve(values * share, axis)
                share = halve(share, axis)
                values = both / share.clamp_min(1e-3)
    return values


def _range(values: Tensor, counts: Tensor | None) -> tuple[float, float]:
    """The values that become 0 and 1."""
    seen = (values if counts is None else values[counts > 0.5]).reshape(-1)
    if seen.numel() == 0:
        return 0.0, 0.0
    sample = seen[:: max(seen.numel() // _SAMPLES, 1)].double()
    quantiles = torch.tensor(_RANGE, dtype=torch.float64, device=sample.device)
    low, high = torch.quantile(sample, quantiles).tolist()
    size = max(abs(low), abs(high), 1e-30)
    if high - low <= _FLAT * size:
        low, high = float(seen.min()), float(seen.max())
        if high - low <= _FLAT * max(abs(low), abs(high), 1e-30):
            return low, low
    return low, high


def extent(level: Level) -> Matrix:
    """(3,): the lengths of a level along x, y, z in millimeters."""
    return np.array(level.size[::-1]) * level.spacing
