"""Align two volumes at one level, from answers that are already near: Gauss-Newton steps in both directions.

What is minimized over the transformation T and the light is

    sum over points p of a of  w (b(T p) - gain(p) a(p) - bias(p))^2
  + sum over points q of b of  w (a(T^-1 q) - gain(q) b(q) - bias(q))^2,

each sum in units of its own usual residual. Both directions count alike, so b to a has the inverse answer. The light is
one of `light.py`: a gain and a bias, smooth fields of them, or a curve. w is small where the residual is far larger
than the median one.

Several transformations are improved at once, which is how first guesses are tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.geometry import Matrix
from caunet.volumes.light import UNIFORM, Light
from caunet.volumes.points import Points, places, read_gradient, read_level
from caunet.volumes.profile import profile
from caunet.volumes.pyramid import Level

__all__ = [
    "Aligned",
    "Frame",
    "Sides",
    "Steps",
    "align",
    "both_ways",
    "correlations",
    "explained",
    "improve",
    "likeness",
    "solve",
    "whole",
]

_TOLERANCE = 3.0  # residual, relative to the usual one, at which a point keeps a quarter of its weight
_QUIET = 1e-4  # residual (values 0..1) below which differences are rounding
_LEAP = 0.5  # size of a step (1 is half a volume) beyond which it is shortened
_COLLAPSED = (
    0.02  # stretch, of the unit or of another axis, below (or one over it, above) which no volume is read
)
_TRUSTED = 2.0  # how many steps a step may stand for
_BLOCK = 4  # side of the blocks that are compared, in voxels
_FLAT = 1e-6  # variance of values below which a block shows nothing
_ALIKE = 0.6  # correlation from which a block is found
_FEW = 32  # points that must be seen for a step


@dataclass(frozen=True)
class Frame:
    """Coordinates of the order of 1 about the center of a: millimeters less ``center``, by ``unit``."""

    center: Matrix
    unit: float

    @property
    def into(self) -> Matrix:
        """(4, 4): millimeters of a to these coordinates."""
        T = np.diag([1 / self.unit] * 3 + [1.0])
        T[:3, 3] = -self.center / self.unit
        return T

    @property
    def out(self) -> Matrix:
        """(4, 4): these coordinates to millimeters of a."""
        T = np.diag([self.unit] * 3 + [1.0])
        T[:3, 3] = self.center
        return T


@dataclass(frozen=True)
class Sides:
    """Both volumes at one level, and their points."""

    a: Level
    b: Level
    points_a: Points
    points_b: Points
    smooth_a: Level | None = None
    """a as its gradient is read; a itself if None."""
    smooth_b: Level | None = None


class Aligned(NamedTuple):
    """The answers, and what the last step knew of them."""

    T: Matrix
    """(K, 4, 4)."""
    moved: Matrix
    """(K,): how far the last step moved a point, in millimeters, about."""
    information: Matrix
    """(K, k, k): of the generators, in units of the noise: the inverse of their covariance, were the noise white."""
    left: Matrix
    """(K,): the usual residual by the spread of what is read, in the direction where it is smaller."""


@dataclass
class _Direction:
    """The normal equations of one direction, for K transformations."""

    system: Matrix
    """(K, 12 + L, 12 + L)."""
    right: Matrix
    """(K, 12 + L)."""
    variance: Matrix
    """(K,): the usual squared residual."""
    seen: Matrix
    """(K,): how many points count."""
    left: Matrix
    """(K,): the median residual, as a standard deviation, by that of what is read."""


def align(
    sides: Sides,
    T: Matrix,
    frame: Frame,
    generators: Matrix,
    steps: int,
    stop: float,
    light: Light = UNIFORM,
) -> Aligned:
    """Improve ``T`` (K, 4, 4), millimeters of a to millimeters of b.

    ``generators`` (k, 12) are those of the motion model in the coordinates of ``frame``. At most ``steps`` steps are
    made, fewer once none moves a point by more than ``stop`` millimeters.
    """
    return improve(Steps(sides, frame, generators, light), T, steps, stop)


def improve(work: Steps, T: Matrix, steps: int, stop: float) -> Aligned:
    """At most ``steps`` steps from ``T`` (K, 4, 4), fewer once none moves a point by more than ``stop`` millimeters."""
    if len(T) == 1:
        work.look_across(T[0])
    moved = np.full(len(T), np.nan)
    for _ in range(steps):
        T, moved = work.step(T)
        if not (moved > stop).any():
            break
    return Aligned(T, moved, work.information()[0], work.left)


def whole(T: Matrix) -> npt.NDArray[np.bool_]:
    """(K,): which of T (K, 4, 4) are finite and neither flatten a volume nor make it vanish.

    >>> whole(np.stack([np.eye(4), np.diag([1.0, 1, 1e-3, 1]), np.full((4, 4), np.nan)]))
    array([ True, False, False])
    """
    finite = np.asarray(np.isfinite(T).all((1, 2)))
    linear = np.where(finite[:, None, None], T, np.eye(4))[:, :3, :3]
    stretch = np.linalg.svd(linear, compute_uv=False)
    kept: npt.NDArray[np.bool_] = finite & (stretch[:, 2] > _COLLAPSED * np.maximum(stretch[:, 0], 1))
    return kept & (stretch[:, 0] < 1 / _COLLAPSED)


class Steps:
    """Steps towards T at one level, by least squares on the values; `mutual.py` has others."""

    def __init__(self, sides: Sides, frame: Frame, generators: Matrix, light: Light) -> None:
        self.sides, self.frame, self.generators, self.light = sides, frame, generators, light
        self.lit: list[Tensor | None] = [None, None]  # (K, L) of each direction
        self.directions: list[_Direction] = []
        self.profiles: list[Matrix | None] = [None, None]
        self.left: Matrix = np.zeros(())  # see Aligned
        self.before: tuple[Matrix, Matrix] | None = None  # the last step as it came, and as it was made

    def look_across(self, T: Matrix) -> None:
        """From now on, compare thick voxels with means, as they lie under T (4, 4)."""
        a, b, turn = self.sides.a, self.sides.b, T[:3, :3]
        self.profiles = [profile(a, b, turn), profile(b, a, geometry.invert(T)[:3, :3])]

    def step(self, T: Matrix) -> tuple[Matrix, Matrix]:
        """One step of each: the new T, and how far it moved."""
        self.look(T)
        normal, right = self.information()
        xi = -solve(normal, right) @ self.generators
        raw = np.where(np.isfinite(xi).all(1, keepdims=True), xi, 0.0)
        xi = self.accelerated(raw)
        size = np.abs(xi).sum(1, keepdims=True)
        xi = xi * np.minimum(1.0, _LEAP / np.maximum(size, 1e-12))
        self.before = (raw, xi)
        moved = np.abs(xi).max(1) * self.frame.unit
        steps = np.zeros_like(T)
        steps[:, :3] = xi.reshape(-1, 3, 4)
        D = np.stack([geometry.exponential(one) for one in steps])
        stepped = T @ (self.frame.out @ D @ self.frame.into)
        # Volumes that do not fit fit best where nearly nothing is compared.
        kept = whole(stepped)
        return np.where(kept[:, None, None], stepped, T), np.where(kept, moved, 0.0)

    def look(self, T: Matrix) -> None:
        """Compare the volumes under T (K, 4, 4), for :meth:`information`."""
        self.directions = [
            self._direction(index, points, other, M, self.frame.into @ into_a, T[:, :3, :3])
            for index, (points, other, M, into_a) in enumerate(both_ways(self.sides, T))
        ]
        self.left = np.minimum(*(one.left for one in self.directions))

    def accelerated(self, raw: Matrix) -> Matrix:
        """The steps (K, 12), as if those before had told how they go on (Anderson's method, of depth 1).

        Gradients of smoothed values are too small, and weights change with the residuals, so that plain steps come
        nearer by about a half each.
        """
        if self.before is None:
            return raw
        change = raw - self.before[0]
        share = (change * raw).sum(1) / np.maximum(np.square(change).sum(1), 1e-30)
        calm = np.square(raw).sum(1) < np.square(self.before[0]).sum(1)
        share = np.where(calm & (np.abs(share) < _TRUSTED), share, 0.0)
        step: Matrix = raw - share[:, None] * (change + self.before[1])
        return step

    def _direction(
        self, index: int, points: Points, other: Level, M: Matrix, coordinates: Matrix, turn: Matrix
    ) -> _Direction:
        """Normal equations of reading ``other`` at M ``points``.

        ``coordinates`` (K, 4, 4) take voxels to the frame, ``turn`` (K, 3, 3) is the linear part of T.
        """
        own, u = points.values, places(points.voxels, coordinates)
        read, inside = self.compared(index, points, other, M)
        basis = self.light.columns(u, own)
        lit = self.lit[index]
        if lit is None:
            lit = self.light.first(*_gain_and_bias(read, inside, own))
        residual = read - (basis @ lit[..., None])[..., 0]
        spread = _median(residual.abs(), inside * points.textured).clamp_min(_QUIET) * 1.4826
        weight = inside / (1 + (residual / (_TOLERANCE * spread[:, None])).square()).square()
        slope = self.light.slope(lit, own) if self.own_changes(index) else torch.ones_like(read)
        motion = self.motion(index, points, other, M, u, turn, slope)
        columns = torch.cat([motion, basis], -1)  # (K, N, 12 + L)
        weighted = columns * weight[..., None]
        system = (weighted.mT @ columns).double().cpu().numpy()
        right = (weighted.mT @ read[..., None])[..., 0].double().cpu().numpy()
        variance = (weight * residual.square()).sum(1) / weight.sum(1).clamp_min(1e-6)
        self.lit[index] = self._light_of(system, right, lit)
        return _Direction(
            system,
            right,
            np.maximum(variance.double().cpu().numpy(), _QUIET**2),
            inside.sum(1).double().cpu().numpy(),
            (spread / _spread(read, inside).clamp_min(_QUIET)).double().cpu().numpy(),
        )

    def compared(self, index: int, points: Points, other: Level, M: Matrix) -> tuple[Tensor, Tensor]:
        """(K, N) and (K, N): what ``other`` shows at M ``points``, and which of them count."""
        across = self.profiles[index]
        read, inside = read_level(other, points.voxels, M, across)
        if across is None and self.profiles[1 - index] is not None:
            inside = torch.zeros_like(inside)  # between thick slices there is nothing to compare
        return read, inside

    def own_changes(self, index: int) -> bool:
        """Whether the gradient of a direction is the points' own; of a thick slice, that is not known."""
        return self.profiles[index] is None

    def motion(
        self,
        index: int,
        points: Points,
        other: Level,
        M: Matrix,
        u: Tensor,
        turn: Matrix,
        slope: Tensor,
    ) -> Tensor:
        """(K, N, 12): how a value at the places u (K, N, 3) changes with the motion, times ``slope`` (K, N) or (K, 1):
        the points' own value, or what is read of the other volume (see `own_changes`)."""
        unit = slope[..., None] * self.frame.unit
        if self.own_changes(index):
            gradient = points.gradient * unit
            if index == 1:  # from b's millimeters to a's, and the other way round
                gradient = -gradient @ torch.from_numpy(turn).to(gradient)
        else:
            smooth = (self.sides.smooth_b, self.sides.smooth_a)[index] or other
            gradient = read_gradient(smooth, points.voxels, M, self.profiles[index]) * unit
            gradient = gradient @ torch.from_numpy(turn).to(gradient) if index == 0 else -gradient
        return torch.cat([gradient[..., None] * u[:, :, None], gradient[..., None]], -1).flatten(2)

    def _light_of(self, system: Matrix, right: Matrix, before: Tensor) -> Tensor:
        """The light of the solution, where it makes sense."""
        theta = solve(self._project(system), self._project_right(right))[:, len(self.generators) :]
        good = np.isfinite(theta).all(1)
        return torch.where(
            torch.from_numpy(good)[:, None].to(before.device), torch.from_numpy(theta).to(before), before
        )

    def _project(self, system: Matrix) -> Matrix:
        P = self._projection
        return P @ system @ P.T

    def _project_right(self, right: Matrix) -> Matrix:
        return right @ self._projection.T

    @property
    def _projection(self) -> Matrix:
        k = len(self.generators)
        P = np.zeros((k + self.light.count, 12 + self.light.count))
        P[:k, :12] = self.generators
        P[k:, 12:] = np.eye(self.light.count)
        return P

    def information(self) -> tuple[Matrix, Matrix]:
        """(K, k, k) and (K, k): the normal equations of the motion alone, in units of the noise; both directions
        together, each with its own light."""
        k = len(self.generators)
        total, sums = np.zeros(()), np.zeros(())
        for one in self.directions:
            system, right = self._project(one.system), self._project_right(one.right)
            few = one.seen < _FEW
            light = system[:, k:, k:] + 1e-9 * np.eye(self.light.count)
            cross = system[:, :k, k:]
            solved = np.linalg.solve(light, np.concatenate([cross.swapaxes(1, 2), right[:, k:, None]], 2))
            own = (system[:, :k, :k] - cross @ solved[:, :, :k]) / one.variance[:, None, None]
            pull = (right[:, :k] - (cross @ solved[:, :, k:])[..., 0]) / one.variance[:, None]
            total = total + np.where(few[:, None, None], 0.0, own)
            sums = sums + np.where(few[:, None], 0.0, pull)
        return total, sums


def solve(system: Matrix, right: Matrix) -> Matrix:
    """Solutions (K, n) of systems (K, n, n), brought to a common scale; a little is added to what is singular."""
    diagonal = np.diagonal(system, axis1=1, axis2=2)
    scale = 1 / np.sqrt(np.maximum(diagonal, 1e-12))
    normal = system * scale[:, :, None] * scale[:, None] + 1e-7 * np.eye(system.shape[1])
    solved: Matrix = np.linalg.solve(normal, (right * scale)[..., None])[..., 0] * scale
    return solved


def _median(values: Tensor, inside: Tensor) -> Tensor:
    """(K,): the median of the ``values`` (K, N) that are inside."""
    return torch.where(inside > 0, values, torch.nan).nanmedian(1).values.nan_to_num(1.0)


def _spread(values: Tensor, inside: Tensor) -> Tensor:
    """(K,): the standard deviation of the ``values`` (K, N) that are inside."""
    total = inside.sum(1).clamp_min(1.0)
    mean = (inside * values).sum(1) / total
    return ((inside * (values - mean[:, None]).square()).sum(1) / total).sqrt()


def _gain_and_bias(read: Tensor, inside: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """(K,) and (K,): so that mean and spread are the same in both."""
    total = inside.sum(1).clamp_min(1.0)
    mean_a, mean_b = (inside * own).sum(1) / total, (inside * read).sum(1) / total
    spread_a = (inside * (own - mean_a[:, None]).square()).sum(1)
    spread_b = (inside * (read - mean_b[:, None]).square()).sum(1)
    gain = (spread_b / spread_a.clamp_min(1e-9)).sqrt().clamp(0.1, 10.0)
    return gain, mean_b - gain * mean_a


def both_ways(sides: Sides, T: Matrix) -> list[tuple[Points, Level, Matrix, Matrix]]:
    """Of each direction: points, the other level, voxels to its voxels (K, 4, 4), and voxels to a's millimeters."""
    back = geometry.invert(T, checked=False)
    same = np.broadcast_to(np.eye(4), T.shape)
    a, b = sides.points_a, sides.points_b
    return [
        (a, sides.b, sides.b.from_mm @ T @ a.to_mm, same @ a.to_mm),
        (b, sides.a, sides.a.from_mm @ back @ b.to_mm, back @ b.to_mm),
    ]


def explained(sides: Sides, T: Matrix, frame: Frame, light: Light) -> tuple[Matrix, Matrix]:
    """(K,) and (K,): share of the variance that the light explains under T (K, 4, 4), the smaller of both
    directions, and the share of what changes in the volumes that both show."""
    found, shares = [], []
    for points, other, M, into_a in both_ways(sides, T):
        read, inside = read_level(other, points.voxels, M)
        basis = light.columns(places(points.voxels, frame.into @ into_a), points.values)
        weighted = basis * inside[..., None]
        system, right = (weighted.mT @ basis).double(), (weighted.mT @ read[..., None]).double()
        theta = solve(system.cpu().numpy(), right[..., 0].cpu().numpy())
        residual = read - (basis @ torch.from_numpy(theta).to(read)[..., None])[..., 0]
        total = inside.sum(1).clamp_min(1.0)
        mean = (inside * read).sum(1) / total
        spread = (inside * (read - mean[:, None]).square()).sum(1).clamp_min(1e-9)
        found.append((1 - (inside * residual.square()).sum(1) / spread).double().cpu().numpy())
        shares.append(_share(points, inside))
    return np.minimum(*found), np.minimum(*shares)


def _share(points: Points, inside: Tensor) -> Matrix:
    """Of what changes in a volume, not of its background: an empty corner is not an overlap."""
    change = (points.values - points.values.mean()).square()
    share: Matrix = ((inside * change).sum(1) / change.sum().clamp_min(1e-9)).double().cpu().numpy()
    return share


def correlations(sides: Sides, T: Matrix) -> tuple[Matrix, Matrix]:
    """(K,) and (K,): correlation of both volumes at a's points under T (K, 4, 4), and the share that both show."""
    points = sides.points_a
    read, inside = read_level(sides.b, points.voxels, sides.b.from_mm @ T @ points.to_mm)
    total = inside.sum(1).clamp_min(1.0)
    own = points.values - points.values.mean()
    mean_a, mean_b = (inside * own).sum(1) / total, (inside * read).sum(1) / total
    cross = (inside * own * read).sum(1) / total - mean_a * mean_b
    first = (inside * own.square()).sum(1) / total - mean_a.square()
    second = (inside * read.square()).sum(1) / total - mean_b.square()
    value = cross / (first.clamp_min(1e-9) * second.clamp_min(1e-9)).sqrt()
    return value.double().cpu().numpy(), _share(points, inside)


def likeness(sides: Sides, T: Matrix) -> tuple[float, float, float]:
    """Under T (4, 4): mean correlation of a's blocks with what b shows there, the share of blocks that correlate, and
    the share of a's texture that b shows. Blocks count by how much their values change.

    Gain and bias are those of each block, so the light does not matter; nor does which way a contrast goes.
    """
    points = sides.points_a
    read, inside = read_level(sides.b, points.voxels, (sides.b.from_mm @ T @ points.to_mm)[None])
    block = (points.voxels / _BLOCK).floor().long()
    key = (block[:, 2] * 4096 + block[:, 1]) * 4096 + block[:, 0]
    _, which = torch.unique(key, return_inverse=True)
    count = int(which.max()) + 1
    a, b, seen = points.values, read[0], inside[0]

    def sums(values: Tensor) -> Tensor:
        return torch.zeros(count, dtype=torch.float64, device=a.device).index_add_(0, which, values.double())

    n, whole = sums(seen).clamp_min(1e-9), sums(torch.ones_like(a))
    mean_a, mean_b = sums(seen * a) / n, sums(seen * b) / n
    spread_a = sums(seen * a * a) / n - mean_a.square()
    spread_b = sums(seen * b * b) / n - mean_b.square()
    both = sums(seen * a * b) / n - mean_a * mean_b
    value = both.abs() / ((spread_a.clamp_min(0) + _FLAT) * (spread_b.clamp_min(0) + _FLAT)).sqrt()
    texture = sums(a * a) / whole - (sums(a) / whole).square()
    weight = texture.clamp_min(0).sqrt() * (n / whole > 0.5)
    total = weight.sum().clamp_min(1e-9)
    share = weight.sum() / texture.clamp_min(0).sqrt().sum().clamp_min(1e-9)
    alike = (weight * (value > _ALIKE)).sum() / total
    return float((weight * value).sum() / total), float(alike), float(share)
