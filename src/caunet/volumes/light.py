"""How the values of one volume follow from those of another at the same place: a gain, a field, a curve.

Each is linear in its unknowns, which are found together with the motion.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

__all__ = ["CURVE", "CURVED_FIELD", "SMOOTH", "UNIFORM", "Light"]

_KNOTS = 9  # of a curve, from 0 to 1
_DRIFTS = 5  # of how it drifts with the place


class Light(Protocol):
    """Columns that explain the other volume's values, and how their sum changes with a's."""

    count: int
    """How many columns."""

    def columns(self, u: Tensor, values: Tensor) -> Tensor:
        """(K, N, count), for places u (K, N, 3), of the order of 1, and values (N,), about 0 to 1."""
        ...

    def slope(self, found: Tensor, values: Tensor) -> Tensor:
        """(K, N) or (K, 1): by how much the sum of ``found`` (K, count) times the columns grows with the values."""
        ...

    def first(self, gain: Tensor, bias: Tensor) -> Tensor:
        """(K, count): the unknowns of one gain and one bias (K,)."""
        ...


class _Uniform:
    """One gain and one bias."""

    count = 2

    def columns(self, u: Tensor, values: Tensor) -> Tensor:
        own = values.expand(u.shape[:2])
        return torch.stack([own, torch.ones_like(own)], -1)

    def slope(self, found: Tensor, values: Tensor) -> Tensor:
        return found[:, :1]

    def first(self, gain: Tensor, bias: Tensor) -> Tensor:
        return torch.stack([gain, bias], -1)


class _Smooth:
    """A gain that is a quadratic function of the place, and a bias that is a linear one: the field of a coil."""

    count = 14

    def columns(self, u: Tensor, values: Tensor) -> Tensor:
        own = values.expand(u.shape[:2])
        x, y, z = u.unbind(-1)
        ax, ay, az = own * x, own * y, own * z
        return torch.stack(
            [own, torch.ones_like(own), x, y, z, ax, ay, az, ax * x, ax * y, ax * z, ay * y, ay * z, az * z],
            -1,
        )

    def slope(self, found: Tensor, values: Tensor) -> Tensor:
        return found[:, :1]  # that of the middle; it is within a few percent of the others

    def first(self, gain: Tensor, bias: Tensor) -> Tensor:
        found = gain.new_zeros(len(gain), self.count)
        found[:, 0], found[:, 1] = gain, bias
        return found


class _Curve:
    """Any curve through a few knots: another contrast, such as T1 and T2. What is left is the correlation ratio's."""

    count = _KNOTS

    def columns(self, u: Tensor, values: Tensor) -> Tensor:
        return _hats(values, _KNOTS).expand(len(u), -1, -1)

    def slope(self, found: Tensor, values: Tensor) -> Tensor:
        steps = (found[:, 1:] - found[:, :-1]) * (_KNOTS - 1)
        between = (values.clamp(0, 1) * (_KNOTS - 1)).floor().clamp_max(_KNOTS - 2).long()
        return steps[:, between]

    def first(self, gain: Tensor, bias: Tensor) -> Tensor:
        knots = torch.linspace(0, 1, _KNOTS, dtype=gain.dtype, device=gain.device)
        return gain[:, None] * knots + bias[:, None]


class _CurvedField(_Curve):
    """A curve that drifts with the place: another contrast, with the field of a coil in either volume."""

    count = _KNOTS + 3 * _DRIFTS

    def columns(self, u: Tensor, values: Tensor) -> Tensor:
        hats, drifts = _hats(values, _KNOTS), _hats(values, _DRIFTS)
        drifting = drifts[:, :, None] * u[:, :, None, :]  # (K, N, _DRIFTS, 3)
        return torch.cat([hats.expand(len(u), -1, -1), drifting.flatten(2)], -1)

    def slope(self, found: Tensor, values: Tensor) -> Tensor:
        return super().slope(found[:, :_KNOTS], values)

    def first(self, gain: Tensor, bias: Tensor) -> Tensor:
        return torch.cat([super().first(gain, bias), gain.new_zeros(len(gain), 3 * _DRIFTS)], -1)


def _hats(values: Tensor, knots: int) -> Tensor:
    """(N, knots): linear splines of values (N,), from 0 to 1."""
    place = values.clamp(0, 1) * (knots - 1)
    middle = torch.arange(knots, dtype=values.dtype, device=values.device)
    return (1 - (place[:, None] - middle).abs()).clamp_min(0)


UNIFORM, SMOOTH, CURVE, CURVED_FIELD = _Uniform(), _Smooth(), _Curve(), _CurvedField()
