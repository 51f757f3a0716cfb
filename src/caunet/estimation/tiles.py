"""Parts of a large picture that are worth looking at: few, textured, and spread over it."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d, avg_pool2d

from caunet.estimation.pyramid import Matrix, places, smooth

__all__ = ["Tiles", "choose", "whole"]

_SIDE = 32
_GRID = 8  # tiles along each side of the picture
_COARSE = 4  # pixels to a pixel of the map that tiles are chosen on
_MARGIN = 2  # of the smoothing filter


class Tiles(NamedTuple):
    """Parts of a picture: values (K, h, w) and the (x, y) of their first pixels (K, 2)."""

    values: Tensor
    corners: Tensor


def whole(picture: Tensor) -> Tiles:
    """A picture (H, W) as one tile."""
    return Tiles(picture[None], torch.zeros(1, 2, device=picture.device))


def choose(a: Tensor, size: tuple[int, int], H: Matrix) -> Tiles:
    """The most textured tile in each of 8 x 8 parts of a (H, W), of those seen in a picture of ``size``; smoothed."""
    texture = _texture(a)
    rows, columns = texture.shape
    x = torch.arange(columns, device=a.device, dtype=a.dtype) * (_SIDE // 2) + _SIDE / 2 + _MARGIN
    y = torch.arange(rows, device=a.device, dtype=a.dtype) * (_SIDE // 2) + _SIDE / 2 + _MARGIN
    _, seen = places(H, x[None, None], y[None, :, None], size)
    texture = texture * seen[0].to(a.dtype) + 1e-12
    _, index = adaptive_max_pool2d(texture[None], min(_GRID, rows, columns), return_indices=True)
    index = torch.unique(index)
    top, left = index // columns * (_SIDE // 2), index % columns * (_SIDE // 2)
    wide = _SIDE + 2 * _MARGIN
    top, left = top.clamp(max=a.shape[0] - wide), left.clamp(max=a.shape[1] - wide)
    line = torch.arange(wide, device=a.device)
    cut = a[(top[:, None] + line)[:, :, None], (left[:, None] + line)[:, None, :]]
    values = smooth(cut)[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
    corners = torch.stack([left, top], 1).to(a.dtype) + _MARGIN
    return Tiles(values, corners)


def _texture(a: Tensor) -> Tensor:
    """Gradient energy of every tile, half a tile apart: of both directions the lesser counts."""
    small = avg_pool2d(a[None], _COARSE)
    right, down = small[:, :-1, 1:] - small[:, :-1, :-1], small[:, 1:, :-1] - small[:, :-1, :-1]
    side = _SIDE // _COARSE
    xx, yy, xy = avg_pool2d(torch.stack([right * right, down * down, right * down])[:, 0], side, side // 2)
    half, delta = 0.5 * (xx + yy), 0.5 * (xx - yy)
    lesser: Tensor = half - (delta.square() + xy.square()).sqrt() + 0.05 * half
    return lesser
