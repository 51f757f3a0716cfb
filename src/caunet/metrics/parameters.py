"""How well each parameter of z is inferred: its error and R², beside predicting its mean."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from caunet.metrics.exact import ExactSum

__all__ = ["ParameterSums"]


class ParameterSums:
    """Sums over a stream of samples for each of ``dim`` parameters, in bounded memory, to be merged exactly.

    >>> sums = ParameterSums(1)
    >>> sums.update(torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([[1.0], [3.0], [5.0]]))
    >>> sums.compute(["angle"])
    {'angle': {'error': 0.666..., 'error_of_mean': 2.666..., 'r2': 0.75}}
    """

    def __init__(self, dim: int, device: torch.device | str | None = None) -> None:
        self.dim = dim
        self._sums = ExactSum(3 * dim, device)  # z, z squared, (z_hat - z) squared
        # Samples in all; samples whose z_hat is not finite, for each parameter.
        self._counts = torch.zeros(1 + dim, dtype=torch.int64, device=device)

    def tensors(self) -> list[Tensor]:
        """The state: integer tensors. Adding them over processes (all-reduce, sum) merges the processes."""
        return [self._sums.state, self._counts]

    def update(self, z_hat: Tensor, z: Tensor) -> None:
        """Take in inferred and true parameters, (B, dim) each; z is finite."""
        if z_hat.shape != z.shape or z.ndim != 2 or z.shape[1] != self.dim:
            raise ValueError(
                f"z_hat and z must be (B, {self.dim}), got {tuple(z_hat.shape)} and {tuple(z.shape)}"
            )
        device = self._counts.device
        truth = z.detach().double().to(device)
        squared = (z_hat.detach().double().to(device) - truth).square()
        finite = squared.isfinite()
        self._sums.add(torch.cat([truth, truth.square(), torch.where(finite, squared, 0.0)], dim=1).t())
        self._counts[0] += len(truth)
        self._counts[1:] += (~finite).sum(dim=0)

    def merge(self, other: "ParameterSums") -> "ParameterSums":
        """Take in all that ``other`` has seen."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine += theirs.to(mine.device)
        return self

    def compute(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """For each parameter, by name: ``error`` (mean squared), ``error_of_mean`` (that of always predicting the
        mean of z over these samples, its variance) and ``r2`` = 1 - error / error_of_mean.

        ``None`` where a prediction is not finite, or where z does not vary.
        """
        count, *bad = self._counts.tolist()
        if count == 0:
            raise ValueError("no samples: errors have no mean before the first update")
        totals = self._sums.fractions()
        sums, squares, errors = (totals[i * self.dim : (i + 1) * self.dim] for i in range(3))
        found = {}
        for name, s, q, e, b in zip(names, sums, squares, errors, bad, strict=True):
            variance = q / count - (s / count) ** 2
            error = None if b else e / count
            found[name] = {
                "error": None if error is None else float(error),
                "error_of_mean": float(variance),
                "r2": _r2(error, variance),
            }
        return found


def _r2(error: Fraction | None, variance: Fraction) -> float | None:
    return None if error is None or variance == 0 else float(1 - error / variance)
