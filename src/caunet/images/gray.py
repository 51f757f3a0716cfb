"""The one gray of this package: 0.2989 R + 0.5870 G + 0.1140 B."""

from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["WEIGHTS", "to_gray"]

WEIGHTS = (2989, 5870, 1140)
"""Of red, green and blue, in ten-thousandths."""


@overload
def to_gray(rgb: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]: ...
@overload
def to_gray(rgb: "Tensor") -> "Tensor": ...
def to_gray(rgb: "npt.NDArray[np.uint8] | Tensor") -> "npt.NDArray[np.uint8] | Tensor":
    """Gray values (...) of RGB values (..., 3): an array of bytes, or a tensor of floats.

    Bytes are rounded, in exact integers: (2989 R + 5870 G + 1140 B + 5000) // 10000. They are the same on every
    machine, and a gray pixel keeps its value.

    >>> to_gray(np.array([[255, 255, 255], [255, 0, 0], [7, 7, 7]], np.uint8)).tolist()
    [255, 76, 7]
    >>> import torch
    >>> round(float(to_gray(torch.tensor([1.0, 0.0, 0.0]))), 4)
    0.2989
    """
    if not isinstance(rgb, np.ndarray):
        if not rgb.is_floating_point() or rgb.shape[-1:] != (3,):
            raise ValueError(f"rgb must be a floating tensor (..., 3), got {rgb.dtype} {tuple(rgb.shape)}")
        return rgb @ rgb.new_tensor([weight / 10_000 for weight in WEIGHTS])
    if rgb.dtype != np.uint8 or rgb.shape[-1:] != (3,):
        raise ValueError(f"rgb must be uint8 of shape (..., 3), got {rgb.dtype} {rgb.shape}")
    weighted = rgb[..., 0] * np.uint32(WEIGHTS[0])
    weighted += rgb[..., 1] * np.uint32(WEIGHTS[1])
    weighted += rgb[..., 2] * np.uint32(WEIGHTS[2])
    weighted += np.uint32(5000)
    weighted //= np.uint32(10000)
    return weighted.astype(np.uint8)
