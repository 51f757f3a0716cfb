"""A camera that only turns: H = K R K^-1, with a known focal length; three degrees of freedom.

K = [[f, 0, x0], [0, f, y0], [0, 0, 1]] takes directions (x right, y down, z forward) to pixels; f is the focal length
in pixels and (x0, y0) the principal point. Both images have the same f; the principal point of each is its center
unless one is given for both.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
from torch import Tensor

from caunet import geometry
from caunet.estimation.motion_models.base import MotionModel, Rows, register_motion_model
from caunet.geometry import Matrix

__all__ = ["CameraRotation"]


@register_motion_model
class CameraRotation(MotionModel):
    """The camera turns about its center and does nothing else.

    The parameters are three angles in degrees, of what is seen: its center is found in b ``pan`` to the right and
    ``tilt`` down from straight ahead, after a turn by ``roll``, clockwise, about the optical axis. The camera itself
    turned the other way. R = R_y(pan) R_x(-tilt) R_z(roll) takes directions of a to directions of b.

    Args:
        focal: the focal length in pixels.
        principal_point: (x, y) in pixels of both images; the center of each if not given.

    >>> model = CameraRotation(focal=500).for_images((100, 100), (100, 100))
    >>> H = model.homography(pan=2.0, tilt=-1.0, roll=5.0)
    >>> {name: round(angle, 6) for name, angle in model.angles(H).items()}
    {'pan': 2.0, 'tilt': -1.0, 'roll': 5.0}
    """

    name, freedom = "camera-rotation", 3
    simpler = ("translation",)

    def __init__(self, focal: float, principal_point: Sequence[float] | None = None) -> None:
        if not _is_number(focal) or focal <= 0:
            raise ValueError(f"focal must be a positive number of pixels, got {focal!r}")
        self.focal = float(focal)
        self.principal_point: tuple[float, float] | None = None
        if principal_point is not None:
            point = tuple(principal_point) if isinstance(principal_point, Sequence) else ()
            if len(point) != 2 or not all(_is_number(value) for value in point):
                raise ValueError(f"principal_point must be two numbers (x, y), got {principal_point!r}")
            self.principal_point = float(point[0]), float(point[1])
        self._first = self._second = np.eye(3)  # K of either image; see for_images

    @property
    def options(self) -> dict[str, Any]:
        given = {} if self.principal_point is None else {"principal_point": list(self.principal_point)}
        return {"focal": self.focal, **given}

    def for_images(self, size_a: tuple[int, int], size_b: tuple[int, int]) -> Self:
        return self._with(self._intrinsics(size_a), self._intrinsics(size_b))

    def in_coordinates(self, T: Matrix) -> Self:
        return self._with(T @ self._first, T @ self._second)

    def initial(self, size_a: tuple[int, int], size_b: tuple[int, int]) -> Matrix:
        bound = self.for_images(size_a, size_b)
        return bound._homography(np.eye(3))

    def nearest(self, H: Matrix) -> Matrix:
        return self._homography(self._rotation(H))

    def generators(self) -> Matrix:
        inverse = geometry.invert(self._first, checked=False)
        turns = []
        for axis in np.eye(3):
            algebra = self._first @ _cross(axis) @ inverse
            algebra = algebra - algebra[2, 2] * np.eye(3)  # a multiple of the identity moves nothing
            turns.append(algebra.reshape(-1)[:8])
        return np.stack(turns)

    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        """The rotation between bundles of directions, by singular values (Kabsch); of squared chords, not pixels."""
        inverse = geometry.invert(self._first, checked=False)
        before, after = (_directions(inverse, points) for points in (source, target))
        R = _nearest_rotation((after * weight[:, None]).T @ before)
        return geometry.normalize(self._first @ R @ inverse, checked=False)

    def parameters(self, matrix: Tensor, size_a: tuple[int, int]) -> dict[str, float]:
        return {**self.angles(matrix.detach().double().cpu().numpy()), **super().parameters(matrix, size_a)}

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        words = {"pan": ("right", "left"), "tilt": ("down", "up"), "roll": ("clockwise", "counterclockwise")}
        return [
            (name, f"{abs(parameters[name]):.3f}° {forward if parameters[name] >= 0 else backward}")
            for name, (forward, backward) in words.items()
        ]

    def angles(self, H: Matrix) -> dict[str, float]:
        """pan, tilt and roll of H (3, 3), in degrees."""
        R = self._rotation(H)
        pan, tilt = math.atan2(R[0, 2], R[2, 2]), math.asin(min(max(R[1, 2], -1.0), 1.0))
        roll = math.atan2(R[1, 0], R[1, 1])
        return {"pan": math.degrees(pan), "tilt": math.degrees(tilt), "roll": math.degrees(roll)}

    def homography(self, pan: float = 0.0, tilt: float = 0.0, roll: float = 0.0) -> Matrix:
        """The H (3, 3) of three angles, in degrees."""
        turns = [(pan, (0, 1, 0)), (-tilt, (1, 0, 0)), (roll, (0, 0, 1))]
        R = np.eye(3)
        for degrees, axis in turns:
            R = R @ geometry.exponential(math.radians(degrees) * _cross(np.array(axis)))
        return self._homography(R)

    def _intrinsics(self, size: tuple[int, int]) -> Matrix:
        x, y = geometry.center_of(size) if self.principal_point is None else self.principal_point
        return np.array([[self.focal, 0.0, x], [0.0, self.focal, y], [0.0, 0.0, 1.0]])

    def _with(self, first: Matrix, second: Matrix) -> Self:
        bound = copy.copy(self)
        bound._first, bound._second = first, second
        return bound

    def _homography(self, R: Matrix) -> Matrix:
        return geometry.normalize(
            self._second @ R @ geometry.invert(self._first, checked=False), checked=False
        )

    def _rotation(self, H: Matrix) -> Matrix:
        """The R nearest to K^-1 H K; H may have any scale but 0."""
        linear = geometry.invert(self._second, checked=False) @ H @ self._first
        return _nearest_rotation(linear * np.sign(np.linalg.det(linear)))


def _directions(inverse: Matrix, points: Matrix) -> Matrix:
    """Unit vectors (N, 3) through points (N, 2), by K^-1."""
    rays = geometry.apply_homogeneous(inverse, points)
    unit: Matrix = rays / np.linalg.norm(rays, axis=1, keepdims=True)
    return unit


def _nearest_rotation(M: Matrix) -> Matrix:
    """The rotation R that makes trace(R^T M) largest."""
    left, _, right = np.linalg.svd(M)
    mirror = np.diag([1.0, 1.0, float(np.sign(np.linalg.det(left @ right)))])
    R: Matrix = left @ mirror @ right
    return R


def _cross(axis: Matrix) -> Matrix:
    """[axis]x, the generator of turns about ``axis`` (3,)."""
    return np.cross(np.eye(3), axis)


def _is_number(value: object) -> bool:
    return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)
