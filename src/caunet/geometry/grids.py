"""Read one image at a grid of places, by torch's fused kernel: what estimation does hundreds of times for each pair.

Why a second reader beside `sampling.py`: `grid_sample` is one kernel where `sample` is a dozen elementwise operations,
and takes a third to a seventh of the time. The price is coordinates that are normalized to [-1, 1], hence not exact at
integers, and no fill: beyond the image its edge continues, and `inside` tells which places those are.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from caunet.geometry.arrays import Matrix
from caunet.geometry.matrices import NEAR

__all__ = ["grid_of", "grid_places", "read_grid"]


def grid_places(H: Matrix, x: Tensor, y: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Where H (3, 3) puts the pixels of K blocks in an image of ``size``: a grid for `read_grid`, and which are inside.

    x (K, 1, w) and y (K, h, 1) are the pixels' coordinates; the grid is (K, h, w, 2), ``inside`` (K, h, w) bool.
    Points behind the viewer (a third coordinate of at most `NEAR`) are outside.
    """
    height, width = size
    (a, b, c), (d, e, f), (g, h, i) = H.tolist()
    # The change to [-1, 1] is part of the matrix, so that it costs nothing for each pixel.
    across, down = 2 / max(width - 1, 1), 2 / max(height - 1, 1)
    a, b, c = across * a - g, across * b - h, across * c - i
    d, e, f = down * d - g, down * e - h, down * f - i
    if g == h == 0 and i == 1:
        grid = x.new_empty(len(x), y.shape[1], x.shape[2], 2)
        u, v = grid.unbind(-1)
        torch.add(x * a + c, y * b, out=u)
        torch.add(x * d + f, y * e, out=v)
        return grid, torch.maximum(u.abs(), v.abs()) <= 1
    terms = x.new_tensor(((a, d, g), (b, e, h), (c, f, i))).view(3, 3, 1, 1, 1)
    uvw = torch.addcmul(terms[2], terms[0], x) + terms[1] * y
    uv, third = uvw[:2], uvw[2]
    ahead = third > NEAR
    inverse = third.clamp_min_(NEAR).reciprocal()
    grid = inverse.new_empty(*inverse.shape, 2)
    torch.mul(uv, inverse, out=grid.movedim(-1, 0))
    largest, other = uv.abs_()
    return grid, ahead.logical_and_(torch.maximum(largest, other, out=largest) <= third)


def grid_of(x: Tensor, y: Tensor, size: tuple[int, int]) -> Tensor:
    """Places x and y (h, w) in pixels of an image of ``size`` as a grid (1, h, w, 2) for `read_grid`."""
    height, width = size
    return torch.stack([x * (2 / (width - 1)) - 1, y * (2 / (height - 1)) - 1], -1)[None]


def read_grid(image: Tensor, grid: Tensor, mode: Literal["bilinear", "bicubic"] = "bilinear") -> Tensor:
    """Values (K, h, w) of ``image`` (H, W) at a grid (K, h, w, 2); beyond the image its edge continues.

    >>> image, x = torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([[0.5, 5.0]])
    >>> read_grid(image, grid_of(x, torch.tensor([[0.5, 0.0]]), (2, 2)))
    tensor([[[1.5000, 1.0000]]])
    """
    count, height, width = grid.shape[:3]
    values = grid_sample(
        image[None, None],
        grid.view(1, count * height, width, 2),
        mode=mode,
        padding_mode="border",
        align_corners=True,
    )
    return values.view(count, height, width)
