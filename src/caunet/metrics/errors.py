"""Errors of an inferred relation, sample by sample: parameter, transformation and corner error."""

import math

import torch
from torch import Tensor

__all__ = ["corner_error", "parameter_error", "transformation_error"]

_SQUARE = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))


def parameter_error(z_hat: Tensor, z: Tensor) -> Tensor:
    """Mean squared difference of the parameters: (B, dim), (B, dim) -> (B,) float64.

    >>> parameter_error(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]]))
    tensor([2.], dtype=torch.float64)
    """
    _same_shape("z_hat", z_hat, "z", z)
    difference = z_hat.double() - z.double()
    return _sum_last(difference * difference) / z.shape[-1]


def transformation_error(H_hat: Tensor, H: Tensor) -> Tensor:
    """sum |Hp - Ĥp| / sum |Hp| over the unit square's corners p: (B, 3, 3), (B, 3, 3) -> (B,) float64.

    Both may be multiplied by one number without changing it.

    >>> eye = torch.eye(3)[None]
    >>> shift = torch.tensor([[[1.0, 0.0, 3.0], [0.0, 1.0, 4.0], [0.0, 0.0, 1.0]]])
    >>> transformation_error(shift, eye)          # 4 * 5 / (1 + sqrt(2) + sqrt(3) + sqrt(2))
    tensor([3.5968], dtype=torch.float64)
    """
    _same_shape("H_hat", H_hat, "H", H)
    truth, inferred = _carry(H, _SQUARE), _carry(H_hat, _SQUARE)
    return _sum_last(_length(truth - inferred)) / _sum_last(_length(truth))


def corner_error(H_hat: Tensor, H: Tensor, size: int | tuple[int, int]) -> Tensor:
    """Mean distance in pixels of a patch's four carried corners: (B, 3, 3), (B, 3, 3) -> (B,) float64.

    Args:
        H_hat, H: inferred and true homographies, origin at the patch centre.
        size: of the patch, (height, width) or one number. Corners are the centres of its corner pixels.

    >>> eye = torch.eye(3)[None]
    >>> shift = torch.tensor([[[1.0, 0.0, 3.0], [0.0, 1.0, 4.0], [0.0, 0.0, 1.0]]])
    >>> corner_error(shift, eye, 11)
    tensor([5.], dtype=torch.float64)
    """
    _same_shape("H_hat", H_hat, "H", H)
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise ValueError(f"size takes a height and a width of at least 1, got {size!r}")
    x, y = (width - 1) / 2, (height - 1) / 2
    corners = ((-x, -y), (x, -y), (x, y), (-x, y))
    truth, inferred = _carry(H, corners), _carry(H_hat, corners)
    gap = truth[..., :2] / truth[..., 2:] - inferred[..., :2] / inferred[..., 2:]
    away = (truth[..., 2] == 0) | (inferred[..., 2] == 0)
    distance = torch.where(away, math.inf, _length(gap))
    return _sum_last(distance) / 4


def _carry(H: Tensor, points: tuple[tuple[float, float], ...]) -> Tensor:
    """Homogeneous images (B, 4, 3) of ``points`` under H (B, 3, 3), element by element: a matrix product may
    round differently with the size of the batch, and shards would no longer agree to the last bit."""
    if H.shape[-2:] != (3, 3):
        raise ValueError(f"H takes shape (..., 3, 3), got {tuple(H.shape)}")
    H = H.double()
    images = [H[..., 0] * x + H[..., 1] * y + H[..., 2] for x, y in points]
    return torch.stack(images, dim=-2)


def _length(vectors: Tensor) -> Tensor:
    return _sum_last(vectors * vectors).sqrt()


def _sum_last(values: Tensor) -> Tensor:
    # In a fixed order, for the reason given in _carry.
    total = values[..., 0]
    for i in range(1, values.shape[-1]):
        total = total + values[..., i]
    return total


def _same_shape(first: str, a: Tensor, second: str, b: Tensor) -> None:
    if a.shape != b.shape or a.ndim < 2:
        raise ValueError(f"{first} and {second} take one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
