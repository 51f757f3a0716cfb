"""The parts a network is put together from, and those which only its variants need."""

import itertools

import torch
from torch import Tensor, nn

from caunet import functional
from caunet import nn as units
from caunet.models.spec import ModelSpec

__all__ = ["L2Norm", "PositiveRelation", "Softmax", "build_competition", "build_decoder", "build_relation"]


class PositiveRelation(nn.Module):
    """Relation units whose weights are softplus(theta) or exp(theta), theta being free for any optimizer.

    Built from plain units, whose weights it starts with. ``u`` and ``v`` (or ``weight`` at full rank) read
    as in the plain units; the parameters are ``theta_u``, ``theta_v`` (or ``theta_weight``).

    >>> plain = units.ContrastAssociation(3, 3, units=2, rank=1)
    >>> positive = PositiveRelation(plain, "exp")
    >>> bool(torch.allclose(positive.u, plain.u)), [name for name, _ in positive.named_parameters()]
    (True, ['theta_u', 'theta_v'])
    """

    def __init__(self, plain: units.Bilinear | units.ContrastAssociation, parametrisation: str) -> None:
        super().__init__()
        self.contrast = isinstance(plain, units.ContrastAssociation)
        self.floor = plain.floor if isinstance(plain, units.RelativeContrast) else None
        self.parametrisation, self.rank, self.units = parametrisation, plain.rank, plain.units
        self.in_a, self.in_b = plain.in_a, plain.in_b
        for name, weight in plain.named_parameters():
            self.register_parameter(f"theta_{name}", nn.Parameter(self._theta(weight.detach())))

    def _theta(self, weight: Tensor) -> Tensor:
        # softplus^-1(w) = log(exp(w) - 1)
        return weight.log() if self.parametrisation == "exp" else torch.expm1(weight).log()

    def _weight(self, name: str) -> Tensor:
        theta: Tensor = getattr(self, f"theta_{name}")  # under functional_call it is no nn.Parameter
        return theta.exp() if self.parametrisation == "exp" else nn.functional.softplus(theta)

    @property
    def u(self) -> Tensor:
        """Left factors (units * rank, I)."""
        return self._weight("u")

    @property
    def v(self) -> Tensor:
        """Right factors (units * rank, J)."""
        return self._weight("v")

    @property
    def weight(self) -> Tensor:
        """Full-rank weights (units, I, J)."""
        return self._weight("weight")

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(..., I), (..., J) -> (..., units)."""
        if self.floor is not None:
            if self.rank is None:
                return functional.relative_contrast(a, b, self.weight, self.floor)
            return functional.relative_contrast_low_rank(a, b, self.u, self.v, self.rank, self.floor)
        if self.rank is None:
            full = functional.contrast_association if self.contrast else functional.bilinear
            return full(a, b, self.weight)
        low = functional.contrast_association_low_rank if self.contrast else functional.bilinear_low_rank
        return low(a, b, self.u, self.v, rank=self.rank)

    def extra_repr(self) -> str:
        kind = "contrast association" if self.contrast else "bilinear"
        kind = kind if self.floor is None else "relative contrast"
        sizes = f"in_a={self.in_a}, in_b={self.in_b}, units={self.units}, rank={self.rank}"
        return f"{kind}, {sizes}, {self.parametrisation}"


class L2Norm(nn.Module):
    """h / |h|: what Table I puts behind bilinear units."""

    def forward(self, h: Tensor) -> Tensor:
        """(..., units) -> (..., units) of length one (zero stays zero)."""
        return nn.functional.normalize(h, dim=-1)


class Softmax(nn.Module):
    """exp(h / temperature), normalised: the alternative to l2 the paper mentions for bilinear units."""

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, h: Tensor) -> Tensor:
        """(..., units) -> (..., units) that sum to one."""
        return torch.softmax(h / self.temperature, dim=-1)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


def build_relation(spec: ModelSpec, generator: torch.Generator | None) -> nn.Module:
    """The relation units of ``spec``, uniform as in :mod:`caunet.nn`.

    A unit of rank r is a sum of r rank-one terms, so h grows with r and softmin would saturate from the start
    (rank 16 then learns badly). Above the paper's rank of 4 the factors are therefore shrunk so that the mean
    of h stays what it is at rank 4: u and v each by (4 / r)^(1/2), h being a product of both.
    """
    if spec.relation == "concatenation":
        return units.Concatenation()
    plain: units.Bilinear | units.ContrastAssociation
    if spec.relation == "bilinear":
        plain = units.Bilinear(spec.inputs, spec.inputs, spec.units, spec.rank, nonnegative=spec.nonnegative)
    else:
        kind = units.RelativeContrast if spec.relative else units.ContrastAssociation
        plain = kind(spec.inputs, spec.inputs, spec.units, spec.rank)
    plain.reset_parameters(generator)
    if spec.rank is not None and spec.rank > 4:
        with torch.no_grad():
            for weight in plain.parameters():
                weight.mul_((4 / spec.rank) ** 0.5)
    return plain if spec.parametrisation == "direct" else PositiveRelation(plain, spec.parametrisation)


def build_competition(spec: ModelSpec) -> nn.Module:
    """What stands between relation units and decoder."""
    if spec.relation == "concatenation":
        return nn.Identity()
    if spec.relation == "bilinear":
        kinds = {"l2": L2Norm(), "softmax": Softmax(spec.temperature), "none": nn.Identity()}
        return kinds[spec.normalisation]
    if spec.competition == "winner-take-all":
        return units.WinnerTakeAll(straight_through=True, temperature=spec.temperature)
    softmin = units.Softmin(spec.temperature, spec.learn_temperature)
    return softmin if spec.competition == "softmin" else nn.Identity()


def build_decoder(spec: ModelSpec, generator: torch.Generator | None) -> nn.Sequential:
    """g: linear layers with one-parameter PReLUs between, drawn from PyTorch's default distribution."""
    inputs = 2 * spec.inputs if spec.relation == "concatenation" else spec.units
    widths = [inputs, *spec.hidden, spec.dim]
    layers: list[nn.Module] = []
    for fan_in, out in itertools.pairwise(widths):
        linear = nn.Linear(fan_in, out, bias=spec.bias)
        with torch.no_grad():
            for parameter in linear.parameters():
                # nn.Linear's own distribution, but from our generator: it only knows the global one.
                parameter.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)
        layers += [linear, nn.PReLU()]
    return nn.Sequential(*layers[:-1])
