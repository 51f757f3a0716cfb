"""The relation units as loops over scalars in float64: slow, and close enough to the paper to check by eye.

Inputs are arrays ``a (B, I)`` and ``b (B, J)``; results ``(B, units)``.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def concatenate(a: Array, b: Array) -> Array:
    """Equation (3)."""
    out = np.zeros((len(a), a.shape[1] + b.shape[1]))
    for n in range(len(a)):
        for i in range(a.shape[1]):
            out[n, i] = a[n, i]
        for j in range(b.shape[1]):
            out[n, a.shape[1] + j] = b[n, j]
    return out


def bilinear(a: Array, b: Array, weight: Array) -> Array:
    """Equation (4)."""
    out = np.zeros((len(a), len(weight)))
    for n, k, i, j in np.ndindex(len(a), *weight.shape):
        out[n, k] += weight[k, i, j] * a[n, i] * b[n, j]
    return out


def contrast_association(a: Array, b: Array, weight: Array) -> Array:
    """Equation (5)."""
    out = np.zeros((len(a), len(weight)))
    for n, k, i, j in np.ndindex(len(a), *weight.shape):
        out[n, k] += 0.5 * weight[k, i, j] * (a[n, i] - b[n, j]) ** 2
    return out


def relative_contrast(a: Array, b: Array, weight: Array, floor: float) -> Array:
    """Squared differences in proportion to squares, both weighted; about the middle of the two means."""
    out = np.zeros((len(a), len(weight)))
    for n, k in np.ndindex(out.shape):
        middle = (a[n].mean() + b[n].mean()) / 2
        above = below = 0.0
        for i, j in np.ndindex(weight.shape[1:]):
            above += weight[k, i, j] * (a[n, i] - b[n, j]) ** 2
            below += weight[k, i, j] * ((a[n, i] - middle) ** 2 + (b[n, j] - middle) ** 2 + 2 * floor)
        out[n, k] = above / below
    return out


def weight_of_factors(u: Array, v: Array, rank: int) -> Array:
    """W_g, the sum of u_k v_k^T over the consecutive terms of group g (Section III-C)."""
    weight = np.zeros((len(u) // rank, u.shape[1], v.shape[1]))
    for k, i, j in np.ndindex(len(u), u.shape[1], v.shape[1]):
        weight[k // rank, i, j] += u[k, i] * v[k, j]
    return weight


def sum_pool(h: Array, size: int) -> Array:
    out = np.zeros((len(h), h.shape[1] // size))
    for n, k in np.ndindex(*h.shape):
        out[n, k // size] += h[n, k]
    return out


def winner_take_all(h: Array) -> Array:
    """Equation (6); the first of equal minima alone wins."""
    out = np.zeros_like(h)
    for n in range(len(h)):
        best = 0
        for k in range(h.shape[1]):
            if h[n, k] < h[n, best]:
                best = k
        out[n, best] = 1
    return out


def softmin(h: Array, temperature: float = 1.0) -> Array:
    """Equation (7)."""
    out = np.zeros_like(h)
    for n in range(len(h)):
        powers = [math.exp(-value / temperature) for value in h[n]]
        out[n] = [power / math.fsum(powers) for power in powers]
    return out


def contrast_gradients(a: Array, b: Array, weight: Array) -> tuple[Array, Array, Array]:
    """dh_k/da, dh_k/db, dh_k/dW_k of equations (27), (28), (30) for one pair ``a (I,)``, ``b (J,)``.

    The paper prints W_k^T 1 in (27) and W_k 1 in (28); differentiating (5) gives them the other way
    round, which is also the only way that shapes fit when I != J. docs/equations.md says so.
    """
    one_a, one_b = np.ones(len(a)), np.ones(len(b))
    da = np.stack([(w @ one_b) * a - w @ b for w in weight])
    db = np.stack([(w.T @ one_a) * b - w.T @ a for w in weight])
    dw = 0.5 * (np.outer(a**2, one_b) + np.outer(one_a, b**2)) - np.outer(a, b)
    return da, db, dw


def rank_one_gradients(a: Array, b: Array, u: Array, v: Array) -> tuple[Array, Array]:
    """dh_k/du_k and dh_k/dv_k of equations (32), (33) for one pair ``a (I,)``, ``b (J,)``."""
    du = np.stack([0.5 * (y.sum() * a**2 + y @ b**2) - (y @ b) * a for y in v])
    dv = np.stack([0.5 * (x.sum() * b**2 + x @ a**2) - (x @ a) * b for x in u])
    return du, dv
