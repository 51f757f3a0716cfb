"""Boxes of pixels and the transforms between their coordinates: centers, corners, changes of scale.

An image or volume of ``size`` (height, width) or (depth, height, width) spans 0..width-1, 0..height-1, 0..depth-1:
pixel centers lie at integers. Sizes are in the order of tensors, points in the order (x, y[, z]).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch

from caunet.geometry.arrays import Array, Matrix, constant
from caunet.geometry.matrices import adjugate, compose, dimension, normalize, with_shifts

__all__ = [
    "center",
    "center_of",
    "check_size",
    "corners",
    "local_scale",
    "pixel_scale",
    "rescale",
    "rescale_points",
    "uncenter",
]


def center_of(size: Sequence[int], origin: Sequence[float] | None = None) -> tuple[float, ...]:
    """The center (x, y[, z]) of an image or volume of ``size``, whose first pixel lies at ``origin`` (x, y[, z]).

    >>> center_of((11, 21)), center_of((3, 5, 7)), center_of((11, 11), origin=(4, 0))
    ((10.0, 5.0), (3.0, 2.0, 1.0), (9.0, 5.0))
    """
    first = (0.0,) * len(size) if origin is None else origin
    return tuple(start + (side - 1) / 2 for start, side in zip(first, reversed(size), strict=True))


def corners(size: Sequence[int], *, centered: bool = False, like: Array | None = None) -> Array:
    """The centers of the corner pixels, (4, 2) or (8, 3): clockwise from the upper left; the first slice first.

    Args:
        size: (height, width) or (depth, height, width).
        centered: measured from the center of the box instead of its first pixel.
        like: gives the answer its kind, dtype and device; a float64 tensor if not given.

    >>> corners((3, 5))
    tensor([[0., 0.],
            [4., 0.],
            [4., 2.],
            [0., 2.]], dtype=torch.float64)
    """
    check_size("size", size)
    points = _corner_points(center_of(size), 0.0 if centered else 1.0)
    if like is None:
        return torch.tensor(points, dtype=torch.float64)  # type: ignore[return-value]
    return constant(points, like)


def center(H: Array, size: Sequence[int], origin: Sequence[float] | None = None) -> Array:
    """H with its origin at the center of an image, rewritten in the pixel coordinates of that image.

    `size` is (height, width) or (depth, height, width); the center is `center_of(size, origin)`, where `origin` tells
    the place of the first pixel when the patch of that size lies elsewhere in a larger image. The result is
    T(c) H T(-c), (..., d+1, d+1).

    >>> from caunet.geometry import apply, rotate
    >>> apply(center(rotate(180.0), (11, 11)), torch.tensor([[0.0, 10.0]])).round()
    tensor([[10., 0.]])
    """
    middle = _center_like(H, size, origin)
    return with_shifts(H, -middle, middle)


def uncenter(H: Array, size: Sequence[int], origin: Sequence[float] | None = None) -> Array:
    """The inverse of `center`: H in pixel coordinates, rewritten about the center of the image.

    >>> from caunet.geometry import rotate
    >>> bool(torch.allclose(uncenter(center(rotate(30.0), (7, 9)), (7, 9)), rotate(30.0), atol=1e-6))
    True
    """
    middle = _center_like(H, size, origin)
    return with_shifts(H, middle, -middle)


def pixel_scale(factor: float, d: int = 2, like: Array | None = None) -> Array:
    """The transform (d+1, d+1) from pixels of an image shrunk by ``factor`` to pixels of the original.

    Pixel centers are integers, so it is the outlines at -1/2 that coincide: x -> factor x + (factor - 1) / 2. A pixel
    of level n of a pyramid stands for 2^n pixels along each side: ``pixel_scale(2.0**n)``. The inverse is
    ``pixel_scale(1 / factor)``. ``like`` gives the kind, dtype and device; a float64 tensor if not given.

    >>> pixel_scale(2.0)[0]
    tensor([2.0000, 0.0000, 0.5000], dtype=torch.float64)
    """
    rows = _scaling_rows(factor, _offset(factor), d)
    if like is None:
        return torch.tensor(rows, dtype=torch.float64)  # type: ignore[return-value]
    return constant(rows, like)


def local_scale(H: Matrix, size: Sequence[int]) -> float:
    """By which factor H (3, 3) enlarges lengths at the center of an image of ``size``, on average over directions.

    It is the root of the determinant of H's derivative there; infinite where H sends the center to infinity.

    >>> import numpy as np
    >>> round(local_scale(np.diag([2.0, 8.0, 1.0]), (11, 11)), 6)
    4.0
    """
    x, y = center_of(size)
    third = float(H[2, 0] * x + H[2, 1] * y + H[2, 2])
    if third == 0:
        return math.inf
    return math.sqrt(abs(float(adjugate(H)[1]) / third**3))


def rescale(H: Array, factor: float) -> Array:
    """H (..., d+1, d+1) between two images, rewritten for the same images ``factor`` times as large.

    ``factor`` above 1 goes from shrunk images to the originals (from level n of a pyramid to level m:
    ``2.0**(n - m)``), below 1 the other way. The last entry of the result is 1.

    >>> from caunet.geometry import translate
    >>> rescale(translate(8.0, 0.0), 0.25)[0]
    tensor([1., 0., 2.])
    """
    if factor == 1:
        return H
    d = dimension(H)
    if isinstance(H, np.ndarray) and H.dtype == np.float64:
        return normalize(_scaling(factor, d) @ H @ _scaling(1 / factor, d), checked=False)
    larger, smaller = pixel_scale(factor, d, H), pixel_scale(1 / factor, d, H)
    return normalize(compose(larger, H, smaller), checked=False)


@functools.lru_cache(maxsize=64)
def _scaling(factor: float, d: int) -> Matrix:
    """`pixel_scale` as an array, made once."""
    matrix = np.array(_scaling_rows(factor, _offset(factor), d))
    matrix.setflags(write=False)
    return matrix


def rescale_points(points: Array, factor: float) -> Array:
    """Points (..., d) of an image, in pixels of the same image ``factor`` times as large; see `rescale`.

    >>> rescale_points(torch.tensor([0.0, 1.0]), 2.0)
    tensor([0.5000, 2.5000])
    """
    return points * factor + _offset(factor)


@functools.lru_cache(maxsize=64)
def _corner_points(half: tuple[float, ...], shift: float) -> tuple[tuple[float, ...], ...]:
    """Of a box from -half to half along each axis, moved by ``shift`` times half."""
    points: list[tuple[float, ...]] = []
    for signs in itertools.product((-1, 1), repeat=len(half) - 2):  # slices
        for square in ((-1, -1), (1, -1), (1, 1), (-1, 1)):
            points.append(tuple((sign + shift) * h for sign, h in zip((*square, *signs), half, strict=True)))
    return tuple(points)


def _scaling_rows(factor: float, offset: float, d: int) -> list[list[float]]:
    rows = [[factor if i == j else 0.0 for j in range(d)] + [offset] for i in range(d)]
    return [*rows, [0.0] * d + [1.0]]


def _offset(factor: float) -> float:
    if not 0 < factor < math.inf:
        raise ValueError(f"factor must be a positive number, got {factor}")
    return (factor - 1) / 2


def check_size(name: str, size: Sequence[int], d: int | None = None) -> None:
    """Refuse a size that is not (height, width) or (depth, height, width), of at least 1 each."""
    if len(size) not in ((2, 3) if d is None else (d,)) or min(size) < 1:
        wanted = {2: "(height, width)", 3: "(depth, height, width)", None: "(height, width)"}[d]
        raise ValueError(f"{name} must be {wanted} of at least 1 each, got {tuple(size)}")


def _center_like(H: Array, size: Sequence[int], origin: Sequence[float] | None) -> Array:
    check_size("size", size, dimension(H))
    return constant(center_of(size, origin), H)
