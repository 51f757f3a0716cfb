"""Competitions: what relation units go through before the decoder sees them, found by name.

A competition is a module from h (..., units) to responses of the same shape. A new one is a class here (or elsewhere)
with ``@register_competition("name")``.
"""

import math
from collections.abc import Callable
from typing import ClassVar, TypeVar, overload

import torch
from torch import Tensor, nn

from caunet import functional
from caunet.registry import Registry, register_class

__all__ = [
    "COMPETITIONS",
    "Competition",
    "L2Norm",
    "NoCompetition",
    "Softmax",
    "Softmin",
    "WinnerTakeAll",
    "register_competition",
]


class Competition(nn.Module):
    """Responses of relation units: ``(..., units) -> (..., units)``. A subclass gives ``forward``."""

    smallest_wins: ClassVar[bool | None] = None
    """Which units it is for: those where a small h is a good match (True), or a large one (False); None: for all."""
    sums_to_one: ClassVar[bool] = False
    """Whether the responses to a pair sum to one, so that their mean is known."""
    learns_temperature: ClassVar[bool] = False
    """Whether ``create`` heeds a ``rate_factor``."""

    @classmethod
    def create(cls, temperature: float, rate_factor: float) -> "Competition":
        """The competition of a spec's ``temperature`` and ``learn_temperature``; those without one ignore them."""
        return cls()

    def columns(self, h: Tensor) -> Tensor:
        """The same of h with a pair in each column, ``(units, P) -> (units, P)``: how pruned networks compute."""
        responses: Tensor = self(h.mT)
        return responses.mT


C = TypeVar("C", bound=type[Competition])

COMPETITIONS: Registry[type[Competition]] = Registry("competition")
"""Competitions by the name that a spec knows them by."""


@overload
def register_competition(name: str, cls: None = None, *, replace: bool = False) -> Callable[[C], C]: ...


@overload
def register_competition(name: str, cls: C, *, replace: bool = False) -> C: ...


def register_competition(name: str, cls: C | None = None, *, replace: bool = False) -> C | Callable[[C], C]:
    """Make a competition known by ``name``; without ``cls``, a decorator.

    >>> @register_competition("halved")
    ... class Halved(Competition):
    ...     def forward(self, h):
    ...         return 0.5 * h
    >>> from caunet.models import create_model
    >>> create_model("can", "rotation", competition="halved").competition
    Halved()
    >>> COMPETITIONS.unregister("halved")
    """
    return register_class(COMPETITIONS, Competition, name, cls, replace)


@register_competition("softmin")
class Softmin(Competition):
    """Softmin competition, equation (7), over the last dimension.

    Args:
        initial_temperature: T; the paper's is 1.
        rate_factor: 0, or how much faster than other parameters T is to learn. Then
            T = initial_temperature · exp(-rate_factor · θ) with a parameter θ that starts at 0. (Adam moves every
            parameter by about its rate, and between soft and hard lie some decades of T.)
        device, dtype: of that parameter.

    >>> Softmin(0.5)
    Softmin(temperature=0.5)
    >>> learning = Softmin(0.5, rate_factor=4.0)
    >>> learning
    Softmin(temperature=0.5, rate_factor=4.0)
    >>> learning(torch.tensor([0.0, 1.0]))
    tensor([0.8808, 0.1192], grad_fn=<SoftmaxBackward0>)
    """

    smallest_wins: ClassVar[bool | None] = True
    sums_to_one: ClassVar[bool] = True
    learns_temperature: ClassVar[bool] = True

    theta: nn.Parameter | None

    def __init__(
        self,
        initial_temperature: float = 1.0,
        rate_factor: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_temperature("initial_temperature", initial_temperature)
        if not rate_factor >= 0:
            raise ValueError(f"rate_factor must be at least 0, got {rate_factor}")
        self.initial_temperature, self.rate_factor = initial_temperature, rate_factor
        theta = nn.Parameter(torch.zeros((), device=device, dtype=dtype)) if rate_factor else None
        self.register_parameter("theta", theta)

    @classmethod
    def create(cls, temperature: float, rate_factor: float) -> "Softmin":
        return cls(temperature, rate_factor)

    @property
    def temperature(self) -> float:
        """T, as it is now."""
        if self.theta is None:
            return self.initial_temperature
        return self.initial_temperature * math.exp(-self.rate_factor * self.theta.item())

    def forward(self, h: Tensor) -> Tensor:
        """Responses that sum to 1, the smallest h with the largest: ``(..., units) -> (..., units)``."""
        if self.theta is None:
            return functional.softmin(h, self.initial_temperature)
        return functional.softmin(h * (self.rate_factor * self.theta).exp(), self.initial_temperature)

    def columns(self, h: Tensor) -> Tensor:
        if self.theta is None:
            return functional.softmin(h, self.initial_temperature, dim=0)
        return functional.softmin(h, self.initial_temperature * (-self.rate_factor * self.theta).exp(), dim=0)

    def extra_repr(self) -> str:
        if self.theta is None:
            return f"temperature={self.temperature}"
        return f"temperature={self.temperature:.4g}, rate_factor={self.rate_factor}"


@register_competition("winner-take-all")
class WinnerTakeAll(Competition):
    """Winner-take-all competition, equation (6), over the last dimension.

    Args:
        straight_through: use the gradient of softmin, so that the layers below can learn.
        temperature: of that softmin.

    >>> h = torch.tensor([2.0, 1.0], requires_grad=True)
    >>> WinnerTakeAll(straight_through=True)(h)
    tensor([0., 1.], grad_fn=<AddBackward0>)
    """

    smallest_wins: ClassVar[bool | None] = True
    sums_to_one: ClassVar[bool] = True

    def __init__(self, straight_through: bool = False, temperature: float = 1.0) -> None:
        super().__init__()
        _check_temperature("temperature", temperature)
        self.straight_through, self.temperature = straight_through, temperature

    @classmethod
    def create(cls, temperature: float, rate_factor: float) -> "WinnerTakeAll":
        return cls(straight_through=True, temperature=temperature)

    def forward(self, h: Tensor) -> Tensor:
        """1 for the smallest h, 0 for the others: ``(..., units) -> (..., units)``."""
        winner = functional.winner_take_all(h)
        if not self.straight_through:
            return winner
        soft = functional.softmin(h, self.temperature)
        return winner + (soft - soft.detach())  # the difference is exactly 0

    def extra_repr(self) -> str:
        through = f", temperature={self.temperature}" if self.straight_through else ""
        return f"straight_through={self.straight_through}{through}"


@register_competition("l2")
class L2Norm(Competition):
    """h / |h|: what Table I puts behind bilinear units. Zero stays zero.

    >>> L2Norm()(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """

    smallest_wins: ClassVar[bool | None] = False

    def forward(self, h: Tensor) -> Tensor:
        """h divided by its Euclidean norm: ``(..., units) -> (..., units)``."""
        return nn.functional.normalize(h, dim=-1)


@register_competition("softmax")
class Softmax(Competition):
    """exp(h / temperature), normalized to sum 1: the alternative to l2 that the paper mentions for bilinear units.

    >>> Softmax(temperature=0.5)(torch.tensor([0.0, 0.0]))
    tensor([0.5000, 0.5000])
    """

    smallest_wins: ClassVar[bool | None] = False
    sums_to_one: ClassVar[bool] = True

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        _check_temperature("temperature", temperature)
        self.temperature = temperature

    @classmethod
    def create(cls, temperature: float, rate_factor: float) -> "Softmax":
        return cls(temperature)

    def forward(self, h: Tensor) -> Tensor:
        """Responses that sum to 1, the largest h with the largest: ``(..., units) -> (..., units)``."""
        return torch.softmax(h / self.temperature, dim=-1)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


@register_competition("none")
class NoCompetition(Competition):
    """The decoder reads h itself."""

    def forward(self, h: Tensor) -> Tensor:
        """h as it is: ``(..., units) -> (..., units)``."""
        return h


def _check_temperature(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")
