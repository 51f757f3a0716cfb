"""Units with one weight matrix each: what bilinear and contrast association units share, at full and at low rank."""

import math
from collections.abc import Callable, Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from caunet.nn.positive import is_reparametrized
from caunet.nn.relation import Relation, UnitView
from caunet.nn.sparse import SparseRows

__all__ = ["PairRelation"]


class PairRelation(Relation):
    """Units that weigh every pair of features (a_i, b_j) by a matrix W_k each.

    Args:
        in_a: size of the first input.
        in_b: size of the second input.
        units: how many units.
        rank: rank of each unit's matrix; ``None`` is full rank.
        nonnegative: keep the weights >= 0; what the class says if not given.
        device, dtype: of the weights.

    At full rank the weights are ``weight (units, in_a, in_b)``. With a rank r they are ``u (units * r, in_a)`` and
    ``v (units * r, in_b)``: W_k is the sum of u v^T over r consecutive rows. A subclass gives ``forward``.
    """

    spec_options: ClassVar[frozenset[str]] = frozenset({"units", "rank", "parametrization"})

    weight: nn.Parameter
    u: nn.Parameter
    v: nn.Parameter

    def __init__(
        self,
        in_a: int,
        in_b: int,
        units: int,
        rank: int | None = None,
        nonnegative: bool | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_a, in_b, units)
        if rank is not None and rank < 1:
            raise ValueError(f"rank must be at least 1, or None for full rank, got {rank}")
        self.units, self.rank = units, rank
        self.nonnegative = self.nonnegative_weights if nonnegative is None else nonnegative
        shapes: dict[str, tuple[int, ...]] = {"weight": (units, in_a, in_b)}
        if rank is not None:
            shapes = {"u": (units * rank, in_a), "v": (units * rank, in_b)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(
        self, generator: torch.Generator | None = None, reference_rank: int | None = None
    ) -> None:
        """Draw every weight anew, uniform with bound 1/sqrt(fan-in): (0, bound] where weights are
        non-negative (never 0, which a multiplicative update cannot leave), else [-bound, bound).

        A unit of rank r is a sum of r rank-one terms, so h grows with r. Above ``reference_rank`` the factors are
        therefore made smaller, u and v each by sqrt(reference_rank / r), h being a product of both.
        """
        shrink = 1.0
        if reference_rank is not None and self.rank is not None and self.rank > reference_rank:
            shrink = (reference_rank / self.rank) ** 0.5
        with torch.no_grad():
            for weight in self.parameters():
                if weight.is_meta:  # a shape without numbers
                    continue
                bound = 1 / math.sqrt(math.prod(weight.shape[1:]))
                if self.nonnegative:
                    # uniform_ gives [0, 1); mirrored it is (0, 1], except for dtypes that round it to 0.
                    weight.uniform_(generator=generator).neg_().add_(1).mul_(bound)
                    weight.clamp_(min=torch.finfo(weight.dtype).tiny)
                else:
                    weight.uniform_(-bound, bound, generator=generator)
                if shrink != 1:
                    weight.mul_(shrink)

    def nonnegative_parameters(self) -> Iterator[nn.Parameter]:
        """The weights that must stay non-negative (those of this module itself, not reparametrized)."""
        return self.parameters(recurse=False) if self.nonnegative else iter(())

    def working_size(self) -> int:
        """The outer product of a pair at full rank, else the rank-one terms of all units."""
        return self.in_a * self.in_b if self.rank is None else self.units * self.rank

    def multiply_adds(self) -> int:
        """At full rank the outer product and one product with all weights; else two products with the factors."""
        if self.rank is None:
            return self.in_a * self.in_b * (1 + self.units)
        terms = self.units * self.rank
        return terms * (self.in_a + self.in_b) + terms

    def subtract_sparse_products(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """Of low rank: the function from h (units, P) and columns a and b to h less the sums over each unit of
        (u_k·a)(v_k·b), in place."""
        rank = self.rank or 1
        # All first terms of the units, then all second ones: what is added up lies together.
        u, v = (
            SparseRows(w.view(self.units, rank, -1).transpose(0, 1).flatten(0, 1)) for w in (self.u, self.v)
        )

        def subtract(h: Tensor, a: Tensor, b: Tensor) -> Tensor:
            left, right = ((rows @ x).view(rank, *h.shape) for rows, x in ((u, a), (v, b)))
            for one, other in zip(left, right, strict=True):
                h.addcmul_(one, other, value=-1)
            return h

        return subtract

    @torch.no_grad()
    def sparse_multiply_adds(self) -> int:
        """As many as there are non-zero weights, and the products themselves that any of them takes."""
        if self.rank is None:
            return int((self.weight != 0).any(0).sum()) + int(self.weight.count_nonzero())
        alive = (self.u != 0).any(1) & (self.v != 0).any(1)
        return sum(int(factor[alive].count_nonzero()) for factor in (self.u, self.v)) + int(alive.sum())

    @torch.no_grad()
    def balance_(self) -> None:
        """Make the two factors of each rank-one term about equal in size.

        Only their product counts, and multiplicative training lets one of them grow to 1e7 while the other shrinks,
        which half precision cannot represent. Factors are scaled by powers of two: the product keeps every bit.
        """
        if self.rank is None or is_reparametrized(self):
            return
        size_u, size_v = (factor.abs().amax(1, keepdim=True).clamp_min(1e-30) for factor in (self.u, self.v))
        shift = (0.5 * (size_u.log2() - size_v.log2())).round()
        self.u.mul_(torch.exp2(-shift))
        self.v.mul_(torch.exp2(shift))

    @torch.no_grad()
    def prunable(self) -> dict[str, Tensor]:
        """How much of its unit's matrix each weight carries: |W_ij|, or |u_i| times the sum of |v| and vice versa."""
        if is_reparametrized(self):  # no theta makes a weight zero
            return {}
        if self.rank is None:
            return {"weight": self.weight.abs()}
        u, v = self.u.abs(), self.v.abs()
        return {"u": u * v.sum(1, keepdim=True), "v": v * u.sum(1, keepdim=True)}

    @torch.no_grad()
    def view(self, unit: int) -> UnitView:
        """The matrix and the rank-one terms of unit number ``unit``."""
        if self.rank is None:
            matrix = self.weight[unit].clone()
            return UnitView(matrix, matrix.new_empty(0, self.in_a), matrix.new_empty(0, self.in_b))
        rows = slice(unit * self.rank, (unit + 1) * self.rank)
        u, v = self.u[rows].clone(), self.v[rows].clone()
        return UnitView(u.mT @ v, u, v)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, units={self.units}, rank={self.rank}"
