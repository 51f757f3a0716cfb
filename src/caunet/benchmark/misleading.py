"""Pairs that have a true answer and invite another one: the confidence has to know the difference.

- facade: rows of equal windows, seen again some periods away; with ``details`` some of the windows differ.
- watermarked: the same overlay stands on both images while the scene behind it moves.
- moved_by: a photograph moved by a member of one motion model, with noise; asked for with a smaller model it has no
  answer.
- layered: parts of the scene at another depth move by more than the rest (parallax).
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from caunet import geometry
from caunet.benchmark.frames import blurred, draw_homography, take, uniform
from caunet.benchmark.pairs import NOISE, Condition, Pair, draw_pair, generator_for, quantized, views
from caunet.benchmark.photographs import Group, photographs

__all__ = ["PLANE_MODELS", "PlaneModel", "facade", "layered", "moved_by", "watermarked"]

PlaneModel = Literal["translation", "euclidean", "similarity", "affine", "projective"]
PLANE_MODELS: tuple[PlaneModel, ...] = ("translation", "euclidean", "similarity", "affine", "projective")


def facade(index: int, *, details: bool = False, seed: int = 0, side: int = 256) -> Pair:
    """Equal windows of 14 to 44 pixels a period, moved by half a period to two and a homography of 3 %.

    With ``details`` a quarter of the windows are others: then there is one answer.
    """
    generator = generator_for(seed, index, stream=5)
    period = uniform(generator, 14.0, 44.0)
    count = math.ceil(2.2 * side / period)
    fine = 24  # pixels of the wall to a window
    cell = _texture(generator, fine)
    wall = cell.repeat(count, count)
    if details:
        for _ in range(count * count // 4):
            row, column = torch.randint(count, (2,), generator=generator).tolist()
            wall[row * fine : (row + 1) * fine, column * fine : (column + 1) * fine] = _texture(
                generator, fine
            )
    angle, length = uniform(generator, 0, 2 * math.pi), period * uniform(generator, 0.5, 2.0)
    shift = torch.tensor([length * math.cos(angle), length * math.sin(angle)], dtype=torch.float64)
    H = geometry.compose(geometry.translate(*shift), draw_homography(0.03, side, generator))
    turn = geometry.rotate(torch.tensor(uniform(generator, -8, 8), dtype=torch.float64))
    middle, scale = torch.tensor((side - 1) / 2, dtype=torch.float64), torch.tensor(fine / period).double()
    center = torch.tensor((len(wall) - 1) / 2, dtype=torch.float64)
    frame = geometry.compose(
        geometry.translate(center, center),
        geometry.scale(scale),
        turn,
        geometry.translate(-middle, -middle),
    )
    sights = (
        take(wall, view, (side, side)) + 0.5 * NOISE * torch.randn(side, side, generator=generator)
        for view in (frame, geometry.compose(frame, geometry.invert(H)))
    )
    a, b = (quantized(view) for view in sights)
    return Pair(a, b, H, torch.ones(side, side, dtype=torch.bool))


def _texture(generator: torch.Generator, side: int) -> Tensor:
    """A pane of one window: a bright frame around a random smooth content."""
    rough = torch.rand(1, 1, 4, 4, generator=generator)
    inner = interpolate(rough, (side - 8, side - 8), mode="bicubic", align_corners=False)[0, 0]
    cell = torch.full((side, side), 0.75)
    cell[4:-4, 4:-4] = 0.15 + 0.5 * inner.clamp(0, 1)
    return cell


def watermarked(
    group: Group, index: int, *, motion: float = 0.1, seed: int = 0, strength: float = 0.5
) -> Pair:
    """A pair of :func:`draw_pair` with the same strokes blended over both images: they stand still, the scene moves."""
    pair = draw_pair(group, "clean", motion, index, seed=seed)
    generator = generator_for(seed, index, stream=6)
    side = len(pair.a)
    line = torch.arange(side, dtype=torch.float32)
    ink = torch.zeros(side, side)
    for _ in range(14):
        angle, width = uniform(generator, 0, math.pi), uniform(generator, 1.0, 3.0)
        x, y = (uniform(generator, 0, side) for _ in range(2))
        u, v = (
            (line - x) * math.cos(angle) + (line[:, None] - y) * math.sin(angle),
            (line[:, None] - y) * math.cos(angle) - (line - x) * math.sin(angle),
        )
        ink = torch.maximum(ink, ((v.abs() < width) & (u.abs() < 0.3 * side)).float())
    ink = strength * blurred(ink, 0.7)
    a, b = (quantized(image * (1 - ink) + ink) for image in (pair.a, pair.b))
    return Pair(a, b, pair.H, pair.mask)


def moved_by(
    group: Group,
    model: PlaneModel,
    index: int,
    *,
    motion: float = 0.08,
    noise: float = 0.0,
    condition: Condition = "clean",
    seed: int = 0,
    side: int = 256,
) -> Pair:
    """A photograph moved by a member of ``model``, its corners by about ``motion`` of the side; noise on both.

    ``condition``: what else changes, as in :func:`~caunet.benchmark.pairs.draw_pair`.
    """
    generator = generator_for(seed, index, stream=8)
    H = _member(model, motion, side, generator)
    photos = list(photographs(group).values())
    photo = photos[index % len(photos)]
    a, b, mask = views(photo, H, condition, generator, side)
    a, b = (quantized(view + noise * torch.randn(side, side, generator=generator)) for view in (a, b))
    return Pair(a, b, H, mask)


def _member(model: PlaneModel, motion: float, side: int, generator: torch.Generator) -> Tensor:
    """H (3, 3) of ``model``: shifts by up to ``motion`` of the side; the rest moves corners by about as much."""
    if model == "projective":
        return draw_homography(motion, side, generator)
    draw = [uniform(generator, -motion, motion) for _ in range(6)]
    turn = 1.4 * draw[2] if model != "translation" else 0.0
    larger = math.exp(1.4 * draw[3]) if model in ("similarity", "affine") else 1.0
    shear, stretch = (1.4 * d if model == "affine" else 0.0 for d in draw[4:])
    c, s = math.cos(turn), math.sin(turn)
    linear = torch.tensor([[c, -s], [s, c]]).double() * larger
    linear = linear @ torch.tensor([[math.exp(stretch / 2), shear], [0.0, math.exp(-stretch / 2)]]).double()
    H = torch.eye(3, dtype=torch.float64)
    H[:2, :2] = linear
    H[:2, 2] = side * torch.tensor(draw[:2], dtype=torch.float64)
    return geometry.center(H, (side, side))


def layered(group: Group, index: int, *, share: float = 0.4, parallax: float = 0.05, seed: int = 0) -> Pair:
    """``share`` of the scene moves by ``parallax`` of the side more than the rest: as at another depth.

    ``H`` is the motion of the rest, ``mask`` where it is seen in b.
    """
    pair = moved_by(group, "translation", index, motion=0.04, seed=seed)
    near = moved_by(group, "translation", index + 1, motion=0.0, seed=seed)
    generator = generator_for(seed, index, stream=9)
    side = len(pair.a)
    line = torch.arange(side, dtype=torch.float32)
    x, y = (uniform(generator, 0.4, 0.6) * side for _ in range(2))
    radius = math.sqrt(share / math.pi) * side
    assert pair.H is not None
    shift = (pair.H[:2, 2] + parallax * side * torch.tensor([1.0, 0.0], dtype=torch.float64)).round()
    dx, dy = int(shift[0]), int(shift[1])
    in_a = (line - x).square() + (line[:, None] - y).square() < radius**2
    in_b = (line - x - dx).square() + (line[:, None] - y - dy).square() < radius**2
    a = torch.where(in_a, near.a, pair.a)
    b = torch.where(in_b, near.a.roll((dy, dx), (0, 1)), pair.b)
    return Pair(a, b, pair.H, ~in_b)
