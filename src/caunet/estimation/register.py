"""From two images to a transform: the network from coarse to fine, then the polish.

The network compares the smallest images of both pyramids and the next larger ones; from there on intensities are
aligned, up to the images themselves. If the images then do not correlate, other initial guesses are tried, and the
hypothesis under which they correlate best is kept.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.blocks import choose_blocks, whole_image
from caunet.estimation.evidence import FAR, agreement, distortion, repetition, uncertainty
from caunet.estimation.fit import robust_fit
from caunet.estimation.motion_models import MotionModel, Projective, create_motion_model
from caunet.estimation.motions import Motions, measure, raster
from caunet.estimation.polish import Polished, polish, unit_coordinates
from caunet.estimation.search import initial_guesses
from caunet.geometry import Matrix
from caunet.images.pyramid import pyramid, smooth
from caunet.models import RelationNetwork

__all__ = ["Registration", "register"]

_COARSEST = 32  # side of the smallest images, about
_WHOLE = 320 * 320  # pixels up to which all of them are used; of larger images the best blocks
_NETWORK_PASSES = (3, 1)  # at the smallest images, at the next larger
_STILL = 0.5  # pixels: a pass that moves the corners by less is the last one at the smallest images
_PATCHES = 64  # compared in each pass
_STEPS = (
    (16, 0.2),
    (8, 0.1),
    (5, 0.03),
)  # of the polish: at most, and until they move corners by fewer pixels
_GOOD = 0.5  # rank above which a hypothesis is not doubted
_IMPLAUSIBLE = 2.7  # distortion (see there) beyond which no two images are related
_BLANK = 0.002  # contrast of gray levels below which there is nothing to see: half a level of 255
_TRIES = 4  # other initial guesses


class Registration(NamedTuple):
    """The answer in pixels of the images, and what it was drawn from."""

    H: Matrix
    motions: Motions
    """The network's last ones, in pixels of ``level``."""
    targets: Matrix
    """(N, 2): where they end in b, in pixels of ``level``."""
    level: int
    evidence: dict[str, float]
    """Numbers that give the confidence; none if there was nothing to see."""


class _Hypothesis(NamedTuple):
    """An answer at the level where hypotheses are compared, before the larger images are used."""

    H: Matrix
    motions: Motions
    targets: Matrix
    polished: Polished
    rank: float


def register(
    a: Tensor, b: Tensor, network: RelationNetwork, motion_model: MotionModel | None = None
) -> Registration:
    """Relate the gray images ``a`` and ``b``, (H, W) each, of any sizes; by default projectively."""
    return _Pair(a, b, network, motion_model or Projective()).register()


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

    def __init__(self, a: Tensor, b: Tensor, network: RelationNetwork, motion_model: MotionModel) -> None:
        self.network = network
        self.levels = levels_of(_size(a), _size(b))
        self.a, self.b = pyramid(a, self.levels), pyramid(b, self.levels)
        self.top = self.levels - 1
        self.next = max(self.top - 1, 0)  # the level at which hypotheses are compared
        self.initial = motion_model.initial(_size(a), _size(b))
        bound = motion_model.for_images(_size(a), _size(b))
        scales = [geometry.pixel_scale(2.0**-level, like=self.initial) for level in range(self.levels)]
        self.models = [bound.in_coordinates(scale) for scale in scales]  # of each level

    def register(self) -> Registration:
        best = self._hypothesis(self._initial())
        if best.rank < _GOOD:
            best = max([best, *self._alternatives()], key=lambda hypothesis: hypothesis.rank)
        H, polished, last = best.H, best.polished, self.next
        for level in self._finer():
            H = _change_level(H, last, level)
            polished, last = self._polish(H, level, 1 if level else 2), level
            H = polished.H
        if self._blank() or not distortion(H, _size(self.a[0])) <= _IMPLAUSIBLE:
            H, evidence = self.initial, {}
        else:
            evidence = self._evidence(H, best, polished)
        return Registration(H, best.motions, best.targets, self.next, evidence)

    def _finer(self) -> list[int]:
        """The levels still to be polished: each while all pixels are used, then every other, and the last."""
        levels, level = [], self.next
        while level > 0:
            level -= 1 if self.a[level - 1].numel() <= _WHOLE else min(2, level)
            levels.append(level)
        return levels

    def _blank(self) -> bool:
        """Whether one of the images shows nothing."""
        return min(float(self.a[self.next].std()), float(self.b[self.next].std())) < _BLANK

    def _initial(self) -> Matrix:
        """No motion, at the top level."""
        return _change_level(self.initial, 0, self.top)

    def _alternatives(self) -> list[_Hypothesis]:
        """Other hypotheses: simpler models first, then rotated, scaled and shifted initial guesses."""
        model, found = self.models[self.top], list[_Hypothesis]()
        simpler = [create_motion_model(name) for name in model.simpler]
        for first in simpler:
            found.append(self._hypothesis(self._initial(), first))
            if found[-1].rank >= _GOOD:
                return found
        # Many parameters are determined by many motions, of which a first guess leaves few.
        first_fit = simpler[0] if model.freedom > 4 else None
        for H in initial_guesses(self.a[self.top], self.b[self.top], model, _TRIES):
            found.append(self._hypothesis(model.nearest(H), first_fit))
            if found[-1].rank >= _GOOD:
                break
        return found

    def _hypothesis(self, H: Matrix, first: MotionModel | None = None) -> _Hypothesis:
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
        rank = agreement(self.a[self.next], self.b[self.next], polished.H)["rank"]
        if distortion(polished.H, _size(self.a[self.next])) > _IMPLAUSIBLE:
            rank -= 2.0
        return _Hypothesis(polished.H, motions, targets, polished, rank)

    def _shifted(self, before: Matrix, after: Matrix) -> float:
        corners = geometry.corners(_size(self.a[self.top]), like=before)
        moved = geometry.apply(before, corners, far=FAR) - geometry.apply(after, corners, far=FAR)
        return float(np.abs(moved).max())

    def _refine_with_network(
        self, H: Matrix, level: int, other: MotionModel | None = None
    ) -> tuple[Matrix, Motions, Matrix]:
        """One pass of the network and a fit to its motions, of the ``other`` model if one is given."""
        a, b, model = self.a[level], self.b[level], self.models[level]
        points = raster(_size(a), self.network.model_spec.patch, _PATCHES, a.device)
        motions = measure(self.network, a, b, H, points)
        seen = torch.cat([points, motions.motion, motions.weight[:, None]], 1).double().cpu().numpy()
        source, target = seen[:, :2], seen[:, :2] + seen[:, 2:4]
        delta, _ = robust_fit(other or model, source, target, seen[:, 4], tolerance=0.7)
        new = geometry.normalize(H @ delta, checked=False)
        return new if other is None else model.nearest(new), motions, geometry.apply(H, target, far=FAR)

    def _polish(self, H: Matrix, level: int, stage: int) -> Polished:
        a, b = self.a[level], self.b[level]
        blocks = whole_image(smooth(a)) if a.numel() <= _WHOLE else choose_blocks(a, _size(b), H)
        steps, stop = _STEPS[stage]
        return polish(blocks, smooth(b), H, self.models[level], _size(a), steps, stop)

    def _evidence(self, H: Matrix, best: _Hypothesis, polished: Polished) -> dict[str, float]:
        """All that :func:`caunet.estimation.confidence.features` asks for."""
        size = _size(self.a[0])
        diagonal = math.hypot(*size)
        middle = max(self.next - 1, 0)
        coarse_H = _change_level(H, 0, self.next)
        near = agreement(self.a[middle], self.b[middle], _change_level(H, 0, middle))
        coarse = agreement(self.a[self.next], self.b[self.next], coarse_H)
        points, weight = (t.double().cpu().numpy() for t in (best.motions.points, best.motions.weight))
        error = np.hypot(*(geometry.apply(coarse_H, points, far=FAR) - best.targets).T)
        generators = self.models[0].in_coordinates(unit_coordinates(size)).generators()
        return {
            "score": near["score"],
            "alike": near["alike"],
            "coarse": coarse["score"],
            "windows": near["windows"],
            "overlap": near["overlap"],
            "correlation": polished.correlation,
            "moved": polished.moved / diagonal if math.isfinite(polished.moved) else 1.0,
            "uncertainty": uncertainty(polished.information, generators, size) / diagonal,
            "distortion": distortion(H, size),
            "repetition": repetition(self.a[middle]),
            "inliers": float(weight @ (error < 1.0)) / max(float(weight.sum()), 1e-6),
        }


def _change_level(H: Matrix, source: int, target: int) -> Matrix:
    """H between both images at pyramid level ``source``, rewritten for level ``target``."""
    return geometry.rescale(H, 2.0 ** (source - target))


def _size(image: Tensor) -> tuple[int, int]:
    return image.shape[0], image.shape[1]
