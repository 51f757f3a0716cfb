"""The best hypothesis brought to the full resolution, its rivals, and what the answer rests on."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from caunet import geometry
from caunet.estimation.blocks import SmoothedWhereRead
from caunet.estimation.evidence import FAR, distortion, drift, explained
from caunet.estimation.hypotheses import Hypothesis
from caunet.estimation.pair import IMPLAUSIBLE, WHOLE, Pair, change_level, contrast, size_of
from caunet.estimation.polish import Polished, unit_coordinates
from caunet.estimation.reasons import Reason
from caunet.estimation.rivals import advantage, symmetries
from caunet.estimation.uncertainty import of_corners, of_motions, relative
from caunet.geometry import Matrix

__all__ = ["SAME", "Registration", "finish"]

_SHARP = 0.87  # contrast of details in one image, relative to the other's, below which it is out of focus
_DROWNED = 0.2  # share of noise in what looks like texture from which on images are smoothed, too
_IDENTICAL = 0.9999  # correlation of images that differ by nothing but rounding
_NO_DRIFT = 1e-3  # of the diagonal: what is measured where nothing moves
_WORSE = 0.02  # mean correlation of windows that a polish may lose before what it began with is kept
SAME = 0.01  # of the diagonal: answers whose corners differ by less are the same
_RIVALS = 2  # other answers that are polished
_RIVAL_STEPS = 4  # in which one that is as good as the answer is there
_DOUBTED = 0.3  # mean correlation of windows below which no answer is trusted
_AHEAD = 0.7  # of the windows speaking for the answer: then an other one is none, polished or not
_OVERLAP = 0.9  # of the answer's overlap, that a better one must have
_CHALLENGES = 4  # how often a better one replaces the answer, at most: period by period
_BETTER = 0.02  # share of windows that must speak for it


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


def finish(best: Hypothesis, whole: Pair) -> Registration:
    """The best hypothesis, polished up to the full resolution; no motion where there is nothing to see."""
    pair = best.pair
    H, polished = _polished(pair, best.H, best.polished, pair.next)
    for count in range(_CHALLENGES + 1):
        lead, rival = _rival(pair, H, polished)
        if rival is None or lead > -_BETTER or count == _CHALLENGES or not _higher(pair, rival.H, H):
            break
        H, polished = _polished(pair, rival.H, rival, pair.middle)
        best = replace(best, H=change_level(H, 0, pair.next), polished=polished)
    spread: Matrix | None = polished.covariance
    if best.trusted and _worse(pair, H, best.H):
        H = change_level(best.H, pair.next, 0)
        spread, polished = _unpolished(pair, H)
    evidence: dict[str, float] = {}
    covariance: Matrix | None = None
    answer, size = pair.view.outside(H), size_of(whole.view.a)
    reason: Reason = "found"
    if pair.blank():
        reason = "blank"
    elif not distortion(answer, size_of(pair.a[0])) <= IMPLAUSIBLE:
        reason = "unrelated"
    elif pair.limits is not None and not pair.limits.contains(answer):
        reason = "out of range"
    if reason == "found":
        covariance = _covariance(pair, H, spread, size)
        evidence = _evidence(pair, H, best, polished, lead)
        evidence["uncertainty"] = relative(answer, size, covariance)
    else:
        answer = whole.initial
    factor = 2.0**pair.next
    points = geometry.rescale_points(best.motions.points.double().cpu().numpy(), factor)
    targets = geometry.rescale_points(best.targets, factor)
    out_a, out_b = (geometry.invert(T, checked=False) for T in (pair.view.from_a, pair.view.from_b))
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


def _polished(pair: Pair, H: Matrix, polished: Polished, last: int) -> tuple[Matrix, Polished]:
    """An answer of the level ``last``, polished up to the full resolution."""
    for level in _finer(pair, last):
        H = change_level(H, last, level)
        smoothed = level > 0 or not _equally_sharp(pair, last, polished)
        field, stage, last = polished.uneven, 1 if level else 2, level
        before, polished = polished, pair.polish(H, level, stage, polished, field, smoothed=smoothed)
        if not smoothed and polished.noise_share > _DROWNED:
            smoothed, polished = True, pair.polish(polished.H, level, stage, before, field)
        if smoothed and field and not polished.uneven:  # what looked uneven in small images is not
            polished = pair.polish(polished.H, level, stage, polished, False)
        H = polished.H
    return change_level(H, last, 0), polished


def _finer(pair: Pair, level: int) -> list[int]:
    """The levels still to be polished: each while all pixels are used, then every other, and the last."""
    levels = []
    while level > 0:
        level -= 1 if pair.a[level - 1].numel() <= WHOLE else min(2, level)
        levels.append(level)
    return levels


def _equally_sharp(pair: Pair, level: int, polished: Polished) -> bool:
    """Whether the full resolution may be compared as it is: small images, neither of which is out of focus.

    What smoothing takes from the images of ``level``, where they were polished, says how sharp they are.
    """
    if level == 0 or pair.a[0].numel() > WHOLE or not polished.light:
        return False
    prepared = pair.prepared[level, True]
    assert not isinstance(prepared, SmoothedWhereRead)
    images = zip(
        (pair.a[level], pair.b[level]), prepared, (pair.mask_a[level], pair.mask_b[level]), strict=True
    )
    fine = [contrast(image - smoothed, mask) for image, smoothed, mask in images]
    return _SHARP < fine[1] / max(polished.light[0] * fine[0], 1e-9) < 1 / _SHARP


def _unpolished(pair: Pair, H: Matrix) -> tuple[Matrix | None, Polished]:
    """What is known of an answer H, of the full resolution, that no polish made: its covariance, and one step."""
    level = pair.middle
    into = unit_coordinates(size_of(pair.a[level]))
    generators = pair.models[level].in_coordinates(into).generators()
    H = change_level(H, 0, level)
    return of_motions(pair.left(H, level), generators, into), pair.polish(H, level, 1, steps=1)


def _covariance(pair: Pair, H: Matrix, spread: Matrix | None, size: tuple[int, int]) -> Matrix | None:
    """(8, 8): of where the corners of the image of ``size`` that this is a part of lie in b, in its pixels.

    ``spread`` (k, k) is the covariance of the motion model's generators.
    """
    if spread is None:
        return None
    into = unit_coordinates(size_of(pair.a[0]))
    generators = pair.models[0].in_coordinates(into).generators()
    corners = geometry.apply(pair.view.from_a, geometry.corners(size, like=H))
    carried = of_corners(H, corners, spread, generators, into)
    return None if carried is None else carried / float(pair.view.from_b[0, 0]) ** 2


def _rival(pair: Pair, H: Matrix, polished: Polished) -> tuple[float, Polished | None]:
    """How far the answer H, of the full resolution, is ahead of the best other one (-1 to 1), and that one.

    Others are what the symmetries of a make of the answer, each as good as a polish makes it.
    """
    level = pair.middle
    a, model, H = pair.a[level], pair.models[level], change_level(H, 0, level)
    least = max(SAME * math.hypot(*a.shape), 2.0)
    found = [D for _, D in symmetries(a, least) if D[0, 0] > 0 or model.freedom > 2]
    if not found:
        return 1.0, None
    own = pair.windows(H, level)

    def lead(rival: Matrix) -> float:
        return advantage(own, pair.windows(rival, level))

    if float((own.weight * own.likeness).sum()) < _DOUBTED * float(own.weight.sum()):
        return 1.0, None  # an answer that is not trusted needs no rival
    first = sorted(((lead(R), R) for R in (model.nearest(H @ D) for D in found)), key=lambda one: one[0])
    corners = geometry.corners(size_of(a), like=H)
    smallest, best = first[0][0], None
    for ahead, start in first[:_RIVALS]:
        if ahead > _AHEAD:
            break
        rival = pair.polish(start, level, 1, polished, polished.uneven, steps=_RIVAL_STEPS)
        gap = geometry.apply(rival.H, corners, far=FAR) - geometry.apply(H, corners, far=FAR)
        if np.linalg.norm(gap, axis=1).mean() > least:
            ahead = lead(rival.H)
            if best is None or ahead < smallest:
                best = rival
            smallest = min(smallest, ahead)
    return smallest, best


def _higher(pair: Pair, rival: Matrix, H: Matrix) -> bool:
    """Whether a rival of the level in the middle ranks higher than the answer H of the full resolution.

    It must not do so by showing less of the images, nor by distorting them.
    """
    level = pair.middle
    if distortion(rival, size_of(pair.a[level])) > IMPLAUSIBLE:
        return False
    one, other = (pair.agreement(each, level) for each in (rival, change_level(H, 0, level)))
    return one["rank"] > other["rank"] and one["overlap"] > _OVERLAP * other["overlap"]


def _worse(pair: Pair, H: Matrix, before: Matrix) -> bool:
    """Whether windows correlate less under H, of the full resolution, than under the one of the next level."""
    level = pair.middle
    old, new = change_level(before, pair.next, level), change_level(H, 0, level)
    return pair.agreement(new, level)["score"] < pair.agreement(old, level)["score"] - _WORSE


def _evidence(pair: Pair, H: Matrix, best: Hypothesis, polished: Polished, lead: float) -> dict[str, float]:
    """All that :func:`caunet.estimation.confidence.features` asks for."""
    size = size_of(pair.a[0])
    diagonal = math.hypot(*size)
    middle = pair.middle
    middle_H, coarse_H = (change_level(H, 0, level) for level in (middle, pair.next))
    near = pair.agreement(middle_H, middle)
    coarse = pair.agreement(coarse_H, pair.next)
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
        "explained": explained(pair.left(middle_H, middle), size_of(pair.a[middle])),
        # Where nothing differs nothing can move any more, even if there is too little texture to see that.
        "drift": _NO_DRIFT
        if polished.correlation > _IDENTICAL
        else drift(pair.left(coarse_H, pair.next), size_of(pair.a[pair.next])),
        "inliers": float(weight @ (error < 1.0)) / max(float(weight.sum()), 1e-6),
    }
