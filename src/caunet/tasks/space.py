"""The paper's tasks one dimension up, for patches of volumes; and `motion3`, with which whole volumes are aligned.

Points are (x, y, z), x along the rows of a slice, y down its columns, z through the slices. Shifts are in voxels and
smaller than in the plane, because patches are 7 voxels wide, not 11. Three angles are turns about the fixed axes x, y
and z, one after the other: H = R_z R_y R_x, which is ``Rotation.from_euler("xyz", ...)`` of SciPy. A positive angle
about z turns x towards y, about x it turns y towards z, about y it turns z towards x. They tell a rotation apart from
every other as long as the angle about y stays below 90 degrees.

>>> from caunet.tasks import get
>>> get("rigid3").describe()
'rigid3: angle_x in [-30, 30] degrees, ... shift_z in [-3, 3] voxels'
"""

from __future__ import annotations

import torch
from torch import Tensor

from caunet import geometry
from caunet.tasks.task import Task, entries, register

__all__ = ["SPACE"]

_DIAGONAL = ((0, 0), (1, 1), (2, 2))
_NINE = tuple((row, column) for row in range(3) for column in range(3))


def _build_translation(z: Tensor) -> Tensor:
    return geometry.translate(*z.unbind(-1))


def _read_translation(H: Tensor) -> Tensor:
    return entries(H, (0, 3), (1, 3), (2, 3))


def _build_rotation(z: Tensor) -> Tensor:
    turns = zip(z.unbind(-1), torch.eye(3).tolist(), strict=True)
    about_x, about_y, about_z = (geometry.rotate(angle, axis=axis) for angle, axis in turns)
    return geometry.compose(about_z, about_y, about_x)


def _read_rotation(H: Tensor) -> Tensor:
    # The last row is (-sin y, cos y sin x, cos y cos x), the first column (cos z cos y, sin z cos y, -sin y).
    about_x = torch.atan2(H[..., 2, 1], H[..., 2, 2])
    about_y = torch.atan2(-H[..., 2, 0], torch.hypot(H[..., 2, 1], H[..., 2, 2]))
    about_z = torch.atan2(H[..., 1, 0], H[..., 0, 0])
    return torch.stack([about_x, about_y, about_z], -1).rad2deg()


def _build_scaling(z: Tensor) -> Tensor:
    return geometry.scale(*z.unbind(-1))


def _read_scaling(H: Tensor) -> Tensor:
    return entries(H, *_DIAGONAL)


def _read_affine(H: Tensor) -> Tensor:
    return entries(H, *_NINE) - torch.eye(3, dtype=H.dtype, device=H.device).flatten()


def _build_rigid(z: Tensor) -> Tensor:
    return geometry.compose(_build_translation(z[..., 3:]), _build_rotation(z[..., :3]))


def _read_rigid(H: Tensor) -> Tensor:
    return torch.cat([_read_rotation(H), _read_translation(H)], -1)


def _build_motion(z: Tensor) -> Tensor:
    return geometry.compose(_build_translation(z[..., :3]), geometry.affine(z[..., 3:]))


def _read_motion(H: Tensor) -> Tensor:
    return torch.cat([_read_translation(H), _read_affine(H)], -1)


_SHIFTS = ("shift_x", "shift_y", "shift_z")
_ANGLES = ("angle_x", "angle_y", "angle_z")
_SCALES = ("scale_x", "scale_y", "scale_z")
_LINEAR = tuple(f"a{row + 1}{column + 1}" for row, column in _NINE)
_VOXELS, _DEGREES = ("voxels",) * 3, ("degrees",) * 3

SPACE = (
    Task("translation3", _SHIFTS, (-3.0,) * 3, (3.0,) * 3, _build_translation, _read_translation, _VOXELS, 3),
    Task("rotation3", _ANGLES, (-30.0,) * 3, (30.0,) * 3, _build_rotation, _read_rotation, _DEGREES, 3),
    Task("scaling3", _SCALES, (0.5,) * 3, (2.0,) * 3, _build_scaling, _read_scaling, dimensions=3),
    Task("affine3", _LINEAR, (-0.3,) * 9, (0.3,) * 9, geometry.affine, _read_affine, dimensions=3),
    # First the turns, then the shift.
    Task(
        "rigid3",
        _ANGLES + _SHIFTS,
        (-30.0,) * 3 + (-3.0,) * 3,
        (30.0,) * 3 + (3.0,) * 3,
        _build_rigid,
        _read_rigid,
        _DEGREES + _VOXELS,
        3,
    ),
    # What a small patch of two related volumes does: it shifts, and is a little distorted.
    Task(
        "motion3",
        _SHIFTS + _LINEAR,
        (-3.0,) * 3 + (-0.2,) * 9,
        (3.0,) * 3 + (0.2,) * 9,
        _build_motion,
        _read_motion,
        _VOXELS + ("",) * 9,
        3,
    ),
)
"""In the order in which `names` has them."""

for _task in SPACE:
    register(_task)
