"""Errors of an inferred relation: parameter, transformation and corner error; and sums that shards share.

Conventions: H (..., 3, 3) maps points of the first image to the second, origin at the patch centre, pixels.
All errors are computed in float64 from each sample alone, whatever the dtype of the network.

- *Parameter error*: mean over the dimensions of z of the squared difference (Table II is its mean).
- *Transformation error*: of the unit square's four corners as homogeneous vectors, without division by the
  third coordinate (Section VI-E; Table III is its mean).
- *Corner error*: mean distance in pixels between where the patch's four corner pixels go and where they are
  said to go, with that division. A corner sent to infinity is infinitely far off.
"""

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from caunet.summation import ExactSum

__all__ = ["ErrorSums", "corner_error", "parameter_error", "transformation_error"]

_SQUARE = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))

# The fixed histogram: 64 bins an octave (each 1.1 % wide) from 2^-14 to 2^14 pixels, and one bin on either side.
_LOWEST_OCTAVE, _HIGHEST_OCTAVE, _PER_OCTAVE = -14, 14, 64
_BINS = (_HIGHEST_OCTAVE - _LOWEST_OCTAVE) * _PER_OCTAVE + 2
_COARSE = 8  # fine bins in one reported bin


class _HasHomography(Protocol):
    """A task, as far as errors are concerned."""

    def homography(self, z: Tensor) -> Tensor: ...


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


class ErrorSums:
    """The three errors over a stream of samples, in bounded memory, to be merged exactly.

    Sums are exact (:class:`caunet.summation.ExactSum`) and the histogram counts, so the result does not depend
    on how the samples were split or ordered. Median and 90 % point come from a fixed histogram with bins 1.1 %
    wide (the middle of a bin is at most 0.55 % from what is in it) between 6e-5 and 16384 pixels.

    >>> from caunet import tasks
    >>> sums = ErrorSums()
    >>> sums.update(torch.tensor([[30.0], [12.0]]), torch.tensor([[30.0], [10.0]]), tasks.get("rotation"), 11)
    >>> sums.compute()["parameter_error"], sums.count
    (2.0, 2)
    """

    def __init__(self, device: torch.device | str | None = None) -> None:
        self._sums = ExactSum(3, device)
        self._bins = torch.zeros(_BINS, dtype=torch.int64, device=device)
        # Samples in all; samples whose error of each kind is not finite.
        self._counts = torch.zeros(4, dtype=torch.int64, device=device)

    @property
    def count(self) -> int:
        """Samples seen."""
        return int(self._counts[0])

    def tensors(self) -> list[Tensor]:
        """The state: integer tensors. Adding them over processes (all-reduce, sum) merges the processes."""
        return [self._sums.state, self._bins, self._counts]

    def update(self, z_hat: Tensor, z: Tensor, task: _HasHomography, patch: int | tuple[int, int]) -> None:
        """Take in inferred and true parameters, (B, dim) each."""
        z_hat, z = z_hat.detach().double(), z.detach().double()
        H_hat, H = task.homography(z_hat), task.homography(z)
        self.add(parameter_error(z_hat, z), transformation_error(H_hat, H), corner_error(H_hat, H, patch))

    def add(self, parameter: Tensor, transformation: Tensor, corner: Tensor) -> None:
        """Take in errors already computed, (B,) each."""
        errors = torch.stack((parameter, transformation, corner)).double().to(self._counts.device)  # (3, B)
        finite = errors.isfinite()
        self._sums.add(torch.where(finite, errors, 0.0))
        self._counts[0] += errors.shape[1]
        self._counts[1:] += (~finite).sum(dim=1)
        self._bins += torch.bincount(_bin(errors[2]), minlength=_BINS)

    def merge(self, other: "ErrorSums") -> "ErrorSums":
        """Take in all that ``other`` has seen."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine += theirs.to(mine.device)
        return self

    def compute(self) -> dict[str, Any]:
        """Means, quantiles and histogram as JSON-able data. A mean over a sample that is not finite is ``None``."""
        if self.count == 0:
            raise ValueError("no samples: errors have no mean before the first update")
        bad = self._counts[1:].tolist()
        means = [
            None if b else float(s / self.count) for s, b in zip(self._sums.fractions(), bad, strict=True)
        ]
        return {
            "count": self.count,
            "parameter_error": means[0],
            "transformation_error": means[1],
            "corner_error": {"mean": means[2], "median": self.quantile(0.5), "p90": self.quantile(0.9)},
            "histogram": self.histogram(),
            "not_finite": max(bad),
        }

    def quantile(self, q: float) -> float | None:
        """The corner error that a share ``q`` of samples does not exceed; ``None`` beyond the histogram."""
        if not 0 <= q <= 1:
            raise ValueError(f"q takes a number between 0 and 1, got {q!r}")
        reached = self._bins.cumsum(0) >= max(1, math.ceil(q * self.count))
        place = int(reached.long().argmax())
        if place == 0:
            return 0.0
        return None if place == _BINS - 1 else float(2 ** (_LOWEST_OCTAVE + (place - 0.5) / _PER_OCTAVE))

    def histogram(self) -> dict[str, Any]:
        """Corner errors in eight bins an octave: ``edges`` (n + 1) in pixels, ``counts`` (n), ``below``, ``above``."""
        inner = self._bins[1:-1].reshape(-1, _COARSE).sum(1).tolist()
        used = [i for i, n in enumerate(inner) if n] or [0]
        first, last = used[0], used[-1] + 1
        step = _COARSE / _PER_OCTAVE
        edges = [2 ** (_LOWEST_OCTAVE + i * step) for i in range(first, last + 1)]
        below, above = int(self._bins[0]), int(self._bins[-1])
        return {"edges": edges, "counts": inner[first:last], "below": below, "above": above}


def _bin(error: Tensor) -> Tensor:
    # NaN is as bad as infinity.
    octave = torch.log2(error.nan_to_num(nan=math.inf)) - _LOWEST_OCTAVE
    return (octave * _PER_OCTAVE).floor().clamp(-1, _BINS - 2).long() + 1


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
