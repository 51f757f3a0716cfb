"""From two images to a transform: hypotheses, ranked by one evidence, and the polish of the best.

The first hypothesis is no motion, refined by the network at the smallest images of both pyramids and at the next
larger ones. If the images then do not correlate, others are proposed, by matching places and by searching
(:mod:`caunet.estimation.hypotheses`); whatever proposes them, the one under which the images correlate best is kept,
and the search ends with the first that is surely right. From there on intensities are aligned, up to the images
themselves (:mod:`caunet.estimation.finish`).
"""

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor

from caunet import geometry
from caunet.estimation.evidence import FAR
from caunet.estimation.finish import SAME, Registration, finish
from caunet.estimation.hypotheses import GOOD, hypotheses
from caunet.estimation.limits import Limits
from caunet.estimation.motion_models import MotionModel, Projective
from caunet.estimation.pair import OUTSIDE, Pair, change_level, size_of
from caunet.estimation.views import whole_view
from caunet.estimation.watermarks import without
from caunet.geometry import Matrix
from caunet.matching import Matcher
from caunet.models import RelationNetwork

__all__ = ["Registration", "register"]

_AGREE = 0.5  # correlation of windows that agree
_MOSTLY = 0.5  # share of the texture that an answer for what lies between marks must explain
_AMONG = 0.3  # share of the windows with marks in which the scene must move with another answer for them to be marks
# An answer of no motion is looked at twice where little is explained: of what marks on both images alone determine the
# motion is none at all; what the scene pulls away from it explains little. Chosen on calibration photographs.
_AT_REST, _UNEXPLAINED = 0.003, 0.9  # of the diagonal, and share of the texture
_PULLED, _LITTLE = 0.02, 0.6


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
    pair = Pair(whole_view(a, b, mask_a, mask_b), network, motion_model or Projective(), limits)
    pair.begin(no_motion)
    found = _registered(pair, matcher, initial)
    return _behind_marks(found, pair, matcher) if _suspicious(found, pair) else found


def _registered(
    pair: Pair, matcher: Callable[[], Matcher] | None, initial: Matrix | None = None
) -> Registration:
    """The best of all hypotheses, finished."""
    best, beyond = None, False
    for other in hypotheses(pair, matcher, initial):
        if other.good:
            best = other
            break
        best = other if best is None else max(best, other, key=lambda hypothesis: hypothesis.worth)
        beyond |= GOOD <= other.rank + OUTSIDE <= 1.0  # good but for the limits; what is inside ranks higher
    assert best is not None
    found = finish(best, pair)
    if beyond and not best.good and best.rank < GOOD and found.reason == "found":
        return found._replace(H=pair.initial, evidence={}, covariance=None, reason="out of range")
    return found


def _suspicious(found: Registration, pair: Pair) -> bool:
    """Whether nothing seems to move, and much is not explained by that: as if marks stood still on both images."""
    size = size_of(pair.view.a)
    if size != size_of(pair.view.b) or not found.evidence:
        return False
    explained = found.evidence["explained"]
    reach = _AT_REST if explained >= _LITTLE else _PULLED
    return explained < _UNEXPLAINED and _apart(found.H, np.eye(3), size) < reach


def _behind_marks(found: Registration, pair: Pair, matcher: Callable[[], Matcher] | None) -> Registration:
    """The motion of what lies between marks that stand still, if there is one that explains more of the images."""
    view = pair.view
    images = without(view.a, view.b)
    if images is None:
        return found
    bare = Pair(view._replace(a=images[0], b=images[1]), pair.network, pair.motion_model, pair.limits)
    bare.initial = pair.initial
    other = _registered(bare, matcher)
    if not other.evidence or _apart(found.H, other.H, size_of(view.a)) < SAME:
        return found
    shared = _shared(pair, found.H, bare, other.H)
    if other.evidence["explained"] < _MOSTLY or other.evidence["score"] < _AGREE:
        return found
    if shared > _AMONG:
        return other
    return found._replace(
        evidence={**found.evidence, "distinct": min(found.evidence["distinct"], 1 - shared / _AMONG)}
    )


def _shared(pair: Pair, H: Matrix, bare: Pair, other: Matrix) -> float:
    """Share of the windows that H explains in which the scene without marks moves by another answer.

    Marks lie among the scene: where they agree under H, it agrees under the other answer. A scene that stands still
    behind something that moves does not.
    """
    level = pair.middle
    own, rival = (each.windows(change_level(M, 0, level), level) for each, M in ((pair, H), (bare, other)))
    agree = own.weight * (own.likeness > _AGREE)
    return float((agree * (rival.likeness > _AGREE) * (rival.weight > 0)).sum() / agree.sum().clamp_min(1e-6))


def _apart(first: Matrix, second: Matrix, size: tuple[int, int]) -> float:
    """How far two answers put the corners of an image of ``size`` apart, on average, over its diagonal."""
    corners = geometry.corners(size, like=first)
    gap = geometry.apply(first, corners, far=FAR) - geometry.apply(second, corners, far=FAR)
    return float(np.linalg.norm(gap, axis=1).mean()) / math.hypot(*size)
