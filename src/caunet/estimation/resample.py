"""Resample one image onto another's grid; an array, a tensor or a PIL image comes back as what it was."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.geometry.sampling import Mode
from caunet.sizes import size_text

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Fill", "in_dtype", "resample_onto", "seen_from"]

BAND = 2**20
"""Pixels resampled at a time: bounds the memory of large images."""

_WHOLE = 1e-4  # share of a pixel below which nothing is missing


Fill = float | Sequence[float]
"""One number, or one for each channel."""


def resample_onto(
    image: Any,
    matrix: Tensor,
    size: tuple[int, int],
    fill: Fill = 0.0,
    mode: Mode = "bilinear",
    expected: tuple[int, int] | None = None,
    origin: tuple[int, int] = (0, 0),
) -> Any:
    """``image`` read at ``matrix`` p for every pixel p of a grid of ``size`` (height, width).

    Args:
        image: array (H, W) or (H, W, C), tensor (H, W) or (C, H, W), PIL image, or a path (which becomes a PIL
            image). Whole numbers are rounded, and stay within the range of their dtype.
        matrix: (3, 3), from the grid to the image.
        fill: in the image's own units, for what lies outside: a number, or one for each channel. NaN, which only
            floats can hold, also takes the place of what is mixed from inside and outside.
        expected: the (height, width) it must have.
        origin: (x, y) of the grid's first pixel.
    """
    if isinstance(image, Tensor):
        if image.layout != torch.strided or image.is_meta:
            kind = "a meta tensor" if image.is_meta else f"a tensor of layout {image.layout}"
            raise TypeError(f"b must be a dense tensor that holds values, got {kind}")
        if image.ndim not in (2, 3) or image.numel() == 0:
            raise ValueError(f"b must be a tensor (H, W) or (C, H, W), got {tuple(image.shape)}")
        return _resample_tensor(image, matrix, size, fill, mode, expected, origin)
    if isinstance(image, np.ndarray):
        return _resample_array(image, matrix, size, fill, mode, expected, origin)
    from PIL import Image

    if isinstance(image, str | os.PathLike):
        from caunet.images import read_upright

        image = read_upright(image, "b")
    if isinstance(image, Image.Image):
        return _resample_pil(image, matrix, size, fill, mode, expected, origin)
    raise TypeError(f"b must be an array, a tensor, a PIL image or a path, got {type(image).__name__}")


def _resample_array(array: npt.NDArray[Any], *rest: Any) -> npt.NDArray[Any]:
    if array.ndim not in (2, 3) or array.size == 0:
        raise ValueError(f"b must be an array (H, W) or (H, W, C), got {array.shape}")
    if array.dtype.kind not in "uifb":
        raise TypeError(f"b must be an array of numbers, got {array.dtype}")
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    tensor = torch.from_numpy(native)
    values = _resample_tensor(tensor if array.ndim == 2 else tensor.permute(2, 0, 1), *rest)
    return (values if array.ndim == 2 else values.permute(1, 2, 0)).contiguous().numpy().astype(array.dtype)


def _resample_pil(image: "Image.Image", *rest: Any) -> "Image.Image":
    """In its own mode where that holds plain numbers; palettes and the like become RGB, two levels gray."""
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(image)
    if upright.mode == "1":
        upright = upright.convert("L")
    elif upright.mode in ("P", "PA", "CMYK", "YCbCr", "LAB", "HSV"):
        upright = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
    return Image.fromarray(_resample_array(np.asarray(upright), *rest))


def _resample_tensor(
    tensor: Tensor,
    matrix: Tensor,
    size: tuple[int, int],
    fill: Fill,
    mode: Mode,
    expected: tuple[int, int] | None,
    origin: tuple[int, int],
) -> Tensor:
    color = _color(fill, tensor)
    found = (tensor.shape[-2], tensor.shape[-1])
    if expected is not None and found != expected:
        raise ValueError(
            f"b must be the image that was compared, {size_text(expected)}, got {size_text(found)}"
        )
    images = tensor[None]
    if not tensor.is_floating_point():
        # float32 holds bytes and 16 bits exactly; wider whole numbers need more.
        narrow = tensor.dtype in (torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16)
        images = images.to(torch.float32 if narrow else torch.float64)
    elif tensor.dtype in (torch.float16, torch.bfloat16):
        images = images.float()
    inverse = geometry.invert(matrix.to(images.device, torch.float64))
    rows = max(1, BAND // size[1])
    plain = color.ndim == 0 and bool(color.isfinite())
    share = images.new_ones(1, *images.shape[-2:])  # how much of a pixel comes from the image
    bands = []
    for top in range(0, size[0], rows):
        part, at = (min(rows, size[0] - top), size[1]), (origin[0], origin[1] + top)
        band = geometry.warp(images, inverse, part, mode, float(color) if plain else 0.0, origin=at)[0]
        if not plain:
            inside = geometry.warp(share, inverse, part, mode, origin=at)[0]
            band = _filled(band, inside, color.to(band.device, band.dtype))
        bands.append(band)
    return in_dtype(torch.cat(bands, dim=-2), tensor.dtype)


def seen_from(
    size: tuple[int, int], matrix: Tensor, grid: tuple[int, int], mode: Mode, origin: tuple[int, int]
) -> Tensor:
    """Which pixels of a ``grid`` (height, width) an image of ``size`` gives, unmixed with what is outside: bool."""
    ones = torch.ones(size, dtype=torch.float64)
    share: Tensor = resample_onto(ones, matrix, grid, 0.0, mode, origin=origin)
    return (share - 1).abs() < _WHOLE


def _filled(values: Tensor, inside: Tensor, color: Tensor) -> Tensor:
    """``values`` (..., H, W), made with a fill of 0 where the share ``inside`` (H, W) is less than 1, with a color."""
    color = color.reshape(*color.shape, *[1] * (values.ndim - color.ndim))
    missing = (1 - inside).expand_as(values)
    unknown = color.isnan() & (missing.abs() >= _WHOLE)
    return torch.where(unknown, torch.nan, values + color.nan_to_num() * missing)


def _color(fill: Any, tensor: Tensor) -> Tensor:
    """``fill`` as a number () or as one for each channel (C,), checked."""
    what = "a number, or one for each channel"
    try:
        color = torch.as_tensor(fill, dtype=torch.float64).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"fill must be {what}, got {fill!r}") from error
    channels = tensor.shape[0] if tensor.ndim == 3 else 1
    if color.ndim > 1 or (color.ndim == 1 and len(color) != channels):
        raise ValueError(f"fill must be {what}, of which there are {channels}, got {fill!r}")
    if bool(color.isinf().any()) or (bool(color.isnan().any()) and not tensor.is_floating_point()):
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(f"fill must be finite, or NaN for an image of floats, got {fill!r} for {kind}")
    return color[0] if color.ndim == 1 and tensor.ndim == 2 else color


def in_dtype(values: Tensor, dtype: torch.dtype) -> Tensor:
    """``values`` in the dtype of an input; whole numbers rounded, and kept within their range."""
    if dtype == torch.bool:
        return values >= 0.5
    if dtype.is_floating_point:
        return values.to(dtype)
    limits = torch.iinfo(dtype)
    return values.round().clamp(limits.min, limits.max).to(dtype)
