"""Forward passes of Table I in plain NumPy, loops where the paper has sums."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def prelu(h: Array, slope: float) -> Array:
    return np.array([value if value > 0 else slope * value for value in h])


def decode(state: dict[str, Array], h: Array) -> Array:
    """Linear layers and PReLUs, in the order of their numbers in the state."""
    layers = sorted({int(name.split(".")[1]) for name in state if name.startswith("decoder.")})
    for layer in layers:
        weight = state[f"decoder.{layer}.weight"]
        if weight.ndim == 1:
            h = prelu(h, float(weight[0]))
        else:
            h = weight @ h + state.get(f"decoder.{layer}.bias", np.zeros(len(weight)))
    return h


def unit_matrices(u: Array, v: Array, rank: int) -> list[Array]:
    """W_g = sum of u_k v_k^T over consecutive groups."""
    return [
        sum((np.outer(u[k], v[k]) for k in range(g, g + rank)), np.zeros((u.shape[1], v.shape[1])))
        for g in range(0, len(u), rank)
    ]


def contrast(W: Array, a: Array, b: Array) -> float:
    return 0.5 * sum(W[i, j] * (a[i] - b[j]) ** 2 for i in range(len(a)) for j in range(len(b)))


def ctn(state: dict[str, Array], x: Array, y: Array) -> Array:
    return decode(state, np.concatenate([x.ravel(), y.ravel()]))


def bln(state: dict[str, Array], x: Array, y: Array, rank: int) -> Array:
    a, b = x.ravel(), y.ravel()
    h = np.array([a @ W @ b for W in unit_matrices(state["relation.u"], state["relation.v"], rank)])
    return decode(state, h / np.sqrt(sum(h**2)))


def can(state: dict[str, Array], x: Array, y: Array, rank: int) -> Array:
    a, b = x.ravel(), y.ravel()
    h = np.array([contrast(W, a, b) for W in unit_matrices(state["relation.u"], state["relation.v"], rank)])
    e = np.exp(-(h - h.min()))
    return decode(state, e / e.sum())
