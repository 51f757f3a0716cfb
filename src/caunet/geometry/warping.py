"""Warping: images carried by transforms of the plane, volumes by transforms of space.

Where a pixel goes is asked here, how pixels are read there in `sampling.py`. A warp by a dense field of displacements
belongs here, beside `warp`, and reads through the same `sample`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from caunet.geometry.frames import check_size
from caunet.geometry.matrices import adjugate, check, dimension
from caunet.geometry.sampling import MODES, VOLUME_MODES, Mode, VolumeMode, sample

__all__ = ["warp"]

HORIZON = 1e-6  # the smallest last coordinate that counts as in front, that of the image's center being 1
FLOAT32_SIDE = 512  # up to this size float32 coordinates are good to 1e-4 of a pixel


def warp(
    images: Tensor,
    H: Tensor,
    size: Sequence[int] | None = None,
    mode: Mode | VolumeMode | None = None,
    fill: float = 0.0,
    *,
    origin: Sequence[float] | None = None,
    index: Tensor | None = None,
    checked: bool = True,
) -> Tensor:
    """Images or volumes carried by H: y with y(p') = x(H^-1 p'), one transform for each, differentiable in both.

    Whether ``images`` are images or volumes is said by H: (3, 3) is of the plane, (4, 4) of space.

    Args:
        images: (B, C, height, width) or (B, height, width), floating or bytes; volumes (B, C, depth, height, width) or
            (B, depth, height, width).
        H: (B, 3, 3), or (3, 3) for all images, in pixels (see `center`); (B, 4, 4) or (4, 4) for volumes.
        size: (height, width) or (depth, height, width) of the output; that of the images if not given.
        mode: "bilinear" (the default), "bicubic" (a = -0.75, as OpenCV and PyTorch) or "nearest" (ties to even); of
            volumes "linear" (the default), "cubic" (the same kernel) or "nearest".
        fill: the value of everything outside the image, and of points behind the horizon of H.
        origin: (x0, y0[, z0]), where the output's first pixel lies in the second image; only this crop is computed.
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
    >>> volume = torch.arange(4.0).reshape(1, 4, 1, 1)  # four slices of one voxel
    >>> warp(volume, translate(0.0, 0.0, 0.5)).flatten()
    tensor([0.0000, 0.5000, 1.5000, 2.5000])
    """
    d = dimension(H)
    H, base, mode = _check_warp(images, H, d, mode, fill, index)
    if checked:
        check(H)
    inside = tuple(images.shape[-d:])
    size = inside if size is None else tuple(size)
    check_size("size", size, d)
    origin = (0.0,) * d if origin is None else tuple(origin)
    if len(origin) != d:
        raise ValueError(f"origin must have {d} coordinates, got {origin}")
    narrow = torch.float64 not in (images.dtype, H.dtype) and max(*inside, *size) <= FLOAT32_SIDE
    dtype = torch.float32 if narrow else torch.float64
    places = _sources(H, inside, size, origin, dtype)
    if images.ndim == d + 2:
        channels = torch.arange(images.shape[1], device=H.device) * math.prod(inside)
        base = (base[:, None] + channels).reshape(-1)
        places = [c.repeat_interleave(images.shape[1], 0) for c in places]
    values = sample(images, places, base, mode, fill)
    return values.reshape(*H.shape[:1], *images.shape[1:-d], *size)


def _sources(
    H: Tensor, inside: Sequence[int], size: Sequence[int], origin: Sequence[float], dtype: torch.dtype
) -> list[Tensor]:
    """Where each output pixel (B, *size) lies in the first image: x, y[, z], in `dtype`.

    What is computed for each transform is computed in float64; what is computed for each pixel, in `dtype`.
    """
    wide = H.double()
    d = len(inside)
    # Scaled so that the image's center has w = 1: H and -H have the same front, and w a known size.
    middle = wide[:, d, d]
    for k in range(d - 1, -1, -1):
        middle = wide[:, d, k] * ((inside[d - 1 - k] - 1) / 2) + middle
    cofactors, determinant = adjugate(wide / torch.where(middle == 0, 1.0, middle)[:, None, None])
    columns = (cofactors / determinant[:, None, None]).unbind(-1)
    start = columns[d]
    for k in range(d - 1, -1, -1):
        start = columns[k] * origin[k] + start
    steps = [part.mT[..., None].to(dtype).contiguous() for part in (*columns[:d], start)]  # (d + 1, B, 1)
    place = torch.arange(math.prod(size), device=H.device)
    total = steps[d]
    for k in range(d - 1, -1, -1):  # the slowest axis first: x is added last
        across = math.prod(size[d - k :])
        counts = (place // across) % size[d - 1 - k]
        total = steps[k] * counts.to(dtype) + total
    *homogeneous, w = total.reshape(d + 1, len(H), *size)
    # Behind the horizon w is not positive: such a pixel is sent far outside (without a slow `where`).
    far = (HORIZON - w).clamp_min(0) * 1e20
    w = w.clamp_min(HORIZON)
    return [homogeneous[0] / w + far, *(part / w for part in homogeneous[1:])]


def _check_warp(
    images: Tensor, H: Tensor, d: int, mode: Mode | VolumeMode | None, fill: float, index: Tensor | None
) -> tuple[Tensor, Tensor, Mode | VolumeMode]:
    """H as (B, d+1, d+1), the offset (B,) of each image in the flattened images, and the mode."""
    sides = "height, width" if d == 2 else "depth, height, width"
    if images.ndim not in (d + 1, d + 2) or images.numel() == 0:
        raise ValueError(
            f"images must be (B, C, {sides}) or (B, {sides}) for H (..., {d + 1}, {d + 1}), got {[*images.shape]}"
        )
    modes: tuple[Mode | VolumeMode, ...] = MODES if d == 2 else VOLUME_MODES
    mode = modes[0] if mode is None else mode
    if mode not in modes:
        raise ValueError(f"mode must be one of {', '.join(modes)}, got {mode!r}")
    if not math.isfinite(fill):
        raise ValueError(f"fill must be a finite number, got {fill}")
    count = len(images) if index is None else len(index)
    if H.ndim == 2:
        H = H.expand(count, d + 1, d + 1)
    if H.ndim != 3 or len(H) != count:
        raise ValueError(
            f"H must have shape ({count}, {d + 1}, {d + 1}), one for each image, got {tuple(H.shape)}"
        )
    rows = torch.arange(count, device=images.device) if index is None else index
    return H, rows * images[0].numel(), mode
