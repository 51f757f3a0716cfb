"""A transform of space in the terms of other programs, and as files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from caunet import geometry
from caunet.extras import require
from caunet.files import write_text
from caunet.geometry import Matrix

if TYPE_CHECKING:
    from caunet.volumes.result import VolumeEstimate

__all__ = ["check_transform_path", "fsl_matrix", "itk_text", "itk_transform", "save"]

Grid = tuple[Matrix, tuple[int, int, int]]
"""Voxels to millimeters in RAS (4, 4), and (depth, height, width)."""
_SUFFIXES = (".tfm", ".txt", ".mat", ".json")


def itk_transform(T: Matrix) -> Any:
    """A SimpleITK ``AffineTransform`` of T (4, 4), millimeters in LPS."""
    sitk = require("SimpleITK", "volumes", "to_itk")
    transform = sitk.AffineTransform(3)
    transform.SetMatrix(T[:3, :3].ravel().tolist())
    transform.SetTranslation(T[:3, 3].tolist())
    return transform


def itk_text(T: Matrix) -> str:
    """The text of an ITK transform file (.tfm) of T (4, 4), millimeters in LPS.

    >>> print(itk_text(np.eye(4)).splitlines()[3])
    Parameters: 1 0 0 0 1 0 0 0 1 0 0 0
    """
    numbers = [*T[:3, :3].ravel().tolist(), *T[:3, 3].tolist()]
    return (
        "#Insight Transform File V1.0\n#Transform 0\nTransform: AffineTransform_double_3_3\n"
        f"Parameters: {' '.join(f'{value:.17g}' for value in numbers)}\nFixedParameters: 0 0 0\n"
    )


def fsl_matrix(M: Matrix, a: Grid, b: Grid) -> Matrix:
    """(4, 4): see :meth:`caunet.VolumeEstimate.to_fsl`; M (4, 4) takes voxels of a to voxels of b."""
    return _fsl_voxels(*a) @ geometry.invert(M) @ geometry.invert(_fsl_voxels(*b))


def _fsl_voxels(affine: Matrix, size: tuple[int, int, int]) -> Matrix:
    """(4, 4): voxels to FSL's coordinates."""
    spacing = np.sqrt(np.square(affine[:3, :3]).sum(0))
    F = np.diag([*spacing, 1.0])
    if np.linalg.det(affine[:3, :3]) > 0:
        F[0, 0], F[0, 3] = -spacing[0], spacing[0] * (size[2] - 1)
    return F


def check_transform_path(path: str | os.PathLike[str], name: str) -> None:
    """Refuse a path whose suffix says no kind of transform."""
    if Path(path).suffix.lower() not in _SUFFIXES:
        raise ValueError(f"{name} must end with one of {', '.join(_SUFFIXES)}, got {os.fspath(path)!r}")


def save(found: VolumeEstimate, path: str | os.PathLike[str]) -> None:
    """Write the transform of an estimate in the format that the suffix says."""
    check_transform_path(path, "path")
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        text = json.dumps(found.to_json(), indent=2, allow_nan=False) + "\n"
    elif suffix == ".mat":
        text = "\n".join("  ".join(f"{value:.12g}" for value in row) for row in found.to_fsl()) + "\n"
    else:
        text = itk_text(found.in_space("LPS"))
    write_text(path, text)
