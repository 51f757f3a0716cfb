"""Pairs of images whose homography is known: the same five conditions and three motions for every method.

- clean: two pictures of one photograph.
- photometric: gain and bias on the second, noise on both.
- blur: the second is out of focus.
- occlusion: something else covers 20 % of the second.
- low-texture: the calmest of several places, smooth, of a third of the contrast, with a little noise on both.

Everything is a function of (seed, index). Pictures are rounded to bytes, as files have them.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from caunet import geometry
from caunet.benchmark.frames import blurred, draw_homography, place, take, uniform
from caunet.benchmark.photographs import Group, photographs
from caunet.data import keys

__all__ = [
    "CONDITIONS",
    "MOTIONS",
    "Condition",
    "Pair",
    "draw_pair",
    "find_frame",
    "generator_for",
    "make_pair",
    "quantized",
    "views",
]

Condition = Literal["clean", "photometric", "blur", "occlusion", "low-texture"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
MOTIONS = (0.03, 0.10, 0.20)

GAIN, BIAS, NOISE = (0.7, 1.4), (-0.1, 0.1), 0.02  # of the range from black to white
BLUR = (1.0, 2.0)  # standard deviation, pixels
COVERED = 0.2  # of the second picture
SMOOTH, FADED, GRAIN = 3.0, 0.3, 1 / 255  # low texture: pixels, contrast, noise
BLANK = 0.02  # standard deviation of gray levels below which a place shows nothing and another is taken
PLACES = 12  # places looked at


class Pair(NamedTuple):
    """Two pictures (side, side) float32 in 0..1, in steps of 1/255, and how they are related.

    ``H`` (3, 3) float64 takes points of a to points of b, in pixels; None when nothing relates them. ``mask`` (side,
    side) is true where b shows what a's scene shows, false where something covers it.
    """

    a: Tensor
    b: Tensor
    H: Tensor | None
    mask: Tensor


def generator_for(seed: int, index: int, stream: int = 0) -> torch.Generator:
    """A generator of its own for pair ``index``: the same numbers whichever pairs were made before.

    >>> torch.rand(1, generator=generator_for(0, 7)) == torch.rand(1, generator=generator_for(0, 7))
    tensor([True])
    """
    high, low = keys.words(seed, stream, torch.tensor([index]), 2, keys.Stream.PLACE)[0].tolist()
    return torch.Generator().manual_seed((high >> 1) << 32 | low)


def draw_pair(
    group: Group, condition: Condition, motion: float, index: int, *, seed: int = 0, side: int = 256
) -> Pair:
    """Pair ``index`` of a group: its photographs take turns. The motion of the corners is the same in all conditions.

    >>> pair = draw_pair("test", "clean", 0.1, index=0, side=64)
    >>> pair.a.shape, pair.b.shape, pair.H.shape
    (torch.Size([64, 64]), torch.Size([64, 64]), torch.Size([3, 3]))
    """
    photos = list(photographs(group).values())
    return make_pair(photos[index % len(photos)], condition, motion, generator_for(seed, index), side)


def make_pair(
    photo: Tensor, condition: Condition, motion: float, generator: torch.Generator | int, side: int = 256
) -> Pair:
    """Two pictures of ``photo`` (H, W), floats in 0..1, whose corners move by up to ± ``motion`` of the side.

    Args:
        photo: gray, larger than the pictures where it can be: a small one is enlarged.
        condition: one of :data:`CONDITIONS`.
        motion: each corner of a moves uniformly by up to ± motion * side pixels in x and in y.
        generator: or a seed.
        side: of both pictures, in pixels.
    """
    if condition not in CONDITIONS:
        raise ValueError(f"condition must be one of {', '.join(CONDITIONS)}, got {condition!r}")
    if photo.ndim != 2 or not photo.is_floating_point():
        raise ValueError(f"photo must be a floating-point (H, W), got {photo.dtype} {tuple(photo.shape)}")
    if isinstance(generator, int):
        generator = generator_for(generator, 0)
    H = draw_homography(motion, side, generator)
    a, b, mask = views(photo, H, condition, generator, side)
    return Pair(quantized(a), quantized(b), H, mask)


def views(
    photo: Tensor, H: Tensor, condition: Condition, generator: torch.Generator, side: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures a and b (side, side) of ``photo`` that are related by H (3, 3), not yet rounded, and the mask."""
    frame = find_frame(photo, H, side, generator, calm=condition == "low-texture")
    if condition == "low-texture":
        photo = blurred(photo, SMOOTH * _scale(frame)) * FADED + (1 - FADED) / 2
    a = take(photo, frame, (side, side))
    b = take(photo, geometry.compose(frame, geometry.invert(H)), (side, side))
    mask = torch.ones(side, side, dtype=torch.bool)
    return _CHANGES[condition](a, b, mask, photo, generator)


def quantized(picture: Tensor) -> Tensor:
    """Gray levels clipped to 0..1 and rounded to steps of 1/255, as a file has them."""
    return (picture * 255).round().clamp(0, 255) / 255


def find_frame(photo: Tensor, H: Tensor, side: int, generator: torch.Generator, calm: bool = False) -> Tensor:
    """A place with something to see: the first, or with ``calm`` the calmest; the most contrasted of bad ones."""
    size = (int(photo.shape[0]), int(photo.shape[1]))
    corners = (
        geometry.corners((side + 1, side + 1)) - 0.5
    )  # of the outlines, not of the corner pixels' centers
    points = torch.cat([corners, geometry.apply(geometry.invert(H), corners)])
    best, least = None, math.inf
    for _ in range(PLACES):
        frame = place(size, points, generator)
        coarse = geometry.compose(frame, geometry.scale(torch.tensor(side / 64).double()))
        view = take(photo, coarse, (64, 64), fine=1)
        contrast = float(view.std())
        if contrast < BLANK:
            cost = 1e6 - contrast
        else:
            cost = float(view.diff(dim=0).abs().mean() + view.diff(dim=1).abs().mean())
        if cost < least:
            best, least = frame, cost
        if not calm and contrast >= BLANK:
            break
    assert best is not None
    return best


def _scale(frame: Tensor) -> float:
    """Pixels of the photograph to a pixel of the picture."""
    return math.sqrt(float(frame[0, 0] * frame[1, 1] - frame[0, 1] * frame[1, 0]))


Pictures = tuple[Tensor, Tensor, Tensor]


def _noisy(sigma: float, picture: Tensor, generator: torch.Generator) -> Tensor:
    return picture + sigma * torch.randn(picture.shape, generator=generator)


def _clean(a: Tensor, b: Tensor, mask: Tensor, photo: Tensor, generator: torch.Generator) -> Pictures:
    return a, b, mask


def _photometric(a: Tensor, b: Tensor, mask: Tensor, photo: Tensor, generator: torch.Generator) -> Pictures:
    b = b * uniform(generator, *GAIN) + uniform(generator, *BIAS)
    return _noisy(NOISE, a, generator), _noisy(NOISE, b, generator), mask


def _blur(a: Tensor, b: Tensor, mask: Tensor, photo: Tensor, generator: torch.Generator) -> Pictures:
    return a, blurred(b, uniform(generator, *BLUR)), mask


def _low_texture(a: Tensor, b: Tensor, mask: Tensor, photo: Tensor, generator: torch.Generator) -> Pictures:
    return _noisy(GRAIN, a, generator), _noisy(GRAIN, b, generator), mask


def _occlusion(a: Tensor, b: Tensor, mask: Tensor, photo: Tensor, generator: torch.Generator) -> Pictures:
    """A rectangle of b shows another place of the mirrored photograph, which no homography takes to the scene."""
    side = len(b)
    aspect = math.exp(uniform(generator, -math.log(2), math.log(2)))
    height, width = round(side * math.sqrt(COVERED / aspect)), round(side * math.sqrt(COVERED * aspect))
    top = int(torch.randint(side - height + 1, (), generator=generator))
    left = int(torch.randint(side - width + 1, (), generator=generator))
    mirrored = photo.flip(1)
    frame = find_frame(mirrored, torch.eye(3, dtype=torch.float64), side, generator)
    rows, columns = slice(top, top + height), slice(left, left + width)
    b, mask = b.clone(), mask.clone()
    b[rows, columns] = take(mirrored, frame, (side, side))[rows, columns]
    mask[rows, columns] = False
    return a, b, mask


_CHANGES: dict[Condition, Callable[[Tensor, Tensor, Tensor, Tensor, torch.Generator], Pictures]] = {
    "clean": _clean,
    "photometric": _photometric,
    "blur": _blur,
    "occlusion": _occlusion,
    "low-texture": _low_texture,
}
