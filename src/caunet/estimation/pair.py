"""Two images as pyramids, and what is asked of them again and again: passes of the network, the polish, agreement."""

import math
from typing import Any

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
    local_motions,
    see,
)
from caunet.estimation.fit import robust_fit
from caunet.estimation.limits import Limits
from caunet.estimation.motion_models import MotionModel
from caunet.estimation.motions import Motions, measure, raster
from caunet.estimation.polish import Polished, polish
from caunet.estimation.views import View
from caunet.geometry import Matrix
from caunet.images.masks import erode, mask_pyramid
from caunet.images.pyramid import finer, pyramid, smooth
from caunet.models import RelationNetwork

__all__ = [
    "IMPLAUSIBLE",
    "OUTSIDE",
    "STEPS",
    "WHOLE",
    "Pair",
    "change_level",
    "contrast",
    "ends_of",
    "levels_of",
    "size_of",
]

_COARSEST = 32  # side of the smallest images, about
WHOLE = 320 * 320  # pixels up to which all of them are used; of larger images the best blocks
_PATCHES = 64  # compared in each pass of the network
STEPS = (
    (16, 0.2),
    (8, 0.1),
    (5, 0.03),
)  # of the polish at its stages: at most, and until they move corners by fewer pixels
_REACH = 3  # pixels that smoothing (2) and gradients (1) reach beyond a pixel
_BLANK = 0.002  # contrast of gray levels below which there is nothing to see: half a level of 255
IMPLAUSIBLE = 2.7  # distortion (see there) beyond which no two images are related
OUTSIDE = 4.0  # what an answer outside of the limits loses in rank
_SIGHTS = 12  # images of b as H shows it, and comparisons of windows, that are kept


class Pair:
    """Two pyramids, and a network and a motion model to relate them.

    Hypotheses begin at the level ``top``, the smallest images; are compared at ``next``, one level larger; and what
    they tell of each other is measured at ``middle``, one more. Level 0 is the full resolution.
    """

    def __init__(
        self,
        view: View,
        network: RelationNetwork,
        motion_model: MotionModel,
        limits: Limits | None = None,
    ) -> None:
        self.view, self.network, self.limits, self.motion_model = view, network, limits, motion_model
        size_a, size_b = size_of(view.a), size_of(view.b)
        self.levels = levels_of(size_a, size_b)
        self.a, self.b = _pyramids(view.a, view.b, self.levels)
        self.mask_a, self.mask_b = (mask_pyramid(mask, self.levels) for mask in (view.mask_a, view.mask_b))
        self.prepared: dict[tuple[int, bool], tuple[Tensor, Tensor] | SmoothedWhereRead] = {}
        self._sights: dict[tuple[int, bytes], Seen] = {}
        self._correlated: dict[tuple[int, bytes], Windows] = {}
        self.top = self.levels - 1
        self.next = max(self.top - 1, 0)
        self.middle = max(self.next - 1, 0)
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

    def blank(self) -> bool:
        """Whether one of the images shows nothing."""
        return (
            min(
                contrast(images[self.next], masks[self.next])
                for images, masks in ((self.a, self.mask_a), (self.b, self.mask_b))
            )
            < _BLANK
        )

    def inside(self, H: Matrix) -> Matrix:
        """H between the images as one between the parts that this pair shows, at the next level."""
        return change_level(self.view.inside(H), 0, self.next)

    def start(self) -> Matrix:
        """No motion, at the top level."""
        return change_level(self.initial, 0, self.top)

    def rank(self, H: Matrix) -> float:
        """What hypotheses are compared by, of an H at the next level."""
        return self.agreement(H, self.next)["rank"] - self.objection(H)

    def objection(self, H: Matrix) -> float:
        """What an H at the next level loses in rank by being implausible, or outside of the limits."""
        lost = 2.0 if distortion(H, size_of(self.a[self.next])) > IMPLAUSIBLE else 0.0
        if self.limits is not None:
            answer = self.view.outside(change_level(H, self.next, 0))
            lost += 0.0 if self.limits.contains(answer) else OUTSIDE
        return lost

    def refine_with_network(
        self, H: Matrix, level: int, other: MotionModel | None = None
    ) -> tuple[Matrix, Motions, Matrix]:
        """One pass of the network and a fit to its motions, of the ``other`` model if one is given."""
        motions, model = self.measure(H, level), self.models[level]
        source, weight = (t.double().cpu().numpy() for t in (motions.points, motions.weight))
        target = ends_of(motions)
        delta, _ = robust_fit(other or model, source, target, weight, tolerance=0.7)
        new = geometry.normalize(H @ delta, checked=False)
        return new if other is None else model.nearest(new), motions, geometry.apply(H, target, far=FAR)

    def measure(self, H: Matrix, level: int, patches: int = _PATCHES) -> Motions:
        """How far patches of ``level`` are from where H puts them, by the network."""
        a, b = self.a[level], self.b[level]
        points = raster(size_of(a), self.network.model_spec.patch, patches, a.device)
        return measure(self.network, a, b, H, points, self.mask_a[level], self.mask_b[level])

    def polish(
        self,
        H: Matrix,
        level: int,
        stage: int,
        before: Polished | None = None,
        uneven: bool = True,
        steps: int | None = None,
        smoothed: bool = True,
    ) -> Polished:
        """H made better at ``level``, by intensities; ``stage`` says how thoroughly, ``before`` what is known."""
        a, mask_a, mask_b = self.a[level], _inner(self.mask_a[level]), _inner(self.mask_b[level])
        if (level, smoothed) not in self.prepared:
            self.prepared[level, smoothed] = _prepared(a, self.b[level], smoothed)
        prepared = self.prepared[level, smoothed]
        b: Tensor | SmoothedWhereRead
        if isinstance(prepared, SmoothedWhereRead):
            blocks, b = choose_blocks(a, size_of(self.b[level]), H, mask_a, mask_b), prepared
        else:
            blocks, b = whole_image(prepared[0], mask_a), prepared[1]
        most, stop = STEPS[stage]
        return polish(
            blocks,
            b,
            H,
            self.models[level],
            size_of(a),
            steps or most,
            stop,
            mask_b,
            uneven=uneven,
            before=before,
            smoothed=smoothed,
        )

    def agreement(self, H: Matrix, level: int) -> dict[str, float]:
        """How well the images of ``level`` agree under H."""
        masks = self.mask_a[level], self.mask_b[level]
        return agreement(self.a[level], self.b[level], H, *masks, windows=self.windows(H, level))

    def windows(self, H: Matrix, level: int) -> Windows:
        """How windows of ``level`` correlate under H; the last answers are kept, for several ask for the same."""
        key = (level, H.tobytes())
        if key not in self._correlated:
            _make_room(self._correlated)
            self._correlated[key] = correlate(self.a[level], self.b[level], H, seen=self.see(H, level))
        return self._correlated[key]

    def left(self, H: Matrix, level: int) -> LocalMotions:
        """What still moves at ``level`` under H."""
        return local_motions(self.a[level], self.b[level], H, seen=self.see(H, level))

    def see(self, H: Matrix, level: int) -> Seen:
        """What of b is seen under H at ``level``; the last answers are kept, for several ask for the same."""
        key = (level, H.tobytes())
        if key not in self._sights:
            _make_room(self._sights)
            masks = self.mask_a[level], self.mask_b[level]
            self._sights[key] = see(self.a[level], self.b[level], H, *masks)
        return self._sights[key]


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


def _make_room(kept: dict[tuple[int, bytes], Any]) -> None:
    """Forget the oldest where as many are kept as may be."""
    if len(kept) >= _SIGHTS:
        del kept[next(iter(kept))]


def _pyramids(a: Tensor, b: Tensor, levels: int) -> tuple[list[Tensor], list[Tensor]]:
    """Of both images; small ones of one size are halved together, which takes half the calls."""
    if a.shape != b.shape or a.numel() > WHOLE:
        return pyramid(a, levels), pyramid(b, levels)
    both = pyramid(torch.stack([a, b]), levels)
    return [images[0] for images in both], [images[1] for images in both]


def _prepared(a: Tensor, b: Tensor, smoothed: bool) -> tuple[Tensor, Tensor] | SmoothedWhereRead:
    """Both images as a polish compares them; of large ones b alone, of which only parts are read."""
    if a.numel() > WHOLE:
        return SmoothedWhereRead(b)
    return _smooth_both(a, b) if smoothed else (a, finer(b))


def _smooth_both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.shape != b.shape:
        return smooth(a), smooth(b)
    first, second = smooth(torch.stack([a, b]))
    return first, second


def change_level(H: Matrix, source: int, target: int) -> Matrix:
    """H between both images at pyramid level ``source``, rewritten for level ``target``."""
    return geometry.rescale(H, 2.0 ** (source - target))


def ends_of(motions: Motions) -> Matrix:
    """(N, 2): where the motions end, before H is applied."""
    ends: Matrix = (motions.points + motions.motion).double().cpu().numpy()
    return ends


def _inner(mask: Tensor | None) -> Tensor | None:
    """Which pixels, smoothed and differentiated, show nothing but the scene."""
    return None if mask is None else erode(mask, _REACH)


def contrast(image: Tensor, mask: Tensor | None) -> float:
    """Standard deviation of the gray levels of the scene."""
    values = image if mask is None else image[mask]
    return float(values.std()) if values.numel() > 1 else 0.0


def size_of(image: Tensor) -> tuple[int, int]:
    """Height and width."""
    return image.shape[0], image.shape[1]
