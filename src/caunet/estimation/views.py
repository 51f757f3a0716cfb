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
from caunet.images.masks import fill, halve_mask
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
    mask_a: Tensor | None = None
    """Which pixels of the part show the scene, (H, W) bool; all of them if there is none."""
    mask_b: Tensor | None = None

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


def whole_view(a: Tensor, b: Tensor, mask_a: Tensor | None = None, mask_b: Tensor | None = None) -> View:
    """Both images as they are; what is masked is replaced by a smooth continuation of the rest."""
    masks = [None if mask is None or bool(mask.all()) else mask for mask in (mask_a, mask_b)]
    a, b = (image if mask is None else fill(image, mask) for image, mask in zip((a, b), masks, strict=True))
    return View(a, b, np.eye(3), np.eye(3), *masks)


def view_of(whole: View, H: Matrix, *, scales: bool) -> View:
    """What H (3, 3) makes correspond; with ``scales`` the sharper part is halved until they are alike.

    >>> import torch
    >>> zoom = np.array([[4.0, 0.0, -600.0], [0.0, 4.0, -600.0], [0.0, 0.0, 1.0]])
    >>> view = view_of(whole_view(torch.zeros(400, 400), torch.zeros(400, 400)), zoom, scales=True)
    >>> view.a.shape, view.b.shape
    (torch.Size([111, 111]), torch.Size([100, 100]))
    """
    a, mask_a, from_a = _cropped(whole.a, whole.mask_a, geometry.invert(H, checked=False), _size(whole.b))
    there = H @ geometry.invert(from_a, checked=False)
    b, mask_b, from_b = _cropped(whole.b, whole.mask_b, there, _size(a))
    view = View(a, b, from_a, from_b, mask_a, mask_b)
    scale = geometry.local_scale(view.inside(H), _size(a))
    steps = round(math.log2(scale)) if scales and 1e-3 < scale < 1e3 else 0
    half = geometry.pixel_scale(0.5, like=from_a)
    for _ in range(abs(steps)):
        if min((view.b if steps > 0 else view.a).shape) < 2 * _SMALLEST:
            break
        if steps > 0:
            mask = None if view.mask_b is None else halve_mask(view.mask_b)
            view = view._replace(b=halve(view.b), from_b=half @ view.from_b, mask_b=mask)
        else:
            mask = None if view.mask_a is None else halve_mask(view.mask_a)
            view = view._replace(a=halve(view.a), from_a=half @ view.from_a, mask_a=mask)
    return view


def _cropped(
    image: Tensor, mask: Tensor | None, H: Matrix, size: tuple[int, int]
) -> tuple[Tensor, Tensor | None, Matrix]:
    """The box of ``image`` that H puts an image of ``size`` into, if it is a small part; else all of it."""
    height, width = image.shape
    ends = geometry.apply(H, geometry.corners(size, like=H), far=FAR)
    if not np.isfinite(ends).all() or np.abs(ends).max() >= FAR:
        return image, mask, np.eye(3)
    low, high = ends.min(0), ends.max(0)
    room = np.maximum(_MARGIN * (high - low), (_SMALLEST - (high - low)) / 2)
    left, top = np.floor(np.maximum(low - room, 0)).astype(int)
    right, bottom = np.ceil(np.minimum(high + room, [width - 1, height - 1])).astype(int) + 1
    seen = (right - left) * (bottom - top)
    if min(right - left, bottom - top) < min(_SMALLEST, height, width) or seen > _PART * height * width:
        return image, mask, np.eye(3)
    shift = np.array([[1.0, 0.0, -left], [0.0, 1.0, -top], [0.0, 0.0, 1.0]])
    box = (slice(top, bottom), slice(left, right))
    return image[box].contiguous(), None if mask is None else mask[box].contiguous(), shift


def _size(image: Tensor) -> tuple[int, int]:
    return image.shape[0], image.shape[1]
