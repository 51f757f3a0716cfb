"""The motion models of the plane, from two to eight degrees of freedom; each holds the ones before it."""

from collections.abc import Mapping, Sequence

import numpy as np

from caunet.estimation.motion_models.base import MotionModel, Rows, register_motion_model
from caunet.geometry import Matrix

__all__ = ["PLANE", "Affine", "Euclidean", "Projective", "Similarity", "Translation", "fit_entries"]

PLANE = ("translation", "euclidean", "similarity", "affine", "projective")
"""Their names; each model holds those before it."""

_ENTRY = np.eye(8)  # entry k of a 3 x 3 matrix, row by row
_SHIFTS = (_ENTRY[2], _ENTRY[5])
_TURN, _GROW = _ENTRY[3] - _ENTRY[1], _ENTRY[0] + _ENTRY[4]
_IDENTITY = np.array([1.0, 0, 0, 0, 1, 0, 0, 0])  # the first eight entries
_HELD = np.array([1.0, 1, 0, 1, 1, 0, 4, 4])  # how strongly a prior holds each of them


@register_motion_model
class Translation(MotionModel):
    """A shift.

    >>> points = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> Translation().fit(points, points + 2, np.ones(2))[0] + 0
    array([1., 0., 2.])
    """

    name, freedom = "translation", 2
    search_angles = 1

    def generators(self) -> Matrix:
        return np.stack(_SHIFTS)

    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        return _fit_similarity(source, target, weight, turns=False, grows=False)

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        return [_shift_row(parameters)]


@register_motion_model
class Euclidean(MotionModel):
    """A shift and a rotation."""

    name, freedom = "euclidean", 3
    simpler = ("translation",)

    def generators(self) -> Matrix:
        return np.stack([*_SHIFTS, _TURN])

    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        return _fit_similarity(source, target, weight, turns=True, grows=False)

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        return [_shift_row(parameters), _angle_row(parameters)]


@register_motion_model
class Similarity(MotionModel):
    """A shift, a rotation and a scale.

    >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> Similarity().fit(points, 2 * points + 1, np.ones(4)).round(6) + 0
    array([[2., 0., 1.],
           [0., 2., 1.],
           [0., 0., 1.]])
    """

    name, freedom = "similarity", 4
    search_scales = (0.7, 1.0, 1.4)
    simpler = ("translation",)

    def generators(self) -> Matrix:
        return np.stack([*_SHIFTS, _TURN, _GROW])

    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        return _fit_similarity(source, target, weight, turns=True, grows=True)

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        scale = ("scale", f"{parameters['scale']:.4f}")
        return [_shift_row(parameters), _angle_row(parameters), scale]


@register_motion_model
class Affine(MotionModel):
    """Any linear map and a shift."""

    name, freedom = "affine", 6
    search_scales = (0.7, 1.0, 1.4)
    simpler = ("similarity", "translation")

    def generators(self) -> Matrix:
        return _ENTRY[:6]

    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        return fit_entries(range(6), source, target, weight, prior)

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        p = parameters
        scale = ("scale", f"{p['scale']:.4f} (x {p['scale_x']:.4f}, y {p['scale_y']:.4f})")
        return [_shift_row(p), _angle_row(p), scale, ("shear", f"{p['shear']:+.4f}")]


@register_motion_model
class Projective(MotionModel):
    """A homography: what a plane does between two views. Its fit minimizes the algebraic distance."""

    name, freedom = "projective", 8
    search_scales = (0.7, 1.0, 1.4)
    simpler = ("similarity", "translation")

    def generators(self) -> Matrix:
        return _ENTRY

    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        return fit_entries(range(8), source, target, weight, prior)

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        p = parameters
        bend = ("perspective", f"{p['perspective_x']:+.4f} across, {p['perspective_y']:+.4f} down")
        return [*Affine.describe(p), bend]


def _fit_similarity(source: Matrix, target: Matrix, weight: Matrix, *, turns: bool, grows: bool) -> Matrix:
    """Closed form: shift of the weighted means, angle and scale from one complex number."""
    total = max(weight.sum(), 1e-12)
    from_mean, to_mean = weight @ source / total, weight @ target / total
    p, q = source - from_mean, target - to_mean
    cos = float(weight @ (p * q).sum(1))
    sin = float(weight @ (p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]))
    length = float(weight @ np.square(p).sum(1)) if grows else float(np.hypot(cos, sin))
    if not turns or length < 1e-12:
        cos, sin, length = 1.0, 0.0, 1.0
    linear = np.array([[cos, -sin], [sin, cos]]) / length
    H = np.eye(3)
    H[:2, :2] = linear
    H[:2, 2] = to_mean - linear @ from_mean
    return H


def fit_entries(
    entries: Sequence[int], source: Matrix, target: Matrix, weight: Matrix, prior: float
) -> Matrix:
    """Some of the first eight entries: the normal equations of p' x H p = 0, the others being those of the identity."""
    free = list(entries)
    rows = _equations(source, target)[:, free]
    weighted = rows * np.repeat(weight, 2)[:, None]
    hold = _HELD[free] * prior + 1e-9
    system = weighted.T @ rows
    system[np.diag_indices(len(free))] += hold
    H = np.eye(3)
    H.reshape(-1)[free] = np.linalg.solve(system, weighted.T @ target.reshape(-1) + hold * _IDENTITY[free])
    return H


def _equations(source: Matrix, target: Matrix) -> Matrix:
    """(2 N, 8): rows whose product with H's first eight entries is the target."""
    rows = np.zeros((len(source), 2, 8))
    rows[:, 0, 0:2], rows[:, 0, 2] = source, 1
    rows[:, 1, 3:5], rows[:, 1, 5] = source, 1
    rows[:, :, 6:8] = -target[:, :, None] * source[:, None, :]
    return rows.reshape(-1, 8)


def _shift_row(p: Mapping[str, float]) -> tuple[str, str]:
    x, y = p["shift_x"], p["shift_y"]
    across = f"{abs(x):.2f} px {'right' if x >= 0 else 'left'}"
    return "shift", f"{across}, {abs(y):.2f} px {'down' if y >= 0 else 'up'}"


def _angle_row(p: Mapping[str, float]) -> tuple[str, str]:
    angle = f"{abs(p['angle']):.2f}°"
    if angle != "0.00°":
        angle += " clockwise" if p["angle"] > 0 else " counterclockwise"
    return "angle", angle
