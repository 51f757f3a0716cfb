"""Resample one image onto another's grid; an array, a tensor or a PIL image comes back as what it was."""

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.geometry.sampling import Mode

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["resample_onto"]

BAND = 2**20
"""Pixels resampled at a time: bounds the memory of large images."""


def resample_onto(
    image: Any,
    matrix: Tensor,
    size: tuple[int, int],
    fill: float = 0.0,
    mode: Mode = "bilinear",
    expected: tuple[int, int] | None = None,
    origin: tuple[int, int] = (0, 0),
) -> Any:
    """``image`` read at ``matrix`` p for every pixel p of a grid of ``size`` (height, width).

    Args:
        image: array (H, W) or (H, W, C), tensor (H, W) or (C, H, W), PIL image, or a path (which becomes a PIL
            image). Whole numbers are rounded, and stay within the range of their dtype.
        matrix: (3, 3), from the grid to the image.
        fill: in the image's own units, for what lies outside.
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
    fill: float,
    mode: Mode,
    expected: tuple[int, int] | None,
    origin: tuple[int, int],
) -> Tensor:
    found = (tensor.shape[-2], tensor.shape[-1])
    if expected is not None and found != expected:
        raise ValueError(
            f"b must be the image that was compared, {expected[1]} x {expected[0]} pixels, "
            f"got {found[1]} x {found[0]}"
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
    bands = [
        geometry.warp(
            images,
            inverse,
            (min(rows, size[0] - top), size[1]),
            mode,
            fill,
            origin=(origin[0], origin[1] + top),
        )
        for top in range(0, size[0], rows)
    ]
    return _back(torch.cat(bands, dim=-2)[0], tensor.dtype)


def _back(values: Tensor, dtype: torch.dtype) -> Tensor:
    """In the dtype of the input; whole numbers rounded, and kept within their range."""
    if dtype == torch.bool:
        return values >= 0.5
    if dtype.is_floating_point:
        return values.to(dtype)
    limits = torch.iinfo(dtype)
    return values.round().clamp(limits.min, limits.max).to(dtype)
