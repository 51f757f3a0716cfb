"""The motion models of space, from three to twelve degrees of freedom; each holds the ones before it."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from caunet import geometry
from caunet.estimation.motion_models.base import MotionModel, Rows, register_motion_model
from caunet.geometry import Matrix

__all__ = ["SPACE", "SpaceAffine", "SpaceRigid", "SpaceSimilarity", "SpaceTranslation", "decompose_space"]

SPACE = ("translation", "rigid", "similarity", "affine")
"""Their names; each model holds those before it."""

_ENTRY = np.eye(12).reshape(12, 3, 4)  # entry k of the upper rows of a 4 x 4 matrix


def _unit(row: int, column: int) -> Matrix:
    entry: Matrix = _ENTRY[4 * row + column]
    return entry


_SHIFTS = [_unit(k, 3) for k in range(3)]
_TURNS = [_unit(2, 1) - _unit(1, 2), _unit(0, 2) - _unit(2, 0), _unit(1, 0) - _unit(0, 1)]
_GROW = _unit(0, 0) + _unit(1, 1) + _unit(2, 2)


class _Space(MotionModel):
    """What the models of space have in common: one number for each generator, and a fit by least squares."""

    dimensions = 3
    _turns, _grows = False, False

    def generators(self) -> Matrix:
        chosen = _SHIFTS + (_TURNS if self._turns else []) + ([_GROW] if self._grows else [])
        return np.stack(chosen).reshape(-1, 12)

    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        """In closed form, by Umeyama's method: the rotation from a singular value decomposition."""
        total = max(float(weight.sum()), 1e-12)
        from_mean, to_mean = weight @ source / total, weight @ target / total
        p, q = source - from_mean, target - to_mean
        linear = np.eye(3)
        if self._turns:
            U, size, V = np.linalg.svd((q * weight[:, None]).T @ p)
            mirror = np.array([1.0, 1.0, np.sign(np.linalg.det(U @ V)) or 1.0])
            linear = (U * mirror) @ V
            if self._grows:
                linear = linear * (float(size @ mirror) / max(float(weight @ np.square(p).sum(1)), 1e-12))
        return _with_linear(linear, from_mean, to_mean)

    def parameters(self, matrix: Tensor, size_a: Sequence[int]) -> dict[str, float]:
        """See :func:`decompose_space`; measured at the center of a volume of ``size_a`` (depth, height, width)."""
        return decompose_space(matrix.detach().double().cpu().numpy(), np.array(geometry.center_of(size_a)))


@register_motion_model
class SpaceTranslation(_Space):
    """A shift.

    >>> points = np.eye(3)
    >>> SpaceTranslation().fit(points, points + 2, np.ones(3))[0] + 0
    array([1., 0., 0., 2.])
    """

    name, freedom = "translation", 3

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        return [_shift_row(parameters)]


@register_motion_model
class SpaceRigid(_Space):
    """A shift and a rotation."""

    name, freedom = "rigid", 6
    simpler = ("translation",)
    _turns = True

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        return [_shift_row(parameters), _turn_row(parameters)]


@register_motion_model
class SpaceSimilarity(_Space):
    """A shift, a rotation and a scale."""

    name, freedom = "similarity", 7
    simpler = ("rigid", "translation")
    _turns, _grows = True, True

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        return [_shift_row(parameters), _turn_row(parameters), ("scale", f"{parameters['scale']:.4f}")]


@register_motion_model
class SpaceAffine(_Space):
    """Any linear map and a shift."""

    name, freedom = "affine", 12
    simpler = ("similarity", "rigid", "translation")

    def generators(self) -> Matrix:
        return _ENTRY.reshape(12, 12)

    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        total = max(float(weight.sum()), 1e-12)
        from_mean, to_mean = weight @ source / total, weight @ target / total
        p, q = source - from_mean, target - to_mean
        hold = (prior + 1e-9) * np.eye(3)
        system, right = (p * weight[:, None]).T @ p + hold, (p * weight[:, None]).T @ q + hold
        linear: Matrix = np.linalg.solve(system, right).T.astype(np.float64)
        return _with_linear(linear, from_mean, to_mean)

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        p = parameters
        stretch = ", ".join(f"{p[f'stretch_{k}']:.4f}" for k in (1, 2, 3))
        return [_shift_row(p), _turn_row(p), ("scale", f"{p['scale']:.4f} (stretches {stretch})")]


def decompose_space(T: Matrix, center: Matrix) -> dict[str, float]:
    """What an affine T (4, 4) does around a point ``center`` (3,), in numbers.

    - ``shift_x``, ``shift_y``, ``shift_z``: by how much the center moves;
    - ``rotation_x``, ``rotation_y``, ``rotation_z``: the axis of the rotation, as long as its angle in degrees;
    - ``angle``: that angle, 0 to 180;
    - ``scale``: the cube root of the growth of volumes;
    - ``stretch_1`` to ``stretch_3``: by how much lengths grow along three perpendicular directions, most first.

    The linear part is taken apart as rotation times stretch (its polar decomposition).

    >>> T = geometry.rotate(90.0, axis=(0, 0, 1)).double().numpy()
    >>> found = decompose_space(T, np.zeros(3))
    >>> round(found["rotation_z"], 4), round(found["angle"], 4), round(found["scale"], 4)
    (90.0, 90.0, 1.0)
    """
    U, stretch, V = np.linalg.svd(T[:3, :3])
    sign = 1.0 if np.linalg.det(U @ V) > 0 else -1.0
    turn = rotation_vector(sign * (U @ V))
    shift = geometry.apply(T, center[None])[0] - center
    numbers = {f"shift_{axis}": float(value) for axis, value in zip("xyz", shift, strict=True)}
    numbers |= {f"rotation_{axis}": float(value) for axis, value in zip("xyz", turn, strict=True)}
    numbers["angle"] = float(np.sqrt(np.square(turn).sum()))
    numbers["scale"] = float(np.cbrt(abs(np.linalg.det(T[:3, :3])))) * sign
    numbers |= {f"stretch_{k + 1}": float(value) for k, value in enumerate(stretch)}
    return numbers


def rotation_vector(R: Matrix) -> Matrix:
    """(3,): the axis of a rotation (3, 3), as long as its angle in degrees.

    >>> rotation_vector(np.diag([1.0, -1.0, -1.0])).round(6)
    array([180.,   0.,   0.])
    """
    axis = np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    sin, cos = float(np.sqrt(np.square(axis).sum())) / 2, (float(np.trace(R)) - 1) / 2
    angle = math.degrees(math.atan2(sin, cos))
    if sin > 1e-6:
        return axis * (angle / (2 * sin))
    if cos > 0:
        return np.zeros(3)
    # Half a turn: R + 1 is twice the product of the axis with itself.
    outer = R + np.eye(3)
    column = outer[:, int(np.diag(outer).argmax())]
    return column * (180 / float(np.sqrt(np.square(column).sum())))


def _with_linear(linear: Matrix, from_mean: Matrix, to_mean: Matrix) -> Matrix:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = linear, to_mean - linear @ from_mean
    return T


def _shift_row(p: Mapping[str, float]) -> tuple[str, str]:
    return "shift", f"{p['shift_x']:+.3f}, {p['shift_y']:+.3f}, {p['shift_z']:+.3f} mm"


def _turn_row(p: Mapping[str, float]) -> tuple[str, str]:
    about = ", ".join(f"{p[f'rotation_{axis}']:+.3f}" for axis in "xyz")
    return "rotation", f"{p['angle']:.3f}° ({about} about x, y, z)"
