"""Align two volumes of different contrasts at one level by mutual information, from an answer that is nearly right.

A curve of the values says that all tissue of one value in a has one value in b. Where that is not so (cerebrospinal
fluid and bone are dark in one contrast, and in another they are not), and at the edges, where a voxel is a mix of two
tissues, it pulls the answer by tenths of a millimeter. Mutual information (Viola and Wells, 1997; Mattes et al., 2003)
asks only that the values of both volumes go together: what is maximized over T is the sum over points p of a of

    log P(a(p), b(T p)) - log P_a(a(p)) - log P_b(b(T p)),

and the same over points of b, with the density P of pairs of values estimated from them, again in every step. A step
is one of Fisher's scoring: slopes of the logarithm take the place of residuals, their squares that of weights. Together
with the motion a gain is found for each volume, a quadratic function of the place: else the field of a coil, which a
density knows nothing of, moves the answer, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import conv1d, grid_sample

from caunet.geometry import Matrix
from caunet.volumes.alignment import Aligned, Frame, Sides, Steps, both_ways, improve, solve
from caunet.volumes.light import UNIFORM
from caunet.volumes.points import places

__all__ = ["Density", "align_information", "joint_density", "noise_level"]

_BINS = 128  # of the values of each volume
_WIDTH = 1.5  # bins: standard deviation of the Gaussian that a pair of values is seen as
_RANGE = (-0.1, 1.2)  # values from the first bin to the last one
_FAINT = 1.0  # pairs of values in a bin, below which it says nothing
_FIELD = 9  # numbers of a gain
_FOURTH = (1.0, -4.0, 6.0, -4.0, 1.0)  # its squares sum up to 70
_DARK = 0.2  # value up to which a voxel may be background
_PACE = 0.7  # share of a step that is made at first
_HELD = 1e-6  # share of its own size that is added to an unknown that nothing determines


class Density(NamedTuple):
    """The density of pairs of values, and what it says of each pair."""

    joint: Tensor
    """(bins, bins), float64, of sum 1: rows for the second value of a pair, columns for the first."""
    ratio: Tensor
    """(bins, bins), float64: the logarithm of the density by what it were if the values had nothing to do with each
    other, and a little in every bin, so that empty ones say nothing. Its mean over ``joint`` is the mutual information,
    in nats, less for that."""
    slopes: Tensor
    """(2, N): how the ratio of each pair changes with its first value and with its second."""


def joint_density(first: Tensor, second: Tensor, weight: Tensor) -> Density:
    """The density of pairs of values (N,), from 0 to 1 about, that count by ``weight`` (N,).

    >>> values, order = torch.rand(2, 10**6, generator=torch.Generator().manual_seed(0))
    >>> both = [joint_density(values, other, torch.ones(10**6)) for other in (values, order)]
    >>> [round(float((d.joint * d.ratio).sum()), 1) for d in both]
    [2.4, -0.0]
    """
    low, high = _RANGE
    scale = (_BINS - 1) / (high - low)
    pairs = ((torch.stack([first, second], -1) - low) * scale).clamp(0, _BINS - 1)
    joint = _smoothed(_counted(pairs, weight))
    least = _FAINT / max(float(weight.sum()), 1.0)
    sums = [joint.sum(axis, keepdim=True) + least * _BINS for axis in (0, 1)]
    ratio = torch.log(joint + least) - torch.log(sums[0]) - torch.log(sums[1])
    change = ratio.new_zeros(2, _BINS, _BINS)
    change[0, :, 1:-1] = (ratio[:, 2:] - ratio[:, :-2]) * (scale / 2)
    change[1, 1:-1] = (ratio[2:] - ratio[:-2]) * (scale / 2)
    grid = (pairs * (2 / (_BINS - 1)) - 1).view(1, 1, -1, 2)
    slopes = grid_sample(change[None].to(grid), grid, align_corners=True).view(2, -1)
    return Density(joint, ratio, slopes)


def noise_level(values: Tensor) -> float:
    """The standard deviation of the noise in ``values`` (D, H, W), about 0 to 1, from fourth differences along x.

    >>> round(noise_level(0.5 + 0.05 * torch.randn(20, 20, 20, generator=torch.Generator().manual_seed(0))), 2)
    0.05
    """
    if values.shape[2] < len(_FOURTH):
        return 0.0
    count = values.shape[2] - len(_FOURTH) + 1
    change = sum(weight * values[..., k : k + count] for k, weight in enumerate(_FOURTH))
    assert isinstance(change, Tensor)
    bright = change[values[..., 2 : 2 + count] > _DARK]  # the background may be all the same
    return float(bright.abs().median()) * 1.4826 / 70**0.5 if len(bright) else 0.0


def _counted(pairs: Tensor, weight: Tensor) -> Tensor:
    """(bins, bins), float64: how many ``pairs`` (N, 2), in bins, there are; each is shared by the four around."""
    base = pairs.floor().clamp_max(_BINS - 2)
    share, place = pairs - base, base.long()
    counts = torch.zeros(_BINS * _BINS, dtype=torch.float64, device=pairs.device)
    for x in (0, 1):
        for y in (0, 1):
            parts = torch.where(torch.tensor([bool(x), bool(y)], device=pairs.device), share, 1 - share)
            index = (place[:, 1] + y) * _BINS + place[:, 0] + x
            counts += torch.bincount(index, (weight * parts.prod(-1)).double(), _BINS * _BINS)
    return counts.view(_BINS, _BINS)


def _smoothed(counts: Tensor) -> Tensor:
    """Blurred by a Gaussian, of sum 1."""
    reach = int(np.ceil(3 * _WIDTH))
    line = torch.arange(-reach, reach + 1, dtype=counts.dtype, device=counts.device)
    kernel = torch.exp(-0.5 * (line / _WIDTH).square())[None, None]
    for _ in range(2):
        counts = conv1d(counts[:, None], kernel, padding=reach)[:, 0].T
    return counts / counts.sum().clamp_min(1e-30)


class _InformationSteps(Steps):
    """Steps towards one T that has the most mutual information."""

    def __init__(self, sides: Sides, frame: Frame, generators: Matrix) -> None:
        super().__init__(sides, frame, generators, UNIFORM)
        self.fields = sides.points_a.values.new_zeros(2, _FIELD)  # the gains of a and of b, less 1
        self.normal = np.zeros((1, len(generators), len(generators)))
        self.pull = np.zeros((1, len(generators)))
        self.pace = _PACE

    def look(self, T: Matrix) -> None:
        k = len(self.generators)
        normal, pull = np.zeros((k + 2 * _FIELD,) * 2), np.zeros(k + 2 * _FIELD)
        for index, (points, other, M, into_a) in enumerate(both_ways(self.sides, T)):
            read, inside = self.compared(index, points, other, M)
            u = places(points.voxels, self.frame.into @ into_a)
            terms = _quadratic(u[0])
            gains = [1 + terms @ self.fields[index], 1 + terms @ self.fields[1 - index]]
            own, seen = points.values * gains[0], read[0] * gains[1]
            slope = joint_density(own, seen, inside[0]).slopes * inside
            # A value that is read changes the other way round where the points move.
            moved = slope[0] * gains[0] if self.own_changes(index) else -slope[1] * gains[1]
            motion = self.motion(index, points, other, M, u, T[:, :3, :3], moved[None])[0]
            fields = [terms * (slope[0] * own)[:, None], terms * (slope[1] * seen)[:, None]]
            ours = motion @ torch.from_numpy(self.generators.T.copy()).to(motion)
            columns = torch.cat([ours, fields[index], fields[1 - index]], 1)
            normal += (columns.mT @ columns).double().cpu().numpy()
            pull += columns.sum(0).double().cpu().numpy()
        step = solve(normal[None], pull[None])[0, k:]
        self.fields = self.fields + self.pace * torch.from_numpy(step.reshape(2, _FIELD)).to(self.fields)
        held = normal[k:, k:] + _HELD * np.diag(normal[k:, k:].diagonal() + 1e-9)
        known = np.linalg.solve(held, np.concatenate([normal[k:, :k], pull[k:, None]], 1))
        self.normal = (normal[:k, :k] - normal[:k, k:] @ known[:, :k])[None]
        self.pull = (pull[:k] - normal[:k, k:] @ known[:, k])[None]

    def accelerated(self, raw: Matrix) -> Matrix:
        """Shorter steps instead, by half from where they turn round: what a density says changes with every step."""
        if self.before is not None and float((raw * self.before[1]).sum()) < 0:
            self.pace /= 2
        return raw * self.pace

    def information(self) -> tuple[Matrix, Matrix]:
        return self.normal, self.pull


def _quadratic(u: Tensor) -> Tensor:
    """(N, 9): linear and quadratic functions of places u (N, 3)."""
    x, y, z = u.unbind(-1)
    return torch.stack([x, y, z, x * x, y * y, z * z, x * y, x * z, y * z], -1)


def align_information(
    sides: Sides, T: Matrix, frame: Frame, generators: Matrix, steps: int, stop: float
) -> Aligned:
    """Improve ``T`` (1, 4, 4), millimeters of a to millimeters of b, as :func:`caunet.volumes.alignment.align` does."""
    return improve(_InformationSteps(sides, frame, generators), T, steps, stop)
