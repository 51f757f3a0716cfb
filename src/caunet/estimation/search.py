"""Where to begin when the obvious beginning fails: turned, shrunk or enlarged, and moved anywhere.

The smallest picture of the pyramid is turned and scaled in many ways and laid over the other at every shift, by
correlations in the frequency domain; the best few places are beginnings for the network.
"""

import math

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid
from caunet.images.pyramid import halve

__all__ = ["beginnings"]

_ANGLES = 24
_SCALES = {"translation": (1.0,), "euclidean": (1.0,)}
_LARGE = 80  # side of the canvas that is still quick
_LEAST = 0.3  # of the smaller picture must be seen in both


def beginnings(a: Tensor, b: Tensor, model: str, count: int) -> list[Matrix]:
    """The ``count`` best H (3, 3) from a to b, (H, W) each, some 32 pixels a side; larger ones are reduced."""
    if max(_canvas((a.shape[0], a.shape[1])), max(b.shape)) > _LARGE and min(*a.shape, *b.shape) > 1:
        return [geometry.rescale(H, 2.0) for H in beginnings(halve(a), halve(b), model, count)]
    made = _views(model, (a.shape[0], a.shape[1]))
    views, masks = _turned(a, made)
    likeness = _correlate(views, masks, b)
    best, shift = likeness.flatten(1).max(1)
    order = best.argsort(descending=True)[:count].tolist()
    columns = likeness.shape[2]
    reach = views.shape[-1], views.shape[-2]
    found = []
    for k in order:
        y, x = divmod(int(shift[k]), columns)
        x, y = (
            x - columns if x >= columns - reach[0] else x,
            y - likeness.shape[1] if y >= likeness.shape[1] - reach[1] else y,
        )
        moved = np.array([[1.0, 0, x], [0, 1, y], [0, 0, 1]])
        found.append(moved @ made[k])
    return found


def _views(model: str, size: tuple[int, int]) -> list[Matrix]:
    """From a to a square canvas that holds it at any angle."""
    height, width = size
    angles = [0.0] if model == "translation" else [2 * math.pi * k / _ANGLES for k in range(_ANGLES)]
    made = []
    side = _canvas(size)
    for scale in _SCALES.get(model, (0.7, 1.0, 1.4)):
        for angle in angles:
            cos, sin = scale * math.cos(angle), scale * math.sin(angle)
            linear = np.array([[cos, -sin], [sin, cos]])
            H = np.eye(3)
            H[:2, :2] = linear
            H[:2, 2] = (side - 1) / 2 - linear @ np.array([(width - 1) / 2, (height - 1) / 2])
            made.append(H)
    return made


def _canvas(size: tuple[int, int]) -> int:
    return math.ceil(math.hypot(*size))


def _turned(a: Tensor, made: list[Matrix]) -> tuple[Tensor, Tensor]:
    """a on the canvas, (K, side, side), and where it lies on it."""
    side = _canvas((a.shape[0], a.shape[1]))
    line = torch.arange(side, device=a.device, dtype=a.dtype)
    parts = []
    for H in made:
        back = geometry.invert(H, checked=False)
        grid, inside = grid_places(back, line[None, None], line[None, :, None], (a.shape[0], a.shape[1]))
        parts.append(torch.stack([read_grid(a, grid)[0], inside[0].to(a.dtype)]))
    views, masks = torch.stack(parts, 1)
    return views * masks, masks


def _correlate(views: Tensor, masks: Tensor, b: Tensor) -> Tensor:
    """Normalised correlation (K, rows, columns) of each view, moved by (column, row), with b where both are."""
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
    # A small overlap is easily alike: it counts for less.
    likeness = torch.where(enough, covariance / (spread + 1e-3 * n), -1.0)
    weighted: Tensor = likeness * (n / b.numel()).clamp_max(1.0).pow(0.25)
    return weighted
