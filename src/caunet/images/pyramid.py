"""Images at several scales: each level has half the sides of the one before.

A pixel of level n stands for 2^n x 2^n pixels of level 0; where it lies there is `caunet.geometry.pixel_scale(2.0**n)`.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["finer", "gaussian", "halve", "pyramid", "smooth"]

_SMOOTH = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)  # a Gaussian of standard deviation 1
_HALVE = (1 / 8, 3 / 8, 3 / 8, 1 / 8)
_BETWEEN = (
    3 / 256,
    -25 / 256,
    150 / 256,
    150 / 256,
    -25 / 256,
    3 / 256,
)  # halfway on a polynomial of degree five
_STRIP = 1 << 18  # pixels that are halved at once


def smooth(image: Tensor) -> Tensor:
    """(..., H, W) through a binomial filter of standard deviation 1; beyond the border the border continues."""
    return _separable(image, _SMOOTH, 2, 2, 1)


def gaussian(image: Tensor, sigma: float) -> Tensor:
    """(..., H, W) through a Gaussian of standard deviation ``sigma``, cut off at three of them.

    >>> gaussian(torch.full((4, 6), 0.5), 1.6)[0]
    tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000])
    """
    radius = max(1, math.ceil(3 * sigma))
    taps = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
    return _separable(image, tuple(tap / sum(taps) for tap in taps), radius, radius, 1)


def halve(image: Tensor) -> Tensor:
    """(..., H, W) at half the scale, (..., ceil(H / 2), ceil(W / 2)), smoothed before.

    >>> halve(torch.full((4, 6), 0.5))
    tensor([[0.5000, 0.5000, 0.5000],
            [0.5000, 0.5000, 0.5000]])
    """
    height, width = image.shape[-2:]
    if image.numel() <= _STRIP:
        return _separable(image, _HALVE, 1, 2, 2)
    rows = -(-height // 2)
    made = image.new_empty(*image.shape[:-2], rows, -(-width // 2))
    step = max(_STRIP * height // (2 * image.numel()), 1)
    for top in range(0, rows, step):  # what is made on the way is small, and stays in the processor's cache
        bottom = min(top + step, rows)
        line = torch.arange(2 * top - 1, 2 * bottom + 2, device=image.device).clamp_(0, height - 1)
        wide = image.index_select(-2, line)[..., : 2 * (bottom - top) + 2, :]
        made[..., top:bottom, :] = _separable(wide, _HALVE, 1, 2, 2, padded=True)
    return made


def finer(image: Tensor) -> Tensor:
    """(..., H, W) with a value between each two pixels, (..., 2 H - 1, 2 W - 1): those of polynomials of degree five.

    Linear interpolation between pixels blurs, and averages noise, by an amount that depends on the place. Between these
    values it does so hardly at all.

    >>> finer(torch.tensor([[0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 36.0]]))[0, 4:9]
    tensor([ 4.0000,  6.2500,  9.0000, 12.2500, 16.0000])
    """
    made = image.reshape(-1, *image.shape[-2:])
    for axis, sides in ((1, (0, 0, 2, 2)), (2, (2, 2, 0, 0))):
        size = made.shape[axis]
        wide = pad(made[None], sides, mode="replicate")[0]
        both = made.new_empty(*made.shape[:axis], 2 * size - 1, *made.shape[axis + 1 :])
        whole, half = (both[:, k::2] if axis == 1 else both[:, :, k::2] for k in (0, 1))
        whole.copy_(made)
        half.copy_(_sum(wide, _BETWEEN, axis, size - 1, 1))
        made = both
    return made.reshape(*image.shape[:-2], *made.shape[-2:])


def pyramid(image: Tensor, levels: int) -> list[Tensor]:
    """``image`` (..., H, W) and ``levels`` - 1 smaller ones, each half of the one before."""
    images = [image]
    for _ in range(levels - 1):
        images.append(halve(images[-1]))
    return images


def _separable(
    image: Tensor, taps: tuple[float, ...], before: int, after: int, stride: int, *, padded: bool = False
) -> Tensor:
    """Rows, then columns, through symmetric ``taps``, as sums of shifted images.

    On a CPU this takes a quarter of the time of a convolution, whose speed is in many channels. ``padded``: the rows
    beyond the border are there already.
    """
    made = image.reshape(-1, *image.shape[-2:])
    for axis in (1, 2):
        sides = (0, 0, before, after) if axis == 1 else (before, after, 0, 0)
        wide = made if padded and axis == 1 else pad(made[None], sides, mode="replicate")[0]
        size = (wide.shape[axis] - len(taps)) // stride + 1
        made = _sum(wide, taps, axis, size, stride)
    return made.reshape(*image.shape[:-2], *made.shape[-2:])


def _sum(wide: Tensor, taps: tuple[float, ...], axis: int, size: int, stride: int) -> Tensor:
    def shifted(k: int) -> Tensor:
        part = wide.narrow(axis, k, (size - 1) * stride + 1)
        return part[:, ::stride] if axis == 1 else part[:, :, ::stride]

    half, odd = divmod(len(taps), 2)
    total = shifted(half) * taps[half] if odd else torch.zeros_like(shifted(0))
    for k in range(half):
        total.add_(shifted(k) + shifted(len(taps) - 1 - k), alpha=taps[k])
    return total
