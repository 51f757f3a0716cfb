"""Images in any form: paths, contents of files, open files, Pillow, NumPy, tensors; one form inside.

What is done to them, always the same:

- Files and Pillow's images: upright (EXIF), first page, palettes and CMYK as RGB, 16 bits and floats kept.
- What is transparent (opacity below one half), NaN or masked (NumPy's masked arrays) is not part of the image: it is
  false in the ``mask``. Transparent pixels are shown white.
- uint8 and uint16 are divided by the largest value of their type (255, 65535), True is 1.
- Floats within 0..1 are taken as they are. Other floats, and signed whole numbers (int16, int32: what CT scanners
  give), are shifted and scaled from their own smallest and largest value to 0..1: how two images are related does not
  depend on brightness and contrast.
- Gray is that of :mod:`caunet.images.gray`.

A file that cannot be used is an :class:`ImageError`, an array or tensor that cannot is a ``ValueError`` or
``TypeError``; the message begins with the name of the argument.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet.files import printable_path
from caunet.images.decode import MAX_PIXELS, ImageError, Samples, decode, image_formats, read_samples
from caunet.images.gray import to_gray
from caunet.sizes import size_text

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "MIN_SIDE",
    "ImageError",
    "LoadedImage",
    "read_image",
    "read_uint8",
    "read_upright",
    "stored_pixels",
]

MIN_SIDE = 16
"""Smaller images hold too little to be compared (a network's patch alone has 11 pixels per side)."""
MAX_CONTENT = 1 << 30
"""Bytes that are read from an open file: no image of 40 megapixels needs more."""

_STRIP = 1 << 18  # pixels whose colors are made gray at once
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_LARGEST = {torch.uint8: 255.0, torch.uint16: 65535.0, torch.bool: 1.0}
_SIGNED = (torch.int16, torch.int32)
_TYPES = "uint8, uint16, int16, int32, bool or floats"
_ARRAYS = ("u1", "u2", "i2", "i4", "b1")
_LABELS = {"bytes": "the bytes", "file": "the file", "PIL image": "the PIL image"}
_SEVERAL = "; of other numbers of channels say which one: channel=0"
_COLORS = ("red", "green", "blue")
_CHANNELS = ("gray", *_COLORS)
_FORMS = "a path, the bytes of a file, an open file, a PIL image, a NumPy array or a tensor"


@dataclass(frozen=True)
class LoadedImage:
    """An image ready to be compared: values 0..1, all finite."""

    gray: Tensor
    """(H, W) float32."""
    _pixels: Tensor | Callable[[], Tensor] = field(repr=False)
    source: str
    """Where it came from: a path, ``bytes``, ``file``, ``PIL image``, ``array`` or ``tensor``."""
    mask: Tensor | None = None
    """(H, W) bool: which pixels are there, of an image that is transparent, NaN or masked somewhere; else None."""

    @cached_property
    def pixels(self) -> Tensor:
        """(H, W), or (H, W, 3) where there is color; float32. The same tensor as ``gray`` where there is none."""
        return self._pixels if isinstance(self._pixels, Tensor) else self._pixels()

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.gray.shape[0], self.gray.shape[1]


def read_image(
    value: Any,
    argument: str = "image",
    *,
    device: torch.device | str | None = None,
    channel: int | str | None = None,
) -> LoadedImage:
    """The image ``value`` as gray and colored values 0..1.

    Args:
        value: a path, the content of a file as ``bytes``, a file open for reading bytes, a PIL image, a NumPy array
            (H, W) or (H, W, 1|3|4), or a tensor (H, W) or (1|3|4, H, W); arrays and tensors hold uint8, uint16,
            int16, int32, bool or floats. int16 and int32 are scaled by their own smallest and largest value.
        argument: what errors call it.
        device: where the tensors of the result shall be.
        channel: which channel is to be the gray: ``red``, ``green``, ``blue``, ``gray`` (the default: a mean of all
            three), or an index; an array or a tensor may then have any number of channels.

    >>> image = read_image(np.full((20, 30, 3), 51, np.uint8))
    >>> image.size, round(image.gray.mean().item(), 4), image.source
    ((20, 30), 0.2, 'array')
    >>> read_image(np.zeros((20, 30), np.int64), "b")
    Traceback (most recent call last):
    ...
    TypeError: b must be uint8, uint16, int16, int32, bool or floats, got int64; convert it: .astype(np.float32)
    """
    _check_channel(channel)
    if isinstance(value, LoadedImage):
        mask = None if value.mask is None else value.mask.to(device)
        if channel is None:
            return LoadedImage(value.gray.to(device), lambda: value.pixels.to(device), value.source, mask)
        gray = _chosen(value.pixels.to(device), channel, argument)
        return LoadedImage(gray, gray, value.source, mask)
    several = isinstance(channel, int)
    if isinstance(value, Tensor):
        return _loaded(_from_tensor(value, argument, several), "tensor", argument, device, channel)
    if isinstance(value, np.ndarray):
        there = _there(value, argument)
        values = _from_numpy(np.ma.getdata(value), argument, several)
        return _loaded(values, "array", argument, device, channel, there)
    samples, source = _read(value, argument, opacity=True)
    name = f"{argument}: {_LABELS.get(source, source)}"
    height, width = samples.shape[:2]
    if min(height, width) < MIN_SIDE:
        raise ImageError(name, _too_small(height, width))
    try:
        return _loaded(torch.from_numpy(samples), source, name, device, channel)
    except ValueError as error:
        raise ImageError(argument, str(error).removeprefix(f"{argument}: ")) from error


def stored_pixels(value: Any, argument: str = "image") -> npt.NDArray[Any]:
    """The image ``value`` in any form as an array (H, W) or (H, W, C) of the numbers that it holds, unscaled.

    >>> stored_pixels(torch.full((3, 2, 5), 7, dtype=torch.uint8)).shape
    (2, 5, 3)
    """
    if isinstance(value, Tensor):
        if value.ndim not in (2, 3):
            raise ValueError(f"{argument} must be a tensor (H, W) or (C, H, W), got {tuple(value.shape)}")
        array: npt.NDArray[Any] = (value if value.ndim == 2 else value.movedim(0, -1)).detach().cpu().numpy()
        return array
    if isinstance(value, np.ndarray):
        if value.ndim not in (2, 3):
            raise ValueError(f"{argument} must be an array (H, W) or (H, W, C), got {value.shape}")
        return value
    return _read(value, argument)[0]


def read_uint8(path: str | os.PathLike[str], *, rgb: bool = False) -> npt.NDArray[np.uint8]:
    """The image at ``path`` as gray bytes (H, W), or as RGB bytes (H, W, 3), for data sets.

    8 bits are kept, 16 bits divided by 257 and rounded, in exact integers: the same bytes on every machine. Other
    numbers are brought to 0..1 as by :func:`read_image`, multiplied by 255 and rounded. A file that cannot be read is
    an :class:`ImageError`.
    """
    pixels = _narrow(read_samples(path), printable_path(path))
    if pixels.ndim == 2:
        return np.repeat(pixels[..., None], 3, axis=2) if rgb else pixels
    return pixels if rgb else to_gray(pixels)


def read_upright(path: str | os.PathLike[str], argument: str = "image") -> "Image.Image":
    """The image at ``path`` as Pillow's, upright, transparency on white, to be written elsewhere."""
    from PIL import Image

    return Image.fromarray(_read(path, argument)[0])


def _narrow(samples: Samples, name: str) -> npt.NDArray[np.uint8]:
    if samples.dtype == np.uint8:
        return samples
    if samples.dtype == np.uint16:
        return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)
    try:
        unit = _to_unit(torch.from_numpy(samples), name)
    except ValueError as error:
        raise ImageError(name, str(error).removeprefix(f"{name}: ")) from error
    narrow: npt.NDArray[np.uint8] = (unit * 255).round().to(torch.uint8).numpy()
    return narrow


def _read(value: Any, argument: str, *, opacity: bool = False) -> tuple[Samples, str]:
    """Samples of a file, of its content or of Pillow's image, and what they came from."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _from_bytes(bytes(value), f"{argument}: the bytes", opacity), "bytes"
    if isinstance(value, str | os.PathLike):
        path = os.fsdecode(value)
        shown = printable_path(path)
        return read_samples(path, f"{argument}: {shown}", image_formats(), opacity=opacity), shown
    from PIL import Image

    if isinstance(value, Image.Image):
        if min(value.size) < 1:
            raise ValueError(f"{argument} is empty: {size_text((value.height, value.width))}")
        return decode(value, f"{argument}: the PIL image", opacity=opacity), "PIL image"
    if callable(getattr(value, "read", None)):
        return _from_bytes(_file_content(value, argument), f"{argument}: the file", opacity), "file"
    raise TypeError(f"{argument} must be {_FORMS}, got {type(value).__name__}")


def _from_bytes(content: bytes, name: str, opacity: bool) -> Samples:
    if not content:
        raise ImageError(name, "there are none")
    return read_samples(content, name, image_formats(), opacity=opacity)


def _file_content(file: Any, argument: str) -> bytes:
    try:
        content = file.read(MAX_CONTENT + 1)
    except (OSError, ValueError) as error:  # ValueError: it is closed
        raise ImageError(argument, f"the file cannot be read: {error}") from error
    if not isinstance(content, bytes):
        raise TypeError(
            f"{argument} must be a file opened for bytes (mode 'rb'), got {type(content).__name__}"
        )
    if len(content) > MAX_CONTENT:
        raise ImageError(argument, f"the file is larger than {MAX_CONTENT >> 30} GiB")
    return content


def _there(array: npt.NDArray[Any], argument: str) -> npt.NDArray[np.bool_] | None:
    """(H, W): which pixels a masked array has in all channels; None for others."""
    if not np.ma.isMaskedArray(array) or array.ndim not in (2, 3):
        return None
    masked = np.any(np.ma.getmaskarray(array).reshape(*array.shape[:2], -1), axis=2)
    if masked.all():
        raise ValueError(
            f"{argument} must have pixels that are not masked, got an array that is masked everywhere"
        )
    return np.logical_not(masked) if masked.any() else None


def _from_numpy(array: npt.NDArray[Any], argument: str, several: bool) -> Tensor:
    """(H, W) or (H, W, C), of a dtype that is checked here: torch would refuse some with words of its own."""
    if array.dtype.kind != "f" and array.dtype.str[1:] not in _ARRAYS:
        raise TypeError(_dtype_error(argument, str(array.dtype), ".astype(np.float32)"))
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        raise ValueError(
            f"{argument} must be an array (H, W) or (H, W, 1|3|4), got {array.shape}: channels first; "
            "arrays have them last (np.moveaxis(array, 0, 2)), tensors first"
        )
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4) and not several):
        raise ValueError(f"{argument} must be an array (H, W) or (H, W, 1|3|4), got {array.shape}{_SEVERAL}")
    _check_size(array.shape[0], array.shape[1], argument)  # before anything is copied
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # what becomes infinite is refused below
            array = array.astype(np.float64 if array.dtype.itemsize > 4 else np.float32)
    else:
        # torch refuses arrays that may not be written to, though nothing is written here.
        array = array.astype(array.dtype.newbyteorder("="), copy=not array.flags.writeable)
    return torch.from_numpy(np.ascontiguousarray(array))


def _from_tensor(tensor: Tensor, argument: str, several: bool) -> Tensor:
    """(H, W) or (H, W, C)."""
    if tensor.is_quantized:
        raise TypeError(f"{argument} is a quantized tensor; convert it: .dequantize()")
    if tensor.is_nested or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise TypeError(f"{argument} must be a dense tensor, got a {kind} one; convert it: .to_dense()")
    if tensor.is_meta:
        raise TypeError(
            f"{argument} must be a tensor with values, got one on the device 'meta', which has none"
        )
    if tensor.dtype not in (*_LARGEST, *_FLOATS, *_SIGNED):
        got = str(tensor.dtype).removeprefix("torch.")
        raise TypeError(_dtype_error(argument, got, ".to(torch.float32)"))
    shape = tuple(tensor.shape)
    if tensor.ndim == 3 and shape[0] not in (1, 3, 4) and shape[2] in (1, 3, 4):
        raise ValueError(
            f"{argument} must be a tensor (H, W) or (1|3|4, H, W), got {shape}: channels last; "
            "tensors have them first (tensor.permute(2, 0, 1)), arrays last"
        )
    if tensor.ndim not in (2, 3) or (tensor.ndim == 3 and shape[0] not in (1, 3, 4) and not several):
        raise ValueError(f"{argument} must be a tensor (H, W) or (1|3|4, H, W), got {shape}{_SEVERAL}")
    _check_size(shape[-2], shape[-1], argument)
    tensor = tensor.detach()
    return tensor if tensor.ndim == 2 else tensor.permute(1, 2, 0)


def _dtype_error(argument: str, got: str, advice: str) -> str:
    # The advice is floats, which are scaled by their own range: bytes would wrap around.
    return f"{argument} must be {_TYPES}, got {got}; convert it: {advice}"


def _check_size(height: int, width: int, argument: str) -> None:
    if height * width > MAX_PIXELS:
        limit = f"at most {MAX_PIXELS // 10**6} megapixels; make it smaller first"
        raise ValueError(f"{argument}: too large: {size_text((height, width))}, {limit}")
    if min(height, width) < MIN_SIDE:
        raise ValueError(f"{argument}: {_too_small(height, width)}")


def _too_small(height: int, width: int) -> str:
    return f"too small: {size_text((height, width))}, at least {MIN_SIDE} x {MIN_SIDE} pixels are needed"


def _loaded(
    values: Tensor,
    source: str,
    name: str,
    device: torch.device | str | None,
    channel: int | str | None = None,
    there: npt.NDArray[np.bool_] | None = None,
) -> LoadedImage:
    """From checked values (H, W) or (H, W, C); ``there`` (H, W) says which pixels are not masked."""
    mask = None if there is None else torch.from_numpy(there).to(values.device)
    values, mask = _without_gaps(values, mask, name)
    values, mask = values.to(device), None if mask is None else mask.to(device)
    if values.ndim == 3 and values.shape[2] == 3 and values.dtype in _LARGEST and channel is None:
        return LoadedImage(_gray(values, name), lambda: _to_unit(values, name).contiguous(), source, mask)
    if values.ndim == 3 and values.shape[2] == 4:
        values, mask = _without_opacity(_to_unit(values, name), mask)
    elif channel is not None:
        values = _to_unit(_chosen(values, channel, name), name)
    else:
        values = _to_unit(values, name)
    if channel is not None and values.ndim == 3:
        values = _chosen(values, channel, name)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    values = values.contiguous()
    return LoadedImage(values if values.ndim == 2 else to_gray(values), values, source, mask)


def _gray(values: Tensor, name: str) -> Tensor:
    """(H, W) of whole numbers (H, W, 3), in strips: as floats, colors take twelve bytes a pixel."""
    height, width = values.shape[:2]
    gray = torch.empty(height, width, device=values.device)
    step = max(_STRIP // width, 1)
    for top in range(0, height, step):
        gray[top : top + step] = to_gray(_to_unit(values[top : top + step], name))
    return gray


def _without_gaps(values: Tensor, mask: Tensor | None, name: str) -> tuple[Tensor, Tensor | None]:
    """``values`` with those that are NaN or masked replaced by others of the image, and where they are not."""
    if values.is_floating_point():
        gaps = values.isnan() if values.ndim == 2 else values.isnan().any(2)
        if bool(gaps.any()):
            mask = ~gaps if mask is None else mask & ~gaps
            if not bool(mask.any()):
                raise ValueError(
                    f"{name} must have pixels that are numbers, got NaN or masked ones everywhere"
                )
    if mask is None:
        return values, None
    some = values[mask][0]
    return torch.where(mask if values.ndim == 2 else mask[..., None], values, some), mask


def _without_opacity(values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Colors of values (H, W, 4) within 0..1, on white where they are transparent, and where they are not."""
    colors, opacity = values[..., :3], values[..., 3:]
    visible = opacity[..., 0] >= 0.5
    if bool(visible.all()):
        return colors, mask
    shown = torch.where(visible[..., None], colors, colors * opacity + (1 - opacity))
    return shown, visible if mask is None else mask & visible


def _check_channel(channel: Any) -> None:
    takes = f"channel must be an index, or one of {', '.join(_CHANNELS)}, got {channel!r}"
    if isinstance(channel, bool) or not (channel is None or isinstance(channel, int | str)):
        raise TypeError(takes)
    if (isinstance(channel, str) and channel not in _CHANNELS) or (isinstance(channel, int) and channel < 0):
        raise ValueError(takes)


def _chosen(values: Tensor, channel: int | str, name: str) -> Tensor:
    """One channel (H, W) of values (H, W) or (H, W, C), or the gray of all."""
    count = values.shape[2] if values.ndim == 3 else 1
    if channel == "gray":
        return values
    if isinstance(channel, str) and count != 3:
        raise ValueError(
            f"channel must be 'gray' or an index for {name}, which has no colors, got {channel!r}"
        )
    index = _COLORS.index(channel) if isinstance(channel, str) else channel
    if index >= count:
        raise ValueError(f"channel must be at most {count - 1} for {name}, got {channel}")
    return values[..., index] if values.ndim == 3 else values


def _to_unit(values: Tensor, name: str) -> Tensor:
    """float32 within 0..1, by the rules above; refuses what is not finite."""
    if values.dtype in _LARGEST:
        return values.to(torch.float32).div_(_LARGEST[values.dtype])
    bad = int((~values.isfinite()).sum())
    if bad:
        raise ValueError(f"{name} has {bad} of {values.numel()} values that are NaN or infinite")
    low, high = values.min().item(), values.max().item()
    if values.is_floating_point() and low >= 0 and high <= 1:
        return values.to(torch.float32)
    if values.ndim == 3 and values.shape[2] == 4:
        raise ValueError(
            f"{name} has an opacity, so it must be uint8, uint16 or floats within 0..1, "
            f"got {str(values.dtype).removeprefix('torch.')} within {low:.4g}..{high:.4g}"
        )
    wide = values.double()
    # Halved first: the difference of the two could be too large for a number.
    span = high / 2 - low / 2
    return ((wide / 2 - low / 2) / span if span > 0 else torch.zeros_like(wide)).to(torch.float32)
