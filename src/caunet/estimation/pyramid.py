"""Pictures at several scales, and places of one picture read in another.

Coordinates: pixel centres at integers on every level. A pixel of level n stands for 2^n x 2^n pixels of level 0, so
x_0 = s x_n + (s - 1) / 2 with s = 2^n: :func:`level_matrix`.
"""

import torch
from torch import Tensor
from torch.nn.functional import conv2d, grid_sample, pad

from caunet import geometry

__all__ = ["between_levels", "halve", "level_matrix", "places", "pyramid", "read", "smooth"]

_NEAR = 1e-4  # third coordinate (1 at the picture's centre) below which a point counts as behind the viewer
_SMOOTH = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)  # a Gaussian of standard deviation 1
_HALVE = (1 / 8, 3 / 8, 3 / 8, 1 / 8)


def smooth(picture: Tensor) -> Tensor:
    """(H, W) through a binomial filter of standard deviation 1; beyond the edge the edge goes on."""
    return _separable(picture, _SMOOTH, 2, 2, 1)


def halve(picture: Tensor) -> Tensor:
    """(H, W) at half the scale, (ceil(H / 2), ceil(W / 2)), smoothed before.

    >>> halve(torch.full((4, 6), 0.5))
    tensor([[0.5000, 0.5000, 0.5000],
            [0.5000, 0.5000, 0.5000]])
    """
    return _separable(picture, _HALVE, 1, 2, 2)


def _separable(picture: Tensor, taps: tuple[float, ...], before: int, after: int, stride: int) -> Tensor:
    kernel = picture.new_tensor(taps)
    padded = pad(picture[None, None], (before, after, before, after), mode="replicate")
    rows = conv2d(padded, kernel.view(1, 1, -1, 1), stride=(stride, 1))
    return conv2d(rows, kernel.view(1, 1, 1, -1), stride=(1, stride))[0, 0]


def pyramid(picture: Tensor, levels: int) -> list[Tensor]:
    """``picture`` (H, W) and ``levels`` - 1 smaller ones, each half of the one before."""
    pictures = [picture]
    for _ in range(levels - 1):
        pictures.append(halve(pictures[-1]))
    return pictures


def level_matrix(level: int) -> Tensor:
    """(3, 3) float64: from pixels of ``level`` to pixels of the picture itself.

    >>> level_matrix(1)[0]
    tensor([2.0000, 0.0000, 0.5000], dtype=torch.float64)
    """
    s = float(2**level)
    shift = (s - 1) / 2
    return torch.tensor([[s, 0, shift], [0, s, shift], [0, 0, 1]], dtype=torch.float64)


def between_levels(H: Tensor, source: int, target: int) -> Tensor:
    """H (3, 3) in pixels of level ``source`` of both pictures, rewritten for level ``target``.

    >>> between_levels(geometry.translate(8.0, 0.0).double(), 0, 2)[0, 2].item()
    2.0
    """
    if source == target:
        return H
    step = geometry.compose(geometry.invert(level_matrix(target)), level_matrix(source))
    return geometry.normalise(geometry.compose(step, H, geometry.invert(step)))


def places(H: Tensor, points: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Where ``points`` (N, 3), homogeneous, lie in a picture of ``size``: (N, 2) for grid_sample, and whether inside.

    H is float64, on the CPU; only its product with the normalisation is rounded to the points' precision.
    """
    height, width = size
    frame = H.new_tensor([[2 / max(width - 1, 1), 0, -1], [0, 2 / max(height - 1, 1), -1], [0, 0, 1]])
    moved = points @ (frame @ H).mT.to(points)
    third = moved[:, 2:]
    grid = moved[:, :2] / third.clamp_min(_NEAR)
    inside = (grid.abs().amax(1) <= 1) & (third[:, 0] > _NEAR)
    return grid, inside


def read(picture: Tensor, grid: Tensor, mode: str = "bilinear") -> Tensor:
    """Values of ``picture`` (H, W) at ``grid`` (N, 2) from :func:`places`; beyond the edge the edge goes on."""
    values = grid_sample(
        picture[None, None], grid[None, :, None], mode=mode, padding_mode="border", align_corners=True
    )
    return values[0, 0, :, 0]
