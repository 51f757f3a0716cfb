"""The paper's five tasks, and `motion`: what a small patch of two related images does."""

from __future__ import annotations

import torch
from torch import Tensor

from caunet import geometry
from caunet.tasks.task import Task, entries, register

__all__ = ["PLANE"]


# Named functions rather than lambdas, so that a task can be pickled to worker processes.
def _build_translation(z: Tensor) -> Tensor:
    return geometry.translate(z[..., 0], z[..., 1])


def _read_translation(H: Tensor) -> Tensor:
    return entries(H, (0, 2), (1, 2))


def _build_rotation(z: Tensor) -> Tensor:
    return geometry.rotate(z[..., 0])


def _read_rotation(H: Tensor) -> Tensor:
    return torch.atan2(H[..., 1, 0], H[..., 0, 0]).rad2deg()[..., None]


def _build_scaling(z: Tensor) -> Tensor:
    return geometry.scale(z[..., 0], z[..., 1])


def _read_scaling(H: Tensor) -> Tensor:
    return entries(H, (0, 0), (1, 1))


def _read_affine(H: Tensor) -> Tensor:
    return entries(H, (0, 0), (0, 1), (1, 0), (1, 1)) - H.new_tensor([1.0, 0.0, 0.0, 1.0])


def _build_motion(z: Tensor) -> Tensor:
    return geometry.compose(geometry.translate(z[..., 0], z[..., 1]), geometry.affine(z[..., 2:]))


def _read_motion(H: Tensor) -> Tensor:
    return torch.cat([_read_translation(H), _read_affine(H)], -1)


def _read_projective(H: Tensor) -> Tensor:
    return torch.cat([_read_affine(H), entries(H, (2, 0), (2, 1))], -1)


_SHIFTS = ("shift_x", "shift_y")
_SCALES = ("scale_x", "scale_y")
_LINEAR = ("a11", "a12", "a21", "a22")
_BENDS = ("p1", "p2")

PLANE = (
    Task(
        "translation",
        _SHIFTS,
        (-5.0,) * 2,
        (5.0,) * 2,
        _build_translation,
        _read_translation,
        ("pixels",) * 2,
    ),
    Task("rotation", ("angle",), (-45.0,), (45.0,), _build_rotation, _read_rotation, ("degrees",)),
    Task("scaling", _SCALES, (0.5,) * 2, (2.0,) * 2, _build_scaling, _read_scaling),
    Task("affine", _LINEAR, (-0.5,) * 4, (0.5,) * 4, geometry.affine, _read_affine),
    Task(
        "projective",
        _LINEAR + _BENDS,
        (-0.5,) * 4 + (-0.01,) * 2,
        (0.5,) * 4 + (0.01,) * 2,
        geometry.projective,
        _read_projective,
        ("",) * 4 + ("1/pixel",) * 2,
    ),
    # What a small patch of two related images does: it shifts, and is a little distorted.
    Task(
        "motion",
        _SHIFTS + _LINEAR,
        (-5.0,) * 2 + (-0.25,) * 4,
        (5.0,) * 2 + (0.25,) * 4,
        _build_motion,
        _read_motion,
        ("pixels",) * 2 + ("",) * 4,
    ),
    # The same, where images are turned by up to 20 degrees, or enlarged by up to 1.4.
    Task(
        "wide-motion",
        _SHIFTS + _LINEAR,
        (-5.0,) * 2 + (-0.4,) * 4,
        (5.0,) * 2 + (0.4,) * 4,
        _build_motion,
        _read_motion,
        ("pixels",) * 2 + ("",) * 4,
    ),
)
"""In the order in which `names` has them."""

for _task in PLANE:
    register(_task)
