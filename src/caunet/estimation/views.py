"""The parts of two images that a transform makes correspond, at about the same resolution.

A crop in a large image, a thumbnail beside its original, a zoom: what compares two images pixel by pixel should see
only what both show, and as sharply as the coarser one does.
"""

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from caunet import geometry
from caunet.estimation.evidence import FAR
from caunet.geometry import Matrix
from caunet.images.pyramid import halve

__all__ = ["View", "view_of", "whole_view"]

_PART = 0.5  # share of an image's area that is seen in the other, below which it is cropped
_MARGIN = 0.05  # of the box's sides, that a crop keeps around it
_SMALLEST = 48  # pixels of a side that a view keeps


class View(NamedTuple):
    """Parts of two gray images, and where they come from."""

    a: Tensor
    b: Tensor
    from_a: Matrix
    """(3, 3): pixels of the image a to pixels of the part."""
    from_b: Matrix

    def inside(self, H: Matrix) -> Matrix:
        """A transform between the images as one between their parts."""
        return geometry.normalize(
            self.from_b @ H @ geometry.invert(self.from_a, checked=False), checked=False
        )

    def outside(self, H: Matrix) -> Matrix:
        """A transform between the parts as one between the images."""
        return geometry.normalize(
            geometry.invert(self.from_b, checked=False) @ H @ self.from_a, checked=False
        )


def whole_view(a: Tensor, b: Tensor) -> View:
    """Both images as they are."""
    return View(a, b, np.eye(3), np.eye(3))


def view_of(a: Tensor, b: Tensor, H: Matrix, *, scales: bool) -> View:
    """What H (3, 3) makes correspond; with ``scales`` the sharper part is halved until they are alike.

    >>> import torch
    >>> zoom = np.array([[4.0, 0.0, -600.0], [0.0, 4.0, -600.0], [0.0, 0.0, 1.0]])
    >>> view = view_of(torch.zeros(400, 400), torch.zeros(400, 400), zoom, scales=True)
    >>> view.a.shape, view.b.shape
    (torch.Size([109, 109]), torch.Size([100, 100]))
    """
    back = geometry.invert(H, checked=False)
    a, from_a = _cropped(a, back, (b.shape[0], b.shape[1]))
    b, from_b = _cropped(b, H @ geometry.invert(from_a, checked=False), (a.shape[0], a.shape[1]))
    view = View(a, b, from_a, from_b)
    steps = round(math.log2(_stretch(view.inside(H), (a.shape[0], a.shape[1])))) if scales else 0
    for _ in range(abs(steps)):
        a, b, from_a, from_b = view
        if min((b if steps > 0 else a).shape) < 2 * _SMALLEST:
            break
        if steps > 0:
            view = View(a, halve(b), from_a, geometry.pixel_scale(0.5, like=from_b) @ from_b)
        else:
            view = View(halve(a), b, geometry.pixel_scale(0.5, like=from_a) @ from_a, from_b)
    return view


def _cropped(image: Tensor, H: Matrix, size: tuple[int, int]) -> tuple[Tensor, Matrix]:
    """The box of ``image`` that H puts an image of ``size`` into, if it is a small part; else all of it."""
    height, width = image.shape
    ends = geometry.apply(H, geometry.corners(size, like=H), far=FAR)
    if not np.isfinite(ends).all() or np.abs(ends).max() >= FAR:
        return image, np.eye(3)
    low, high = ends.min(0), ends.max(0)
    room = np.maximum(_MARGIN * (high - low), (_SMALLEST - (high - low)) / 2)
    left, top = np.floor(np.maximum(low - room, 0)).astype(int)
    right, bottom = np.ceil(np.minimum(high + room, [width - 1, height - 1])).astype(int) + 1
    seen = (right - left) * (bottom - top)
    if min(right - left, bottom - top) < min(_SMALLEST, height, width) or seen > _PART * height * width:
        return image, np.eye(3)
    shift = np.array([[1.0, 0.0, -left], [0.0, 1.0, -top], [0.0, 0.0, 1.0]])
    return image[top:bottom, left:right].contiguous(), shift


def _stretch(H: Matrix, size: tuple[int, int]) -> float:
    """By how much H enlarges lengths in the middle of an image of ``size``; 1 where that makes no sense."""
    center = np.array([geometry.center_of(size)])
    half = np.array([[0.5, 0.0], [0.0, 0.5]])
    moved = geometry.apply(H, center + half, far=FAR) - geometry.apply(H, center - half, far=FAR)
    area = abs(float(np.linalg.det(moved)))
    return math.sqrt(area) if 1e-6 < area < 1e6 else 1.0
