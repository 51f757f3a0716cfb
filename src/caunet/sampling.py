"""Read images at places between pixels: the inner loop of `caunet.geometry.warp`.

Convention: pixel centres at integers, x right, y down; (0, 0) is the centre of the first pixel.
Coordinates stay in pixels throughout (`torch.nn.functional.grid_sample` normalises them to [-1, 1] and
back, which moves an integer place off the integer): a place on a pixel returns that pixel bit for bit.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

__all__ = ["MODES", "Mode", "sample"]

Mode = Literal["bilinear", "bicubic", "nearest"]
MODES: tuple[Mode, ...] = get_args(Mode)

CUBIC = -0.75  # Keys' parameter as OpenCV and PyTorch have it (MATLAB and Pillow take -0.5)


def sample(images: Tensor, x: Tensor, y: Tensor, base: Tensor, mode: Mode, fill: float = 0.0) -> Tensor:
    """Values of `images` (..., H, W) at the places x, y (B, *places): float tensor (B, *places).

    `base` (B,) is the offset of each row's image in the flattened `images`. Everything outside an image
    is `fill`, so a place less than a pixel from the border mixes border and fill. The result has the dtype
    of the images, or float32 for byte images. Differentiable in images (when floating), x and y.

    >>> image = torch.tensor([[0., 1.], [2., 3.]])
    >>> sample(image, torch.tensor([[0., 0.5, 1.5]]), torch.tensor([[1., 0.5, 0.]]), torch.tensor([0]),
    ...        "bilinear")
    tensor([[2.0000, 1.5000, 0.5000]])
    """
    height, width = images.shape[-2:]
    dtype = images.dtype if images.is_floating_point() else torch.float32
    x_taps, x_weights = _taps(x, width, mode, dtype)
    y_taps, y_weights = _taps(y, height, mode, dtype)
    flat = images.reshape(-1)
    base = base.to(torch.int64).reshape(-1, *[1] * (x.ndim - 1))
    rows = [tap * width + base for tap in y_taps]
    total: Tensor | None = None
    for row, y_weight in zip(rows, y_weights, strict=True):
        line: Tensor | None = None
        for tap, x_weight in zip(x_taps, x_weights, strict=True):
            value = flat.take(row + tap).to(dtype) * x_weight
            line = value if line is None else line + value
        assert line is not None
        line = line * y_weight
        total = line if total is None else total + line
    assert total is not None
    return total if fill == 0 else total + fill * (1 - _sum(x_weights) * _sum(y_weights))


def _sum(tensors: list[Tensor]) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total


def _taps(x: Tensor, length: int, mode: Mode, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """Along one axis: the pixels that count at x (as valid indices) and their weights (0 if outside)."""
    # Beyond these ends no pixel has weight; and a huge or infinite x would not fit an integer.
    x = x.clamp(-2.0, length + 1.0)
    if mode == "nearest":
        place = x.detach().round()
        offset, weights = 0, [torch.ones_like(x, dtype=dtype)]
    else:
        place = x.detach().floor()
        t = (x - place).to(dtype)
        offset, weights = (0, [1 - t, t]) if mode == "bilinear" else (-1, _cubic(t))
    first = place.to(torch.int64) + offset
    taps = []
    for k, weight in enumerate(weights):
        inside = (first + k).clamp(0, length - 1)
        weights[k] = weight * (first + k == inside)
        taps.append(inside)
    return taps, weights


def _cubic(t: Tensor) -> list[Tensor]:
    """Keys' cubic convolution weights of the pixels at -1, 0, 1, 2 for a place at t in [0, 1)."""
    a, s = CUBIC, 1 - t
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, s)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + t, 1 + s)]
    return [far[0], near[0], near[1], far[1]]
