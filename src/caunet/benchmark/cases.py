"""Pairs that are hard in one way each: the stress set, made from the embedded photographs, and the Oxford set.

A :class:`Case` is two images as files have them and the true H. Everything in the stress set is a function of
(seed, row, photograph); rows are chosen after what people report to trackers of registration software: strong zoom,
a crop in a large scene, a thumbnail and its original, uneven light, other channels, negatives, something in front,
frames and round apertures.
"""

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.benchmark.frames import draw_homography, take, uniform
from caunet.benchmark.pairs import generator_for
from caunet.benchmark.photographs import Group, colored
from caunet.errors import DataError
from caunet.images import read_uint8
from caunet.images.gray import WEIGHTS as GRAY_WEIGHTS

__all__ = ["OXFORD", "STRESS", "Case", "oxford_cases", "relative_error", "stress_cases"]

Pixels = npt.NDArray[np.uint8]

OXFORD = ("bark", "boat", "graf", "wall", "bikes", "trees", "leuven", "ubc")
"""Sequences of the Oxford affine set: four of viewpoint and zoom, two of blur, one of light, one of compression."""

_SIDE = 256


@dataclass(frozen=True, eq=False)
class Case:
    """Two images, gray (H, W), RGB (H, W, 3) or RGBA (H, W, 4) bytes, and the H (3, 3) from a to b."""

    row: str
    """What it is a case of."""
    name: str
    """Which case of that row."""
    a: Pixels
    b: Pixels
    truth: Tensor


def relative_error(found: Tensor, case: Case) -> float:
    """Mean distance of a's carried corners from their true places, as a share of the diagonal that a has in b.

    For images of one scale that is a share of a's diagonal. Infinite if a corner is carried to nowhere.
    """
    height, width = case.a.shape[:2]
    corners: Tensor = geometry.corners((height, width))
    there = geometry.apply(case.truth.double(), corners)
    gap = geometry.apply(found.double(), corners) - there
    diagonal = 0.5 * float((there[0] - there[2]).norm() + (there[1] - there[3]).norm())
    error = float(gap.norm(dim=-1).mean()) / diagonal
    return error if math.isfinite(error) else math.inf


def oxford_cases(folder: Path) -> Iterator[Case]:
    """Image 1 against 2 to 6 of each sequence in ``folder``: ``graf/img1.png``, ``graf/H1to2p.xml`` and so on."""
    if not folder.is_dir():
        raise DataError(f"the Oxford set must be a folder with {', '.join(OXFORD)}, got {folder}")
    for sequence in OXFORD:
        first = folder / sequence / "img1.png"
        if not first.exists():
            continue
        a = read_uint8(first)
        for k in range(2, 7):
            truth = _storage_matrix(folder / sequence / f"H1to{k}p.xml")
            yield Case(sequence, f"1-{k}", a, read_uint8(folder / sequence / f"img{k}.png"), truth)


def _storage_matrix(path: Path) -> Tensor:
    """A 3 x 3 matrix from OpenCV's XML storage."""
    try:
        node = ElementTree.parse(path).find(".//data")
        values = [float(word) for word in (node.text if node is not None and node.text else "").split()]
        return torch.tensor(values, dtype=torch.float64).reshape(3, 3)
    except (OSError, ValueError, RuntimeError, ElementTree.ParseError) as error:
        raise DataError(f"{path} holds no 3 x 3 matrix: {error}") from error


def stress_cases(
    group: Group, rows: tuple[str, ...] | None = None, which: tuple[int, ...] | None = None, *, seed: int = 0
) -> Iterator[Case]:
    """The cases of ``rows`` (all of :data:`STRESS` if not given) on every photograph of ``group``, or on some of them.

    ``which``: their places in :func:`~caunet.benchmark.photographs.colored`.
    """
    for number, (row, make) in enumerate(STRESS.items()):
        if rows is not None and row not in rows:
            continue
        photos = colored(group)
        for index, (name, photo) in enumerate(photos.items()):
            if which is not None and index not in which:
                continue
            generator = generator_for(seed, 1000 * number + index, stream=7)
            made = make(photo, [p for other, p in photos.items() if other != name], generator)
            if made is not None:
                a, b, H = made
                yield Case(row, name, a, b, H)


Made = tuple[Pixels, Pixels, Tensor] | None
Maker = Callable[[Tensor, list[Tensor], torch.Generator], Made]


def _bytes(image: Tensor) -> Pixels:
    """Floats 0..1, (H, W) or (C, H, W), as bytes with channels last."""
    last = image if image.ndim == 2 else image.permute(1, 2, 0)
    return (last.clamp(0, 1) * 255).round().to(torch.uint8).numpy()


def _gray(photo: Tensor) -> Tensor:
    weights = torch.tensor([weight / 10_000 for weight in GRAY_WEIGHTS])[:, None, None]
    return photo if photo.ndim == 2 else (photo * weights).sum(0)


def _whole(photo: Tensor, size: tuple[int, int]) -> Tensor:
    """The frame (3, 3) from an image of ``size`` to the largest part of ``photo`` of that shape, at its center."""
    height, width = photo.shape[-2:]
    scale = min((width - 5) / size[1], (height - 5) / size[0])
    x, y = (width - 1 - scale * (size[1] - 1)) / 2, (height - 1 - scale * (size[0] - 1)) / 2
    return _shifted(x, y) @ _scaled(scale)


def _scaled(factor: float) -> Tensor:
    return torch.diag(torch.tensor([factor, factor, 1.0], dtype=torch.float64))


def _shifted(x: float, y: float) -> Tensor:
    return geometry.translate(*torch.tensor([x, y], dtype=torch.float64))


def _turned(generator: torch.Generator, most: float) -> Tensor:
    return geometry.rotate(torch.tensor(uniform(generator, -most, most), dtype=torch.float64))


def _zoom(factor: float) -> Maker:
    """b shows the middle of a ``factor`` times larger (for a factor below 1, a the middle of b), a little turned."""

    def make(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
        gray, size = _gray(photo), (_SIDE, _SIDE)
        wide = _whole(gray, size)
        middle = (_SIDE - 1) / 2
        off = [uniform(generator, -0.1, 0.1) * _SIDE for _ in range(2)]
        larger = max(factor, 1 / factor)
        H = (
            _shifted(middle, middle)
            @ _turned(generator, 10)
            @ _scaled(larger)
            @ _shifted(-middle - off[0], -middle - off[1])
        )
        near = take(gray, wide @ geometry.invert(H), size)
        far = take(gray, wide, size)
        if factor > 1:
            return _bytes(far), _bytes(near), H
        return _bytes(near), _bytes(far), geometry.invert(H)

    return make


def _crop(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
    """a: 200 x 200 pixels of a picture of six photographs, 1600 wide; b: that picture."""
    tiles = [_gray(photo), *(_gray(other) for other in others)][:6]
    side = (532, 533)
    parts = [take(tile, _whole(tile, side), side, fine=2) for tile in tiles]
    while len(parts) < 6:
        parts.append(parts[len(parts) - len(tiles)].flip(1))
    order = torch.randperm(6, generator=generator).tolist()
    rows = [torch.cat([parts[k] for k in order[r : r + 3]], 1) for r in (0, 3)]
    scene = torch.cat(rows, 0)
    place = order.index(0)
    left = place % 3 * 533 + uniform(generator, 30, 300)
    top = place // 3 * 532 + uniform(generator, 30, 300)
    H = _shifted(left, top) @ _turned(generator, 5)
    return _bytes(take(scene, H, (200, 200), fine=2)), _bytes(scene), H


def _thumbnail(first: int, second: int) -> Maker:
    """One picture at two widths."""

    def make(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
        gray = _gray(photo)
        aspect = gray.shape[0] / gray.shape[1]
        sizes = [(round(width * aspect), width) for width in (first, second)]
        frames = []
        for height, width in sizes:
            # Edges coincide, not the centers of the corner pixels: as thumbnails are made.
            sx, sy = gray.shape[1] / width, gray.shape[0] / height
            scale = torch.diag(torch.tensor([sx, sy, 1.0], dtype=torch.float64))
            frames.append(_shifted(sx / 2 - 0.5, sy / 2 - 0.5) @ scale)
        a, b = (take(gray, frame, size) for frame, size in zip(frames, sizes, strict=True))
        return _bytes(a), _bytes(b), geometry.invert(frames[1]) @ frames[0]

    return make


def _moved(photo: Tensor, generator: torch.Generator, motion: float = 0.08) -> tuple[Tensor, Tensor, Tensor]:
    """Two views of a photograph, gray (H, W) or colored (C, H, W), whose corners move by up to ± ``motion``."""
    channels = photo[None] if photo.ndim == 2 else photo
    H = draw_homography(motion, _SIDE, generator)
    frame_corners: Tensor = geometry.corners((_SIDE, _SIDE))
    corners = torch.cat([frame_corners, geometry.apply(geometry.invert(H), frame_corners)])
    low, extent = corners.amin(0), corners.amax(0) - corners.amin(0)
    height, width = channels.shape[-2:]
    scale = min((width - 5) / float(extent[0]), (height - 5) / float(extent[1]))
    x, y = (width - 1 - scale * float(extent[0])) / 2, (height - 1 - scale * float(extent[1])) / 2
    frame = _shifted(x, y) @ _scaled(scale) @ _shifted(-float(low[0]), -float(low[1]))
    views = [
        torch.stack([take(c, f, (_SIDE, _SIDE)) for c in channels])
        for f in (frame, frame @ geometry.invert(H))
    ]
    a, b = (view[0] if photo.ndim == 2 else view for view in views)
    return a, b, H


def _ramp(strength: float) -> Maker:
    """b is lit from one side: brighter by ``strength`` there, darker by as much on the other."""

    def make(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
        a, b, H = _moved(_gray(photo), generator)
        angle = uniform(generator, 0, 2 * math.pi)
        line = torch.linspace(-1, 1, _SIDE)
        slope = (math.cos(angle) * line + math.sin(angle) * line[:, None]) / (
            abs(math.cos(angle)) + abs(math.sin(angle))
        )
        return _bytes(a), _bytes(b * (1 + strength * slope) / (1 + strength)), H

    return make


def _vignette(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
    """Both darken by 60 % towards their own corners."""
    a, b, H = _moved(_gray(photo), generator)
    line = torch.linspace(-1, 1, _SIDE)
    shade = 1 - 0.6 * (line.square() + line[:, None].square()) / 2
    return _bytes(a * shade), _bytes(b * shade), H


def _channels(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
    """The red channel against the blue one."""
    if photo.ndim == 2:
        return None
    a, b, H = _moved(photo, generator)
    return _bytes(a[0]), _bytes(b[2]), H


def _negative(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
    """b has its tones inverted, as a film has."""
    a, b, H = _moved(_gray(photo), generator)
    return _bytes(a), _bytes(1 - b), H


def _foreground(share: float) -> Maker:
    """Something else stands before ``share`` of b: an ellipse that shows another photograph."""

    def make(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
        a, b, H = _moved(_gray(photo), generator)
        other = _gray(others[int(torch.randint(len(others), (), generator=generator))])
        front = take(other, _whole(other, (_SIDE, _SIDE)), (_SIDE, _SIDE))
        radius = math.sqrt(share * _SIDE * _SIDE / math.pi)
        stretch = math.exp(uniform(generator, -0.25, 0.25))
        x0, y0 = (uniform(generator, 0.35, 0.65) * _SIDE for _ in range(2))
        line = torch.arange(_SIDE, dtype=torch.float32)
        covered = ((line - x0) / stretch).square() + ((line[:, None] - y0) * stretch).square() < radius**2
        return _bytes(a), _bytes(torch.where(covered, front, b)), H

    return make


def _frame(share: float) -> Maker:
    """A black border of ``share`` of the side on both."""

    def make(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
        a, b, H = _moved(_gray(photo), generator)
        width = round(share * _SIDE)
        inside = torch.zeros(_SIDE, _SIDE)
        inside[width:-width, width:-width] = 1
        return _bytes(a * inside), _bytes(b * inside), H

    return make


def _aperture(opaque: bool) -> Maker:
    """Both are seen through a round opening: black around it, or transparent."""

    def make(photo: Tensor, others: list[Tensor], generator: torch.Generator) -> Made:
        a, b, H = _moved(_gray(photo), generator)
        line = torch.linspace(-1, 1, _SIDE)
        disc = ((line.square() + line[:, None].square()) < 0.92**2).float()
        if opaque:
            return _bytes(a * disc), _bytes(b * disc), H
        a, b = (torch.stack([view * disc] * 3 + [disc]) for view in (a, b))
        return _bytes(a), _bytes(b), H

    return make


STRESS: dict[str, Maker] = {
    "scale 1/4": _zoom(1 / 4),
    "scale 1/3": _zoom(1 / 3),
    "scale 1/2": _zoom(1 / 2),
    "scale 2": _zoom(2),
    "scale 3": _zoom(3),
    "scale 4": _zoom(4),
    "crop of 200 in 1600": _crop,
    "thumbnail 320 to 1280": _thumbnail(320, 1280),
    "thumbnail 1024 to 128": _thumbnail(1024, 128),
    "lighting ramp 20 %": _ramp(0.2),
    "lighting ramp 40 %": _ramp(0.4),
    "lighting ramp 60 %": _ramp(0.6),
    "vignette": _vignette,
    "red to blue": _channels,
    "foreground 30 %": _foreground(0.3),
    "foreground 50 %": _foreground(0.5),
    "black frame 3 %": _frame(0.03),
    "black frame 6 %": _frame(0.06),
    "black frame 12 %": _frame(0.12),
    "round aperture, black": _aperture(True),
    "round aperture, alpha": _aperture(False),
    "negative": _negative,
}
"""Rows of the stress set and what makes their cases."""
