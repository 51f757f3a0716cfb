"""First guesses: where the headers put two volumes, where their masses lie, and all rotations at a coarse level."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from caunet import geometry
from caunet.geometry import Matrix
from caunet.volumes.pyramid import Level

__all__ = ["about", "around", "center_of_mass", "distinct", "middle", "rank", "rotations", "search"]

_PHI = math.sqrt(2.0)
_PSI = 1.533751168755204288118041413  # the positive root of x^4 = x + 4
_BATCH = 64  # rotations that are tried at once
_PEAK = (
    0.8  # by which linear parts of guesses differ at least, about 33 degrees: neighbors of a better one go
)
_OVERLAP = 0.5  # share of a volume from which an overlap counts fully


def rotations(count: int) -> Matrix:
    """(count, 3, 3): rotations spread evenly over all of them, on Alexa's super-Fibonacci spirals.

    >>> R = rotations(100)
    >>> bool(np.allclose(R @ R.swapaxes(1, 2), np.eye(3))), bool(np.allclose(np.linalg.det(R), 1))
    (True, True)
    """
    s = np.arange(count) + 0.5
    r, R = np.sqrt(s / count), np.sqrt(1 - s / count)
    alpha, beta = 2 * math.pi * s / _PHI, 2 * math.pi * s / _PSI
    x, y, z, w = r * np.sin(alpha), r * np.cos(alpha), R * np.sin(beta), R * np.cos(beta)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows).transpose(2, 0, 1)


def about(R: Matrix, from_point: Matrix, to_point: Matrix) -> Matrix:
    """(..., 4, 4): linear maps R (..., 3, 3) that take one point (3,) to another."""
    T = np.zeros((*R.shape[:-2], 4, 4))
    T[..., :3, :3], T[..., 3, 3] = R, 1
    T[..., :3, 3] = to_point - R @ from_point
    return T


def middle(level: Level) -> Matrix:
    """(3,): the center of the box, in millimeters."""
    x, y, z = ((side - 1) / 2 for side in level.size[::-1])
    center: Matrix = geometry.apply(level.to_mm, np.array([[x, y, z]]))[0]
    return center


def center_of_mass(level: Level) -> Matrix:
    """(3,): of what differs from the background, in millimeters.

    The background is the median value on the faces of the box.
    """
    values = level.values
    faces = torch.cat([values.movedim(axis, 0)[[0, -1]].reshape(-1) for axis in range(3)])
    mass = (values - faces.median()).abs()
    if level.mask is not None:
        mass = mass * level.mask
    total = float(mass.sum())
    if total <= 1e-9:
        return middle(level)
    place = []
    for axis in (2, 1, 0):
        line = torch.arange(values.shape[axis], dtype=mass.dtype, device=mass.device)
        place.append(float((mass.movedim(axis, -1) * line).sum()) / total)
    center: Matrix = geometry.apply(level.to_mm, np.array([place]))[0]
    return center


def rank(correlation: Matrix, share: Matrix) -> Matrix:
    """How good a guess is: its correlation, less where little overlaps."""
    value: Matrix = correlation * np.minimum(share / _OVERLAP, 1.0)
    return value


def search(guesses: Matrix, score: Callable[[Matrix], Matrix], keep: int) -> Matrix:
    """(keep, 4, 4): the best of many ``guesses`` (N, 4, 4), no two of them neighbors; ``score`` gives (K,) of K."""
    scores = np.concatenate([score(guesses[k : k + _BATCH]) for k in range(0, len(guesses), _BATCH)])
    best: Matrix = guesses[distinct(guesses, scores, keep, _PEAK)]
    return best


def distinct(T: Matrix, scores: Matrix, count: int, apart: float) -> list[int]:
    """The best ``count`` of T (K, 4, 4) whose linear parts differ by more than ``apart``, best first."""
    kept: list[int] = []
    for k in np.argsort(-scores, kind="stable").tolist():
        if all(np.square(T[k, :3, :3] - T[j, :3, :3]).sum() > apart * apart for j in kept):
            kept.append(k)
        if len(kept) == count:
            break
    return kept


def around(point: Matrix, distance: float) -> Matrix:
    """(15, 3): a point and those around it, along the axes and the diagonals: a body-centered lattice."""
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    corners = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    return point + distance * np.concatenate([np.zeros((1, 3)), axes, corners / 2])
