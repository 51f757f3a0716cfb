"""Grids to put images on: that of a, one that holds both images, or the part that both show."""

from typing import Literal, NamedTuple, get_args

import numpy as np

from caunet import geometry
from caunet.geometry import Matrix
from caunet.images import MAX_PIXELS
from caunet.sizes import size_text

__all__ = ["CANVASES", "Canvas", "CanvasName", "canvas_of"]

CanvasName = Literal["a", "union", "overlap"]
CANVASES: tuple[CanvasName, ...] = get_args(CanvasName)

_FRONT = 1e-6  # third coordinate up to which a point of b is not in front of a


class Canvas(NamedTuple):
    """A grid of ``width`` x ``height`` pixels whose first pixel lies at (x, y) of a."""

    x: int
    y: int
    width: int
    height: int

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.height, self.width


def canvas_of(name: str, H: Matrix, size_a: tuple[int, int], size_b: tuple[int, int]) -> Canvas:
    """The canvas ``name`` of images of these sizes; ``H`` (3, 3) maps a to b.

    >>> canvas_of("union", np.array([[1.0, 0, 5], [0, 1, -3], [0, 0, 1]]), (20, 30), (20, 30))
    Canvas(x=-5, y=0, width=35, height=23)
    """
    if name not in CANVASES:
        raise ValueError(f"canvas must be one of {', '.join(CANVASES)}, got {name!r}")
    if name == "a":
        return Canvas(0, 0, size_a[1], size_a[0])
    frame = geometry.corners(size_a, like=H)
    quad = geometry.apply_homogeneous(geometry.invert(H), geometry.corners(size_b, like=H))
    quad = quad * np.sign(quad[:, 2].sum() or 1.0)
    if not quad[:, 2].min() > _FRONT * np.abs(quad).max():
        raise ValueError(f"canvas {name!r} needs all of b in front of a, got a horizon that runs through b")
    quad = quad[:, :2] / quad[:, 2:]
    if name == "union":
        points = np.vstack([frame, quad])
        (left, top), (right, bottom) = np.floor(points.min(0) + 1e-6), np.ceil(points.max(0) - 1e-6)
    else:
        points = _clipped(quad, size_a)
        if len(points) == 0:
            raise ValueError("canvas 'overlap' needs images that overlap, got two that do not")
        (left, top), (right, bottom) = np.ceil(points.min(0) - 1e-6), np.floor(points.max(0) + 1e-6)
    width, height = int(right - left) + 1, int(bottom - top) + 1
    if width * height > MAX_PIXELS:
        limit = f"at most {MAX_PIXELS // 10**6} megapixels"
        raise ValueError(f"canvas {name!r} must be {limit}, got {size_text((height, width))}")
    if min(width, height) < 1:
        raise ValueError("canvas 'overlap' needs images that overlap, got two that share no pixel")
    return Canvas(int(left), int(top), width, height)


def _clipped(quad: Matrix, size: tuple[int, int]) -> Matrix:
    """The part (N, 2) of the convex ``quad`` (4, 2) within an image of ``size`` (Sutherland and Hodgman)."""
    for axis, end, sign in ((0, 0.0, 1.0), (0, size[1] - 1.0, -1.0), (1, 0.0, 1.0), (1, size[0] - 1.0, -1.0)):
        inside = sign * (quad[:, axis] - end) >= 0
        kept = []
        for k in range(len(quad)):
            before, here = quad[k - 1], quad[k]
            if inside[k] != inside[k - 1]:
                share = (end - before[axis]) / (here[axis] - before[axis])
                kept.append(before + share * (here - before))
            if inside[k]:
                kept.append(here)
        quad = np.array(kept).reshape(-1, 2)
    return quad
