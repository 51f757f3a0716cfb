"""Bilinear units, equation (4)."""

from typing import ClassVar

from torch import Tensor

from caunet import functional
from caunet.low_rank import pooled
from caunet.nn.pair import PairRelation
from caunet.nn.relation import Columns, register_relation
from caunet.nn.window import Window

__all__ = ["Bilinear"]


@register_relation("bilinear")
class Bilinear(PairRelation):
    """Bilinear units, equation (4): ``a (..., in_a), b (..., in_b) -> (..., units)``.

    Args:
        in_a: size of the first input.
        in_b: size of the second input.
        units: how many units.
        rank: rank of each unit's matrix; ``None`` is full rank.
        nonnegative: keep the weights >= 0 (the paper tried that and found it poor).
        device, dtype: of the weights.

    With a rank r the weights are ``u (units * r, in_a)`` and ``v (units * r, in_b)``, else
    ``weight (units, in_a, in_b)``.

    >>> import torch
    >>> Bilinear(3, 4, units=2)(torch.ones(5, 3), torch.ones(5, 4)).shape
    torch.Size([5, 2])
    """

    spec_options: ClassVar[frozenset[str]] = PairRelation.spec_options | {"nonnegative"}
    smallest_wins: ClassVar[bool | None] = False
    default_competition: ClassVar[str] = "l2"

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """h_k = a^T W_k b: ``(..., in_a), (..., in_b) -> (..., units)``."""
        self.check_inputs(a, b)
        if self.rank is None:
            return functional.bilinear(a, b, self.weight)
        return functional.bilinear_low_rank(a, b, self.u, self.v, self.rank)

    def slide(self, a: Tensor, b: Tensor, window: Window) -> Tensor | None:
        """Two convolutions, one of each image, at low rank."""
        if self.rank is None:
            return None
        return pooled(window.correlate(a, self.u) * window.correlate(b, self.v), self.rank)

    def sparse(self) -> Columns | None:
        if self.rank is None:
            return None
        subtract, units = self.subtract_sparse_products(), self.units
        return lambda a, b: subtract(a.new_zeros(units, a.shape[1]), a, b).neg_()

    def extra_repr(self) -> str:
        return super().extra_repr() + (", nonnegative=True" if self.nonnegative else "")
