"""Pairs without an answer that can be found: the confidence has to be low for them.

- unrelated: two different photographs.
- blank: at least one picture shows nothing but its gray level, or noise around it.
- repetitive: a regular pattern, moved by more than half its period: many answers look equally right.
- out of range: turned, enlarged or shifted beyond what registration from the identity can follow.
"""

import math

import torch
from torch import Tensor

from caunet import geometry
from caunet.benchmark.frames import draw_homography, place, take, uniform
from caunet.benchmark.pairs import NOISE, Pair, find_frame, generator_for, quantized
from caunet.benchmark.photographs import Group, photographs

__all__ = ["blank", "out_of_range", "repetitive", "unrelated_pair"]

_EYE = torch.eye(3, dtype=torch.float64)


def unrelated_pair(group: Group, index: int, *, seed: int = 0, side: int = 256) -> Pair:
    """Pictures of two different photographs of a group; every second pair is noisy. Nothing relates them.

    >>> unrelated_pair("test", 0, side=64).H is None
    True
    """
    generator = generator_for(seed, index, stream=1)
    # Both motorcycles show one scene and count as one photograph.
    names = [name for name in photographs(group) if name != "motorcycle_right"]
    first, second = torch.randperm(len(names), generator=generator)[:2].tolist()
    noise = NOISE * (index % 2)
    a, b = (
        _view(photographs(group)[names[which]], side, generator)
        + noise * torch.randn(side, side, generator=generator)
        for which in (first, second)
    )
    return Pair(quantized(a), quantized(b), None, torch.ones(side, side, dtype=torch.bool))


def blank(group: Group, index: int, *, seed: int = 0, side: int = 256) -> Pair:
    """In turn: two even pictures, two of noise, an even one and a photograph, a photograph and one of noise.

    >>> blank("test", 0, side=64).a.unique().numel()
    1
    """
    generator = generator_for(seed, index, stream=2)

    def even(noise: float) -> Tensor:
        level = torch.full((side, side), uniform(generator, 0.1, 0.9))
        return level + noise * torch.randn(side, side, generator=generator)

    photos = list(photographs(group).values())
    view = _view(photos[index % len(photos)], side, generator)
    kinds = ((even(0.0), even(0.0)), (even(NOISE), even(NOISE)), (even(0.0), view), (view, even(NOISE)))
    a, b = kinds[index % 4]
    return Pair(quantized(a), quantized(b), None, torch.ones(side, side, dtype=torch.bool))


def repetitive(index: int, *, motion: float = 0.10, seed: int = 0, side: int = 256) -> Pair:
    """Stripes, squares or dots in turn, of 6 to 16 pixels a period, taken straight from their formulas.

    The corners move by up to ± ``motion`` on top of a shift of half a period to two: there is a true H, which cannot be
    distinguished from its neighbors.
    """
    generator = generator_for(seed, index, stream=3)
    period, angle = uniform(generator, 6.0, 16.0), uniform(generator, 0.0, 180.0)
    shift = period * uniform(generator, 0.5, 2.0)
    H = geometry.compose(
        geometry.translate(*_polar(shift, uniform(generator, 0, 360))),
        draw_homography(motion, side, generator),
    )
    a = _pattern(index % 3, _EYE, period, angle, side)
    b = _pattern(index % 3, geometry.invert(H), period, angle, side)
    return Pair(quantized(a), quantized(b), H, torch.ones(side, side, dtype=torch.bool))


def out_of_range(group: Group, index: int, *, seed: int = 0, side: int = 256) -> Pair:
    """In turn: turned by 60 to 180 degrees, reduced or enlarged 2 to 3 times, shifted by 60 to 90 % of the side."""
    generator = generator_for(seed, index, stream=4)
    photos = list(photographs(group).values())
    photo = photos[index % len(photos)]
    sign = 1 if index % 2 else -1
    if index % 3 == 0:
        turn = torch.tensor(sign * uniform(generator, 60, 180), dtype=torch.float64)
        H = geometry.center(geometry.rotate(turn), (side, side))
    elif index % 3 == 1:
        factor = torch.tensor(uniform(generator, 2, 3) ** sign, dtype=torch.float64)
        H = geometry.center(geometry.scale(factor), (side, side))
    else:
        H = geometry.translate(*_polar(side * uniform(generator, 0.6, 0.9), uniform(generator, 0, 360)))
    corners = geometry.corners((side, side))
    points = torch.cat([corners, geometry.apply(geometry.invert(H), corners)])
    frame = place((len(photo), photo.shape[1]), points, generator, finest=0.0)
    a = take(photo, frame, (side, side))
    b = take(photo, geometry.compose(frame, geometry.invert(H)), (side, side))
    return Pair(quantized(a), quantized(b), H, torch.ones(side, side, dtype=torch.bool))


def _view(photo: Tensor, side: int, generator: torch.Generator) -> Tensor:
    return take(photo, find_frame(photo, _EYE, side, generator), (side, side))


def _polar(length: float, degrees: float) -> tuple[Tensor, Tensor]:
    angle = math.radians(degrees)
    x, y = torch.tensor([length * math.cos(angle), length * math.sin(angle)], dtype=torch.float64).unbind()
    return x, y


def _pattern(kind: int, frame: Tensor, period: float, angle: float, side: int) -> Tensor:
    """Gray levels (side, side) of a pattern at the points that ``frame`` takes the pixels to."""
    y, x = torch.meshgrid(*[torch.arange(side, dtype=torch.float64)] * 2, indexing="ij")
    turn = geometry.rotate(torch.tensor(angle, dtype=torch.float64))
    points = geometry.apply(geometry.compose(turn, frame), torch.stack([x, y], -1).reshape(-1, 2))
    u, v = (2 * math.pi / period * points.reshape(side, side, 2)).unbind(-1)
    wave = (u.sin(), u.sin() * v.sin(), (u.cos() + v.cos()) / 2)[kind]
    return (0.5 + 0.35 * wave).to(torch.float32)
