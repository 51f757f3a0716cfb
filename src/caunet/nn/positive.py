"""Weights that are positive because they are a function of free parameters: softplus(theta) or exp(theta).

Torch's own parametrizations do it, so that units read their weights as before, and any optimizer may move theta.
"""

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

__all__ = ["PARAMETRIZATIONS", "Exp", "Softplus", "is_reparametrized", "reparametrize"]

M = TypeVar("M", bound=nn.Module)


class Exp(nn.Module):
    """weight = exp(theta)."""

    def forward(self, theta: Tensor) -> Tensor:
        return theta.exp()

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The theta of a weight."""
        return weight.log()


class Softplus(nn.Module):
    """weight = log(1 + exp(theta))."""

    def forward(self, theta: Tensor) -> Tensor:
        return nn.functional.softplus(theta)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The theta of a weight: log(exp(weight) - 1)."""
        return torch.expm1(weight).log()


PARAMETRIZATIONS: dict[str, type[nn.Module] | None] = {"direct": None, "softplus": Softplus, "exp": Exp}
"""What a spec calls them; ``direct`` weights are the parameters themselves."""


def reparametrize(module: M, name: str) -> M:
    """``module`` itself, its own weights now functions of free parameters; their values stay what they are.

    >>> from caunet.nn import ContrastAssociation
    >>> units = reparametrize(ContrastAssociation(3, 3, units=2, rank=1), "exp")
    >>> units.u.shape, [name for name, _ in units.named_parameters()]
    (torch.Size([2, 3]), ['parametrizations.u.original', 'parametrizations.v.original'])
    >>> list(units.nonnegative_parameters())
    []
    """
    parametrization = PARAMETRIZATIONS[name]
    if parametrization is not None:
        for weight in [name for name, _ in module.named_parameters(recurse=False)]:
            parametrize.register_parametrization(module, weight, parametrization())
    return module


def is_reparametrized(module: nn.Module) -> bool:
    """Whether the weights of ``module`` are functions of other parameters."""
    return parametrize.is_parametrized(module)
