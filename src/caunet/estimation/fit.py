"""Fit a motion model to motions of points, some of which are wrong: iteratively reweighted least squares."""

import numpy as np

from caunet import geometry
from caunet.estimation.motion_models import MotionModel
from caunet.geometry import Matrix

__all__ = ["residuals", "robust_fit"]

_NEAR = 0.1  # last coordinate below which a point counts as behind the viewer


def residuals(H: Matrix, source: Matrix, target: Matrix) -> Matrix:
    """Distances (N,) between H ``source`` and ``target`` (N, d); those of points behind the viewer are large."""
    moved, d = geometry.apply_homogeneous(H, source), source.shape[1]
    last = moved[:, d:]
    error = np.sqrt(np.square(moved[:, :d] / np.maximum(last, _NEAR) - target).sum(1))
    far: Matrix = np.where(last[:, 0] > _NEAR, error, error + 1e3)
    return far


def robust_fit(
    motion_model: MotionModel,
    source: Matrix,
    target: Matrix,
    weight: Matrix,
    tolerance: float,
    *,
    start: float = 8.0,
    steps: int = 6,
    prior: float = 1.0,
) -> tuple[Matrix, Matrix]:
    """H (d + 1, d + 1) from ``source`` to ``target`` (N, d), and the final weights (N,), those of wrong motions near 0.

    Geman and McClure's weights, whose tolerance (in the points' units) falls from ``start`` times ``tolerance`` to
    ``tolerance``: at first nearly all motions count, then those that disagree with most others lose their weight.
    """
    middle = source.mean(0)
    size = max(float(np.abs(source - middle).max()), 1e-6)
    p, q = (source - middle) / size, (target - middle) / size
    out = np.diag([size] * len(middle) + [1.0])
    out[:-1, -1] = middle
    into = geometry.invert(out, checked=False)
    model = motion_model.in_coordinates(into)
    trusted = weight
    for wide in np.geomspace(start, 1.0, steps) * (tolerance / size):
        H = model.fit(p, q, trusted, prior)
        trusted = weight / np.square(1 + np.square(residuals(H, p, q) / wide))
    H = model.fit(p, q, trusted, prior * 0.1)
    answer: Matrix = out @ H @ into
    return answer, trusted
