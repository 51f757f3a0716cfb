"""A window that slides over an image of any number of dimensions: its patches, and kernels under it."""

import math
from dataclasses import dataclass

from torch import Tensor, nn

__all__ = ["Window"]

_CONVOLUTIONS = {1: nn.functional.conv1d, 2: nn.functional.conv2d, 3: nn.functional.conv3d}


@dataclass(frozen=True)
class Window:
    """A window of ``shape`` that moves by ``stride`` pixels along every dimension.

    >>> import torch
    >>> image = torch.arange(12.0).reshape(1, 1, 3, 4)
    >>> window = Window((2, 2), stride=2)
    >>> window.patches(image)
    tensor([[0., 1., 4., 5.],
            [2., 3., 6., 7.]])
    >>> bool((window.columns(image) == window.patches(image).T).all())
    True
    >>> window.correlate(image, torch.ones(1, 4))
    tensor([[10.],
            [18.]])
    """

    shape: tuple[int, ...]
    stride: int = 1

    def positions(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """How many positions there are along each dimension of an image of ``size``."""
        return tuple((n - m) // self.stride + 1 for n, m in zip(size, self.shape, strict=True))

    def patches(self, image: Tensor) -> Tensor:
        """(1, 1, ...) -> the pixels under the window, (positions, pixels)."""
        patches = image[0, 0]
        for dimension, side in enumerate(self.shape):
            patches = patches.unfold(dimension, side, self.stride)
        return patches.reshape(-1, math.prod(self.shape))

    def columns(self, image: Tensor) -> Tensor:
        """The same, a position in each column, (pixels, positions): faster to make, for neighbors stay neighbors."""
        patches, dimensions = image[0, 0], len(self.shape)
        for dimension, side in enumerate(self.shape):
            patches = patches.unfold(dimension, side, self.stride)
        pixels_first = (*range(dimensions, 2 * dimensions), *range(dimensions))
        return patches.permute(pixels_first).reshape(math.prod(self.shape), -1)

    def correlate(self, image: Tensor, kernels: Tensor) -> Tensor:
        """(1, 1, ...) under K kernels (K, pixels): (positions, K)."""
        convolve = _CONVOLUTIONS[len(self.shape)]
        maps = convolve(image, kernels.view(-1, 1, *self.shape), stride=self.stride)
        return maps.flatten(2)[0].mT
