"""Masks as callers have them: which pixels of an image count."""

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caunet.files import printable_path
from caunet.images.decode import decode, image_formats, read_samples

__all__ = ["read_mask"]


def read_mask(
    value: Any, size: tuple[int, int], argument: str = "mask", *, device: torch.device | str | None = None
) -> Tensor | None:
    """The mask ``value`` of an image of ``size`` (height, width): (H, W) bool, true where a pixel counts.

    Args:
        value: an array or a tensor (H, W) of bool or uint8, a PIL image of one channel, or the path of one; what is
            not zero counts. None stays None.
        argument: what errors call it.

    >>> read_mask(np.array([[0, 255]], np.uint8), (1, 2))
    tensor([[False, True]])
    >>> read_mask(np.zeros((1, 2), bool), (1, 2), "mask_a")
    Traceback (most recent call last):
    ...
    ValueError: mask_a must have pixels that count, got none
    """
    if value is None:
        return None
    mask = _nonzero(value, argument)
    if tuple(mask.shape) != size:
        raise ValueError(
            f"{argument} must be (height, width) = {size}, as its image is, got {tuple(mask.shape)}"
        )
    if not bool(mask.any()):
        raise ValueError(f"{argument} must have pixels that count, got none")
    return mask.to(device)


def _nonzero(value: Any, argument: str) -> Tensor:
    from PIL import Image

    if isinstance(value, Tensor):
        if value.dtype not in (torch.bool, torch.uint8):
            raise TypeError(
                f"{argument} must be bool or uint8, got {str(value.dtype).removeprefix('torch.')}"
            )
        return value.detach() != 0
    if isinstance(value, np.ndarray):
        if value.dtype not in (np.bool_, np.uint8):
            raise TypeError(f"{argument} must be bool or uint8, got {value.dtype}")
        return torch.from_numpy(np.ascontiguousarray(value != 0))
    if isinstance(value, str | os.PathLike):
        samples = read_samples(value, f"{argument}: {printable_path(value)}", image_formats())
    elif isinstance(value, Image.Image):
        samples = decode(value, f"{argument}: the PIL image")
    else:
        raise TypeError(
            f"{argument} must be an array, a tensor, a PIL image or a path, got {type(value).__name__}"
        )
    if samples.ndim == 3:
        if not (samples == samples[..., :1]).all():
            raise ValueError(f"{argument} must have one channel, got an image in color")
        samples = samples[..., 0]
    return torch.from_numpy(samples != 0)
