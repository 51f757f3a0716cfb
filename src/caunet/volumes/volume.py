"""A volume: numbers on a grid, and where in the room the grid lies.

Arrays are indexed [z, y, x]; points are (x, y, z), in voxels or in millimeters. Millimeters are counted in one of two
ways: in **LPS** (ITK, DICOM) x grows to the patient's left, y to the back (posterior) and z to the head (superior); in
**RAS** (NIfTI, FreeSurfer) x grows to the right, y to the front (anterior), z to the head. One is the other turned half
around z. Inside, everything counts in LPS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from caunet import geometry
from caunet.geometry import Matrix
from caunet.sizes import size_text

__all__ = ["SPACES", "Space", "Volume", "between_spaces", "checked_affine", "grid_affine"]

Space = Literal["LPS", "RAS"]
"""Which way millimeters are counted; see the top of this module."""
SPACES: tuple[Space, ...] = get_args(Space)

_FLIP = np.diag([-1.0, -1.0, 1.0, 1.0])
_LEAST = 1e-6  # millimeters: no voxel is shorter
_MOST = 1e6  # nor longer


@dataclass(frozen=True, eq=False)
class Volume:
    """Values (D, H, W) as they came, and where they lie.

    >>> Volume(np.zeros((3, 4, 5), np.int16), np.diag([1.0, 1.0, 4.0, 1.0]))
    Volume(depth 3, height 4, width 5, voxels of 1 x 1 x 4 mm (x, y, z), int16)
    """

    values: npt.NDArray[Any]
    to_mm: Matrix
    """(4, 4): voxels (x, y, z) to millimeters, LPS."""
    space: Space = "LPS"
    """How its file or its owner counts millimeters."""
    slope: float = 1.0
    """What a stored number is multiplied by ..."""
    intercept: float = 0.0
    """... and what is added to it, to have a value."""

    @property
    def size(self) -> tuple[int, int, int]:
        """(depth, height, width)."""
        depth, height, width = self.values.shape
        return depth, height, width

    @property
    def spacing(self) -> tuple[float, float, float]:
        """The length of a voxel along x, y and z, in millimeters."""
        x, y, z = np.sqrt(np.square(self.to_mm[:3, :3]).sum(0)).tolist()
        return x, y, z

    @property
    def affine(self) -> Matrix:
        """(4, 4): voxels (x, y, z) to millimeters of its own ``space``."""
        return between_spaces(self.to_mm, "LPS", self.space)

    def __repr__(self) -> str:
        spacing = " x ".join(f"{length:g}" for length in self.spacing)
        return f"Volume({size_text(self.size)}, voxels of {spacing} mm (x, y, z), {self.values.dtype})"


def between_spaces(to_mm: Matrix, given: Space, wanted: Space) -> Matrix:
    """A matrix (4, 4) that ends in millimeters of one space as one that ends in those of the other.

    >>> between_spaces(np.eye(4), "RAS", "LPS").diagonal()
    array([-1., -1.,  1.,  1.])
    """
    return to_mm if given == wanted else _FLIP @ to_mm


def grid_affine(spacing: Any, name: str) -> Matrix:
    """(4, 4) for voxels of a ``spacing`` (x, y, z) in millimeters, or of one number for all three."""
    try:
        lengths = np.broadcast_to(np.asarray(spacing, dtype=np.float64), (3,))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be one length in mm or three, for x, y and z, got {spacing!r}"
        ) from error
    if not np.isfinite(lengths).all() or lengths.min() < _LEAST or lengths.max() > _MOST:
        raise ValueError(f"{name} must be lengths from {_LEAST:g} to {_MOST:g} mm, got {spacing!r}")
    return np.diag([*lengths, 1.0])


def checked_affine(affine: Any, name: str) -> Matrix:
    """(4, 4) from voxels to millimeters: finite, invertible, without perspective, of sizes that can be."""
    try:
        matrix = np.array(affine, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a matrix (4, 4) of numbers, got {affine!r}") from error
    if matrix.shape != (4, 4):
        raise ValueError(f"{name} must be a matrix (4, 4), got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must hold finite numbers, got some that are not")
    if np.abs(matrix[3] - [0, 0, 0, 1]).max() > 1e-9:
        raise ValueError(f"{name} must have the last row 0 0 0 1, got {matrix[3].tolist()}")
    lengths = np.sqrt(np.square(matrix[:3, :3]).sum(0))
    if lengths.min() < _LEAST or lengths.max() > _MOST:
        raise ValueError(
            f"{name} must have voxels from {_LEAST:g} to {_MOST:g} mm long, got {lengths.tolist()}"
        )
    if abs(np.linalg.det(matrix[:3, :3] / lengths)) < 1e-4:
        raise ValueError(f"{name} must be invertible, got a singular matrix")
    geometry.check(matrix, name)
    return matrix
