"""Concatenation units, equation (3)."""

from torch import Tensor

from caunet import functional
from caunet.nn.relation import Relation, register_relation

__all__ = ["Concatenation"]


@register_relation("concatenation")
class Concatenation(Relation):
    """Concatenation units, equation (3): ``(..., in_a), (..., in_b) -> (..., in_a + in_b)``. No weights.

    Args:
        in_a: size of the first input.
        in_b: size of the second input.

    >>> import torch
    >>> Concatenation(3, 4)(torch.zeros(2, 3), torch.ones(2, 4)).shape
    torch.Size([2, 7])
    """

    def __init__(self, in_a: int, in_b: int) -> None:
        super().__init__(in_a, in_b, in_a + in_b)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """h = [a b]: ``(..., in_a), (..., in_b) -> (..., in_a + in_b)``."""
        self.check_inputs(a, b)
        return functional.concatenate(a, b)
