"""Read images at places between pixels: the one reader that is exact, differentiable and general.

Convention: pixel centers at integers, x right, y down; (0, 0) is the center of the first pixel.
Coordinates stay in pixels throughout (`torch.nn.functional.grid_sample` normalizes them to [-1, 1] and
back, which moves an integer place off the integer): a place on a pixel returns that pixel bit for bit.

There are two other readers, each for one purpose and for the time it saves (measured on one core):
    - `caunet.geometry.grids` reads one float image at a grid of places for estimation, 3 to 7 times as fast (0.18 ms
      against 0.57 ms for 256 x 256 places), because torch has one fused kernel for it; not exact at integers.
    - `caunet.data.lookup` cuts small patches out of many byte images for training pairs, about 3 times as fast, because
      it needs no border arithmetic, no gradient and no float copy of the images.

Border: outside is `fill`. Instead of masking taps, which is slow, a place is pulled back onto the image and
its value fades out with the distance that it was pulled: for one axis of bilinear interpolation that is
the same thing, and with whole distances (nearest, and each tap of the cubic) it is the mask.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

__all__ = ["MODES", "Mode", "sample"]

Mode = Literal["bilinear", "bicubic", "nearest"]
MODES: tuple[Mode, ...] = get_args(Mode)

CUBIC = -0.75  # Keys' parameter as OpenCV and PyTorch have it (MATLAB and Pillow take -0.5)


def sample(
    images: Tensor, x: Tensor, y: Tensor, base: Tensor, mode: Mode = "bilinear", fill: float = 0.0
) -> Tensor:
    """Values of `images` (..., H, W) at the places x, y (B, *places): (B, *places).

    `base` (B,) is the offset of each row's image in the flattened images. Everything outside an image is
    `fill`, so a place less than a pixel from the border mixes border and fill. The result has the dtype of
    the images, or float32 for byte images. Differentiable in images (when floating), x and y.

    >>> image = torch.tensor([[0., 1.], [2., 3.]])
    >>> sample(image, torch.tensor([[0., 0.5, 1.5]]), torch.tensor([[1., 0.5, 0.]]), torch.tensor([0]))
    tensor([[2.0000, 1.5000, 0.5000]])
    """
    flat = images.reshape(-1)
    # Half as wide indices are read twice as fast; torch indexes with both.
    integer = torch.int32 if flat.numel() < 2**31 else torch.int64
    base = base.to(integer).reshape(-1, *[1] * (x.ndim - 1))
    interpolate = {"bilinear": _bilinear, "bicubic": _bicubic, "nearest": _nearest}[mode]
    value, share = interpolate(flat, images.shape[-2], images.shape[-1], x, y, base)
    return value if fill == 0 else value + fill * (1 - share)


def _nearest(
    flat: Tensor, height: int, width: int, x: Tensor, y: Tensor, base: Tensor
) -> tuple[Tensor, Tensor]:
    dtype = _float(flat)
    column, fade_x = _pull(x.detach().round(), width)
    row, fade_y = _pull(y.detach().round(), height)
    share = (fade_x * fade_y).to(dtype)
    place = row.to(base.dtype) * width + column.to(base.dtype) + base
    return _pick(flat, place) * share, share


def _bilinear(
    flat: Tensor, height: int, width: int, x: Tensor, y: Tensor, base: Tensor
) -> tuple[Tensor, Tensor]:
    dtype = _float(flat)
    x, fade_x = _pull(x, width)
    y, fade_y = _pull(y, height)
    share = (fade_x * fade_y).to(dtype)
    # The last pixel is reached from the one before it with t = 1, so that both taps are always inside.
    column = x.detach().floor().clamp_max(max(width - 2, 0))
    row = y.detach().floor().clamp_max(max(height - 2, 0))
    right, below = min(width - 1, 1), width * min(height - 1, 1)
    place = row.to(base.dtype) * width + column.to(base.dtype) + base
    t = (x - column).to(dtype)
    # lerp is exact at both ends.
    upper = torch.lerp(_pick(flat, place), _pick(flat, place + right), t)
    lower = torch.lerp(_pick(flat, place + below), _pick(flat, place + (below + right)), t)
    return torch.lerp(upper, lower, (y - row).to(dtype)) * share, share


def _bicubic(
    flat: Tensor, height: int, width: int, x: Tensor, y: Tensor, base: Tensor
) -> tuple[Tensor, Tensor]:
    dtype = _float(flat)
    columns, x_weights = _cubic_taps(x, width, dtype)
    rows, y_weights = _cubic_taps(y, height, dtype)
    value = torch.zeros((), dtype=dtype, device=x.device)
    for row, y_weight in zip(rows, y_weights, strict=True):
        start = row.to(base.dtype) * width + base
        line = torch.zeros((), dtype=dtype, device=x.device)
        for column, x_weight in zip(columns, x_weights, strict=True):
            line = torch.addcmul(line, _pick(flat, start + column.to(base.dtype)), x_weight)
        value = torch.addcmul(value, line, y_weight)
    return value, _total(x_weights) * _total(y_weights)


def _cubic_taps(x: Tensor, length: int, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """Along one axis: the four pixels around x (pulled inside) and their weights (0 if they were outside)."""
    x = x.clamp(-2.0, length + 1.0)  # beyond these no pixel has weight, and infinities have no fraction
    first = x.detach().floor()
    pulled = [_pull(first + k, length) for k in (-1, 0, 1, 2)]
    weights = _cubic((x - first).to(dtype))
    return [tap for tap, _ in pulled], [
        w * fade.to(dtype) for w, (_, fade) in zip(weights, pulled, strict=True)
    ]


def _total(weights: list[Tensor]) -> Tensor:
    return (weights[0] + weights[1]) + (weights[2] + weights[3])


def _cubic(t: Tensor) -> list[Tensor]:
    """Keys' cubic convolution weights of the pixels at -1, 0, 1, 2 for a place at t in [0, 1)."""
    a, s = CUBIC, 1 - t
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, s)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + t, 1 + s)]
    return [far[0], near[0], near[1], far[1]]


def _pull(x: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """x pulled onto [0, length - 1], and 1 minus the distance that took, not below 0."""
    inside = x.clamp(0.0, length - 1.0)
    return inside, (1 - (x - inside).abs()).clamp_min(0.0)


def _pick(flat: Tensor, place: Tensor) -> Tensor:
    return flat.index_select(0, place.reshape(-1)).reshape(place.shape).to(_float(flat))


def _float(images: Tensor) -> torch.dtype:
    return images.dtype if images.is_floating_point() else torch.float32
