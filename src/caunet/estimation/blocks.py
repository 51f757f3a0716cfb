"""Square blocks of a large image that are worth aligning: few, textured, and spread over it."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d, avg_pool2d, grid_sample

from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid
from caunet.images.pyramid import smooth

__all__ = ["Blocks", "SmoothedWhereRead", "choose_blocks", "whole_image"]

_SIDE = 32
_GRID = 8  # blocks along each side of the image
_COARSE = 4  # pixels to a pixel of the map that blocks are chosen on
_MARGIN = 2  # of the smoothing filter
_ROOM = 6  # pixels that blocks may move before what they are read from is cut out and smoothed again


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


class SmoothedWhereRead:
    """A large image (H, W) that blocks are read from: only what lies around them is smoothed.

    >>> import numpy as np
    >>> image = torch.rand(300, 400, generator=torch.Generator().manual_seed(0))
    >>> line = torch.arange(32.0)
    >>> x, y = torch.tensor([[[10.0]], [[300.0]]]) + line, torch.tensor([[[0.0]], [[250.0]]]) + line[:, None]
    >>> grid, _ = grid_places(np.diag([1.01, 0.99, 1.0]), x, y, (300, 400))
    >>> bool((SmoothedWhereRead(image).read(grid) - read_grid(smooth(image), grid)).abs().max() < 1e-4)
    True
    """

    def __init__(self, image: Tensor) -> None:
        self.image = image
        self.shape = image.shape
        self._boxes: Tensor | None = None

    def read(self, grid: Tensor) -> Tensor:
        """Values (K, h, w) at a grid (K, h, w, 2) of :func:`caunet.geometry.grids.grid_places`."""
        height, width = self.shape
        most = grid.new_tensor([width - 1, height - 1])
        places = ((grid + 1) * (most / 2)).clamp_min_(0).minimum(most)  # beyond the image its edge continues
        low, high = places.amin((1, 2)).floor(), places.amax((1, 2)).ceil()  # (K, 2)
        if self._boxes is None or self._leaves(low, high):
            self._cut(low, high)
        if self._boxes is None:
            return read_grid(self._whole(), grid)
        size = grid.new_tensor([self._boxes.shape[2] - 1, self._boxes.shape[1] - 1])
        local = (places - self._corners[:, None, None]).mul_(2 / size).sub_(1)
        values = grid_sample(self._boxes[:, None], local, padding_mode="border", align_corners=True)
        return values[:, 0]

    def _leaves(self, low: Tensor, high: Tensor) -> bool:
        """Whether places are read that the boxes do not hold."""
        return bool((low < self._first).any()) or bool((high > self._last).any())

    def _cut(self, low: Tensor, high: Tensor) -> None:
        """Boxes of one size around all places, smoothed; none if they are as large as the image."""
        height, width = self.shape
        reach = _ROOM + _MARGIN
        columns, rows = ((high - low).amax(0).long() + 2 * reach + 1).tolist()
        columns, rows = min(columns, width), min(rows, height)
        if len(low) * columns * rows > self.image.numel():
            self._boxes = None
            return
        last = low.new_tensor([width - columns, height - rows])
        self._corners = (low - reach).clamp_min(0).minimum(last)
        end = self._corners + low.new_tensor([columns - 1, rows - 1])
        # The filter sees beyond a box only at the edge of the image, which continues.
        edge = low.new_tensor([width - 1, height - 1])
        self._first = torch.where(self._corners > 0, self._corners + _MARGIN, self._corners)
        self._last = torch.where(end < edge, end - _MARGIN, end)
        left, top = self._corners.long().unbind(1)
        line = torch.arange(max(rows, columns), device=low.device)
        y, x = (top[:, None] + line[:rows])[:, :, None], (left[:, None] + line[:columns])[:, None, :]
        self._boxes = smooth(self.image[y, x])

    def _whole(self) -> Tensor:
        if not hasattr(self, "_smoothed"):
            self._smoothed = smooth(self.image)
        return self._smoothed


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
