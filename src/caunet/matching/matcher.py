"""From two images to transformations that their matching places agree on.

>>> draw = torch.Generator().manual_seed(0)
>>> scene = torch.rand(24, 32, generator=draw).repeat_interleave(8, 0).repeat_interleave(8, 1)
>>> best = Matcher()(scene[:, :200], scene[:, 40:240], "translation")[0]
>>> best.H[:2, 2].round().tolist()
[-40.0, 0.0]
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from caunet.images.pyramid import halve
from caunet.matching.consensus import Hypothesis, Matches, consensus
from caunet.matching.network import PATCH, REACH, MatchNetwork, shipped_matcher
from caunet.matching.points import Points, detect, patches

__all__ = ["Described", "Matcher", "match"]

_UNLIKELY = 0.05  # probability below which a match is not worth testing
_TOLERANCE = 2.0  # pixels (of the image in which points were looked for)
_CLEAR = 5.0  # score of a hypothesis from which on the first attempt is enough
_FINER = 8  # times the pixels that its images may have
_HIDDEN = 2.0  # sigmas around a point within which nothing may be masked


class Described(NamedTuple):
    """Places of an image and what they look like."""

    points: Points
    """In pixels of the image itself."""
    features: Tensor
    """(N, K)"""
    pixel: float
    """Pixels of the image to one of that in which points were looked for."""


class Matcher:
    """Finds transformations between images by matching places.

    Args:
        network: compares patches; the shipped one if not given.
        points: places in an image, at most.
        pixels: larger images are halved until they have no more; those with less than a quarter are doubled.
        patient: look again, for four times as many places in images of up to eight times as many pixels, if few
            matches agree: what is small in a large image is found then.
    """

    MORE = 4
    """Times the points that a second attempt looks for."""

    def __init__(
        self,
        network: MatchNetwork | None = None,
        points: int = 500,
        pixels: int = 300_000,
        patient: bool = True,
    ) -> None:
        for name, value in (("points", points), ("pixels", pixels)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.network = shipped_matcher() if network is None else network
        self.points, self.pixels, self.patient = points, pixels, patient

    def __call__(
        self,
        a: Tensor,
        b: Tensor,
        model: str = "projective",
        count: int = 5,
        *,
        mask_a: Tensor | None = None,
        mask_b: Tensor | None = None,
    ) -> list[Hypothesis]:
        """At most ``count`` transformations of a motion model from gray image ``a`` to ``b``, the best first.

        The images are (H, W) each, from 0 to 1. Masks (H, W) are True where an image shows the scene.
        """
        best: list[Hypothesis] = []
        for found in self.attempts(a, b, model, count, mask_a=mask_a, mask_b=mask_b):
            if found and (not best or found[0].score > best[0].score):
                best = found
            if best and best[0].score >= _CLEAR:
                break
        return best

    def attempts(
        self,
        a: Tensor,
        b: Tensor,
        model: str = "projective",
        count: int = 5,
        *,
        mask_a: Tensor | None = None,
        mask_b: Tensor | None = None,
    ) -> Iterator[list[Hypothesis]]:
        """What each attempt finds, for who can tell better than the number of matches whether one was enough."""
        patient = Matcher(self.network, self.MORE * self.points, _FINER * self.pixels, patient=False)
        for matcher in (self, patient) if self.patient else (self,):
            first, second = matcher.describe(a, mask_a), matcher.describe(b, mask_b)
            matches, _ = matcher.match(first, second)
            yield consensus(matches, model, tolerance=_TOLERANCE * second.pixel, count=count)

    @torch.no_grad()
    def describe(self, image: Tensor, mask: Tensor | None = None) -> Described:
        """Places of a gray image (H, W), from 0 to 1, and their features; none where a mask (H, W) is False."""
        if mask is not None and (mask.shape != image.shape or mask.dtype != torch.bool):
            expected = f"bool of shape {tuple(image.shape)}"
            raise ValueError(f"mask must be {expected}, got {mask.dtype} {tuple(mask.shape)}")
        small, pixel = self._resize(image)
        points, octaves = detect(small, self.points)
        xy = points.xy * pixel + (pixel - 1) / 2
        points = points._replace(xy=xy, sigma=points.sigma * pixel)
        kept = torch.ones_like(points.sigma, dtype=torch.bool) if mask is None else _shown(points, mask)
        points = Points(*(column[kept] for column in points))
        local = points._replace(xy=(points.xy - (pixel - 1) / 2) / pixel, sigma=points.sigma / pixel)
        return Described(points, self.network(patches(octaves, local, PATCH, REACH)), pixel)

    @torch.no_grad()
    def match(self, a: Described, b: Described) -> tuple[Matches, Tensor]:
        """The places that choose each other, and their indices (2, M)."""
        i, j, probability = match(self.network, a.features, b.features)
        p, q = a.points, b.points
        scale = (q.sigma[j] / p.sigma[i]).log()
        found = Matches(p.xy[i], q.xy[j], scale, q.angle[j] - p.angle[i], q.sigma[j], probability)
        return found, torch.stack([i, j])

    def _resize(self, image: Tensor) -> tuple[Tensor, float]:
        pixel = 1.0
        while image.numel() > self.pixels:
            image, pixel = halve(image), pixel * 2
        if 4 * image.numel() < self.pixels and pixel == 1:
            image = interpolate(image[None, None], scale_factor=2, mode="bilinear", align_corners=False)[0, 0]
            pixel = 0.5
        return image, pixel


def match(network: MatchNetwork, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows i of the features ``a`` and j of ``b`` that choose each other, and how surely they do.

    The relation units of all b compete for each a and those of all a for each b; what is returned is the
    geometric mean of the two winners' probabilities.
    """
    h = network.relation(a, b)
    if not h.numel():
        empty = torch.zeros(0, dtype=torch.int64, device=a.device)
        return empty, empty, h.new_zeros(0)
    best, back = h.argmin(1), h.argmin(0)
    i = torch.arange(len(h), device=h.device)
    i = i[back[best] == i]
    j = best[i]
    forward, backward = network.competition(h[i]), network.competition(h[:, j].mT)
    row = torch.arange(len(i), device=h.device)
    probability = (forward[row, j] * backward[row, i]).sqrt()
    likely = probability > _UNLIKELY
    return i[likely], j[likely], probability[likely]


def _shown(points: Points, mask: Tensor) -> Tensor:
    """(N,): whether a mask (H, W) is True at each point and around it."""
    angle = torch.arange(8, device=mask.device) * (torch.pi / 4)
    ring = torch.stack([angle.cos(), angle.sin()], 1)  # (8, 2)
    around = points.xy[:, None] + _HIDDEN * points.sigma[:, None, None] * ring
    places = torch.cat([around, points.xy[:, None]], 1).round().long()  # (N, 9, 2)
    height, width = mask.shape
    x, y = places[..., 0].clamp(0, width - 1), places[..., 1].clamp(0, height - 1)
    return mask[y, x].all(1)
