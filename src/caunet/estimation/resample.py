"""Lay one picture onto another's grid; what comes in as an array, a tensor or Pillow's image goes out as such."""

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

__all__ = ["lay"]

BAND = 2**20
"""Pixels resampled at a time: bounds the memory of large pictures."""


def lay(
    picture: Any,
    matrix: Tensor,
    size: tuple[int, int],
    fill: float = 0.0,
    mode: Mode = "bilinear",
    expected: tuple[int, int] | None = None,
    origin: tuple[int, int] = (0, 0),
) -> Any:
    """``picture`` read at ``matrix`` p for every pixel p of a grid of ``size`` (height, width).

    Args:
        picture: array (H, W) or (H, W, C), tensor (H, W) or (C, H, W), Pillow's image, or a path (which
            becomes Pillow's image). Whole numbers are rounded, and stay within their kind.
        matrix: (3, 3), from the grid to the picture.
        fill: in the picture's own units, for what lies outside.
        expected: the (height, width) it must have.
        origin: (x, y) of the grid's first pixel.
    """
    if isinstance(picture, Tensor):
        if picture.ndim not in (2, 3) or picture.numel() == 0:
            raise ValueError(f"b takes a tensor (H, W) or (C, H, W), got {tuple(picture.shape)}")
        return _lay_tensor(picture, matrix, size, fill, mode, expected, origin)
    if isinstance(picture, np.ndarray):
        return _lay_array(picture, matrix, size, fill, mode, expected, origin)
    from PIL import Image

    if isinstance(picture, str | os.PathLike):
        from caunet.images import read_upright

        picture = read_upright(picture, "b")
    if isinstance(picture, Image.Image):
        return _lay_pillow(picture, matrix, size, fill, mode, expected, origin)
    raise TypeError(f"b takes an array, a tensor, a PIL image or a path, got {type(picture).__name__}")


def _lay_array(array: npt.NDArray[Any], *rest: Any) -> npt.NDArray[Any]:
    if array.ndim not in (2, 3) or array.size == 0:
        raise ValueError(f"b takes an array (H, W) or (H, W, C), got {array.shape}")
    if array.dtype.kind not in "uifb":
        raise TypeError(f"b takes an array of numbers, got {array.dtype}")
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    tensor = torch.from_numpy(native)
    laid = _lay_tensor(tensor if array.ndim == 2 else tensor.permute(2, 0, 1), *rest)
    return (laid if array.ndim == 2 else laid.permute(1, 2, 0)).contiguous().numpy().astype(array.dtype)


def _lay_pillow(image: "Image.Image", *rest: Any) -> "Image.Image":
    """In Pillow's mode where it has one for numbers; palettes and the like become RGB, two levels gray."""
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(image)
    if upright.mode == "1":
        upright = upright.convert("L")
    elif upright.mode in ("P", "PA", "CMYK", "YCbCr", "LAB", "HSV"):
        upright = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
    return Image.fromarray(_lay_array(np.asarray(upright), *rest))


def _lay_tensor(
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
            f"b takes the picture that was compared, {expected[1]} x {expected[0]} pixels; "
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
    """In the dtype that came; whole numbers rounded, and kept within their range."""
    if dtype == torch.bool:
        return values >= 0.5
    if dtype.is_floating_point:
        return values.to(dtype)
    limits = torch.iinfo(dtype)
    return values.round().clamp(limits.min, limits.max).to(dtype)
