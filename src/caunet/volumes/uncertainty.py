"""How uncertain the places are that an uncertain transform of space gives.

As in the plane, an uncertain transform is described by where it puts the corners of the first volume: a covariance
(24, 24) of (x, y, z) of its eight corners in the second one, in square millimeters. Four of them determine an affine
transform; the others follow.
"""

import numpy as np

from caunet import geometry
from caunet.geometry import Matrix

__all__ = ["composed", "inverted", "of_corners", "of_points"]


def _moves(points: Matrix) -> Matrix:
    """(3 N, 12): how points (N, 3) move with the entries of an affine matrix, row by row."""
    homogeneous = np.concatenate([points, np.ones((len(points), 1))], 1)
    moves: Matrix = np.einsum("rs,nc->nrsc", np.eye(3), homogeneous).reshape(3 * len(points), 12)
    return moves


def _carried(moves: Matrix, covariance: Matrix) -> Matrix:
    spread: Matrix = moves @ covariance @ moves.T
    return (spread + spread.T) / 2


def of_corners(T: Matrix, corners: Matrix, covariance: Matrix, generators: Matrix, into: Matrix) -> Matrix:
    """(3 N, 3 N): covariance of T ``corners`` (N, 3), from that of ``generators`` (k, 12), which act before T does.

    ``into`` (4, 4) takes millimeters of a to the coordinates of the generators, a shift and a scale.
    """
    first = _moves(geometry.apply(into, corners)) @ generators.T / into[0, 0]
    turned = np.einsum("rs,nsk->nrk", T[:3, :3], first.reshape(len(corners), 3, -1))
    return _carried(turned.reshape(3 * len(corners), -1), covariance)


def of_points(corners: Matrix, covariance: Matrix, points: Matrix) -> Matrix:
    """(3 N, 3 N): covariance of where ``points`` (N, 3) of a go, from that of its ``corners`` (8, 3)."""
    center, unit = corners.mean(0), float(np.ptp(corners, 0).max())
    known: Matrix = np.linalg.pinv(_moves((corners - center) / unit)).astype(np.float64)
    influence: Matrix = _moves((points - center) / unit) @ known
    return _carried(influence, covariance)


def inverted(T: Matrix, corners_a: Matrix, corners_b: Matrix, covariance: Matrix) -> Matrix:
    """(24, 24): covariance of b's corners under the inverse of T, from that of a's corners under T."""
    back = geometry.invert(T)
    there = of_points(corners_a, covariance, geometry.apply(back, corners_b))
    return _carried(_each(back[:3, :3]), there)


def composed(G: Matrix, after: tuple[Matrix, Matrix], T: Matrix, before: tuple[Matrix, Matrix]) -> Matrix:
    """(24, 24): of the corners under G T; ``after`` and ``before`` are the corners and covariances of G and of T."""
    own = of_points(*after, geometry.apply(T, before[0]))
    total: Matrix = own + _carried(_each(G[:3, :3]), before[1])
    return total


def _each(linear: Matrix) -> Matrix:
    """(24, 24): a linear map (3, 3) of each of eight points."""
    blocks: Matrix = np.kron(np.eye(8), linear).astype(np.float64)
    return blocks
