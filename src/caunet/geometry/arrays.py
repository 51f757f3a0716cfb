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
    "constant",
    "contiguous_entries",
    "divide",
    "multiply",
    "stack_matrix",
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


def contiguous_entries(H: Array) -> list[list[Array]]:
    """The entries (...) of matrices (..., n, n), row by row; contiguous, which elementwise work reads fastest."""
    n = H.shape[-1]
    if isinstance(H, Tensor):
        flat = [entry.contiguous() for entry in H.flatten(-2).unbind(-1)]
        return [flat[n * i : n * i + n] for i in range(n)]
    return [[H[..., i, j] for j in range(n)] for i in range(n)]


def stack_matrix(rows: Sequence[Sequence[Array]]) -> Array:
    """Rows of entries (...) to matrices (..., rows, columns)."""
    if isinstance(rows[0][0], Tensor):
        return torch.stack([torch.stack(row, -1) for row in rows], -2)  # type: ignore[arg-type]
    return np.stack([np.stack(row, -1) for row in rows], -2)


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
