"""Contrast association units, equations (5) and (15): what the paper is about."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from caunet import functional
from caunet.low_rank import pooled, row_sums
from caunet.nn.pair import PairRelation
from caunet.nn.relation import Columns, register_relation
from caunet.nn.sparse import SparseRows
from caunet.nn.window import Window

__all__ = ["ContrastAssociation"]


@register_relation("contrast-association")
class ContrastAssociation(PairRelation):
    """Contrast association units, equations (5) and (15): ``(..., in_a), (..., in_b) -> (..., units)``.

    Args:
        in_a: size of the first input.
        in_b: size of the second input.
        units: how many units.
        rank: rank of each unit's matrix; ``None`` is full rank. The paper's networks have 4.
        device, dtype: of the weights.

    With a rank r the weights are ``u (units * r, in_a)`` and ``v (units * r, in_b)``, else
    ``weight (units, in_a, in_b)``. All of them must stay non-negative; ``caunet.optim`` ensures that.

    >>> units = ContrastAssociation(3, 3, units=2, rank=1)
    >>> units(torch.ones(3), torch.ones(3)).tolist()          # nothing differs, so there is no mismatch
    [0.0, 0.0]
    """

    nonnegative_weights: ClassVar[bool] = True
    smallest_wins: ClassVar[bool | None] = True
    default_competition: ClassVar[str] = "softmin"

    def __init__(
        self,
        in_a: int,
        in_b: int,
        units: int,
        rank: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_a, in_b, units, rank, device=device, dtype=dtype)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """h_k = ½ Σ_ij W_kij (a_i - b_j)²: ``(..., in_a), (..., in_b) -> (..., units)``, 0 or more."""
        self.check_inputs(a, b)
        if self.rank is None:
            return functional.contrast_association(a, b, self.weight)
        return functional.contrast_association_low_rank(a, b, self.u, self.v, self.rank)

    def slide(self, a: Tensor, b: Tensor, window: Window) -> Tensor | None:
        """Four convolutions at low rank: of a, a², b and b². The squares of a unit share one kernel per image."""
        if self.rank is None:
            return None
        # A common offset changes nothing, and small numbers lose less when they are squared.
        middle = 0.5 * (a.mean() + b.mean())
        a, b = a - middle, b - middle
        rows = row_sums(self.u, self.v.sum(1), self.rank)
        columns = row_sums(self.v, self.u.sum(1), self.rank)
        energy = 0.5 * (window.correlate(a.square(), rows) + window.correlate(b.square(), columns))
        return energy - pooled(window.correlate(a, self.u) * window.correlate(b, self.v), self.rank)

    def sparse(self) -> Columns | None:
        if self.rank is None:
            return None
        contrast_and_energy = self._sparse_contrast()
        return lambda a, b: contrast_and_energy(a, b)[0]

    def _sparse_contrast(self) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Contrast and energy (:mod:`caunet.low_rank`) of columns, from the non-zero weights."""
        rank = self.rank or 1
        with torch.no_grad():
            rows = row_sums(self.u, self.v.sum(1), rank)
            columns = row_sums(self.v, self.u.sum(1), rank)
        squares = SparseRows(0.5 * torch.cat((rows, columns), 1))
        subtract_products = self.subtract_sparse_products()

        def contrast_and_energy(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            x = torch.cat((a, b)).sub_(0.5 * (a.mean(0) + b.mean(0)))
            energy = squares @ (x * x)
            return subtract_products(energy.clone(), x[: len(a)], x[len(a) :]), energy

        return contrast_and_energy

    def multiply_adds(self) -> int:
        """As computed: at low rank the squares need one more vector per unit and image."""
        squares = 0 if self.rank is None else self.units * (self.in_a + self.in_b)
        return super().multiply_adds() + squares

    @torch.no_grad()
    def sparse_multiply_adds(self) -> int:
        """At low rank the squares need the non-zero sums of rows and of columns of each unit's matrix."""
        total = super().sparse_multiply_adds()
        if self.rank is None:
            return total
        rows = row_sums(self.u, self.v.sum(1), self.rank)
        columns = row_sums(self.v, self.u.sum(1), self.rank)
        return total + int(rows.count_nonzero()) + int(columns.count_nonzero())
