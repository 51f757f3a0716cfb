"""From two images to a transform: hypotheses, ranked by one evidence, and the polish of the best.

The first hypothesis is no motion, refined by the network at the smallest images of both pyramids and at the next
larger ones. If the images then do not correlate, others are proposed, by matching places and by searching; whatever
proposes them, the one under which the images correlate best is kept, and the search ends with the first that is
surely right. From there on intensities are aligned, up to the images themselves.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.blocks import SmoothedWhereRead, choose_blocks, whole_image
from caunet.estimation.evidence import (
    FAR,
    LocalMotions,
    Seen,
    Windows,
    agreement,
    correlate,
    distortion,
    drift,
    explained,
    local_motions,
    see,
)
from caunet.estimation.fit import robust_fit
from caunet.estimation.limits import Limits
from caunet.estimation.motion_models import PLANE, MotionModel, Projective, create_motion_model
from caunet.estimation.motions import Motions, measure, raster
from caunet.estimation.polish import Polished, polish, unit_coordinates
from caunet.estimation.reasons import Reason
from caunet.estimation.rivals import advantage, symmetries
from caunet.estimation.search import Guess, initial_guesses
from caunet.estimation.uncertainty import of_corners, of_motions, relative
from caunet.estimation.views import View, view_of, whole_view
from caunet.estimation.watermarks import without
from caunet.geometry import Matrix
from caunet.images.masks import erode, mask_pyramid
from caunet.images.pyramid import finer, pyramid, smooth
from caunet.matching import Hypothesis, Matcher
from caunet.models import RelationNetwork

__all__ = ["Registration", "register"]

_COARSEST = 32  # side of the smallest images, about
_WHOLE = 320 * 320  # pixels up to which all of them are used; of larger images the best blocks
_NETWORK_PASSES = (3, 1)  # at the smallest images, at the next larger
_STILL = 0.5  # pixels: a pass that moves the corners by less is the last one at the smallest images
_PATCHES = 64  # compared in each pass
_FEW_PATCHES = 36  # where nothing is fitted to their motions
_STEPS = (
    (16, 0.2),
    (8, 0.1),
    (5, 0.03),
)  # of the polish: at most, and until they move corners by fewer pixels
_SHARP = 0.87  # contrast of details in one image, relative to the other's, below which it is out of focus
_DROWNED = 0.2  # share of noise in what looks like texture from which on images are smoothed, too
_FEW = 8  # steps of the polish after which images that nearly agree do agree
_SURE = 0.6  # rank at which they do
# A hypothesis is not doubted whose rank is high, under which the images tell much of each other, or of middling rank
# whose pixels agree but for noise. Chosen on calibration photographs.
_SURELY = 0.7
_INFORMATIVE = 0.28
_GOOD, _CLOSE = 0.5, 0.995
_FEW_AGREE, _MANY_AGREE = 5.0, 20.0  # matches that agree by chance, and that never do
_COARSE_SHARE, _MATCHES_SHARE = 0.1, 0.4  # of the rank and of matches, in what hypotheses are compared by
_IMPLAUSIBLE = 2.7  # distortion (see there) beyond which no two images are related
_BLANK = 0.002  # contrast of gray levels below which there is nothing to see: half a level of 255
_TRIES = 4  # other initial guesses
_REACH = 3  # pixels that smoothing (2) and gradients (1) reach beyond a pixel
_LEAST = 16  # pixels of a side below which a part shows too little
_INVERTED = 0.05  # by which a search must correlate better with a negative for that to be tried
_MATCHED = 3  # transforms that places agree on, at most, that are tested
_OUTSIDE = 4.0  # what an answer outside of the limits loses in rank
_IDENTICAL = 0.9999  # correlation of images that differ by nothing but rounding
_NO_DRIFT = 1e-3  # of the diagonal: what is measured where nothing moves
_WORSE = 0.02  # mean correlation of windows that a polish may lose before what it began with is kept
_SAME = 0.01  # of the diagonal: answers whose corners differ by less are the same
_RIVALS = 2  # other answers that are polished
_RIVAL_STEPS = 4  # in which one that is as good as the answer is there
_DOUBTED = 0.3  # mean correlation of windows below which no answer is trusted
_AHEAD = 0.7  # of the windows speaking for the answer: then an other one is none, polished or not
_OVERLAP = 0.9  # of the answer's overlap, that a better one must have
_CHALLENGES = 4  # how often a better one replaces the answer, at most: period by period
_BETTER = 0.02  # share of windows that must speak for it
_AGREE = 0.5  # correlation of windows that agree
_MOSTLY = 0.5  # share of the texture that an answer for what lies between marks must explain
_AMONG = 0.3  # share of the windows with marks in which the scene must move with another answer for them to be marks
# An answer of no motion is looked at twice where little is explained: of what marks on both images alone determine the
# motion is none at all; what the scene pulls away from it explains little. Chosen on calibration photographs.
_AT_REST, _UNEXPLAINED = 0.003, 0.9  # of the diagonal, and share of the texture
_PULLED, _LITTLE = 0.02, 0.6
_SIGHTS = 12  # images of b as H shows it, and comparisons of windows, that are kept


class Registration(NamedTuple):
    """The answer in pixels of the images, and what it was drawn from."""

    H: Matrix
    points: Matrix
    """(N, 2): places of a whose motions the network measured."""
    targets: Matrix
    """(N, 2): where they end in b."""
    weight: Matrix
    """(N,): how reliable each motion is, from 0 to 1."""
    pixel: float
    """Pixels of b to one of the image in which motions were measured."""
    evidence: dict[str, float]
    """Numbers that give the confidence; none if there was nothing to see."""
    covariance: Matrix | None = None
    """(8, 8): of where the corners of a lie in b, in square pixels; see :mod:`caunet.estimation.uncertainty`."""
    reason: Reason = "found"
    """How it ended, as far as that is known without the confidence."""


@dataclass(frozen=True)
class _Hypothesis:
    """An answer at the level where hypotheses are compared, before the larger images are used."""

    pair: "_Pair"
    H: Matrix
    motions: Motions
    targets: Matrix
    polished: Polished
    rank: float
    trusted: bool = False
    """Whether H is what matches agreed on, good without a polish."""
    matches: float = 0.0
    """How many places agree on it, each by how sure it is, as if 500 had been looked for."""

    @cached_property
    def information(self) -> float:
        """What windows of the level in the middle tell of each other, less what speaks against the answer itself."""
        level = max(self.pair.next - 1, 0)
        found = self.pair._agreement(_change_level(self.H, self.pair.next, level), level)
        return found["information"] - self.pair.objection(self.H)

    @property
    def worth(self) -> float:
        """What hypotheses are compared by; the rank decides where noise leaves no information.

        Places that match speak for themselves: across tones and behind obstacles pixels may tell less than they do.
        """
        agree = min(max((self.matches - _FEW_AGREE) / (_MANY_AGREE - _FEW_AGREE), 0.0), 1.0)
        return self.information + _COARSE_SHARE * self.rank + _MATCHES_SHARE * agree

    @property
    def good(self) -> bool:
        """Whether it is not doubted, so that the search may end."""
        if self.rank >= _SURELY or (self.matches >= _MANY_AGREE and self.rank > 0):
            return True
        return self.information >= _INFORMATIVE or (
            self.rank >= _GOOD and self.polished.correlation >= _CLOSE
        )


def register(
    a: Tensor,
    b: Tensor,
    network: RelationNetwork,
    motion_model: MotionModel | None = None,
    matcher: Callable[[], Matcher] | None = None,
    mask_a: Tensor | None = None,
    mask_b: Tensor | None = None,
    *,
    no_motion: Matrix | None = None,
    initial: Matrix | None = None,
    limits: Limits | None = None,
) -> Registration:
    """Relate the gray images ``a`` and ``b``, (H, W) each, of any sizes; by default projectively.

    ``matcher`` makes a matcher when one is needed; without it no places are matched. ``mask_a`` and ``mask_b``, (H, W)
    bool, say which pixels show the scene; all of them if they are not given. ``no_motion`` (3, 3) is what to begin
    with, and the answer where nothing is to be seen; the centers of the images coincide if it is not given. ``initial``
    (3, 3) is tried before it. Answers outside of the ``limits`` are not given.
    """
    model = motion_model or Projective()
    pair = _Pair(whole_view(a, b, mask_a, mask_b), network, model, limits)
    pair.begin(no_motion)
    found = _registered(pair, model, matcher, initial)
    return _behind_marks(found, pair, model, matcher) if _suspicious(found, pair) else found


def _registered(
    pair: "_Pair", model: MotionModel, matcher: Callable[[], Matcher] | None, initial: Matrix | None = None
) -> Registration:
    """The best of all hypotheses, finished."""
    best, beyond = None, False
    for other in _hypotheses(pair, model, matcher, initial):
        if other.good:
            best = other
            break
        best = other if best is None else max(best, other, key=lambda hypothesis: hypothesis.worth)
        beyond |= (
            _GOOD <= other.rank + _OUTSIDE <= 1.0
        )  # good but for the limits; what is inside ranks higher
    assert best is not None
    found = best.pair.finish(best, pair)
    if beyond and not best.good and best.rank < _GOOD and found.reason == "found":
        return found._replace(H=pair.initial, evidence={}, covariance=None, reason="out of range")
    return found


def _suspicious(found: Registration, pair: "_Pair") -> bool:
    """Whether nothing seems to move, and much is not explained by that: as if marks stood still on both images."""
    size = _size(pair.view.a)
    if size != _size(pair.view.b) or not found.evidence:
        return False
    explained = found.evidence["explained"]
    reach = _AT_REST if explained >= _LITTLE else _PULLED
    return explained < _UNEXPLAINED and _apart(found.H, np.eye(3), size) < reach


def _behind_marks(
    found: Registration, pair: "_Pair", model: MotionModel, matcher: Callable[[], Matcher] | None
) -> Registration:
    """The motion of what lies between marks that stand still, if there is one that explains more of the images."""
    view = pair.view
    images = without(view.a, view.b)
    if images is None:
        return found
    bare = _Pair(view._replace(a=images[0], b=images[1]), pair.network, model, pair.limits)
    bare.initial = pair.initial
    other = _registered(bare, model, matcher)
    if not other.evidence or _apart(found.H, other.H, _size(view.a)) < _SAME:
        return found
    shared = _shared(pair, found.H, bare, other.H)
    if other.evidence["explained"] < _MOSTLY or other.evidence["score"] < _AGREE:
        return found
    if shared > _AMONG:
        return other
    return found._replace(
        evidence={**found.evidence, "distinct": min(found.evidence["distinct"], 1 - shared / _AMONG)}
    )


def _shared(pair: "_Pair", H: Matrix, bare: "_Pair", other: Matrix) -> float:
    """Share of the windows that H explains in which the scene without marks moves by another answer.

    Marks lie among the scene: where they agree under H, it agrees under the other answer. A scene that stands still
    behind something that moves does not.
    """
    level = max(pair.next - 1, 0)
    own, rival = (each._windows(_change_level(M, 0, level), level) for each, M in ((pair, H), (bare, other)))
    agree = own.weight * (own.likeness > _AGREE)
    return float((agree * (rival.likeness > _AGREE) * (rival.weight > 0)).sum() / agree.sum().clamp_min(1e-6))


def _apart(first: Matrix, second: Matrix, size: tuple[int, int]) -> float:
    """How far two answers put the corners of an image of ``size`` apart, on average, over its diagonal."""
    corners = geometry.corners(size, like=first)
    gap = geometry.apply(first, corners, far=FAR) - geometry.apply(second, corners, far=FAR)
    return float(np.linalg.norm(gap, axis=1).mean()) / math.hypot(*size)


def _hypotheses(
    pair: "_Pair",
    model: MotionModel,
    matcher: Callable[[], Matcher] | None,
    initial: Matrix | None,
) -> Iterator[_Hypothesis]:
    """Hypotheses, those first that most often are right."""
    if initial is not None:
        yield from _given(pair, model, initial)
    if (still := pair.nearly_still()) is not None:
        yield still
    yield pair.hypothesis(pair.start())
    if not pair.blank():
        yield from _alternatives(pair, model, matcher)


def _given(pair: "_Pair", model: MotionModel, initial: Matrix) -> Iterator[_Hypothesis]:
    """Hypotheses from the caller's matrix: as it is, and after passes of the network."""
    H = model.for_images(_size(pair.view.a), _size(pair.view.b)).nearest(initial)
    part = _part(pair, model, H)
    if part is not None:
        yield part.hypothesis_of_matches(part.inside(H))
        yield part.hypothesis(_change_level(part.inside(H), part.next, part.top))


def _part(pair: "_Pair", model: MotionModel, H: Matrix) -> "_Pair | None":
    """What H makes correspond; None where H is not plausible, or too little is left."""
    if not distortion(H, _size(pair.view.a)) <= _IMPLAUSIBLE:
        return None
    view = view_of(pair.view, H, scales=model.freedom >= 4) if model.name in PLANE else pair.view
    if min(*view.a.shape, *view.b.shape) < _LEAST:
        return None
    return _Pair(view, pair.network, model, pair.limits)


def _alternatives(
    pair: "_Pair", model: MotionModel, matcher: Callable[[], Matcher] | None
) -> Iterator[_Hypothesis]:
    """Other hypotheses, those first that most often are right."""
    view, name = pair.view, model.name if model.name in PLANE else "projective"
    attempts: Iterator[list[Hypothesis]] = iter(())
    if matcher is not None:
        attempts = matcher().attempts(view.a, view.b, name, mask_a=view.mask_a, mask_b=view.mask_b)
    for found in itertools.islice(attempts, 1):
        yield from _matched(pair, model, found)
    yield from pair.alternatives()
    if (other := pair.negative()) is not None:
        yield from _of_negative(other, model, matcher, name)
    for found in attempts:  # that take more time
        yield from _matched(pair, model, found, 1 / Matcher.MORE)


def _of_negative(
    pair: "_Pair", model: MotionModel, matcher: Callable[[], Matcher] | None, name: str
) -> Iterator[_Hypothesis]:
    """Hypotheses about a pair whose b is a negative, as a film is, or images of other kinds partly are."""
    yield pair.hypothesis(pair.start())
    yield from pair.alternatives()
    if matcher is not None:
        view = pair.view
        found = matcher().attempts(view.a, view.b, name, mask_a=view.mask_a, mask_b=view.mask_b)
        yield from _matched(pair, model, next(found))


def _matched(
    pair: "_Pair", model: MotionModel, found: list[Hypothesis], share: float = 1.0
) -> Iterator[_Hypothesis]:
    """Hypotheses that matching places agree on, the best first, each in the view that it makes of the images.

    ``share``: what each match counts, the less the more places were looked for.
    """
    a, b = pair.view.a, pair.view.b
    bound = model.for_images(_size(a), _size(b))
    tested = []
    for proposal in found:
        matches = share * proposal.score
        H = bound.nearest(proposal.H.cpu().numpy())
        part = _part(pair, model, H)
        if part is not None:
            tested.append((part.rank(part.inside(H)), part, part.inside(H), matches))
        if matches >= _MANY_AGREE:  # others have fewer
            break
    tested.sort(key=lambda test: -test[0])
    for _, part, H, matches in tested[:_MATCHED]:
        yield part.hypothesis_of_matches(H, matches)


def levels_of(size: tuple[int, int], other: tuple[int, int]) -> int:
    """How many levels the pyramids have.

    >>> levels_of((256, 256), (256, 256)), levels_of((30, 20), (40, 40))
    (4, 1)
    """
    side = math.sqrt(math.sqrt(size[0] * size[1] * other[0] * other[1]))
    small = min(*size, *other)
    deepest = round(math.log2(max(side / _COARSEST, 1.0)))
    while deepest > 0 and small / 2**deepest < 13:
        deepest -= 1
    return deepest + 1


class _Pair:
    """Two pyramids, and a network and a motion model to relate them."""

    def __init__(
        self,
        view: View,
        network: RelationNetwork,
        motion_model: MotionModel,
        limits: Limits | None = None,
    ) -> None:
        self.view, self.network, self.limits, self.motion_model = view, network, limits, motion_model
        size_a, size_b = _size(view.a), _size(view.b)
        self.levels = levels_of(size_a, size_b)
        self.a, self.b = _pyramids(view.a, view.b, self.levels)
        self.mask_a, self.mask_b = (mask_pyramid(mask, self.levels) for mask in (view.mask_a, view.mask_b))
        self._prepared: dict[tuple[int, bool], tuple[Tensor, Tensor] | SmoothedWhereRead] = {}
        self._sights: dict[tuple[int, bytes], Seen] = {}
        self._correlated: dict[tuple[int, bytes], Windows] = {}
        self.top = self.levels - 1
        self.next = max(self.top - 1, 0)  # the level at which hypotheses are compared
        self.initial = motion_model.initial(size_a, size_b)
        bound = motion_model.for_images(size_a, size_b)
        scales = [geometry.pixel_scale(2.0**-level, like=self.initial) for level in range(self.levels)]
        self.models = [bound.in_coordinates(scale) for scale in scales]  # of each level

    def begin(self, no_motion: Matrix | None) -> None:
        """Let ``no_motion`` be the first guess, or what is nearest to it among what the limits allow."""
        if no_motion is not None:
            self.initial = no_motion
        if self.limits is not None and not self.limits.contains(self.initial):
            self.initial = self.models[0].nearest(self.limits.nearest(self.initial))

    def finish(self, best: _Hypothesis, whole: "_Pair") -> Registration:
        """The best hypothesis, polished up to the full resolution; no motion where there is nothing to see."""
        H, polished = self._finish(best.H, best.polished, self.next)
        for count in range(_CHALLENGES + 1):
            lead, rival = self._rival(H, polished)
            if rival is None or lead > -_BETTER or count == _CHALLENGES or not self._higher(rival.H, H):
                break
            H, polished = self._finish(rival.H, rival, max(self.next - 1, 0))
            best = replace(best, H=_change_level(H, 0, self.next), polished=polished)
        spread: Matrix | None = polished.covariance
        if best.trusted and self._worse(H, best.H):
            H = _change_level(best.H, self.next, 0)
            spread, polished = self._unpolished(H)
        evidence: dict[str, float] = {}
        covariance: Matrix | None = None
        answer, size = self.view.outside(H), _size(whole.view.a)
        reason: Reason = "found"
        if self.blank():
            reason = "blank"
        elif not distortion(answer, _size(self.a[0])) <= _IMPLAUSIBLE:
            reason = "unrelated"
        elif self.limits is not None and not self.limits.contains(answer):
            reason = "out of range"
        if reason == "found":
            covariance = self._covariance(H, spread, size)
            evidence = self._evidence(H, best, polished, lead)
            evidence["uncertainty"] = relative(answer, size, covariance)
        else:
            answer = whole.initial
        factor = 2.0**self.next
        points = geometry.rescale_points(best.motions.points.double().cpu().numpy(), factor)
        targets = geometry.rescale_points(best.targets, factor)
        out_a, out_b = (geometry.invert(T, checked=False) for T in (self.view.from_a, self.view.from_b))
        return Registration(
            answer,
            geometry.apply(out_a, points),
            np.where(np.abs(best.targets) < FAR, geometry.apply(out_b, targets), FAR),
            best.motions.weight.double().cpu().numpy(),
            factor * float(out_b[0, 0]),
            evidence,
            covariance,
            reason,
        )

    def _unpolished(self, H: Matrix) -> tuple[Matrix | None, Polished]:
        """What is known of an answer H, of the full resolution, that no polish made: its covariance, and one step."""
        level = max(self.next - 1, 0)
        into = unit_coordinates(_size(self.a[level]))
        generators = self.models[level].in_coordinates(into).generators()
        H = _change_level(H, 0, level)
        return of_motions(self._left(H, level), generators, into), self._polish(H, level, 1, steps=1)

    def _covariance(self, H: Matrix, spread: Matrix | None, size: tuple[int, int]) -> Matrix | None:
        """(8, 8): of where the corners of the image of ``size`` that this is a part of lie in b, in its pixels.

        ``spread`` (k, k) is the covariance of the motion model's generators.
        """
        if spread is None:
            return None
        into = unit_coordinates(_size(self.a[0]))
        generators = self.models[0].in_coordinates(into).generators()
        corners = geometry.apply(self.view.from_a, geometry.corners(size, like=H))
        carried = of_corners(H, corners, spread, generators, into)
        return None if carried is None else carried / float(self.view.from_b[0, 0]) ** 2

    def _finish(self, H: Matrix, polished: Polished, last: int) -> tuple[Matrix, Polished]:
        """An answer of the level ``last``, polished up to the full resolution."""
        for level in self._finer(last):
            H = _change_level(H, last, level)
            smoothed = level > 0 or not self._equally_sharp(last, polished)
            field, stage, last = polished.uneven, 1 if level else 2, level
            before, polished = polished, self._polish(H, level, stage, polished, field, smoothed=smoothed)
            if not smoothed and polished.noise_share > _DROWNED:
                smoothed, polished = True, self._polish(polished.H, level, stage, before, field)
            if smoothed and field and not polished.uneven:  # what looked uneven in small images is not
                polished = self._polish(polished.H, level, stage, polished, False)
            H = polished.H
        return _change_level(H, last, 0), polished

    def _equally_sharp(self, level: int, polished: Polished) -> bool:
        """Whether the full resolution may be compared as it is: small images, neither of which is out of focus.

        What smoothing takes from the images of ``level``, where they were polished, says how sharp they are.
        """
        if level == 0 or self.a[0].numel() > _WHOLE or not polished.light:
            return False
        prepared = self._prepared[level, True]
        assert not isinstance(prepared, SmoothedWhereRead)
        images = zip(
            (self.a[level], self.b[level]), prepared, (self.mask_a[level], self.mask_b[level]), strict=True
        )
        fine = [_contrast(image - smoothed, mask) for image, smoothed, mask in images]
        return _SHARP < fine[1] / max(polished.light[0] * fine[0], 1e-9) < 1 / _SHARP

    def _rival(self, H: Matrix, polished: Polished) -> tuple[float, Polished | None]:
        """How far the answer H, of the full resolution, is ahead of the best other one (-1 to 1), and that one.

        Others are what the symmetries of a make of the answer, each as good as a polish makes it.
        """
        level = max(self.next - 1, 0)
        a, model, H = self.a[level], self.models[level], _change_level(H, 0, level)
        least = max(_SAME * math.hypot(*a.shape), 2.0)
        found = [D for _, D in symmetries(a, least) if D[0, 0] > 0 or model.freedom > 2]
        if not found:
            return 1.0, None
        own = self._windows(H, level)

        def lead(rival: Matrix) -> float:
            return advantage(own, self._windows(rival, level))

        if float((own.weight * own.likeness).sum()) < _DOUBTED * float(own.weight.sum()):
            return 1.0, None  # an answer that is not trusted needs no rival
        first = sorted(((lead(R), R) for R in (model.nearest(H @ D) for D in found)), key=lambda one: one[0])
        corners = geometry.corners(_size(a), like=H)
        smallest, best = first[0][0], None
        for ahead, start in first[:_RIVALS]:
            if ahead > _AHEAD:
                break
            rival = self._polish(start, level, 1, polished, polished.uneven, steps=_RIVAL_STEPS)
            gap = geometry.apply(rival.H, corners, far=FAR) - geometry.apply(H, corners, far=FAR)
            if np.linalg.norm(gap, axis=1).mean() > least:
                ahead = lead(rival.H)
                if best is None or ahead < smallest:
                    best = rival
                smallest = min(smallest, ahead)
        return smallest, best

    def _higher(self, rival: Matrix, H: Matrix) -> bool:
        """Whether a rival of the level in the middle ranks higher than the answer H of the full resolution.

        It must not do so by showing less of the images, nor by distorting them.
        """
        level = max(self.next - 1, 0)
        if distortion(rival, _size(self.a[level])) > _IMPLAUSIBLE:
            return False
        one, other = (self._agreement(each, level) for each in (rival, _change_level(H, 0, level)))
        return one["rank"] > other["rank"] and one["overlap"] > _OVERLAP * other["overlap"]

    def _worse(self, H: Matrix, before: Matrix) -> bool:
        """Whether windows correlate less under H, of the full resolution, than under the one of the next level."""
        level = max(self.next - 1, 0)
        old, new = _change_level(before, self.next, level), _change_level(H, 0, level)
        return self._agreement(new, level)["score"] < self._agreement(old, level)["score"] - _WORSE

    def _finer(self, level: int) -> list[int]:
        """The levels still to be polished: each while all pixels are used, then every other, and the last."""
        levels = []
        while level > 0:
            level -= 1 if self.a[level - 1].numel() <= _WHOLE else min(2, level)
            levels.append(level)
        return levels

    def blank(self) -> bool:
        """Whether one of the images shows nothing."""
        return (
            min(
                _contrast(images[self.next], masks[self.next])
                for images, masks in ((self.a, self.mask_a), (self.b, self.mask_b))
            )
            < _BLANK
        )

    def inside(self, H: Matrix) -> Matrix:
        """H between the images as one between the parts that this pair shows, at the next level."""
        return _change_level(self.view.inside(H), 0, self.next)

    def start(self) -> Matrix:
        """No motion, at the top level."""
        return _change_level(self.initial, 0, self.top)

    def alternatives(self) -> Iterator[_Hypothesis]:
        """Other hypotheses: simpler models first, then rotated, scaled and shifted initial guesses."""
        model = self.models[self.top]
        simpler = [create_motion_model(name) for name in model.simpler]
        for first in simpler:
            yield self.hypothesis(self.start(), first)
        # Many parameters are determined by many motions, of which a first guess leaves few.
        first_fit = simpler[0] if model.freedom > 4 else None
        for guess in self._search():
            yield self.hypothesis(model.nearest(guess.H), first_fit)

    def _search(self, *, negative: bool = False) -> list[Guess]:
        """What a search at the top level finds, in b or in its negative."""
        half = geometry.pixel_scale(2.0**-self.top, like=self.initial)
        limits = None if self.limits is None else self.limits.inside(half, half)
        a, b = self.a[self.top], self.b[self.top]
        return initial_guesses(a, 1 - b if negative else b, self.models[self.top], _TRIES, limits)

    def negative(self) -> "_Pair | None":
        """The pair with the tones of b inverted, if a search finds more likeness in that."""
        best, inverted = self._search(), self._search(negative=True)
        if not best or inverted[0].likeness < best[0].likeness + _INVERTED:
            return None
        other = _Pair(self.view._replace(b=1 - self.view.b), self.network, self.motion_model, self.limits)
        other.initial = self.initial
        return other

    def nearly_still(self) -> _Hypothesis | None:
        """No motion, polished at the next level without the network's help, if that is surely right already."""
        H = _change_level(self.initial, 0, self.next)
        polished = self._polish(H, self.next, 0, steps=_FEW)
        if not polished.moved <= _STEPS[0][1] or (rank := self.rank(polished.H)) < _SURE:
            return None
        motions = self._measure(polished.H, self.next, _FEW_PATCHES)
        targets = geometry.apply(polished.H, _ends(motions), far=FAR)
        return _Hypothesis(self, polished.H, motions, targets, polished, rank)

    def hypothesis(self, H: Matrix, first: MotionModel | None = None) -> _Hypothesis:
        """From an initial guess ``H`` at the top level: passes of the network, then the polish at the next level.

        The first pass is fitted with the model ``first``, which fewer motions determine.
        """
        for count in range(_NETWORK_PASSES[0]):
            before = H
            H, motions, targets = self._refine_with_network(H, self.top, first if count == 0 else None)
            if self._shifted(before, H) < _STILL:
                break
        if self.top > self.next:
            H = _change_level(H, self.top, self.next)
            for _ in range(_NETWORK_PASSES[1]):
                H, motions, targets = self._refine_with_network(H, self.next)
        polished = self._polish(H, self.next, 0)
        return _Hypothesis(self, polished.H, motions, targets, polished, self.rank(polished.H))

    def hypothesis_of_matches(self, H: Matrix, matches: float = 0.0) -> _Hypothesis:
        """From an ``H`` at the next level that matches agree on, nearer than a pass of the network could bring it."""
        _, motions, targets = self._refine_with_network(H, self.next)
        polished, rank = self._polish(H, self.next, 0), self.rank(H)
        if (better := self.rank(polished.H)) >= rank:
            H, rank = polished.H, better
        return _Hypothesis(self, H, motions, targets, polished, rank, trusted=True, matches=matches)

    def rank(self, H: Matrix) -> float:
        """What hypotheses are compared by, of an H at the next level."""
        return self._agreement(H, self.next)["rank"] - self.objection(H)

    def objection(self, H: Matrix) -> float:
        """What an H at the next level loses in rank by being implausible, or outside of the limits."""
        lost = 2.0 if distortion(H, _size(self.a[self.next])) > _IMPLAUSIBLE else 0.0
        if self.limits is not None:
            answer = self.view.outside(_change_level(H, self.next, 0))
            lost += 0.0 if self.limits.contains(answer) else _OUTSIDE
        return lost

    def _shifted(self, before: Matrix, after: Matrix) -> float:
        corners = geometry.corners(_size(self.a[self.top]), like=before)
        moved = geometry.apply(before, corners, far=FAR) - geometry.apply(after, corners, far=FAR)
        return float(np.abs(moved).max())

    def _refine_with_network(
        self, H: Matrix, level: int, other: MotionModel | None = None
    ) -> tuple[Matrix, Motions, Matrix]:
        """One pass of the network and a fit to its motions, of the ``other`` model if one is given."""
        motions, model = self._measure(H, level), self.models[level]
        source, weight = (t.double().cpu().numpy() for t in (motions.points, motions.weight))
        target = _ends(motions)
        delta, _ = robust_fit(other or model, source, target, weight, tolerance=0.7)
        new = geometry.normalize(H @ delta, checked=False)
        return new if other is None else model.nearest(new), motions, geometry.apply(H, target, far=FAR)

    def _measure(self, H: Matrix, level: int, patches: int = _PATCHES) -> Motions:
        a, b = self.a[level], self.b[level]
        points = raster(_size(a), self.network.model_spec.patch, patches, a.device)
        return measure(self.network, a, b, H, points, self.mask_a[level], self.mask_b[level])

    def _polish(
        self,
        H: Matrix,
        level: int,
        stage: int,
        before: Polished | None = None,
        uneven: bool = True,
        steps: int | None = None,
        smoothed: bool = True,
    ) -> Polished:
        a, mask_a, mask_b = self.a[level], _inner(self.mask_a[level]), _inner(self.mask_b[level])
        if (level, smoothed) not in self._prepared:
            self._prepared[level, smoothed] = _prepared(a, self.b[level], smoothed)
        prepared = self._prepared[level, smoothed]
        b: Tensor | SmoothedWhereRead
        if isinstance(prepared, SmoothedWhereRead):
            blocks, b = choose_blocks(a, _size(self.b[level]), H, mask_a, mask_b), prepared
        else:
            blocks, b = whole_image(prepared[0], mask_a), prepared[1]
        most, stop = _STEPS[stage]
        return polish(
            blocks,
            b,
            H,
            self.models[level],
            _size(a),
            steps or most,
            stop,
            mask_b,
            uneven=uneven,
            before=before,
            smoothed=smoothed,
        )

    def _agreement(self, H: Matrix, level: int) -> dict[str, float]:
        masks = self.mask_a[level], self.mask_b[level]
        return agreement(self.a[level], self.b[level], H, *masks, windows=self._windows(H, level))

    def _windows(self, H: Matrix, level: int) -> Windows:
        """How windows of ``level`` correlate under H; the last answers are kept, for several ask for the same."""
        key = (level, H.tobytes())
        if key not in self._correlated:
            _make_room(self._correlated)
            self._correlated[key] = correlate(self.a[level], self.b[level], H, seen=self._see(H, level))
        return self._correlated[key]

    def _left(self, H: Matrix, level: int) -> LocalMotions:
        """What still moves at ``level`` under H."""
        return local_motions(self.a[level], self.b[level], H, seen=self._see(H, level))

    def _see(self, H: Matrix, level: int) -> Seen:
        """What of b is seen under H at ``level``; the last answers are kept, for several ask for the same."""
        key = (level, H.tobytes())
        if key not in self._sights:
            _make_room(self._sights)
            masks = self.mask_a[level], self.mask_b[level]
            self._sights[key] = see(self.a[level], self.b[level], H, *masks)
        return self._sights[key]

    def _evidence(self, H: Matrix, best: _Hypothesis, polished: Polished, lead: float) -> dict[str, float]:
        """All that :func:`caunet.estimation.confidence.features` asks for."""
        size = _size(self.a[0])
        diagonal = math.hypot(*size)
        middle = max(self.next - 1, 0)
        middle_H, coarse_H = (_change_level(H, 0, level) for level in (middle, self.next))
        near = self._agreement(middle_H, middle)
        coarse = self._agreement(coarse_H, self.next)
        points, weight = (t.double().cpu().numpy() for t in (best.motions.points, best.motions.weight))
        error = np.hypot(*(geometry.apply(coarse_H, points, far=FAR) - best.targets).T)
        return {
            "score": near["score"],
            "alike": near["alike"],
            "coarse": coarse["score"],
            "windows": near["windows"],
            "overlap": near["overlap"],
            "correlation": polished.correlation,
            "moved": polished.moved / diagonal if math.isfinite(polished.moved) else 1.0,
            "distortion": distortion(H, size),
            "distinct": lead,
            "explained": explained(self._left(middle_H, middle), _size(self.a[middle])),
            # Where nothing differs nothing can move any more, even if there is too little texture to see that.
            "drift": _NO_DRIFT
            if polished.correlation > _IDENTICAL
            else drift(self._left(coarse_H, self.next), _size(self.a[self.next])),
            "inliers": float(weight @ (error < 1.0)) / max(float(weight.sum()), 1e-6),
        }


def _make_room(kept: dict[tuple[int, bytes], Any]) -> None:
    """Forget the oldest where as many are kept as may be."""
    if len(kept) >= _SIGHTS:
        del kept[next(iter(kept))]


def _pyramids(a: Tensor, b: Tensor, levels: int) -> tuple[list[Tensor], list[Tensor]]:
    """Of both images; small ones of one size are halved together, which takes half the calls."""
    if a.shape != b.shape or a.numel() > _WHOLE:
        return pyramid(a, levels), pyramid(b, levels)
    both = pyramid(torch.stack([a, b]), levels)
    return [images[0] for images in both], [images[1] for images in both]


def _prepared(a: Tensor, b: Tensor, smoothed: bool) -> tuple[Tensor, Tensor] | SmoothedWhereRead:
    """Both images as a polish compares them; of large ones b alone, of which only parts are read."""
    if a.numel() > _WHOLE:
        return SmoothedWhereRead(b)
    return _smooth_both(a, b) if smoothed else (a, finer(b))


def _smooth_both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.shape != b.shape:
        return smooth(a), smooth(b)
    first, second = smooth(torch.stack([a, b]))
    return first, second


def _change_level(H: Matrix, source: int, target: int) -> Matrix:
    """H between both images at pyramid level ``source``, rewritten for level ``target``."""
    return geometry.rescale(H, 2.0 ** (source - target))


def _ends(motions: Motions) -> Matrix:
    """(N, 2): where the motions end, before H is applied."""
    ends: Matrix = (motions.points + motions.motion).double().cpu().numpy()
    return ends


def _inner(mask: Tensor | None) -> Tensor | None:
    """Which pixels, smoothed and differentiated, show nothing but the scene."""
    return None if mask is None else erode(mask, _REACH)


def _contrast(image: Tensor, mask: Tensor | None) -> float:
    """Standard deviation of the gray levels of the scene."""
    values = image if mask is None else image[mask]
    return float(values.std()) if values.numel() > 1 else 0.0


def _size(image: Tensor) -> tuple[int, int]:
    return image.shape[0], image.shape[1]
