"""Square blocks of a large image that are worth aligning: few, textured, and spread over it."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d, avg_pool2d

from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid
from caunet.images.pyramid import smooth

__all__ = ["Blocks", "choose_blocks", "whole_image"]

_SIDE = 32
_GRID = 8  # blocks along each side of the image
_COARSE = 4  # pixels to a pixel of the map that blocks are chosen on
_MARGIN = 2  # of the smoothing filter


class Blocks(NamedTuple):
    """Parts of an image: values (K, h, w), the (x, y) of their first pixels (K, 2), which pixels count (K, h, w)."""

    values: Tensor
    corners: Tensor
    mask: Tensor | None = None


def whole_image(image: Tensor, mask: Tensor | None = None) -> Blocks:
    """An image (H, W) as one block."""
    corners = torch.zeros(1, 2, device=image.device)
    return Blocks(image[None], corners, None if mask is None else mask[None])


def choose_blocks(
    a: Tensor, size: tuple[int, int], H: Matrix, mask: Tensor | None = None, mask_b: Tensor | None = None
) -> Blocks:
    """The most textured block in each of 8 x 8 parts of a (H, W), smoothed, of those that H puts inside ``size``.

    Where there is a ``mask`` (H, W), blocks count by their share in it; those that H puts outside of ``mask_b`` do not.
    """
    texture = _texture(a)
    if mask is not None:
        texture = texture * _share(mask.to(a.dtype))
    rows, columns = texture.shape
    x = torch.arange(columns, device=a.device, dtype=a.dtype) * (_SIDE // 2) + _SIDE / 2 + _MARGIN
    y = torch.arange(rows, device=a.device, dtype=a.dtype) * (_SIDE // 2) + _SIDE / 2 + _MARGIN
    grid, inside = grid_places(H, x[None, None], y[None, :, None], size)
    if mask_b is not None:
        inside &= read_grid(mask_b.to(a.dtype), grid) > 0.5
    texture = texture * inside[0].to(a.dtype) + 1e-12
    _, index = adaptive_max_pool2d(texture[None], min(_GRID, rows, columns), return_indices=True)
    index = torch.unique(index)
    top, left = index // columns * (_SIDE // 2), index % columns * (_SIDE // 2)
    wide = _SIDE + 2 * _MARGIN
    top, left = top.clamp(max=a.shape[0] - wide), left.clamp(max=a.shape[1] - wide)
    line = torch.arange(wide, device=a.device)
    rows_of, columns_of = (top[:, None] + line)[:, :, None], (left[:, None] + line)[:, None, :]
    inner = (slice(None), slice(_MARGIN, -_MARGIN), slice(_MARGIN, -_MARGIN))
    values = smooth(a[rows_of, columns_of])[inner]
    corners = torch.stack([left, top], 1).to(a.dtype) + _MARGIN
    return Blocks(values, corners, None if mask is None else mask[rows_of, columns_of][inner])


def _share(mask: Tensor) -> Tensor:
    """Share of every block of :func:`_texture` that lies in the mask."""
    side = _SIDE // _COARSE
    small: Tensor = avg_pool2d(mask[None], _COARSE)[:, :-1, :-1]
    return avg_pool2d(small, side, side // 2)[0]


def _texture(a: Tensor) -> Tensor:
    """Gradient energy of every block, half a block apart: the lesser of both directions counts."""
    small = avg_pool2d(a[None], _COARSE)
    right, down = small[:, :-1, 1:] - small[:, :-1, :-1], small[:, 1:, :-1] - small[:, :-1, :-1]
    side = _SIDE // _COARSE
    xx, yy, xy = avg_pool2d(torch.stack([right * right, down * down, right * down])[:, 0], side, side // 2)
    half, delta = 0.5 * (xx + yy), 0.5 * (xx - yy)
    lesser: Tensor = half - (delta.square() + xy.square()).sqrt() + 0.05 * half
    return lesser
