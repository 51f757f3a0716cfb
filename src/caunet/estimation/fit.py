"""Fit a transformation of a given model to motions, some of which are wrong.

Every model is a group: what is fitted may be composed with what was there. ``fit`` is least squares in closed
form; ``robust_fit`` lets go of motions that disagree, its tolerance narrowing from step to step.
"""

import numpy as np

from caunet import geometry
from caunet.estimation.result import MODELS
from caunet.geometry import Matrix

__all__ = ["FREEDOM", "fit", "residuals", "robust_fit"]

FREEDOM = {"translation": 2, "euclidean": 3, "similarity": 4, "affine": 6, "projective": 8}
"""Degrees of freedom of each model; half as many motions determine it."""

_STILL = np.array([1.0, 0, 0, 0, 1, 0, 0, 0])  # the identity's first eight entries
_HELD = np.array([1.0, 1, 0, 1, 1, 0, 4, 4])  # how strongly a prior holds each of them


def fit(model: str, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
    """The H (3, 3) of ``model`` that takes ``source`` (N, 2) nearest to ``target`` (N, 2), weighted squares.

    Coordinates should be of the order of 1 (see :func:`robust_fit`). For the projective model what is minimised is
    the algebraic distance. ``prior`` holds linear and perspective terms to those of the identity, as about this many
    motions of weight one would.

    >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> fit("similarity", points, 2 * points + 1, np.ones(4)).round(6) + 0
    array([[2., 0., 1.],
           [0., 2., 1.],
           [0., 0., 1.]])
    """
    if model in ("translation", "euclidean", "similarity"):
        return _fit_similarity(model, source, target, weight)
    return _fit_linear(model, source, target, weight, prior)


def _fit_similarity(model: str, source: Matrix, target: Matrix, weight: Matrix) -> Matrix:
    """Closed form: shift of the weighted means, angle and scale from one complex number."""
    total = max(weight.sum(), 1e-12)
    from_mean, to_mean = weight @ source / total, weight @ target / total
    p, q = source - from_mean, target - to_mean
    cos = float(weight @ (p * q).sum(1))
    sin = float(weight @ (p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]))
    length = float(weight @ np.square(p).sum(1)) if model == "similarity" else float(np.hypot(cos, sin))
    if model == "translation" or length < 1e-12:
        cos, sin, length = 1.0, 0.0, 1.0
    linear = np.array([[cos, -sin], [sin, cos]]) / length
    H = np.eye(3)
    H[:2, :2] = linear
    H[:2, 2] = to_mean - linear @ from_mean
    return H


def _fit_linear(model: str, source: Matrix, target: Matrix, weight: Matrix, prior: float) -> Matrix:
    """Affine and projective: the normal equations of p' x H p = 0, with the last entry of H set to 1."""
    free = FREEDOM[model]
    rows = _equations(source, target)[:, :free]
    weighted = rows * np.repeat(weight, 2)[:, None]
    hold = _HELD[:free] * prior + 1e-9
    system = weighted.T @ rows
    system[np.diag_indices(free)] += hold
    H = np.eye(3)
    H.reshape(-1)[:free] = np.linalg.solve(system, weighted.T @ target.reshape(-1) + hold * _STILL[:free])
    return H


def _equations(source: Matrix, target: Matrix) -> Matrix:
    """(2 N, 8): rows whose product with H's first eight entries is the target."""
    rows = np.zeros((len(source), 2, 8))
    rows[:, 0, 0:2], rows[:, 0, 2] = source, 1
    rows[:, 1, 3:5], rows[:, 1, 5] = source, 1
    rows[:, :, 6:8] = -target[:, :, None] * source[:, None, :]
    return rows.reshape(-1, 8)


def residuals(H: Matrix, source: Matrix, target: Matrix) -> Matrix:
    """Distances (N,) between H's places of ``source`` and ``target``; behind the viewer they are large."""
    moved = geometry.apply_homogeneous(H, source)
    third = moved[:, 2:]
    error = np.sqrt(np.square(moved[:, :2] / np.maximum(third, 0.1) - target).sum(1))
    far: Matrix = np.where(third[:, 0] > 0.1, error, error + 1e3)
    return far


def robust_fit(
    model: str,
    source: Matrix,
    target: Matrix,
    weight: Matrix,
    tolerance: float,
    *,
    start: float = 8.0,
    steps: int = 6,
    prior: float = 1.0,
) -> tuple[Matrix, Matrix]:
    """H (3, 3) from ``source`` to ``target`` (N, 2) and the final weights (N,), those of wrong motions near 0.

    Iteratively reweighted least squares with Geman and McClure's weights, whose tolerance (in the points' units)
    falls from ``start`` times ``tolerance`` to ``tolerance``: with the wide one nearly all motions count, and those
    that disagree with the many lose their say one after the other.
    """
    if model not in MODELS:
        raise ValueError(f"model takes one of {', '.join(MODELS)}; got {model!r}")
    middle = source.mean(0)
    size = max(float(np.abs(source - middle).max()), 1e-6)
    p, q = (source - middle) / size, (target - middle) / size
    trusted = weight
    for wide in np.geomspace(start, 1.0, steps) * (tolerance / size):
        H = fit(model, p, q, trusted, prior)
        trusted = weight / np.square(1 + np.square(residuals(H, p, q) / wide))
    H = fit(model, p, q, trusted, prior * 0.1)
    out = np.array([[size, 0, middle[0]], [0, size, middle[1]], [0, 0, 1]])
    answer: Matrix = out @ H @ geometry.invert(out, checked=False)
    return answer, trusted
