"""What an estimate of the plane and one of space have in common: a matrix that carries points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.geometry import Matrix

__all__ = ["Carrier", "Points"]

Points = TypeVar("Points", Tensor, npt.NDArray[Any])


class Carrier:
    """A ``matrix`` (d+1, d+1), float64, an array or a tensor: from points of a to points of b."""

    matrix: Tensor | Matrix

    @property
    def _tensor(self) -> Tensor:
        return torch.as_tensor(self.matrix)

    def _kind(self, values: Tensor) -> Tensor | Matrix:
        """``values`` as the kind that the matrix is."""
        return values if isinstance(self.matrix, Tensor) else values.numpy()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """The matrix, for ``numpy.asarray``."""
        matrix = self._tensor.numpy()
        if dtype is not None and np.dtype(dtype) != matrix.dtype:
            if copy is False:
                raise ValueError(f"copy must not be False to convert a float64 matrix, got dtype {dtype}")
            return matrix.astype(dtype)
        return matrix if copy is False else matrix.copy()

    def apply(self, points: Points | Sequence[Any]) -> Points | npt.NDArray[Any]:
        """Points of a (..., d) carried to b; a tensor gives a tensor, anything else an array.

        Floats keep their precision; whole numbers become float64.
        """
        if isinstance(points, Tensor):
            values = points if points.is_floating_point() else points.double()
            return self._carry(values)
        array = np.asarray(points)
        if array.dtype.kind not in "uif":
            raise TypeError(f"points must be numbers (..., {self._tensor.shape[-1] - 1}), got {array.dtype}")
        kept = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
        return self._carry(torch.from_numpy(array.astype(np.float64))).numpy().astype(kept)

    def _carry(self, points: Tensor) -> Tensor:
        d = self._tensor.shape[-1] - 1
        if points.ndim < 1 or points.shape[-1] != d:
            raise ValueError(f"points must have shape (..., {d}), got {tuple(points.shape)}")
        carried = geometry.apply(self._tensor.to(points.device), points.double().reshape(-1, d))
        return carried.reshape(points.shape).to(points.dtype)
