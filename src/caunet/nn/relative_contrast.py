"""Contrast association in proportion to the contrast that a unit sees: not in the paper, see docs/learning-rule.md."""

import math

import torch
from torch import Tensor

from caunet import functional
from caunet.nn.contrast_association import ContrastAssociation
from caunet.nn.positive import is_reparametrized
from caunet.nn.relation import Columns, register_relation
from caunet.nn.window import Window

__all__ = ["RelativeContrast"]


@register_relation("relative-contrast")
class RelativeContrast(ContrastAssociation):
    """Contrast association units in proportion to the contrast they see: ``(..., in_a), (..., in_b) -> (..., units)``.

    :func:`caunet.functional.relative_contrast`: between 0 (equal) and 2 (opposite) whatever the size of the
    weights, so what follows needs a sharpness of its own, such as ``Softmin(1 / 3, rate_factor=4.0)``.

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
        if not 0 <= floor < math.inf:
            raise ValueError(f"floor must be at least 0, got {floor}")
        self.floor = floor

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Contrast in proportion to the contrast seen: ``(..., in_a), (..., in_b) -> (..., units)``, 0 or more."""
        self.check_inputs(a, b)
        if self.rank is None:
            return functional.relative_contrast(a, b, self.weight, self.floor)
        return functional.relative_contrast_low_rank(a, b, self.u, self.v, self.rank, self.floor)

    def slide(self, a: Tensor, b: Tensor, window: Window) -> Tensor | None:
        """Patch by patch: the energy is that about the mean of each pair of patches, which is no convolution."""
        return None

    def sparse(self) -> Columns | None:
        if self.rank is None:
            return None
        contrast_and_energy, floor = self._sparse_contrast(), self.floor * self._mass().detach()[:, None]

        def relative(a: Tensor, b: Tensor) -> Tensor:
            contrast, energy = contrast_and_energy(a, b)
            return contrast.div_(energy.add_(floor))

        return relative

    @torch.no_grad()
    def rescale_(self) -> None:
        """Bring the sum of each unit's matrix to √(in_a · in_b), which changes no response.

        Weights that are functions of free parameters are left alone: there it is not the size that drifts.
        """
        if is_reparametrized(self):
            return
        target = math.sqrt(self.in_a * self.in_b)
        if self.rank is None:
            self.weight.mul_(target / self.weight.sum((1, 2), keepdim=True))
            return
        factor = (target / self._mass()).sqrt().repeat_interleave(self.rank)[:, None]
        self.u.mul_(factor)
        self.v.mul_(factor)

    @torch.no_grad()
    def prunable(self) -> dict[str, Tensor]:
        """The share of its unit's matrix that each weight carries, since the size of the whole means nothing."""
        sizes = super().prunable()
        if self.rank is None:
            return {name: size / size.sum((1, 2), keepdim=True) for name, size in sizes.items()}
        mass = self._mass().repeat_interleave(self.rank)[:, None]
        return {name: size / mass for name, size in sizes.items()}

    def _mass(self) -> Tensor:
        """The sum of each unit's matrix at low rank, (units,)."""
        return (self.u.sum(1) * self.v.sum(1)).view(self.units, -1).sum(1)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, floor={self.floor}"
