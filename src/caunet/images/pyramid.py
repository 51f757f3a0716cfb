"""Images at several scales: each level has half the sides of the one before.

A pixel of level n stands for 2^n x 2^n pixels of level 0; where it lies there is `caunet.geometry.pixel_scale(2.0**n)`.
"""

from torch import Tensor
from torch.nn.functional import conv2d, pad

__all__ = ["halve", "pyramid", "smooth"]

_SMOOTH = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)  # a Gaussian of standard deviation 1
_HALVE = (1 / 8, 3 / 8, 3 / 8, 1 / 8)


def smooth(image: Tensor) -> Tensor:
    """(..., H, W) through a binomial filter of standard deviation 1; beyond the border the border continues."""
    return _separable(image, _SMOOTH, 2, 2, 1)


def halve(image: Tensor) -> Tensor:
    """(..., H, W) at half the scale, (..., ceil(H / 2), ceil(W / 2)), smoothed before.

    >>> import torch
    >>> halve(torch.full((4, 6), 0.5))
    tensor([[0.5000, 0.5000, 0.5000],
            [0.5000, 0.5000, 0.5000]])
    """
    return _separable(image, _HALVE, 1, 2, 2)


def pyramid(image: Tensor, levels: int) -> list[Tensor]:
    """``image`` (H, W) and ``levels`` - 1 smaller ones, each half of the one before."""
    images = [image]
    for _ in range(levels - 1):
        images.append(halve(images[-1]))
    return images


def _separable(image: Tensor, taps: tuple[float, ...], before: int, after: int, stride: int) -> Tensor:
    kernel = image.new_tensor(taps)
    single = image.reshape(-1, 1, *image.shape[-2:])
    padded = pad(single, (before, after, before, after), mode="replicate")
    rows = conv2d(padded, kernel.view(1, 1, -1, 1), stride=(stride, 1))
    made = conv2d(rows, kernel.view(1, 1, 1, -1), stride=(1, stride))
    return made.reshape(*image.shape[:-2], *made.shape[-2:])
