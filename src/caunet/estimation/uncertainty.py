"""How uncertain the places are that an uncertain transform gives.

An uncertain transform is described by where it puts the four corners of the first image: a covariance (8, 8) of
(x, y) of the corners in the second image, clockwise from the upper left, in square pixels. Eight numbers determine a
homography, so this holds for every motion model (of a model with k < 8 parameters its rank is k), and each 2 x 2
block on the diagonal is the ellipse of one corner.
"""

import numpy as np

from caunet import geometry
from caunet.estimation.evidence import LocalMotions, point_moves
from caunet.geometry import Matrix

__all__ = ["composed", "inverted", "jacobian", "of_corners", "of_motions", "of_points", "relative"]

_SHARED = 4.0  # windows that show a place: they overlap by half, along both axes
_FAR = 1e7  # pixels beyond which a point has no uncertainty to speak of


def jacobian(H: Matrix, points: Matrix) -> Matrix:
    """(N, 2, 2): how ``points`` (N, 2) carried by ``H`` (3, 3) move with the points.

    >>> jacobian(np.diag([2.0, 3.0, 1.0]), np.zeros((1, 2)))[0].tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    carried = geometry.apply_homogeneous(H, points)
    place, third = carried[:, :2] / carried[:, 2:], carried[:, 2:, None]
    slopes: Matrix = (H[None, :2, :2] - place[:, :, None] * H[None, 2:, :2]) / third
    return slopes


def of_corners(
    H: Matrix, points: Matrix, covariance: Matrix, generators: Matrix, into: Matrix
) -> Matrix | None:
    """(2 N, 2 N): covariance of H ``points`` (N, 2), or None where one of them is at infinity.

    ``covariance`` (k, k) is that of ``generators`` (k, 8), which act on a before H does, in coordinates ``into`` (3, 3)
    (a shift and a scale) of a's pixels.
    """
    moves = point_moves(geometry.apply(into, points)) @ generators.T / into[0, 0]
    return _carried(jacobian(H, points) @ moves, covariance)


def of_motions(left: LocalMotions, generators: Matrix, into: Matrix) -> Matrix | None:
    """(k, k): covariance of ``generators`` (k, 8) for an answer under which windows still move as in ``left``.

    For answers that no alignment of intensities made. The motions scatter about what the generators can explain of
    them, and what they can explain is an error of the answer. ``into`` (3, 3) is a shift and a scale to the generators'
    coordinates. None where too few windows show something.
    """
    weight = left.weight * np.maximum(left.likeness, 0) ** 2
    if float(weight.sum()) < len(generators):
        return None
    moves = point_moves(geometry.apply(into, left.points)) @ generators.T / into[0, 0]  # (N, 2, k)
    pulled = np.swapaxes(moves * weight[:, None, None], 1, 2)  # (N, k, 2)
    normal = np.tensordot(pulled, moves, ((0, 2), (0, 1)))
    scale = 1 / np.sqrt(np.maximum(np.diag(normal), 1e-12))
    inverse = (
        np.linalg.inv(normal * scale[:, None] * scale + 1e-6 * np.eye(len(scale))) * scale[:, None] * scale
    )
    error = inverse @ np.einsum("nka,na->k", pulled, left.motion)
    forces = np.einsum("nka,na->kn", pulled, left.motion - moves @ error)
    spread: Matrix = _SHARED * inverse @ (forces @ forces.T) @ inverse + np.outer(error, error)
    return spread


def relative(H: Matrix, size: tuple[int, int], corners: Matrix | None) -> float:
    """Standard deviation of where H puts the corners of an image of ``size``, over the diagonal that it has there.

    ``corners`` (8, 8) is their covariance; without one the answer is 1.
    """
    there = geometry.apply(H, geometry.corners(size, like=H))
    diagonal = (np.linalg.norm(there[0] - there[2]) + np.linalg.norm(there[1] - there[3])) / 2
    if corners is None or not _near(there):
        return 1.0
    return min(float(np.sqrt(max(np.trace(corners) / 4, 0.0)) / max(diagonal, 1e-6)), 1.0)


def of_points(H: Matrix, size: tuple[int, int], corners: Matrix, points: Matrix) -> Matrix | None:
    """(2 N, 2 N): covariance of H ``points`` (N, 2) from that of the ``corners`` (8, 8) of an image of ``size``."""
    return _carried(_influence(H, size, points), corners)


def inverted(H: Matrix, size_a: tuple[int, int], size_b: tuple[int, int], corners: Matrix) -> Matrix | None:
    """(8, 8): covariance of b's corners under the inverse of H, from that of a's corners under H."""
    points = geometry.apply(geometry.invert(H, checked=False), geometry.corners(size_b, like=H))
    if not _near(points):
        return None
    back: Matrix = np.linalg.inv(jacobian(H, points)).astype(np.float64)
    return _carried(_rows(back) @ _influence(H, size_a, points), corners)


def composed(
    second: tuple[Matrix, tuple[int, int], Matrix], first: tuple[Matrix, tuple[int, int], Matrix]
) -> Matrix | None:
    """(8, 8): covariance of the corners under G H; each is a matrix, the size of its first image, and its covariance.

    The two are taken as independent.
    """
    (G, middle, after), (H, size, before) = second, first
    corners = geometry.corners(size, like=H)
    points = geometry.apply(H, corners)
    if not _near(points):
        return None
    own = _carried(_influence(G, middle, points), after)
    handed = _carried(_rows(jacobian(G, points)), before)
    return None if own is None or handed is None else own + handed


def _influence(H: Matrix, size: tuple[int, int], points: Matrix) -> Matrix:
    """(2 N, 8): how H ``points`` move with the corners of an image of ``size``."""
    unit = max(size) / 2
    x, y = geometry.center_of(size)
    into = np.array([[1 / unit, 0, -x / unit], [0, 1 / unit, -y / unit], [0, 0, 1]])
    corners = geometry.corners(size, like=H)
    of_all, of_four = (
        (jacobian(H, places) @ point_moves(geometry.apply(into, places))).reshape(-1, 8)
        for places in (points, corners)
    )
    moves: Matrix = np.linalg.solve(of_four.T, of_all.T).T.astype(np.float64)
    return moves


def _rows(blocks: Matrix) -> Matrix:
    """(2 N, 2 N): the blocks (N, 2, 2) on the diagonal."""
    count = len(blocks)
    rows = np.zeros((count, 2, count, 2))
    rows[np.arange(count), :, np.arange(count)] = blocks
    return rows.reshape(2 * count, 2 * count)


def _carried(moves: Matrix, covariance: Matrix) -> Matrix | None:
    moves = moves.reshape(-1, moves.shape[-1])
    spread: Matrix = moves @ covariance @ moves.T
    return (spread + spread.T) / 2 if np.isfinite(spread).all() else None


def _near(points: Matrix) -> bool:
    return bool(np.isfinite(points).all() and np.abs(points).max() < _FAR)
