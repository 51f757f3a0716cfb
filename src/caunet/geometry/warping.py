"""Warping: images carried by transforms of the plane.

Where a pixel goes is asked here, how pixels are read there in `sampling.py`. A warp of volumes (H (B, 4, 4), three
coordinates) or by a dense field of displacements belongs here, beside `warp`, and reads through the same `sample`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from caunet.geometry.frames import check_size
from caunet.geometry.matrices import adjugate, check, dimension
from caunet.geometry.sampling import MODES, Mode, sample

__all__ = ["warp"]

HORIZON = 1e-6  # the smallest third coordinate that counts as in front, that of the image's center being 1
FLOAT32_SIDE = 512  # up to this size float32 coordinates are good to 1e-4 of a pixel


def warp(
    images: Tensor,
    H: Tensor,
    size: tuple[int, int] | None = None,
    mode: Mode = "bilinear",
    fill: float = 0.0,
    *,
    origin: tuple[float, float] = (0.0, 0.0),
    index: Tensor | None = None,
    checked: bool = True,
) -> Tensor:
    """Images carried by H: y with y(p') = x(H^-1 p'), one homography for each image, differentiable in both.

    Args:
        images: (B, C, height, width) or (B, height, width), floating or bytes.
        H: (B, 3, 3), or (3, 3) for all images, in pixels (see `center`).
        size: (height, width) of the output; that of the images if not given.
        mode: "bilinear", "bicubic" (a = -0.75, as OpenCV and PyTorch) or "nearest" (ties to even).
        fill: the value of everything outside the image, and of points behind the horizon of H.
        origin: (x0, y0), where the output's first pixel lies in the second image; only this crop is computed.
            The same crop is ``warp(images, compose(translate(-x0, -y0), H), size)``.
        index: (B,) which image each H takes; without it the images are taken in order.
        checked: False skips the search for singular or non-finite H (it waits for the device).

    Returns:
        (B, C, *size) or (B, *size), in the dtype of the images (float32 for byte images). The front of H is
        the side on which it leaves the center of the image, so H and -H warp alike.

    >>> from caunet.geometry import translate
    >>> image = torch.tensor([[[1., 2., 3.]]])
    >>> warp(image, translate(1.0, 0.0))
    tensor([[[0., 1., 2.]]])
    >>> warp(image, translate(1.0, 0.0), size=(1, 2), origin=(2, 0))
    tensor([[[2., 3.]]])
    """
    H, base = _check_warp(images, H, mode, fill, index)
    if checked:
        check(H)
    height, width = images.shape[-2:]
    if size is None:
        size = (height, width)
    check_size("size", size, 2)
    narrow = torch.float64 not in (images.dtype, H.dtype) and max(height, width, *size) <= FLOAT32_SIDE
    dtype = torch.float32 if narrow else torch.float64
    x, y = _sources(H, (height, width), size, origin, dtype)
    if images.ndim == 4:
        channels = torch.arange(images.shape[1], device=H.device) * (height * width)
        base = (base[:, None] + channels).reshape(-1)
        x, y = (c.repeat_interleave(images.shape[1], 0) for c in (x, y))
    values = sample(images, x, y, base, mode, fill)
    return values.reshape(*H.shape[:1], *images.shape[1:-2], *size)


def _sources(
    H: Tensor, inside: tuple[int, int], size: tuple[int, int], origin: tuple[float, float], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Where each output pixel (B, *size) lies in the first image: x and y, in `dtype`.

    What is computed for each homography is computed in float64; what is computed for each pixel, in `dtype`.
    """
    wide = H.double()
    # Scaled so that the image's center has w = 1: H and -H have the same front, and w a known size.
    middle = wide[:, 2, 0] * ((inside[1] - 1) / 2) + wide[:, 2, 1] * ((inside[0] - 1) / 2) + wide[:, 2, 2]
    cofactors, determinant = adjugate(wide / torch.where(middle == 0, 1.0, middle)[:, None, None])
    right, down, corner = (cofactors / determinant[:, None, None]).unbind(-1)
    start = right * origin[0] + down * origin[1] + corner
    right, down, start = (
        part.mT[..., None].to(dtype).contiguous() for part in (right, down, start)
    )  # (3, B, 1)
    place = torch.arange(size[0] * size[1], device=H.device)
    columns, rows = (place % size[1]).to(dtype), (place // size[1]).to(dtype)
    x, y, w = (right * columns + (down * rows + start)).reshape(3, len(H), *size)
    # Behind the horizon w is not positive: such a pixel is sent far outside (without a slow `where`).
    far = (HORIZON - w).clamp_min(0) * 1e20
    w = w.clamp_min(HORIZON)
    return x / w + far, y / w


def _check_warp(
    images: Tensor, H: Tensor, mode: Mode, fill: float, index: Tensor | None
) -> tuple[Tensor, Tensor]:
    """H as (B, 3, 3) and the offset (B,) of each image in the flattened images."""
    if images.ndim not in (3, 4) or images.numel() == 0:
        raise ValueError(f"images must be (B, C, height, width) or (B, height, width), got {[*images.shape]}")
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if not math.isfinite(fill):
        raise ValueError(f"fill must be a finite number, got {fill}")
    if dimension(H) != 2:
        raise ValueError(f"H must have shape (..., 3, 3) to warp images, got {tuple(H.shape)}")
    count = len(images) if index is None else len(index)
    if H.ndim == 2:
        H = H.expand(count, 3, 3)
    if H.ndim != 3 or len(H) != count:
        raise ValueError(f"H must have shape ({count}, 3, 3), one for each image, got {tuple(H.shape)}")
    rows = torch.arange(count, device=images.device) if index is None else index
    return H, rows * images[0].numel()
