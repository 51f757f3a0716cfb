"""From two pictures to a homography: the network from coarse to fine, then the polish.

The network looks at the smallest pictures of both pyramids and at the next larger ones; from there on intensities
are aligned, up to the pictures themselves. If what comes of it does not look alike, other beginnings are tried, and
the answer that looks most alike is kept.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation import search
from caunet.estimation.blocks import choose_blocks, whole_image
from caunet.estimation.evidence import FAR, agreement, distortion, repetition, uncertainty
from caunet.estimation.fit import FREEDOM, robust_fit
from caunet.estimation.motions import Motions, measure, raster
from caunet.estimation.polish import Polished, generators, polish
from caunet.geometry import Matrix
from caunet.images.pyramid import pyramid, smooth
from caunet.models import RelationNetwork

__all__ = ["Registration", "register"]

_COARSEST = 32  # side of the picture in which the search begins, about
_WHOLE = 320 * 320  # pixels up to which all of them are used; of larger pictures the best tiles
_LOOKS = (3, 1)  # of the network: at the smallest pictures, at the next larger
_STILL = 0.5  # pixels: a look that moves the corners by less is the last one at the smallest pictures
_PATCHES = 64  # that it is shown at each look
_STEPS = (
    (16, 0.2),
    (8, 0.1),
    (5, 0.03),
)  # of the polish: at most, and until they move corners by fewer pixels
_GOOD = 0.5  # rank above which an answer is not doubted
_VIOLENT = 2.7  # distortion (see there) beyond which nobody would take two pictures
_BLANK = 0.002  # contrast of grey levels below which there is nothing to see: half a level of 255
_TRIES = 4  # other beginnings


class Registration(NamedTuple):
    """The answer in pixels of the pictures, and what it was drawn from."""

    H: Matrix
    motions: Motions
    """The network's last ones, in pixels of ``level``."""
    targets: Matrix
    """(N, 2): where they end in b, in pixels of ``level``."""
    level: int
    evidence: dict[str, float]
    """Numbers from which the confidence is told; none if there was nothing to see."""


class _Draft(NamedTuple):
    """An answer at level ``level``, before the larger pictures were looked at."""

    H: Matrix
    motions: Motions
    targets: Matrix
    polished: Polished
    rank: float


def register(a: Tensor, b: Tensor, network: RelationNetwork, model: str = "projective") -> Registration:
    """Relate the gray pictures ``a`` and ``b``, (H, W) each, of any sizes."""
    return _Pair(a, b, network, model).register()


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
    """Two pyramids and a network to relate them."""

    def __init__(self, a: Tensor, b: Tensor, network: RelationNetwork, model: str) -> None:
        self.network, self.model = network, model
        self.levels = levels_of(_size(a), _size(b))
        self.a, self.b = pyramid(a, self.levels), pyramid(b, self.levels)
        self.top = self.levels - 1
        self.next = max(self.top - 1, 0)  # the level at which drafts are compared

    def register(self) -> Registration:
        draft = self._draft(self._centred(), self.model)
        if draft.rank < _GOOD:
            draft = max([draft, *self._others()], key=lambda d: d.rank)
        H, polished, last = draft.H, draft.polished, self.next
        for level in self._finer():
            H = _change_level(H, last, level)
            polished, last = self._polish(H, level, 1 if level else 2), level
            H = polished.H
        if self._blank() or not distortion(H, _size(self.a[0])) <= _VIOLENT:
            H, evidence = _change_level(self._centred(), self.top, 0), {}
        else:
            evidence = self._evidence(H, draft, polished)
        return Registration(H, draft.motions, draft.targets, self.next, evidence)

    def _finer(self) -> list[int]:
        """The levels still to be polished: each while all pixels are used, then every other, and the last."""
        levels, level = [], self.next
        while level > 0:
            level -= 1 if self.a[level - 1].numel() <= _WHOLE else min(2, level)
            levels.append(level)
        return levels

    def _blank(self) -> bool:
        """Whether one of the pictures shows nothing."""
        return min(float(self.a[self.next].std()), float(self.b[self.next].std())) < _BLANK

    def _centred(self) -> Matrix:
        """Nothing moved; for pictures of different sizes centre lies upon centre. At the top level."""
        (ha, wa), (hb, wb) = _size(self.a[0]), _size(self.b[0])
        H = np.array([[1, 0, (wb - wa) / 2], [0, 1, (hb - ha) / 2], [0, 0, 1]])
        return _change_level(H, 0, self.top)

    def _others(self) -> list[_Draft]:
        """Drafts from other beginnings: simpler models first, then turned and moved ones."""
        drafts: list[_Draft] = []
        for first in ("similarity", "translation"):
            if FREEDOM[first] < FREEDOM[self.model]:
                drafts.append(self._draft(self._centred(), first))
                if drafts[-1].rank >= _GOOD:
                    return drafts
        for H in search.beginnings(self.a[self.top], self.b[self.top], self.model, _TRIES):
            drafts.append(self._draft(H, "similarity" if FREEDOM[self.model] > 4 else self.model))
            if drafts[-1].rank >= _GOOD:
                break
        return drafts

    def _draft(self, H: Matrix, first: str) -> _Draft:
        """From a beginning ``H`` at the top level: the network's looks, then the polish at the next level.

        The first look is fitted with the model ``first``, which fewer motions determine.
        """
        for look in range(_LOOKS[0]):
            before = H
            H, motions, targets = self._look(H, self.top, first if look == 0 else self.model)
            if self._shifted(before, H) < _STILL:
                break
        if self.top > self.next:
            H = _change_level(H, self.top, self.next)
            for _ in range(_LOOKS[1]):
                H, motions, targets = self._look(H, self.next, self.model)
        polished = self._polish(H, self.next, 0)
        rank = agreement(self.a[self.next], self.b[self.next], polished.H)["rank"]
        if distortion(polished.H, _size(self.a[self.next])) > _VIOLENT:
            rank -= 2.0
        return _Draft(polished.H, motions, targets, polished, rank)

    def _shifted(self, before: Matrix, after: Matrix) -> float:
        corners = geometry.corners(_size(self.a[self.top]), like=before)
        return float(
            np.abs(geometry.apply(before, corners, far=FAR) - geometry.apply(after, corners, far=FAR)).max()
        )

    def _look(self, H: Matrix, level: int, model: str) -> tuple[Matrix, Motions, Matrix]:
        """One look of the network and a fit to what it saw."""
        a, b = self.a[level], self.b[level]
        points = raster(_size(a), self.network.model_spec.patch, _PATCHES, a.device)
        motions = measure(self.network, a, b, H, points)
        seen = torch.cat([points, motions.motion, motions.weight[:, None]], 1).double().cpu().numpy()
        source, target = seen[:, :2], seen[:, :2] + seen[:, 2:4]
        delta, _ = robust_fit(model, source, target, seen[:, 4], tolerance=0.7)
        return (
            geometry.normalize(H @ delta, checked=False),
            motions,
            geometry.apply(H, target, far=FAR),
        )

    def _polish(self, H: Matrix, level: int, stage: int) -> Polished:
        a, b = self.a[level], self.b[level]
        blocks = whole_image(smooth(a)) if a.numel() <= _WHOLE else choose_blocks(a, _size(b), H)
        steps, stop = _STEPS[stage]
        return polish(blocks, smooth(b), H, self.model, _size(a), steps, stop)

    def _evidence(self, H: Matrix, draft: _Draft, polished: Polished) -> dict[str, float]:
        size = _size(self.a[0])
        diagonal = math.hypot(*size)
        middle = max(self.next - 1, 0)
        near = agreement(self.a[middle], self.b[middle], _change_level(H, 0, middle))
        coarse = agreement(self.a[self.next], self.b[self.next], _change_level(H, 0, self.next))
        error = np.hypot(
            *(
                geometry.apply(
                    _change_level(H, 0, self.next), draft.motions.points.double().cpu().numpy(), far=FAR
                )
                - draft.targets
            ).T
        )
        weight = draft.motions.weight.double().cpu().numpy()
        return {
            "score": near["score"],
            "alike": near["alike"],
            "coarse": coarse["score"],
            "windows": near["windows"],
            "overlap": near["overlap"],
            "correlation": polished.correlation,
            "trusted": polished.trusted,
            "moved": polished.moved / diagonal if math.isfinite(polished.moved) else 1.0,
            "uncertainty": uncertainty(polished.information, generators(self.model), size) / diagonal,
            "distortion": distortion(H, size),
            "repetition": repetition(self.a[middle]),
            "inliers": float(weight @ (error < 1.0)) / max(float(weight.sum()), 1e-6),
            "contrast": float(self.a[self.next].std()),
        }


def _change_level(H: Matrix, source: int, target: int) -> Matrix:
    """H between both images at pyramid level ``source``, rewritten for level ``target``."""
    return geometry.rescale(H, 2.0 ** (source - target))


def _size(picture: Tensor) -> tuple[int, int]:
    return picture.shape[0], picture.shape[1]
