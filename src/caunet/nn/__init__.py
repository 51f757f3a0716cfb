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

__all__ = ["Bilinear", "Concatenation", "ContrastAssociation", "RelativeContrast", "Softmin", "WinnerTakeAll"]


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


class RelativeContrast(ContrastAssociation):
    """Contrast association units in proportion to the contrast they see: ``(..., in_a), (..., in_b) -> (..., units)``.

    :func:`caunet.functional.relative_contrast`: between 0 (equal) and 2 (opposite) whatever the size of the
    weights, so what follows needs a sharpness of its own, such as ``Softmin(temperature, learn=4.0)``.

    Args:
        in_a, in_b, units, rank, device, dtype: as in :class:`ContrastAssociation`.
        floor: added to the mean square that a unit sees.

    >>> units = RelativeContrast(3, 3, units=2, rank=1, floor=0.0)
    >>> x = torch.tensor([0.0, 1.0, 3.0])
    >>> bool(torch.allclose(units(x, x), units(5 * x + 7, 5 * x + 7)))  # neither gain nor offset
    True

    Since it means nothing, the size of the weights drifts when multiplicative rules train them, by about a decade
    in a thousand updates at a rate of 0.05. Call :meth:`rescale_` now and then (caunet's training does).
    """

    def __init__(
        self,
        in_a: int,
        in_b: int,
        units: int,
        rank: int | None = None,
        floor: float = 1e-3,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_a, in_b, units, rank, device, dtype)
        if not floor >= 0:
            raise ValueError(f"floor must be at least 0, got {floor}")
        self.floor = floor

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        if self.rank is None:
            return F.relative_contrast(a, b, self.weight, self.floor)
        return F.relative_contrast_low_rank(a, b, self.u, self.v, self.rank, self.floor)

    @torch.no_grad()
    def rescale_(self) -> None:
        """Bring the sum of each unit's matrix to √(in_a · in_b), which changes no response."""
        wanted = math.sqrt(self.in_a * self.in_b)
        if self.rank is None:
            self.weight.mul_(wanted / self.weight.sum((1, 2), keepdim=True))
            return
        mass = (self.u.sum(1) * self.v.sum(1)).view(-1, self.rank).sum(1)
        factor = (wanted / mass).sqrt().repeat_interleave(self.rank)[:, None]
        self.u.mul_(factor)
        self.v.mul_(factor)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, floor={self.floor}"


class Softmin(nn.Module):
    """Softmin competition, equation (7), over the last dimension.

    Args:
        temperature: T; the paper's is 1.
        learn: 0, or how much faster than other parameters T is to learn. Then T = temperature · exp(-learn · θ)
            with a parameter θ that starts at 0. (Adam moves every parameter by about its rate, and between soft
            and hard lie some decades of T.)
        device, dtype: of that parameter.

    >>> Softmin(temperature=0.5)
    Softmin(temperature=0.5)
    >>> learning = Softmin(temperature=0.5, learn=4.0)
    >>> learning
    Softmin(temperature=0.5, learn=4.0)
    >>> learning(torch.tensor([0.0, 1.0]))
    tensor([0.8808, 0.1192], grad_fn=<SoftmaxBackward0>)
    """

    theta: nn.Parameter | None

    def __init__(
        self,
        temperature: float = 1.0,
        learn: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        if not learn >= 0:
            raise ValueError(f"learn must be at least 0, got {learn}")
        self.first, self.learn = temperature, learn
        theta = nn.Parameter(torch.zeros((), device=device, dtype=dtype)) if learn else None
        self.register_parameter("theta", theta)

    @property
    def temperature(self) -> float:
        """T, as it is now."""
        return self.first if self.theta is None else self.first * math.exp(-self.learn * self.theta.item())

    def forward(self, h: Tensor) -> Tensor:
        if self.theta is None:
            return F.softmin(h, self.first)
        return F.softmin(h * (self.learn * self.theta).exp(), self.first)

    def extra_repr(self) -> str:
        if self.theta is None:
            return f"temperature={self.temperature}"
        return f"temperature={self.temperature:.4g}, learn={self.learn}"


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
