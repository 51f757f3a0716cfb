"""What an estimate of the plane and one of space have in common: a matrix that carries points, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.reasons import REASONS, Reason
from caunet.geometry import Matrix

__all__ = ["Carrier", "Points"]

Points = TypeVar("Points", Tensor, npt.NDArray[Any])


class Carrier:
    """A ``matrix`` (d+1, d+1), float64, an array or a tensor: from points of a to points of b; and how sure it is."""

    matrix: Tensor | Matrix
    confidence: float
    covariance: Tensor | Matrix | None
    reason: Reason | None
    explained: float | None

    def _check_certainty(self) -> None:
        """Refuse a confidence, reason, share explained or covariance that is none; fill in a reason not given."""
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence must be a number within 0..1, got {self.confidence}")
        object.__setattr__(self, "confidence", float(self.confidence))
        if self.reason is None:
            object.__setattr__(self, "reason", "found" if self.confidence >= 0.5 else "unrelated")
        if self.reason not in REASONS:
            raise ValueError(f"reason must be one of {', '.join(REASONS)}, got {self.reason!r}")
        if self.explained is not None and not 0 <= self.explained <= 1:
            raise ValueError(f"explained must be a number within 0..1, got {self.explained}")
        if self.covariance is not None:
            d = self._tensor.shape[-1] - 1
            side = d * 2**d  # coordinates of all corners
            spread = torch.as_tensor(self.covariance).detach().to("cpu", torch.float64)
            if spread.shape != (side, side) or not bool(spread.isfinite().all()):
                raise ValueError(
                    f"covariance must be ({side}, {side}) finite numbers, those of the corners, "
                    f"got {tuple(spread.shape)}"
                )
            object.__setattr__(self, "covariance", self._kind(spread))

    def _spread(
        self, points: Points | Sequence[Any], of_place: Callable[[Matrix], Matrix | None]
    ) -> Points | npt.NDArray[Any]:
        """(..., d, d): the covariance ``of_place`` (d,) at each of points (..., d); NaN where there is none."""
        if self.covariance is None:
            raise ValueError(f"uncertainty needs a covariance, and this estimate has none: {self.reason}")
        d = self._tensor.shape[-1] - 1
        places = np.asarray(points.detach().cpu() if isinstance(points, Tensor) else points)
        if places.dtype.kind not in "uif":
            raise TypeError(f"points must be numbers (..., {d}), got {places.dtype}")
        if places.ndim < 1 or places.shape[-1] != d:
            raise ValueError(f"points must have shape (..., {d}), got {places.shape}")
        spread = [of_place(place) for place in places.reshape(-1, d).astype(np.float64)]
        values = np.array([np.full((d, d), np.nan) if part is None else part for part in spread])
        values = values.reshape(*places.shape[:-1], d, d)
        return torch.from_numpy(values).to(points.device) if isinstance(points, Tensor) else values

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
