"""Relation units and their competition as modules, thin over :mod:`caunet.functional`.

Each module is called with the two feature vectors, ``h = module(a, b)``; a competition with ``h`` alone.
A module that owns weights says which of them must stay non-negative: ``nonnegative_parameters()``.

>>> can = ContrastAssociation(121, 121, units=300, rank=4)
>>> can
ContrastAssociation(in_a=121, in_b=121, units=300, rank=4)
>>> h = Softmin()(can(torch.zeros(2, 121), torch.ones(2, 121)))
>>> h.shape, [tuple(p.shape) for p in can.nonnegative_parameters()]
(torch.Size([2, 300]), [(1200, 121), (1200, 121)])
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from caunet import functional as F

__all__ = ["Bilinear", "Concatenation", "ContrastAssociation", "Softmin", "WinnerTakeAll"]


class Concatenation(nn.Module):
    """Concatenation units, equation (3): ``(..., I), (..., J) -> (..., I + J)``. No weights.

    >>> Concatenation()(torch.zeros(2, 3), torch.ones(2, 4)).shape
    torch.Size([2, 7])
    """

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return F.concatenate(a, b)

    def nonnegative_parameters(self) -> Iterator[nn.Parameter]:
        """None of them."""
        return iter(())


class _PairUnits(nn.Module):
    """What units with one weight matrix each have in common: shapes, initialisation, repr."""

    weight: nn.Parameter
    u: nn.Parameter
    v: nn.Parameter

    def __init__(
        self,
        in_a: int,
        in_b: int,
        units: int,
        rank: int | None,
        nonnegative: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        for name, value in (("in_a", in_a), ("in_b", in_b), ("units", units)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if rank is not None and rank < 1:
            raise ValueError(f"rank must be at least 1, or None for full rank, got {rank}")
        self.in_a, self.in_b, self.units, self.rank, self.nonnegative = in_a, in_b, units, rank, nonnegative
        shapes: dict[str, tuple[int, ...]] = {"weight": (units, in_a, in_b)}
        if rank is not None:
            shapes = {"u": (units * rank, in_a), "v": (units * rank, in_b)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw every weight anew, uniform with bound 1/sqrt(fan-in): (0, bound] where weights are
        non-negative (never 0, which a multiplicative update cannot leave), else [-bound, bound)."""
        with torch.no_grad():
            for weight in self.parameters():
                bound = 1 / math.sqrt(math.prod(weight.shape[1:]))
                if self.nonnegative:
                    # uniform_ gives [0, 1); turned round it is (0, 1], but for dtypes that round it to 0.
                    weight.uniform_(generator=generator).neg_().add_(1).mul_(bound)
                    weight.clamp_(min=torch.finfo(weight.dtype).tiny)
                else:
                    weight.uniform_(-bound, bound, generator=generator)

    def nonnegative_parameters(self) -> Iterator[nn.Parameter]:
        """The weights that must stay non-negative (those of this module itself, not reparametrised)."""
        if self.nonnegative:
            yield from self.parameters(recurse=False)

    def extra_repr(self) -> str:
        return f"in_a={self.in_a}, in_b={self.in_b}, units={self.units}, rank={self.rank}"


class Bilinear(_PairUnits):
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

    >>> Bilinear(3, 4, units=2)(torch.ones(5, 3), torch.ones(5, 4)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        in_a: int,
        in_b: int,
        units: int,
        rank: int | None = None,
        nonnegative: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_a, in_b, units, rank, nonnegative, device, dtype)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        if self.rank is None:
            return F.bilinear(a, b, self.weight)
        return F.bilinear_low_rank(a, b, self.u, self.v, self.rank)

    def extra_repr(self) -> str:
        return super().extra_repr() + (", nonnegative=True" if self.nonnegative else "")


class ContrastAssociation(_PairUnits):
    """Contrast association units, equations (5) and (15): ``(..., in_a), (..., in_b) -> (..., units)``.

    Args:
        in_a: size of the first input.
        in_b: size of the second input.
        units: how many units.
        rank: rank of each unit's matrix; ``None`` is full rank. The paper's networks have 4.
        device, dtype: of the weights.

    With a rank r the weights are ``u (units * r, in_a)`` and ``v (units * r, in_b)``, else
    ``weight (units, in_a, in_b)``. All of them must stay non-negative; ``caunet.optim`` sees to that.

    >>> units = ContrastAssociation(3, 3, units=2, rank=1)
    >>> units(torch.ones(3), torch.ones(3)).tolist()          # nothing differs, nothing mismatches
    [0.0, 0.0]
    """

    def __init__(
        self,
        in_a: int,
        in_b: int,
        units: int,
        rank: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_a, in_b, units, rank, True, device, dtype)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        if self.rank is None:
            return F.contrast_association(a, b, self.weight)
        return F.contrast_association_low_rank(a, b, self.u, self.v, self.rank)


class Softmin(nn.Module):
    """Softmin competition, equation (7), over the last dimension.

    >>> Softmin(temperature=0.5)
    Softmin(temperature=0.5)
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature

    def forward(self, h: Tensor) -> Tensor:
        return F.softmin(h, self.temperature)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


class WinnerTakeAll(nn.Module):
    """Winner-take-all competition, equation (6), over the last dimension.

    Args:
        straight_through: give it the gradient of softmin, so that what lies below can learn.
        temperature: of that softmin.

    >>> h = torch.tensor([2.0, 1.0], requires_grad=True)
    >>> WinnerTakeAll(straight_through=True)(h)
    tensor([0., 1.], grad_fn=<AddBackward0>)
    """

    def __init__(self, straight_through: bool = False, temperature: float = 1.0) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.straight_through, self.temperature = straight_through, temperature

    def forward(self, h: Tensor) -> Tensor:
        winner = F.winner_take_all(h)
        if not self.straight_through:
            return winner
        soft = F.softmin(h, self.temperature)
        return winner + (soft - soft.detach())  # the bracket is exactly 0

    def extra_repr(self) -> str:
        through = f", temperature={self.temperature}" if self.straight_through else ""
        return f"straight_through={self.straight_through}{through}"
