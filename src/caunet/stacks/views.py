"""Frames as they are compared: gray values, and which of them count."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from caunet.images import read_image, read_mask
from caunet.images.frames import TIFF, VIDEO, Frame, Frames, open_frames
from caunet.images.masks import find_border

__all__ = ["Masks", "View", "view_of"]


class View(NamedTuple):
    """A frame: ``gray`` (H, W), and ``mask`` (H, W) bool, what of it counts; all of it if that is None."""

    gray: Tensor
    mask: Tensor | None = None


class Masks:
    """The caller's masks, one for all frames or one for each, which are then read one at a time.

    Args:
        mask: None; anything that :func:`caunet.images.read_mask` reads, for all frames; or a sequence of as many masks
            as there are frames: a folder, a list, a TIFF stack, an array (T, H, W).

    >>> masks = Masks(np.array([[[0, 1]], [[1, 1]]], np.uint8))
    >>> masks.take((1, 2), None), masks.take((1, 2), None)
    (tensor([[False,  True]]), tensor([[True, True]]))
    """

    def __init__(self, mask: Any) -> None:
        self._one: Any = None
        self._each: Iterator[Frame] | None = None
        self._read: tuple[tuple[int, int], Tensor | None] | None = None
        self._count = 0
        frames = _sequence(mask)
        if frames is None:
            self._one = mask
        else:
            self._each = iter(frames)

    def take(self, size: tuple[int, int] | None, device: torch.device | None) -> Tensor | None:
        """The mask of the next frame, of ``size`` (height, width); None for the size of a frame that is not there."""
        self._count += 1
        if self._each is not None:
            frame = next(self._each, None)
            if frame is None:
                raise ValueError(f"mask must be one image, or one for each frame, got {self._count - 1}")
            if size is None:
                return None
            if frame.pixels is None:
                raise ValueError(f"mask: {frame.error}")
            counts = frame.pixels != 0
            counts = counts.any(-1) if counts.ndim == 3 else counts
            if counts.shape != size:
                raise ValueError(f"mask: {frame.name} must be (height, width) = {size}, got {counts.shape}")
            return torch.from_numpy(np.ascontiguousarray(counts)).to(device)
        if size is None:
            return None
        if self._read is None or self._read[0] != size:
            self._read = (size, read_mask(self._one, size, "mask", device=device))
        return self._read[1]


def _sequence(mask: Any) -> Frames | None:
    """``mask`` as a sequence of masks, if it is one."""
    if isinstance(mask, np.ndarray | Tensor):
        return open_frames(mask, "mask") if mask.ndim == 3 else None
    if isinstance(mask, list | tuple):
        return open_frames(mask, "mask")
    if isinstance(mask, str | Path) and (Path(mask).is_dir() or Path(mask).suffix.lower() in (*TIFF, *VIDEO)):
        frames = open_frames(mask, "mask")
        return None if Path(mask).suffix.lower() in TIFF and len(frames) == 1 else frames
    return None


def view_of(
    pixels: Any, argument: str, masks: Masks, *, find_borders: bool, device: torch.device | None
) -> View:
    """The pixels (H, W) or (H, W, C) of a frame, as they are compared.

    Frames of more than a byte use a part of their range: 12 bits in 16, say. What they use becomes the range.
    """
    if pixels.dtype.kind in "ui" and pixels.dtype.itemsize > 1:
        pixels = pixels.astype(np.float32)
    image = read_image(pixels, argument, device=device)
    mask = masks.take(image.size, device)
    if mask is None and find_borders:
        mask = find_border(image.gray)
    if mask is None or image.mask is None:
        return View(image.gray, image.mask if mask is None else mask)
    return View(image.gray, mask & image.mask)
