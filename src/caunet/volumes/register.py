"""Register two volumes: first guesses at the coarsest levels, the best of them refined up to the finest.

Settings were chosen on BrainWeb's T1 volume, which no result is given for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from caunet import geometry
from caunet.estimation.motion_models import MotionModel, create_motion_model
from caunet.geometry import Matrix
from caunet.volumes import uncertainty
from caunet.volumes.alignment import Aligned, Frame, Sides, align, correlations, explained, likeness, whole
from caunet.volumes.light import CURVE, CURVED_FIELD, SMOOTH, UNIFORM, Light
from caunet.volumes.motions import passed
from caunet.volumes.mutual import align_information, noise_level
from caunet.volumes.points import at_voxels, choose_points
from caunet.volumes.prepare import extent
from caunet.volumes.pyramid import Level, level_sizes, levels, smooth
from caunet.volumes.search import (
    about,
    around,
    axes_turns,
    distinct,
    middle,
    moments,
    rank,
    rotations,
    search,
    stretched,
)
from caunet.volumes.spline import spline_coefficients

__all__ = ["Registration", "register"]

_ROTATIONS = 600  # that a search tries, about 30 degrees apart
_SIGHTED = 24  # guesses of a search that are improved
_TRIED = 8  # of these, at the second level
_FINALISTS = 4  # of these, at the third
_FREE = 12  # degrees of freedom from which the coarsest level has too little to show
_APART = 0.35  # by which linear parts differ to be different guesses, about 14 degrees
# Mean correlation of blocks at the third level from which a guess is not doubted. The outline of a brain without skull
# fits nearly as well turned by any angle: such guesses have up to 0.96, right ones 0.97 with thick slices, else 0.99.
_SURE = 0.97
_POOR = 0.8  # and below which another contrast is looked for everywhere
_OTHER = 0.02  # by how much better another contrast must be
_LEFT = 0.7  # of what a field leaves unexplained, what a curve must leave at most to be taken
_ODD = 0.08  # residual by the spread of values, third level, from which more differs than a light says
_NOISY = 0.07  # standard deviation of the noise from which least squares are better than a density
_CHECKED = 4000  # points of each volume where guesses are checked
_FEW = 2000  # points of each volume where guesses are tried
_SOME = 16_000  # where it is refined
_MANY = 50_000  # and at the finest level
_SCORED = 15  # steps by mutual information, at most
_THIN = 4  # one of how many points there are enough for the first steps
_THICK = 1.2  # by how much lengths of voxels differ at least where some are thick
_DISTANCE = 0.15  # of the side of a volume, between the shifts that a search tries
# Fitted by benchmarks/calibrate_volumes.py, so that 95 % of the ellipsoids hold the truth:
_INFLATION = 4.3  # noise is not white, and the light is not exactly a field
_RESAMPLING = 0.015  # voxels: what reading between voxels costs
# The same for the evidence, so that the confidence, which is fitted to it, does not change with them.
_EVIDENCE = (2.27, 0.007)


class Registration(NamedTuple):
    """The answer, and what speaks for it."""

    T: Matrix
    """(4, 4): millimeters of a to millimeters of b."""
    evidence: dict[str, float]
    """What a confidence is made of: see :mod:`caunet.volumes.confidence`."""
    covariance: Matrix
    """(24, 24): of where the corners of a lie in b, in square millimeters."""


class _Guess(NamedTuple):
    T: Matrix
    score: float
    light: Light


def register(
    a: Level,
    b: Level,
    model: MotionModel,
    first: list[Matrix],
    allowed: Callable[[Matrix], bool] | None = None,
) -> Registration:
    """Register b to a, from the ``first`` guesses (4, 4) and, where these do not agree, from a search."""
    finest = max(float(a.spacing.min()), float(b.spacing.min()))
    extents = [extent(a), extent(b)]
    sizes = level_sizes(extents, finest)
    pyramids = levels(a, sizes), levels(b, sizes)
    work = _Search(pyramids, sizes, model, allowed)
    guess = work.best(first)
    light, other = work.light(guess.T)
    T, found, middling = guess.T[None], None, work.second
    for k in range(min(2, len(sizes) - 1), len(sizes)):
        last = k == len(sizes) - 1
        sides = _finest_sides(pyramids, other) if last else _sides(pyramids, k, _SOME)
        some = _thinned(sides, _THIN) if last else sides
        found = align(some, T, work.frame, model.generators(), 8, sizes[k] / (50 if last else 30), light)
        if last and other:
            for part, stop in ((some, 50), (sides, 200)):
                found = align_information(
                    part, found.T, work.frame, model.generators(), _SCORED, sizes[k] / stop
                )
        elif last:
            found = align(sides, found.T, work.frame, model.generators(), 8, sizes[k] / 500, light)
        T = found.T
        if k == max(len(sizes) - 2, 0):
            middling = sides
    assert found is not None
    corners = geometry.apply(a.to_mm, geometry.corners(a.size, like=a.to_mm))
    spread, seen = (
        _covariance(found, corners, model.generators(), work.frame, factor, floor * finest)
        for factor, floor in ((_INFLATION, _RESAMPLING), _EVIDENCE)
    )
    diagonal = float(np.sqrt(np.square(corners[0] - corners[6]).sum()))
    score, alike, overlap = likeness(middling, T[0])
    evidence = {
        "score": score,
        "explained": alike,
        "second": guess.score,
        "overlap": overlap,
        "moved": float(found.moved[0]) / diagonal,
        "uncertainty": float(np.sqrt(np.trace(seen) / len(corners))) / diagonal,
    }
    return Registration(T[0], evidence, spread)


def _covariance(
    found: Aligned, corners: Matrix, generators: Matrix, frame: Frame, factor: float, floor: float
) -> Matrix:
    """(24, 24): of the corners: ``factor`` times what the residuals tell, and ``floor`` millimeters for all alike."""
    information = found.information[0]
    held = information + 1e-9 * max(float(np.trace(information)), 1e-9) * np.eye(len(information))
    own: Matrix = np.linalg.inv(held).astype(np.float64) * factor
    spread = uncertainty.of_corners(found.T[0], corners, own, generators, frame.into)
    pull = np.kron(np.ones((len(corners), len(corners))), np.eye(3))  # of all corners alike
    total: Matrix = spread + floor**2 * pull
    return total


class _Search:
    """First guesses at the two coarsest levels, checked at the third."""

    def __init__(
        self,
        pyramids: tuple[list[Level], list[Level]],
        sizes: list[float],
        model: MotionModel,
        allowed: Callable[[Matrix], bool] | None,
    ) -> None:
        self.pyramids, self.sizes, self.model, self.allowed = pyramids, sizes, model, allowed
        self.side = float(np.prod(extent(pyramids[0][0])) ** (1 / 3))
        self.frame = Frame(middle(pyramids[0][0]), self.side / 2)
        self.coarse, self.second = (_sides(pyramids, self._level(k), _FEW) for k in (0, 1))
        self.sparse = _thinned(self.coarse, 3)
        self.third = _sides(pyramids, self._level(2), _CHECKED)
        # A blob has no shape to stretch: with all freedoms the coarsest level leads astray.
        stiff = create_motion_model("rigid", dimensions=3) if model.freedom >= _FREE else model
        self.stiff, self.own = stiff.generators(), model.generators()

    def best(self, first: list[Matrix]) -> _Guess:
        """The best guess: of the first ones, of a search over rotations, of one over shifts, too; as far as needed."""
        a, b = self.pyramids[0][0], self.pyramids[1][0]
        (mass_a, spread_a), (mass_b, spread_b) = moments(a), moments(b)
        freedom, still = self.model.freedom, np.eye(3)
        guesses = np.stack([*first, about(still, middle(a), middle(b)), about(still, mass_a, mass_b)])
        guesses = self._allowed(guesses, first[0])
        found = self._tried(guesses, UNIFORM)
        if found.score <= _SURE and freedom > 3:
            linear = stretched(axes_turns(spread_a, spread_b), spread_a, spread_b, freedom)
            shaped = [*about(linear, mass_a, mass_b), self._by_network(about(still, mass_a, mass_b))]
            found = _better(found, self._tried(self._allowed(np.stack(shaped), first[0]), UNIFORM))
        if found.score > _SURE:
            return found
        turns = rotations(_ROTATIONS) if freedom > 3 else still[None]
        linear = stretched(turns, spread_a, spread_b, freedom)
        for points in (mass_b[None], around(mass_b, _DISTANCE * self.side)):
            spread = self._allowed(np.concatenate([about(linear, mass_a, to) for to in points]), first[0])
            found = _better(found, self._searched(spread, UNIFORM))
            if found.score > _SURE:
                return found
        found = _better(found, self._tried(guesses, CURVE))
        if found.score < _POOR:
            spread = self._allowed(about(linear, mass_a, mass_b), first[0])
            found = _better(found, self._searched(spread, CURVE))
        return found

    def _by_network(self, T: Matrix) -> Matrix:
        """A guess (4, 4) after passes of the network at the second level."""
        k = self._level(1)
        return passed(self.pyramids[0][k], self.pyramids[1][k], T, self.model)

    def light(self, T: Matrix) -> tuple[Light, bool]:
        """A field or a curve, whichever explains more under T (4, 4), in doubt a field; whether more
        differs than that says, and there is so little noise that a density shows it."""
        unexplained = [
            1 - float(explained(self.third, T[None], self.frame, one)[0][0]) for one in (SMOOTH, CURVED_FIELD)
        ]
        light: Light = CURVED_FIELD if unexplained[1] < _LEFT * unexplained[0] else SMOOTH
        fitted = align(self.third, T[None], self.frame, self.own, 4, 0.0, light)
        return light, bool(fitted.left[0] > _ODD) and all(
            noise_level(pyramid[-1].values) < _NOISY for pyramid in self.pyramids
        )

    def _level(self, k: int) -> int:
        return min(k, len(self.sizes) - 1)

    def _allowed(self, guesses: Matrix, otherwise: Matrix) -> Matrix:
        kept = [T for T in guesses[whole(guesses)] if self.allowed is None or self.allowed(T)]
        return np.stack(kept or [otherwise])

    def _searched(self, guesses: Matrix, light: Light) -> _Guess:
        def score(T: Matrix) -> Matrix:
            if light is UNIFORM:
                return rank(*correlations(self.sparse, T))
            return rank(*explained(self.sparse, T, self.frame, light))

        return self._tried(search(guesses, score, _SIGHTED), light)

    def _tried(self, guesses: Matrix, light: Light) -> _Guess:
        """Improve ``guesses`` (K, 4, 4) level by level, fewer at each, and return the best at the third."""
        fine = SMOOTH if light is UNIFORM else light
        T = align(self.coarse, guesses, self.frame, self.stiff, 6, self.sizes[0] / 20, light).T
        T = self._kept(self.second, T, light, _TRIED)
        T = align(self.second, T, self.frame, self.own, 10, self.sizes[self._level(1)] / 20, light).T
        T = self._kept(self.second, T, fine, _FINALISTS)
        best = _Guess(T[0], -np.inf, light)
        for some in (T[:1], T[1:]):  # the first is mostly the right one
            if len(some) and best.score <= _SURE:
                best = max(best, self._checked(some, fine), key=lambda guess: guess.score)
        return best._replace(light=light)

    def _checked(self, T: Matrix, light: Light) -> _Guess:
        """The best of T (K, 4, 4) at the third level."""
        T = align(self.third, T, self.frame, self.own, 8, self.sizes[self._level(2)] / 20, light).T
        scores = [_agreement(self.third, one) for one in T]
        if self.allowed is not None:
            scores = [s if self.allowed(one) else s - 1 for s, one in zip(scores, T, strict=True)]
        best = int(np.argmax(scores))
        return _Guess(T[best], scores[best], light)

    def _kept(self, sides: Sides, T: Matrix, light: Light, count: int) -> Matrix:
        """The best ``count`` of T (K, 4, 4)."""
        measured = correlations(sides, T) if light is UNIFORM else explained(sides, T, self.frame, light)
        kept: Matrix = T[distinct(T, rank(*measured), count, _APART)]
        return kept


def _agreement(sides: Sides, T: Matrix) -> float:
    """How well blocks of both volumes agree under T (4, 4); less where little overlaps."""
    alike, _, share = likeness(sides, T)
    return float(rank(np.array(alike), np.array(share)))


def _better(found: _Guess, other: _Guess) -> _Guess:
    """The better guess; one by which the volumes have different contrasts only if it is clearly better."""
    margin = 0.0 if other.light is found.light else _OTHER if other.light is CURVE else -_OTHER
    return other if other.score > found.score + margin else found


def _sides(pyramids: tuple[list[Level], list[Level]], k: int, count: int) -> Sides:
    a, b = (_smoothed(pyramid[k]) for pyramid in pyramids)
    return Sides(a, b, choose_points(a, count), choose_points(b, count))


def _finest_sides(pyramids: tuple[list[Level], list[Level]], other: bool) -> Sides:
    """The finest level, sharp: blocks with the most texture, or, for an ``other`` contrast, some voxels of more blocks:
    the edges with the most texture may be those of one tissue, which alone tells a density little."""
    if other:
        return _thinned(_sharp_sides(pyramids, -1, _THIN * _MANY), _THIN)
    return _sharp_sides(pyramids, -1, _MANY)


def _sharp_sides(pyramids: tuple[list[Level], list[Level]], k: int, count: int) -> Sides:
    """As `_sides`, read by splines and not smoothed; gradients, which noise hurts more, are those of smoothed values.

    What is smoothed in its own grid is not the same thing in two grids that are turned and stretched.
    """
    sides = [pyramid[k] for pyramid in pyramids]
    lengths = np.concatenate([level.spacing for level in sides])
    thick = lengths.max() > _THICK * lengths.min()  # only then gradients are read between voxels
    sharp, points, smooth_levels = [], [], []
    for level in sides:  # one after the other: gradients take three times a volume
        smoothed = _smoothed(level)
        chosen = choose_points(smoothed, count)
        points.append(replace(chosen, values=at_voxels(level, chosen.voxels)))
        smooth_levels.append(smoothed if thick else None)
        del smoothed
        sharp.append(replace(level, values=spline_coefficients(level.values), spline=True))
    return Sides(sharp[0], sharp[1], points[0], points[1], smooth_levels[0], smooth_levels[1])


def _thinned(sides: Sides, step: int) -> Sides:
    """The same with one of ``step`` points, evenly."""
    some = slice(None, None, step)
    a, b = (
        replace(p, voxels=p.voxels[some], values=p.values[some], gradient=p.gradient[some])
        for p in (sides.points_a, sides.points_b)
    )
    return replace(sides, points_a=a, points_b=b)


def _smoothed(level: Level) -> Level:
    """The same, (1, 2, 1) / 4 along each axis; what does not count does not leak into what does."""
    if level.mask is None:
        return Level(_along_all(level.values), level.to_mm)
    share = _along_all(level.mask)
    values = _along_all(level.values * level.mask) / share.clamp_min(1e-3)
    return Level(values, level.to_mm, level.mask)


def _along_all(values: Tensor) -> Tensor:
    for axis in range(3):
        values = smooth(values, axis)
    return values
