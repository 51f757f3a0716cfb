"""Hypotheses about how two images are related, and what proposes them.

The first is no motion, refined by the network. Others come from places that match and from a search; each is polished
at the level at which all of them are compared.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np

from caunet import geometry
from caunet.estimation.evidence import FAR, distortion
from caunet.estimation.motion_models import PLANE, MotionModel, create_motion_model
from caunet.estimation.motions import Motions
from caunet.estimation.pair import IMPLAUSIBLE, STEPS, Pair, change_level, ends_of, size_of
from caunet.estimation.polish import Polished
from caunet.estimation.search import Guess, initial_guesses
from caunet.estimation.views import view_of
from caunet.geometry import Matrix
from caunet.matching import Hypothesis as Agreed
from caunet.matching import Matcher

__all__ = ["GOOD", "Hypothesis", "by_network", "hypotheses"]

_NETWORK_PASSES = (3, 1)  # at the smallest images, at the next larger
_STILL = 0.5  # pixels: a pass that moves the corners by less is the last one at the smallest images
_FEW_PATCHES = 36  # where nothing is fitted to their motions
_FEW = 8  # steps of the polish after which images that nearly agree do agree
_SURE = 0.6  # rank at which they do
# A hypothesis is not doubted whose rank is high, under which the images tell much of each other, or of middling rank
# whose pixels agree but for noise. Chosen on calibration photographs.
_SURELY = 0.7
_INFORMATIVE = 0.28
GOOD, _CLOSE = 0.5, 0.995
_FEW_AGREE, _MANY_AGREE = 5.0, 20.0  # matches that agree by chance, and that never do
_COARSE_SHARE, _MATCHES_SHARE = 0.1, 0.4  # of the rank and of matches, in what hypotheses are compared by
_TRIES = 4  # other initial guesses
_LEAST = 16  # pixels of a side below which a part shows too little
_INVERTED = 0.05  # by which a search must correlate better with a negative for that to be tried
_MATCHED = 3  # transforms that places agree on, at most, that are tested


@dataclass(frozen=True)
class Hypothesis:
    """An answer at the level where hypotheses are compared, before the larger images are used."""

    pair: Pair
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
        level = self.pair.middle
        found = self.pair.agreement(change_level(self.H, self.pair.next, level), level)
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
        return self.information >= _INFORMATIVE or (self.rank >= GOOD and self.polished.correlation >= _CLOSE)


def _nearly_still(pair: Pair) -> Hypothesis | None:
    """No motion, polished at the next level without the network's help, if that is surely right already."""
    H = change_level(pair.initial, 0, pair.next)
    polished = pair.polish(H, pair.next, 0, steps=_FEW)
    if not polished.moved <= STEPS[0][1] or (rank := pair.rank(polished.H)) < _SURE:
        return None
    motions = pair.measure(polished.H, pair.next, _FEW_PATCHES)
    targets = geometry.apply(polished.H, ends_of(motions), far=FAR)
    return Hypothesis(pair, polished.H, motions, targets, polished, rank)


def by_network(pair: Pair, H: Matrix, first: MotionModel | None = None) -> Hypothesis:
    """From an initial guess ``H`` at the top level: passes of the network, then the polish at the next level.

    The first pass is fitted with the model ``first``, which fewer motions determine.
    """
    for count in range(_NETWORK_PASSES[0]):
        before = H
        H, motions, targets = pair.refine_with_network(H, pair.top, first if count == 0 else None)
        if _shifted(pair, before, H) < _STILL:
            break
    if pair.top > pair.next:
        H = change_level(H, pair.top, pair.next)
        for _ in range(_NETWORK_PASSES[1]):
            H, motions, targets = pair.refine_with_network(H, pair.next)
    polished = pair.polish(H, pair.next, 0)
    return Hypothesis(pair, polished.H, motions, targets, polished, pair.rank(polished.H))


def _shifted(pair: Pair, before: Matrix, after: Matrix) -> float:
    corners = geometry.corners(size_of(pair.a[pair.top]), like=before)
    moved = geometry.apply(before, corners, far=FAR) - geometry.apply(after, corners, far=FAR)
    return float(np.abs(moved).max())


def _by_matches(pair: Pair, H: Matrix, matches: float = 0.0) -> Hypothesis:
    """From an ``H`` at the next level that matches agree on, nearer than a pass of the network could bring it."""
    _, motions, targets = pair.refine_with_network(H, pair.next)
    polished, rank = pair.polish(H, pair.next, 0), pair.rank(H)
    if (better := pair.rank(polished.H)) >= rank:
        H, rank = polished.H, better
    return Hypothesis(pair, H, motions, targets, polished, rank, trusted=True, matches=matches)


def hypotheses(
    pair: Pair, matcher: Callable[[], Matcher] | None, initial: Matrix | None = None
) -> Iterator[Hypothesis]:
    """Hypotheses, those first that most often are right."""
    if initial is not None:
        yield from _given(pair, initial)
    if (still := _nearly_still(pair)) is not None:
        yield still
    yield by_network(pair, pair.start())
    if not pair.blank():
        yield from _alternatives(pair, matcher)


def _given(pair: Pair, initial: Matrix) -> Iterator[Hypothesis]:
    """Hypotheses from the caller's matrix: as it is, and after passes of the network."""
    H = _allowed(pair, initial)
    part = _part(pair, H)
    if part is not None:
        yield _by_matches(part, part.inside(H))
        yield by_network(part, change_level(part.inside(H), part.next, part.top))


def _allowed(pair: Pair, H: Matrix) -> Matrix:
    """What the motion model has that is nearest to H."""
    return pair.motion_model.for_images(size_of(pair.view.a), size_of(pair.view.b)).nearest(H)


def _part(pair: Pair, H: Matrix) -> Pair | None:
    """What H makes correspond; None where H is not plausible, or too little is left."""
    if not distortion(H, size_of(pair.view.a)) <= IMPLAUSIBLE:
        return None
    model = pair.motion_model
    view = view_of(pair.view, H, scales=model.freedom >= 4) if model.name in PLANE else pair.view
    if min(*view.a.shape, *view.b.shape) < _LEAST:
        return None
    return Pair(view, pair.network, model, pair.limits)


def _alternatives(pair: Pair, matcher: Callable[[], Matcher] | None) -> Iterator[Hypothesis]:
    """Other hypotheses, those first that most often are right."""
    attempts = _attempts(pair, matcher)
    for found in itertools.islice(attempts, 1):
        yield from _matched(pair, found)
    guesses = cache(partial(_search, pair))
    yield from _searched(pair, guesses)
    if (other := _negative(pair, guesses())) is not None:
        yield from _of_negative(other, matcher)
    for found in attempts:  # that take more time
        yield from _matched(pair, found, 1 / Matcher.MORE)


def _attempts(pair: Pair, matcher: Callable[[], Matcher] | None) -> Iterator[list[Agreed]]:
    """What places that match agree on, the quickest attempt first; nothing without a matcher."""
    if matcher is None:
        return iter(())
    view, name = pair.view, pair.motion_model.name
    return matcher().attempts(
        view.a,
        view.b,
        name if name in PLANE else "projective",
        mask_a=view.mask_a,
        mask_b=view.mask_b,
    )


def _of_negative(pair: Pair, matcher: Callable[[], Matcher] | None) -> Iterator[Hypothesis]:
    """Hypotheses about a pair whose b is a negative, as a film is, or images of other kinds partly are."""
    yield by_network(pair, pair.start())
    yield from _searched(pair, partial(_search, pair))
    for found in itertools.islice(_attempts(pair, matcher), 1):
        yield from _matched(pair, found)


def _matched(pair: Pair, found: list[Agreed], share: float = 1.0) -> Iterator[Hypothesis]:
    """Hypotheses that matching places agree on, the best first, each in the view that it makes of the images.

    ``share``: what each match counts, the less the more places were looked for.
    """
    tested = []
    for proposal in found:
        matches = share * proposal.score
        H = _allowed(pair, proposal.H.cpu().numpy())
        part = _part(pair, H)
        if part is not None:
            tested.append((part.rank(part.inside(H)), part, part.inside(H), matches))
        if matches >= _MANY_AGREE:  # others have fewer
            break
    tested.sort(key=lambda test: -test[0])
    for _, part, H, matches in tested[:_MATCHED]:
        yield _by_matches(part, H, matches)


def _searched(pair: Pair, guesses: Callable[[], list[Guess]]) -> Iterator[Hypothesis]:
    """Other hypotheses: simpler models first, then rotated, scaled and shifted ``guesses``, made when needed."""
    model = pair.models[pair.top]
    simpler = [create_motion_model(name) for name in model.simpler]
    for first in simpler:
        yield by_network(pair, pair.start(), first)
    # Many parameters are determined by many motions, of which a first guess leaves few.
    first_fit = simpler[0] if model.freedom > 4 else None
    for guess in guesses():
        yield by_network(pair, model.nearest(guess.H), first_fit)


def _search(pair: Pair, *, negative: bool = False) -> list[Guess]:
    """What a search at the top level finds, in b or in its negative."""
    half = geometry.pixel_scale(2.0**-pair.top, like=pair.initial)
    limits = None if pair.limits is None else pair.limits.inside(half, half)
    a, b = pair.a[pair.top], pair.b[pair.top]
    return initial_guesses(a, 1 - b if negative else b, pair.models[pair.top], _TRIES, limits)


def _negative(pair: Pair, guesses: list[Guess]) -> Pair | None:
    """The pair with the tones of b inverted, if a search finds more likeness in that than ``guesses`` have."""
    if not guesses or _search(pair, negative=True)[0].likeness < guesses[0].likeness + _INVERTED:
        return None
    other = Pair(pair.view._replace(b=1 - pair.view.b), pair.network, pair.motion_model, pair.limits)
    other.initial = pair.initial
    return other
