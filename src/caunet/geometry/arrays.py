"""Two kinds of arrays, one code: the few operations in which NumPy and torch differ.

Matrices of transforms come as tensors (batches, gradients, devices) and as small float64 NumPy arrays (estimation,
where a call of torch costs ten times the arithmetic of a 3 x 3 matrix). Operators and indexing are spelled alike in
both, so most of this package needs no dispatch at all; what differs is here. A dependency on `array_api_compat` would
replace these twenty lines by a package that the core has no other use for, and would not choose the way of
multiplying (see `multiply`), which is the one difference that matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = [
    "Array",
    "Matrix",
    "as_tensor",
    "concatenate",
    "constant",
    "copy",
    "divide",
    "entries_first",
    "entries_last",
    "multiply",
    "where",
]

Matrix = npt.NDArray[np.float64]
"""A small matrix, or points, in NumPy and float64."""
Array = TypeVar("Array", Tensor, Matrix)
"""A tensor or an array: functions return the kind they are given."""


def constant(values: Any, like: Array) -> Array:
    """Numbers as an array of the kind, dtype and device of ``like``."""
    if isinstance(like, Tensor):
        return torch.as_tensor(values, dtype=like.dtype, device=like.device)
    return np.asarray(values, dtype=like.dtype)


def as_tensor(array: Array) -> Tensor:
    """The same numbers as a tensor."""
    return array if isinstance(array, Tensor) else torch.as_tensor(np.array(array))


def divide(a: Array, b: Array) -> Array:
    """a / b, infinite or nan where b is 0, without a warning in either kind."""
    if isinstance(a, Tensor):
        return a / b
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b


def where(condition: Any, a: Array, b: float) -> Array:
    """``a`` where the condition holds, else the number ``b``."""
    if isinstance(a, Tensor):
        return torch.where(condition, a, b)
    return np.where(condition, a, b)


def entries_first(H: Array) -> Array:
    """Matrices (..., n, n) with the entries first, (n, n, ...), contiguous: what elementwise work reads fastest."""
    if isinstance(H, Tensor):
        return H.movedim((-2, -1), (0, 1)).contiguous()
    return np.moveaxis(H, (-2, -1), (0, 1))


def entries_last(entries: Array) -> Array:
    """The inverse of `entries_first`, a view: later work keeps that order in memory, and its speed."""
    if isinstance(entries, Tensor):
        return entries.movedim((0, 1), (-2, -1))
    return np.moveaxis(entries, (0, 1), (-2, -1))


def concatenate(parts: Sequence[Array], axis: int) -> Array:
    """Arrays of one kind, joined along an axis."""
    if isinstance(parts[0], Tensor):
        return torch.cat(parts, axis)  # type: ignore[arg-type]
    return np.concatenate(parts, axis)


def copy(array: Array) -> Array:
    """A copy with the same order in memory."""
    return array.clone() if isinstance(array, Tensor) else array.copy()


def multiply(A: Array, B: Array) -> Array:
    """Products of matrices (..., n, n), broadcasting.

    Tensors: written out elementwise. A matrix product of torch changes its last bits with the size of the batch and
    with the matmul precision in force, and a pair must not; gradients flow as usual. Arrays: NumPy's product, which
    multiplies each small matrix of a stack by itself and takes a microsecond for one.
    """
    if not isinstance(A, Tensor):
        return A @ B
    product = A[..., :, 0, None] * B[..., None, 0, :]
    for i in range(1, A.shape[-1]):
        product = product + A[..., :, i, None] * B[..., None, i, :]
    return product
