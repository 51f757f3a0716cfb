"""Pictures as they come: paths, file contents, Pillow, NumPy, tensors; one form inside.

What is done to them, always the same:

- Files and Pillow's images: upright (EXIF), first frame of an animation, palette and CMYK as RGB, 16 bits kept.
- Transparency lies on white; that goes for arrays of four channels too.
- Whole numbers are divided by the largest of their kind (255, 65535), True is 1.
- Floats within 0..1 are taken as they are. Others are moved and scaled from their own smallest and largest
  value to 0..1: how two pictures are related does not depend on brightness and contrast.
- Gray is 0.299 R + 0.587 G + 0.114 B.

A file that cannot be used is a :class:`PictureError`, an array that cannot is a ``ValueError`` or ``TypeError``;
the message begins with the name of the argument.
"""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet.errors import DataError
from caunet.images.decode import MAX_PIXELS, Samples, decode, read_samples

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MIN_SIDE", "Picture", "PictureError", "read_picture", "read_upright"]

MIN_SIDE = 16
"""Smaller pictures hold too little to be compared (a network's patch alone has 11 pixels a side)."""

GRAY = (0.299, 0.587, 0.114)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LARGEST = {torch.uint8: 255.0, torch.uint16: 65535.0, torch.bool: 1.0}
_TAKES = "a path, a file's bytes, a PIL image, a NumPy array or a tensor"


class PictureError(DataError):
    """A picture could not be had: missing, damaged, too large, no picture at all."""


@dataclass(frozen=True)
class Picture:
    """A picture ready to be compared: values 0..1, all finite."""

    gray: Tensor
    """(H, W) float32."""
    pixels: Tensor
    """(H, W), or (H, W, 3) where there is colour; float32. The same tensor as ``gray`` where there is none."""
    source: str
    """Where it came from: a path, ``bytes``, ``PIL image``, ``array`` or ``tensor``."""

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.gray.shape[0], self.gray.shape[1]


def read_picture(value: Any, argument: str = "a", *, device: torch.device | str | None = None) -> Picture:
    """The picture ``value`` as gray and coloured values 0..1.

    Args:
        value: a path, the content of a file as ``bytes``, a PIL image, a NumPy array (H, W) or (H, W, 1|3|4) or a
            tensor (H, W) or (1|3|4, H, W); arrays and tensors hold uint8, uint16, bool or floats.
        argument: what errors call it.
        device: where the tensors of the result shall be.

    >>> picture = read_picture(np.full((20, 30, 3), 51, np.uint8))
    >>> picture.size, picture.gray.mean().item(), picture.source
    ((20, 30), 0.2..., 'array')
    >>> read_picture(np.zeros((20, 30), np.int64), "b")
    Traceback (most recent call last):
    ...
    TypeError: b takes uint8, uint16, bool or floats, got int64; convert it, for bytes by .astype(np.uint8)
    """
    if isinstance(value, Picture):
        return Picture(value.gray.to(device), value.pixels.to(device), value.source)
    if isinstance(value, Tensor):
        return _picture(_channels_last(value.detach(), argument), "tensor", argument, device)
    if isinstance(value, np.ndarray):
        return _picture(_from_numpy(value, argument), "array", argument, device)
    samples, source = _read(value, argument)
    _check_size(samples.shape[0], samples.shape[1], f"{argument}: {source}", PictureError)
    return _picture(torch.from_numpy(samples), source, argument, device)


def _read(value: Any, argument: str) -> tuple[Samples, str]:
    """Samples of a file, a file's bytes or Pillow's image."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _samples(bytes(value), argument, "the bytes"), "bytes"
    if isinstance(value, str | os.PathLike):
        path = Path(value)
        return _samples(path, argument, str(path)), str(path)
    from PIL import Image

    if isinstance(value, Image.Image):
        return _from_pillow(value, argument), "PIL image"
    raise TypeError(f"{argument} takes {_TAKES}, got {type(value).__name__}")


def _samples(source: Path | bytes, argument: str, name: str) -> Samples:
    if isinstance(source, Path) and source.is_dir():
        raise PictureError(f"{argument}: {name} is a directory; name one picture in it")
    if isinstance(source, bytes) and not source:
        raise PictureError(f"{argument}: the bytes are empty")
    try:
        return read_samples(source, f"{argument}: {name}")
    except DataError as error:
        raise PictureError(str(error)) from error


def _from_pillow(image: "Image.Image", argument: str) -> Samples:
    if min(image.size) < 1:
        raise ValueError(f"{argument} is empty: {image.width} x {image.height} pixels")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return decode(image, argument)
    except DataError as error:
        raise PictureError(str(error)) from error
    except Exception as error:  # a lazily opened file is decoded only now, and may be damaged or closed
        raise PictureError(f"{argument}: this PIL image cannot be read: {error}") from error


def _from_numpy(array: npt.NDArray[Any], argument: str) -> Tensor:
    """(H, W) or (H, W, C), of a dtype that is checked here: torch would refuse some with words of its own."""
    if array.dtype.kind not in "ufb" or (array.dtype.kind == "u" and array.dtype.itemsize > 2):
        raise TypeError(_dtype_complaint(argument, str(array.dtype), "by .astype(np.uint8)"))
    if np.ma.isMaskedArray(array):
        raise TypeError(
            f"{argument} is a masked array, and masks are not used; fill it: {argument}.filled(0)"
        )
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        raise ValueError(
            f"{argument} takes arrays (H, W) or (H, W, 1|3|4), got {array.shape}: channels first; "
            "arrays have them last (np.moveaxis(array, 0, 2)), tensors first"
        )
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        raise ValueError(f"{argument} takes arrays (H, W) or (H, W, 1|3|4), got {array.shape}")
    _check_size(array.shape[0], array.shape[1], argument)  # before anything is copied
    if array.dtype.kind == "f":
        array = array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32)
    else:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(np.ascontiguousarray(array))


def _channels_last(tensor: Tensor, argument: str) -> Tensor:
    if tensor.dtype not in _LARGEST and tensor.dtype not in FLOATS:
        got = str(tensor.dtype).removeprefix("torch.")
        raise TypeError(_dtype_complaint(argument, got, "by .to(torch.uint8)"))
    if tensor.ndim == 3 and tensor.shape[0] not in (1, 3, 4) and tensor.shape[2] in (1, 3, 4):
        raise ValueError(
            f"{argument} takes tensors (H, W) or (1|3|4, H, W), got {tuple(tensor.shape)}: channels last; "
            "tensors have them first (tensor.permute(2, 0, 1)), arrays last"
        )
    if tensor.ndim not in (2, 3) or (tensor.ndim == 3 and tensor.shape[0] not in (1, 3, 4)):
        raise ValueError(f"{argument} takes tensors (H, W) or (1|3|4, H, W), got {tuple(tensor.shape)}")
    _check_size(tensor.shape[-2], tensor.shape[-1], argument)
    return tensor if tensor.ndim == 2 else tensor.permute(1, 2, 0)


def _dtype_complaint(argument: str, got: str, how: str) -> str:
    return f"{argument} takes uint8, uint16, bool or floats, got {got}; convert it, for bytes {how}"


def _picture(values: Tensor, source: str, argument: str, device: torch.device | str | None) -> Picture:
    """From checked values (H, W) or (H, W, 1|3|4) to a picture."""
    values = _unit(values.to(device), argument)
    if values.ndim == 3 and values.shape[2] == 4:
        opacity = values[..., 3:]
        values = values[..., :3] * opacity + (1 - opacity)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    if values.ndim == 2:
        values = values.contiguous()
        return Picture(values, values, source)
    gray = values @ torch.tensor(GRAY, dtype=values.dtype, device=values.device)
    return Picture(gray, values.contiguous(), source)


def _check_size(height: int, width: int, name: str, kind: type[Exception] = ValueError) -> None:
    if height * width > MAX_PIXELS:
        raise kind(
            f"{name}: too large: {width} x {height} pixels, at most {MAX_PIXELS // 10**6} megapixels; "
            "make it smaller first"
        )
    if min(height, width) < MIN_SIDE:
        raise kind(
            f"{name}: too small: {width} x {height} pixels, at least {MIN_SIDE} x {MIN_SIDE} are needed"
        )


def _unit(values: Tensor, argument: str) -> Tensor:
    """float32 within 0..1, by the rules above; refuses what is not finite."""
    if values.dtype in _LARGEST:
        return values.to(torch.float32) / _LARGEST[values.dtype]
    bad = int((~values.isfinite()).sum())
    if bad:
        raise ValueError(f"{argument} has {bad} of {values.numel()} values that are NaN or infinite")
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        return values.to(torch.float32)
    wide = values.double()
    if values.ndim == 3 and values.shape[2] == 4:
        raise ValueError(
            f"{argument} has an opacity, so its floats must lie within 0..1; got {low:.4g}..{high:.4g}"
        )
    # Halved first: the difference of the two could be too large for a number.
    span = high / 2 - low / 2
    return ((wide / 2 - low / 2) / span if span > 0 else torch.zeros_like(wide)).to(torch.float32)


def read_upright(path: str | os.PathLike[str], argument: str = "a") -> "Image.Image":
    """The picture at ``path`` as Pillow's image, upright, transparency on white, to be written elsewhere."""
    from PIL import Image

    samples, _ = _read(path, argument)
    return Image.fromarray(samples)
