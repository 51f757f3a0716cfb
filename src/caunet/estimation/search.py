"""Initial guesses when the obvious one fails: rotated, shrunk or enlarged, and shifted by anything.

The smallest image of the pyramid is rotated and scaled in many ways and compared with the other at every shift, by
correlations in the frequency domain; the best few are initial guesses for the network.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.limits import Limits
from caunet.estimation.motion_models import MotionModel
from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid
from caunet.images.pyramid import halve

__all__ = ["Guess", "initial_guesses"]

_LARGE = 80  # side of the canvas that is still quick
_NEXT_SCALE = 0.2  # half the way from one scale that is tried to the next
_LEAST = 0.3  # of the smaller image must be seen in both


class Guess(NamedTuple):
    """A transform that may relate two small images."""

    H: Matrix
    """(3, 3), from a to b."""
    likeness: float
    """How well they correlate under it, -1 to 1; a small overlap counts for less."""


def initial_guesses(
    a: Tensor, b: Tensor, motion_model: MotionModel, count: int, limits: Limits | None = None
) -> list[Guess]:
    """The ``count`` best guesses from a to b, (H, W) each, about 32 pixels a side; larger ones are reduced.

    Within the ``limits``, or so near to them that an answer may be.
    """
    if max(_canvas((a.shape[0], a.shape[1])), max(b.shape)) > _LARGE and min(*a.shape, *b.shape) > 1:
        half = geometry.pixel_scale(0.5, like=np.eye(3))
        reduced = None if limits is None else limits.inside(half, half)
        smaller = initial_guesses(halve(a), halve(b), motion_model, count, reduced)
        return [guess._replace(H=geometry.rescale(guess.H, 2.0)) for guess in smaller]
    transforms = _transforms(motion_model, (a.shape[0], a.shape[1]), limits)
    if not transforms:
        return []
    views, masks = _transformed(a, transforms)
    likeness = _correlate(views, masks, b)
    if limits is not None and limits.bounds.shift is not None:
        likeness = torch.where(_near(transforms, likeness, views.shape[-1], limits), likeness, -1.0)
    best, shift = likeness.flatten(1).max(1)
    order = best.argsort(descending=True)[:count].tolist()
    rows, columns = likeness.shape[1:]
    found = []
    for k in order:
        y, x = divmod(int(shift[k]), columns)
        # Shifts to the left and up wrap around.
        x = x - columns if x >= columns - views.shape[-1] else x
        y = y - rows if y >= rows - views.shape[-2] else y
        H = np.array([[1.0, 0, x], [0, 1, y], [0, 0, 1]]) @ transforms[k]
        found.append(Guess(H, float(best[k])))
    return found


def _near(transforms: list[Matrix], likeness: Tensor, side: int, limits: Limits) -> Tensor:
    """(K, rows, columns): which shifts leave the center of a near enough to where it was."""
    rows, columns = likeness.shape[1:]
    y, x = (torch.arange(n, device=likeness.device) for n in (rows, columns))
    x, y = torch.where(x >= columns - side, x - columns, x), torch.where(y >= rows - side, y - rows, y)
    reach = (limits.bounds.shift or 0.0) * limits.factor[1] + 1.0  # a pixel: shifts are whole here
    near = []
    for H in transforms:
        away = geometry.apply(H, limits.point[None])[0] - limits.origin
        near.append(torch.hypot(x + float(away[0]), (y + float(away[1]))[:, None]) <= reach)
    return torch.stack(near)


def _transforms(motion_model: MotionModel, size: tuple[int, int], limits: Limits | None) -> list[Matrix]:
    """From a to a square canvas that holds it at any angle."""
    center, middle = np.array(geometry.center_of(size)), (_canvas(size) - 1) / 2
    count = motion_model.search_angles
    found = []
    for scale in motion_model.search_scales:
        if limits is not None and not limits.allows_scale(
            scale * limits.factor[0] / limits.factor[1], _NEXT_SCALE
        ):
            continue
        for angle in [2 * math.pi * k / count for k in range(count)]:
            if limits is not None and not limits.allows_angle(math.degrees(angle), 180 / count):
                continue
            cos, sin = scale * math.cos(angle), scale * math.sin(angle)
            linear = np.array([[cos, -sin], [sin, cos]])
            H = np.eye(3)
            H[:2, :2] = linear
            H[:2, 2] = middle - linear @ center
            found.append(H)
    return found


def _canvas(size: tuple[int, int]) -> int:
    return math.ceil(math.hypot(*size))


def _transformed(a: Tensor, transforms: list[Matrix]) -> tuple[Tensor, Tensor]:
    """a on the canvas, (K, side, side), and where it lies on it."""
    side = _canvas((a.shape[0], a.shape[1]))
    line = torch.arange(side, device=a.device, dtype=a.dtype)
    parts = []
    for H in transforms:
        back = geometry.invert(H, checked=False)
        grid, inside = grid_places(back, line[None, None], line[None, :, None], (a.shape[0], a.shape[1]))
        parts.append(torch.stack([read_grid(a, grid)[0], inside[0].to(a.dtype)]))
    views, masks = torch.stack(parts, 1)
    return views * masks, masks


def _correlate(views: Tensor, masks: Tensor, b: Tensor) -> Tensor:
    """Normalized correlation (K, rows, columns) of each view, shifted by (column, row), with b where both are."""
    rows, columns = views.shape[-2] + b.shape[0], views.shape[-1] + b.shape[1]
    size = [rows, columns]
    b = b - b.mean()
    b_f, bb_f, one_f = (torch.fft.rfft2(t, size) for t in (b, b.square(), torch.ones_like(b)))
    v_f, vv_f, m_f = (torch.fft.rfft2(t, size).conj() for t in (views, views.square(), masks))
    pairs = [(one_f, m_f), (one_f, v_f), (one_f, vv_f), (b_f, m_f), (bb_f, m_f), (b_f, v_f)]
    n, x, xx, y, yy, xy = (torch.fft.irfft2(p * q, size) for p, q in pairs)
    n = n.clamp_min(1.0)
    covariance = xy - x * y / n
    spread = ((xx - x * x / n).clamp_min(0) * (yy - y * y / n).clamp_min(0)).sqrt()
    enough = n > _LEAST * min(float(b.numel()), float(masks.sum((1, 2)).min()))
    # A small overlap easily correlates: it counts for less.
    likeness = torch.where(enough, covariance / (spread + 1e-3 * n), -1.0)
    weighted: Tensor = likeness * (n / b.numel()).clamp_max(1.0).pow(0.25)
    return weighted
