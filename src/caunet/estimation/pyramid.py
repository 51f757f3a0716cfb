"""Pictures at several scales, and places of one picture read in another.

Coordinates: pixel centres at integers on every level. A pixel of level n stands for 2^n x 2^n pixels of level 0, so
x_0 = s x_n + (s - 1) / 2 with s = 2^n. Homographies are small and stay on the CPU, in NumPy and float64; pictures
are tensors, on whatever device.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import conv2d, grid_sample, pad

__all__ = [
    "Matrix",
    "apply",
    "between_levels",
    "halve",
    "inverse",
    "level_matrix",
    "normalised",
    "places",
    "pyramid",
    "read",
    "smooth",
]

Matrix = npt.NDArray[np.float64]

_NEAR = 1e-3  # third coordinate (1 at the first pixel) below which a point counts as behind the viewer
_SMOOTH = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)  # a Gaussian of standard deviation 1
_HALVE = (1 / 8, 3 / 8, 3 / 8, 1 / 8)


def smooth(picture: Tensor) -> Tensor:
    """(..., H, W) through a binomial filter of standard deviation 1; beyond the edge the edge goes on."""
    return _separable(picture, _SMOOTH, 2, 2, 1)


def halve(picture: Tensor) -> Tensor:
    """(..., H, W) at half the scale, (..., ceil(H / 2), ceil(W / 2)), smoothed before.

    >>> halve(torch.full((4, 6), 0.5))
    tensor([[0.5000, 0.5000, 0.5000],
            [0.5000, 0.5000, 0.5000]])
    """
    return _separable(picture, _HALVE, 1, 2, 2)


def _separable(picture: Tensor, taps: tuple[float, ...], before: int, after: int, stride: int) -> Tensor:
    kernel = picture.new_tensor(taps)
    single = picture.reshape(-1, 1, *picture.shape[-2:])
    padded = pad(single, (before, after, before, after), mode="replicate")
    rows = conv2d(padded, kernel.view(1, 1, -1, 1), stride=(stride, 1))
    made = conv2d(rows, kernel.view(1, 1, 1, -1), stride=(1, stride))
    return made.reshape(*picture.shape[:-2], *made.shape[-2:])


def pyramid(picture: Tensor, levels: int) -> list[Tensor]:
    """``picture`` (H, W) and ``levels`` - 1 smaller ones, each half of the one before."""
    pictures = [picture]
    for _ in range(levels - 1):
        pictures.append(halve(pictures[-1]))
    return pictures


def level_matrix(level: int) -> Matrix:
    """(3, 3): from pixels of ``level`` to pixels of the picture itself.

    >>> level_matrix(1)[0]
    array([2. , 0. , 0.5])
    """
    s = float(2**level)
    shift = (s - 1) / 2
    return np.array([[s, 0, shift], [0, s, shift], [0, 0, 1]])


def normalised(H: Matrix) -> Matrix:
    """The same homography with 1 as its last entry."""
    made: Matrix = H / H[2, 2]
    return made


def inverse(H: Matrix) -> Matrix:
    """The inverse matrix."""
    return np.asarray(np.linalg.inv(H), dtype=np.float64)


def between_levels(H: Matrix, source: int, target: int) -> Matrix:
    """H (3, 3) in pixels of level ``source`` of both pictures, rewritten for level ``target``.

    >>> shift = np.array([[1.0, 0, 8], [0, 1, 0], [0, 0, 1]])
    >>> between_levels(shift, 0, 2)[0]
    array([1., 0., 2.])
    """
    if source == target:
        return H
    step = inverse(level_matrix(target)) @ level_matrix(source)
    return normalised(step @ H @ inverse(step))


def apply(H: Matrix, points: Matrix) -> Matrix:
    """Points (N, 2) carried by H; those behind the viewer end far away.

    >>> apply(np.diag([2.0, 2.0, 1.0]), np.array([[1.0, 3.0]]))
    array([[2., 6.]])
    """
    moved = points @ H[:, :2].T + H[:, 2]
    third = moved[:, 2:]
    made: Matrix = np.where(third > _NEAR, moved[:, :2] / np.maximum(third, _NEAR), 1e6)
    return made


def places(H: Matrix, x: Tensor, y: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Where the pixels of K tiles lie in a picture of ``size``, as grid_sample wants them, and whether inside.

    x (K, 1, w) and y (K, h, 1) are the pixels' coordinates; the grid is (K, h, w, 2), the answer (K, h, w).
    """
    height, width = size
    frame = np.array([[2 / max(width - 1, 1), 0, -1], [0, 2 / max(height - 1, 1), -1], [0, 0, 1]])
    (a, b, c), (d, e, f), (g, h, i) = (frame @ H).tolist()
    third = (x * g + i) + y * h
    inside = third > _NEAR
    inverse = third.clamp_min_(_NEAR).reciprocal_()
    right, down = ((x * a + c) + y * b).mul_(inverse), ((x * d + f) + y * e).mul_(inverse)
    grid = torch.stack([right, down], -1)
    inside &= torch.maximum(right.abs_(), down.abs_()) <= 1
    return grid, inside


def read(picture: Tensor, grid: Tensor) -> Tensor:
    """Values (K, h, w) of ``picture`` (H, W) at a grid (K, h, w, 2) of :func:`places`; the edge goes on beyond it."""
    count, height, width = grid.shape[:3]
    values = grid_sample(
        picture[None, None],
        grid.view(1, count * height, width, 2),
        mode="bilinear",
        padding_mode="border",
        align_corners=True,
    )
    return values.view(count, height, width)
