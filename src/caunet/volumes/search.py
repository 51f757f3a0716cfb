"""First guesses: where the headers put two volumes, where their masses lie, and all rotations at a coarse level."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from caunet import geometry
from caunet.geometry import Matrix
from caunet.volumes.prepare import extent
from caunet.volumes.pyramid import Level

__all__ = [
    "about",
    "around",
    "axes_turns",
    "distinct",
    "middle",
    "moments",
    "rank",
    "rotations",
    "search",
    "stretched",
]

_PHI = math.sqrt(2.0)
_PSI = 1.533751168755204288118041413  # the positive root of x^4 = x + 4
_BATCH = 64  # rotations that are tried at once
_PEAK = (
    0.8  # by which linear parts of guesses differ at least, about 33 degrees: neighbors of a better one go
)
_FAINT = 0.1  # difference from the background that is none
_OVERLAP = 0.25  # share of a volume from which an overlap counts fully


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


def moments(level: Level) -> tuple[Matrix, Matrix]:
    """(3,) and (3, 3): center and covariance of what differs from the background, in millimeters.

    The background is the median value on the faces of the box. A voxel is a box itself, so that the covariance of a
    single one, or of those in one plane, is not singular.
    """
    values = level.values
    faces = torch.cat([values.movedim(axis, 0)[[0, -1]].reshape(-1) for axis in range(3)])
    mass = ((values - faces.median()).abs() - _FAINT).clamp_min(0).double()
    if level.mask is not None:
        mass = mass * level.mask
    total = float(mass.sum())
    if total <= 1e-9:
        return middle(level), np.eye(3) * float(np.square(extent(level)).mean()) / 12
    sides = [torch.arange(side, dtype=mass.dtype, device=mass.device) for side in values.shape]
    z, y, x = torch.meshgrid(*sides, indexing="ij")
    places = torch.stack([x, y, z]).reshape(3, -1)
    weight = mass.reshape(-1) / total
    center = places @ weight
    away = places - center[:, None]
    spread = ((away * weight) @ away.T).cpu().numpy() + np.eye(3) / 12
    linear = level.to_mm[:3, :3]
    return geometry.apply(level.to_mm, center.cpu().numpy()[None])[0], linear @ spread @ linear.T


def stretched(turns: Matrix, spread_a: Matrix, spread_b: Matrix, freedom: int) -> Matrix:
    """(K, 3, 3): linear maps for rotations (K, 3, 3), which take one covariance (3, 3) to the other.

    As far as the ``freedom`` of the model goes: a rotation (6) does not stretch, a similarity (7) scales; an affine map
    (12) is any rotation between the shapes made round.
    """
    if freedom < 7:
        return turns
    if freedom < 12:
        factor: float = (np.linalg.det(spread_b) / np.linalg.det(spread_a)) ** (1 / 6)
        return turns * factor
    roots = []
    for spread in (spread_a, spread_b):
        size, axes = np.linalg.eigh(spread)
        roots.append((axes * np.sqrt(size)) @ axes.T)
    maps: Matrix = roots[1] @ turns @ np.linalg.inv(roots[0])
    return maps


def axes_turns(spread_a: Matrix, spread_b: Matrix) -> Matrix:
    """(4, 3, 3): the rotations that take the principal axes of one covariance to those of the other."""
    axes_a, axes_b = (np.linalg.eigh(spread)[1] for spread in (spread_a, spread_b))
    signs = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    turns: Matrix = (axes_b * signs[:, None]) @ axes_a.T
    proper: Matrix = turns[np.linalg.det(turns) > 0]
    return proper


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
