"""Two volumes as the page shows them: bytes on one grid of cubes, upright, as a mosaic of slices in a PNG."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.geometry import Matrix
from caunet.volumes import Volume
from caunet.web.pictures import png

__all__ = ["LONGEST", "Grid", "grid_of", "mosaic", "on_grid"]

LONGEST = 128
"""Voxels along the longest side of what is shown."""
_RANGE = (0.005, 0.995)  # quantiles that become black and white
_SAMPLES = 200_000


class Grid(NamedTuple):
    """A grid of cubes, whose axes are those of the room: to the left, to the back, to the head (LPS)."""

    to_mm: Matrix
    """(4, 4): its voxels (x, y, z) to millimeters, LPS."""
    size: tuple[int, int, int]
    """(depth, height, width)."""

    @property
    def spacing(self) -> float:
        """The length of a voxel in millimeters."""
        return float(self.to_mm[0, 0])

    @property
    def columns(self) -> int:
        """Slices beside each other in a mosaic."""
        return math.ceil(math.sqrt(self.size[0]))


def grid_of(volume: Volume, longest: int = LONGEST) -> Grid:
    """The smallest grid that holds all of ``volume``, no finer than its finest axis.

    >>> thick = Volume(np.zeros((10, 40, 40), np.uint8), np.diag([1.0, 1.0, 4.0, 1.0]))
    >>> grid_of(thick).size, grid_of(thick, longest=20).spacing
    ((40, 40, 40), 2.0)
    """
    edges = geometry.corners(volume.size, like=volume.to_mm)
    edges = np.where(edges > 0, edges + 0.5, -0.5)  # from the centers of the voxels to their outsides
    ends = geometry.apply(volume.to_mm, edges)
    low, extent = ends.min(0), ends.max(0) - ends.min(0)
    spacing = max(float(extent.max()) / longest, min(volume.spacing))
    width, height, depth = (max(1, round(float(length) / spacing)) for length in extent)
    to_mm = np.diag([spacing, spacing, spacing, 1.0])
    to_mm[:3, 3] = low + spacing / 2
    return Grid(to_mm, (depth, height, width))


def on_grid(volume: Volume, grid: Grid, T: Matrix) -> Tensor:
    """(D, H, W) of 0..1: ``volume`` read at T p for every place p of ``grid``; T (4, 4) in millimeters (LPS)."""
    values, to_mm = _reduced(volume, grid.spacing)
    M = geometry.invert(to_mm) @ T @ grid.to_mm
    low, high = _range(values)
    unit = ((values - low) / (high - low if high > low else 1.0)).clamp_(0, 1)
    return geometry.warp(unit[None], geometry.invert(torch.from_numpy(M)), grid.size)[0]


def mosaic(shown: Tensor, grid: Grid) -> str:
    """Slices (D, H, W) side by side, row by row, as a PNG in base64."""
    depth, height, width = grid.size
    columns = grid.columns
    rows = math.ceil(depth / columns)
    tiles = torch.zeros(rows * columns, height, width)
    tiles[:depth] = shown
    return png(
        tiles.reshape(rows, columns, height, width).transpose(1, 2).reshape(rows * height, columns * width)
    )


def _reduced(volume: Volume, spacing: float) -> tuple[Tensor, Matrix]:
    """Values as float32, averaged along axes that are finer than what is shown, and where their voxels lie."""
    stored: np.ndarray[Any, Any] = np.asarray(volume.values, np.float32)
    values = torch.from_numpy(stored * np.float32(volume.slope) + np.float32(volume.intercept))
    values = values.nan_to_num_(0.0, 0.0, 0.0)
    factors = [
        min(max(1, math.floor(spacing / length + 1e-6)), side)
        for length, side in zip(volume.spacing, volume.size[::-1], strict=True)
    ]
    x, y, z = factors
    if factors != [1, 1, 1]:
        values = torch.nn.functional.avg_pool3d(values[None, None], (z, y, x))[0, 0]
    to_voxels = np.diag([x, y, z, 1.0])
    to_voxels[:3, 3] = [(factor - 1) / 2 for factor in factors]
    return values, volume.to_mm @ to_voxels


def _range(values: Tensor) -> tuple[float, float]:
    """The values that become black and white."""
    flat = values.reshape(-1)
    sample = flat[:: max(1, flat.numel() // _SAMPLES)]
    low, high = torch.quantile(sample, torch.tensor(_RANGE)).tolist()
    return (low, high) if high > low else (float(flat.min()), float(flat.max()))
