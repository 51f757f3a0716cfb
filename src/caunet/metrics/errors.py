"""Errors of an inferred relation, sample by sample: parameter, transformation and corner error."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from caunet import geometry

__all__ = ["corner_error", "parameter_error", "transformation_error"]


def parameter_error(z_hat: Tensor, z: Tensor) -> Tensor:
    """Mean squared difference of the parameters: (B, dim), (B, dim) -> (B,) float64.

    >>> parameter_error(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]]))
    tensor([2.], dtype=torch.float64)
    """
    _check_shapes("z_hat", z_hat, "z", z)
    difference = z_hat.double() - z.double()
    return _sum_last(difference * difference) / z.shape[-1]


def transformation_error(H_hat: Tensor, H: Tensor) -> Tensor:
    """sum |Hp - Ĥp| / sum |Hp| over the unit square's corners p: (B, 3, 3), (B, 3, 3) -> (B,) float64.

    In space, (B, 4, 4), it is the unit cube. Both may be multiplied by one number without changing it.

    >>> eye = torch.eye(3)[None]
    >>> shift = torch.tensor([[[1.0, 0.0, 3.0], [0.0, 1.0, 4.0], [0.0, 0.0, 1.0]]])
    >>> transformation_error(shift, eye)          # 4 * 5 / (1 + sqrt(2) + sqrt(3) + sqrt(2))
    tensor([3.5968], dtype=torch.float64)
    """
    _check_shapes("H_hat", H_hat, "H", H)
    # The corner pixels of a box two pixels wide are those of the unit square, in the paper's order.
    unit = geometry.corners((2,) * geometry.dimension(H), like=H.double())
    truth, inferred = (geometry.apply_homogeneous(matrix.double(), unit) for matrix in (H, H_hat))
    return _sum_last(_length(truth - inferred)) / _sum_last(_length(truth))


def corner_error(H_hat: Tensor, H: Tensor, size: int | Sequence[int], *, centered: bool = True) -> Tensor:
    """Mean distance in pixels of the transformed corners: (..., d+1, d+1) twice -> (...) float64.

    Args:
        H_hat, H: inferred and true transforms, (..., 3, 3), or (..., 4, 4) in space.
        size: of the patch, image or volume: (height, width), (depth, height, width), or one number for all sides.
            Corners are the centers of its corner pixels.
        centered: whether the transforms have their origin at the center of the patch, or else at its first pixel.

    A corner that either of them sends to infinity is infinitely far off.

    >>> eye = torch.eye(3)[None]
    >>> shift = torch.tensor([[[1.0, 0.0, 3.0], [0.0, 1.0, 4.0], [0.0, 0.0, 1.0]]])
    >>> corner_error(shift, eye, 11)
    tensor([5.], dtype=torch.float64)
    """
    _check_shapes("H_hat", H_hat, "H", H)
    sides = (size,) * geometry.dimension(H) if isinstance(size, int) else size
    corners = geometry.corners(sides, centered=centered, like=H.double())
    # In a fixed order of sums, so that shards agree to the last bit: see geometry.arrays.multiply.
    truth, inferred = (geometry.apply_homogeneous(matrix.double(), corners) for matrix in (H, H_hat))
    gap = truth[..., :-1] / truth[..., -1:] - inferred[..., :-1] / inferred[..., -1:]
    away = (truth[..., -1] == 0) | (inferred[..., -1] == 0)
    distance = torch.where(away, math.inf, _length(gap))
    return _sum_last(distance) / len(corners)


def _length(vectors: Tensor) -> Tensor:
    return _sum_last(vectors * vectors).sqrt()


def _sum_last(values: Tensor) -> Tensor:
    # In a fixed order: torch's own sum may round differently with the size of the batch.
    total = values[..., 0]
    for i in range(1, values.shape[-1]):
        total = total + values[..., i]
    return total


def _check_shapes(first: str, a: Tensor, second: str, b: Tensor) -> None:
    if a.shape != b.shape or a.ndim < 2:
        raise ValueError(
            f"{first} and {second} must have the same shape, got {tuple(a.shape)} and {tuple(b.shape)}"
        )
