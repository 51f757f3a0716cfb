"""Register two volumes: first guesses at the coarsest levels, the best of them refined up to the finest.

Settings were chosen on BrainWeb's T1 volume and on made shapes, on none of the volumes that results are given for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from caunet import geometry
from caunet.estimation.motion_models import MotionModel
from caunet.geometry import Matrix
from caunet.volumes import uncertainty
from caunet.volumes.alignment import Aligned, Frame, Sides, align, correlations, explained, likeness
from caunet.volumes.light import CURVE, SMOOTH, UNIFORM, Light
from caunet.volumes.points import at_voxels, choose_points
from caunet.volumes.prepare import extent
from caunet.volumes.pyramid import Level, level_sizes, levels, smooth
from caunet.volumes.search import about, around, center_of_mass, distinct, middle, rank, rotations, search
from caunet.volumes.spline import spline_coefficients

__all__ = ["Registration", "register"]

_ROTATIONS = 600  # that a search tries, about 30 degrees apart
_SIGHTED = 24  # guesses of a search that are improved
_TRIED = 8  # of these, at the second level, of models with few freedoms
_FREE = 12  # degrees of freedom with which the coarsest level, a blob, leads astray
_APART = 0.35  # by which linear parts differ to be different guesses, about 14 degrees
_SURE = 0.95  # share of the variance explained at the second level from which a guess is not doubted
_POOR = 0.8  # and below which another contrast is looked for everywhere
_OTHER = 0.1  # by how much more a curve must explain for the contrast to be another
_FEW = 2000  # points of each volume where guesses are tried
_SOME = 16_000  # where it is refined
_MANY = 50_000  # and at the finest level
_THIN = 4  # one of how many points there are enough for the first steps
_DISTANCE = 0.15  # of the side of a volume, between the shifts that a search tries
_INFLATION = 8.0  # noise of smoothed voxels is not white, and the light is not exactly a field
_RESAMPLING = 0.005  # voxels: what reading between voxels costs


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
    light = SMOOTH if guess.light is UNIFORM else guess.light
    T, found, middling = guess.T[None], None, work.second
    for k in range(min(2, len(sizes) - 1), len(sizes)):
        last = k == len(sizes) - 1
        sides = _sharp_sides(pyramids, k, _MANY) if last else _sides(pyramids, k, _SOME)
        for part, stop in ((_thinned(sides), 50), (sides, 500)) if last else ((sides, 30),):
            found = align(part, T, work.frame, model.generators(), 8, sizes[k] / stop, light)
            T = found.T
        if k == max(len(sizes) - 2, 0):
            middling = sides
    assert found is not None
    corners = geometry.apply(a.to_mm, geometry.corners(a.size, like=a.to_mm))
    spread = _covariance(found, corners, model.generators(), work.frame, finest)
    diagonal = float(np.sqrt(np.square(corners[0] - corners[6]).sum()))
    score, alike, overlap = likeness(middling, T[0])
    evidence = {
        "score": score,
        "explained": alike,
        "second": guess.score,
        "overlap": overlap,
        "moved": float(found.moved[0]) / diagonal,
        "uncertainty": float(np.sqrt(np.trace(spread) / len(corners))) / diagonal,
    }
    return Registration(T[0], evidence, spread)


def _covariance(found: Aligned, corners: Matrix, generators: Matrix, frame: Frame, voxel: float) -> Matrix:
    information = found.information[0]
    held = information + 1e-9 * max(float(np.trace(information)), 1e-9) * np.eye(len(information))
    own: Matrix = np.linalg.inv(held).astype(np.float64) * _INFLATION
    spread = uncertainty.of_corners(found.T[0], corners, own, generators, frame.into)
    pull = np.kron(np.ones((len(corners), len(corners))), np.eye(3))  # of all corners alike
    total: Matrix = spread + (_RESAMPLING * voxel) ** 2 * pull
    return total


class _Search:
    """First guesses at the two coarsest levels."""

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
        self.coarse = _sides(pyramids, 0, _FEW)
        self.second = _sides(pyramids, min(1, len(sizes) - 1), _FEW)

    def best(self, first: list[Matrix]) -> _Guess:
        """The best guess: of the first ones, of a search over rotations, of one over shifts, too; as far as needed."""
        a, b = self.pyramids[0][0], self.pyramids[1][0]
        masses = center_of_mass(a), center_of_mass(b)
        guesses = np.stack([*first, about(np.eye(3), middle(a), middle(b)), about(np.eye(3), *masses)])
        guesses = self._allowed(guesses, first[0])
        found = self._tried(guesses, UNIFORM)
        if found.score <= _SURE:
            found = _other(found, self._tried(guesses, CURVE))
        turns = rotations(_ROTATIONS) if self.model.freedom > 3 else np.eye(3)[None]
        for points in (masses[1][None], around(masses[1], _DISTANCE * self.side)):
            if found.score > _SURE:
                return found
            spread = self._allowed(np.concatenate([about(turns, masses[0], to) for to in points]), first[0])
            found = max(found, self._searched(spread, UNIFORM), key=lambda guess: guess.score)
        if found.score < _POOR:
            spread = self._allowed(about(turns, *masses), first[0])
            found = _other(found, self._searched(spread, CURVE))
        return found

    def _allowed(self, guesses: Matrix, otherwise: Matrix) -> Matrix:
        if self.allowed is None:
            return guesses
        return np.stack([T for T in guesses if self.allowed(T)] or [otherwise])

    def _searched(self, guesses: Matrix, light: Light) -> _Guess:
        def score(T: Matrix) -> Matrix:
            if light is UNIFORM:
                return rank(*correlations(self.coarse, T))
            return rank(*explained(self.coarse, T, self.frame, light))

        return self._tried(search(guesses, score, _SIGHTED), light)

    def _tried(self, guesses: Matrix, light: Light) -> _Guess:
        """Improve ``guesses`` (K, 4, 4) at the two coarsest levels, and return the best."""
        T, generators = guesses, self.model.generators()
        size = self.sizes[min(1, len(self.sizes) - 1)]
        own = SMOOTH if light is UNIFORM else light
        if self.model.freedom < _FREE:
            T = align(self.coarse, T, self.frame, generators, 6, self.sizes[0] / 20, light).T
            ranks = (
                rank(*correlations(self.second, T))
                if light is UNIFORM
                else rank(*explained(self.second, T, self.frame, own))
            )
            T = T[distinct(T, ranks, _TRIED, _APART)]
        T = align(self.second, T, self.frame, generators, 10, size / 20, light).T
        scores = rank(*explained(self.second, T, self.frame, own))
        if self.allowed is not None:
            scores = np.where([self.allowed(one) for one in T], scores, scores - 1)
        best = int(scores.argmax())
        return _Guess(T[best], float(scores[best]), light)


def _other(found: _Guess, curved: _Guess) -> _Guess:
    """A guess by which the volumes have different contrasts, if it explains clearly more."""
    return curved if curved.score > found.score + _OTHER else found


def _sides(pyramids: tuple[list[Level], list[Level]], k: int, count: int) -> Sides:
    a, b = (_smoothed(pyramid[k]) for pyramid in pyramids)
    return Sides(a, b, choose_points(a, count), choose_points(b, count))


def _sharp_sides(pyramids: tuple[list[Level], list[Level]], k: int, count: int) -> Sides:
    """As `_sides`, read by splines and not smoothed; gradients, which noise hurts more, are those of smoothed values.

    What is smoothed in its own grid is not the same thing in two grids that are turned and stretched.
    """
    levels_k = [pyramid[k] for pyramid in pyramids]
    a, b = (_smoothed(level) for level in levels_k)
    points = [choose_points(level, count) for level in (a, b)]
    points = [replace(p, values=at_voxels(level, p.voxels)) for p, level in zip(points, levels_k, strict=True)]
    sharp = [replace(level, values=spline_coefficients(level.values), spline=True) for level in levels_k]
    return Sides(sharp[0], sharp[1], points[0], points[1], a, b)


def _thinned(sides: Sides) -> Sides:
    """The same with fewer points, evenly."""
    some = slice(None, None, _THIN)
    a, b = (
        replace(p, voxels=p.voxels[some], values=p.values[some], gradient=p.gradient[some])
        for p in (sides.points_a, sides.points_b)
    )
    return replace(sides, points_a=a, points_b=b)


def _smoothed(level: Level) -> Level:
    values = level.values
    for axis in range(3):
        values = smooth(values, axis)
    return Level(values, level.to_mm, level.mask)
