"""Places of an image worth comparing: blobs of any size, found by differences of Gaussians, with an orientation.

Scale space as Lowe samples it (IJCV 2004): within an octave the image is smoothed by Gaussians whose deviations form a
geometric series; extrema of the differences of neighbors, over place and scale, are points. Each is refined by a
quadratic, edges are refused, and of more than are wanted those are kept that are strong and spread over the image.

Coordinates: pixel centers at integers; a pixel of octave n stands for 2^n x 2^n pixels of the image.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from caunet.images.pyramid import gaussian, halve

__all__ = ["AROUND", "Points", "detect", "dominant_angle", "extrema", "patches"]

_STEPS = 3  # scales in an octave
_SIGMA = 1.6  # deviation of an octave's first Gaussian, in its pixels
_GIVEN = 0.5  # by which an image is assumed to have been smoothed already
_HALVED = 0.75  # by which halving leaves the smaller image smoothed, in its pixels
_SMALLEST = 16  # shorter side of the last octave, at least
_EDGE = 10.0  # ratio of principal curvatures beyond which an extremum is an edge
_FLAT = 0.006  # least difference of Gaussians, of gray levels from 0 to 1
_MARGIN = 4  # pixels of an octave next to the border where nothing is looked for
_CELLS = 8  # along the longer side, over which points are spread
_BINS = 36
AROUND = 20
"""Side of the surroundings from which an orientation is measured; its pixels are half a sigma apart."""


class Points(NamedTuple):
    """N places: where, how large, how turned, how clear."""

    xy: Tensor
    """(N, 2), in pixels."""
    sigma: Tensor
    """(N,): deviation of the Gaussian that suits the blob, in pixels."""
    angle: Tensor
    """(N,): direction of the strongest gradients around it, in radians, from x toward y."""
    strength: Tensor
    """(N,): size of the extremum, in gray levels from 0 to 1."""


def detect(image: Tensor, count: int) -> tuple[Points, list[Tensor]]:
    """At most ``count`` points of a gray image (H, W), from 0 to 1, and the image with its halves, for `patches`.

    >>> dot = torch.zeros(64, 64)
    >>> dot[20:25, 40:45] = 1.0
    >>> points, _ = detect(dot, 1)
    >>> points.xy.round().tolist()
    [[42.0, 22.0]]
    """
    octaves = [image]
    while min(octaves[-1].shape) >= 2 * _SMALLEST:
        octaves.append(halve(octaves[-1]))
    found = []
    for n, octave in enumerate(octaves):
        _, xy, sigma, strength = extrema(octave[None], _HALVED if n else _GIVEN, _MARGIN)
        factor = 2.0**n
        found.append(
            torch.cat([xy * factor + (factor - 1) / 2, (sigma * factor)[:, None], strength[:, None]], 1)
        )
    table = torch.cat(found)  # (N, 4): x, y, sigma, strength
    table = table[_spread(table[:, :2], table[:, 3], max(image.shape), count)]
    xy, sigma, strength = table[:, :2], table[:, 2], table[:, 3]
    around = _sample(octaves, xy, torch.zeros_like(sigma), 0.5 * sigma, AROUND, 0.5)
    return Points(xy, sigma, dominant_angle(around), strength), octaves


def patches(octaves: list[Tensor], points: Points, side: int, reach: float) -> Tensor:
    """(N, side, side): what surrounds each point up to ``reach`` sigma, turned by its angle."""
    return _sample(octaves, points.xy, points.angle, 2 * reach / side * points.sigma, side, 1.0)


def extrema(
    images: Tensor, given: float, margin: int, first: float = _SIGMA
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Blobs of images (N, H, W) whose sigma is from ``first`` to twice that: image, (x, y), sigma and strength of each.

    ``given``: deviation by which the images have been smoothed already. ``margin``: pixels next to the border where
    nothing is looked for, at least 1.
    """
    smoothed = gaussian(images, math.sqrt(first**2 - given**2))
    step = 2 ** (1 / _STEPS)
    space = images.new_empty(_STEPS + 2, *images.shape)  # (S + 2, N, H, W)
    for k, difference in enumerate(space):
        wider = gaussian(smoothed, first * step**k * math.sqrt(step**2 - 1))
        torch.sub(wider, smoothed, out=difference)
        smoothed = wider
    s, n, y, x = _candidates(space, margin)
    offset, strength, good = _refine(space, s, n, y, x)
    xy = torch.stack([x, y], 1) + offset[:, :2]
    sigma = first * step ** (s + offset[:, 2])
    return n[good], xy[good], sigma[good], strength[good]


def _candidates(space: Tensor, margin: int) -> tuple[Tensor, ...]:
    """Scale, image, row and column of what exceeds its 26 neighbors in size, on both sides of 0."""
    height, width = space.shape[2:]
    if min(height, width) <= 2 * margin + 2:
        return tuple(torch.zeros(4, 0, dtype=torch.int64, device=space.device))
    found = []
    for k in range(1, len(space) - 1):  # one scale after the other, which stays in the cache
        size = space[k, :, margin - 1 : height - margin + 1, margin - 1 : width - margin + 1].abs()
        # Maxima of three along rows, then columns: max_pool2d takes ten times as long on a CPU.
        rows = torch.maximum(torch.maximum(size[:, :-2], size[:, 2:]), size[:, 1:-1])
        most = torch.maximum(torch.maximum(rows[..., :-2], rows[..., 2:]), rows[..., 1:-1])
        inner = size[:, 1:-1, 1:-1]
        n, y, x = ((inner >= most) & (inner > _FLAT)).nonzero(as_tuple=True)
        found.append(torch.stack([torch.full_like(n, k), n, y + margin, x + margin]))
    s, n, y, x = torch.cat(found, 1)
    around = torch.stack(
        [space[s + d, n, y + i, x + j] for d in (-1, 1) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    )
    peak = (space[s, n, y, x].abs() > around.abs()).all(0)
    return s[peak], n[peak], y[peak], x[peak]


def _refine(space: Tensor, s: Tensor, n: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Offsets (N, 3) in x, y and scale of a quadratic's peak, its height, and whether it is a blob."""

    def at(ds: int, dy: int, dx: int) -> Tensor:
        return space[s + ds, n, y + dy, x + dx]

    middle = at(0, 0, 0)
    right, left, down, up = at(0, 0, 1), at(0, 0, -1), at(0, 1, 0), at(0, -1, 0)
    above, below = at(1, 0, 0), at(-1, 0, 0)
    gradient = 0.5 * torch.stack([right - left, down - up, above - below], 1)
    xx, yy, ss = right + left - 2 * middle, down + up - 2 * middle, above + below - 2 * middle
    xy = 0.25 * (at(0, 1, 1) - at(0, 1, -1) - at(0, -1, 1) + at(0, -1, -1))
    xs = 0.25 * (at(1, 0, 1) - at(1, 0, -1) - at(-1, 0, 1) + at(-1, 0, -1))
    ys = 0.25 * (at(1, 1, 0) - at(1, -1, 0) - at(-1, 1, 0) + at(-1, -1, 0))
    hessian = torch.stack([xx, xy, xs, xy, yy, ys, xs, ys, ss], 1).view(-1, 3, 3)
    offset, failed = torch.linalg.solve_ex(hessian, -gradient)
    offset = torch.where((failed == 0)[:, None], offset, 0.0).nan_to_num(9.0)
    height = middle + 0.5 * (gradient * offset).sum(1)
    determinant, trace = xx * yy - xy * xy, xx + yy
    blob = (determinant > 0) & (trace.square() * _EDGE < (_EDGE + 1) ** 2 * determinant)
    good = blob & (height.abs() > _FLAT) & (offset.abs().amax(1) < 1.5)
    return offset.clamp(-0.6, 0.6), height.abs(), good


def _spread(xy: Tensor, strength: Tensor, side: int, count: int) -> Tensor:
    """Which ``count`` points to keep: first the strongest of each cell, then the second strongest, and so on."""
    place = (xy * (_CELLS / side)).floor()
    cell = place[:, 1] * (_CELLS + 1) + place[:, 0]
    order = strength.argsort(descending=True, stable=True)
    order = order[cell[order].argsort(stable=True)]
    cell = cell[order].contiguous()
    rank = torch.arange(len(order), device=xy.device) - torch.searchsorted(cell, cell)
    return order[rank.argsort(stable=True)[:count]]


def dominant_angle(around: Tensor) -> Tensor:
    """(N,): peak of the histogram of gradient directions in (N, side, side), whose pixels are half a sigma apart.

    Gradients count by their size and by their nearness to the middle (a Gaussian of 1.5 sigma).

    >>> ramp = torch.arange(20.0).expand(1, 20, 20)
    >>> dominant_angle(torch.cat([ramp, ramp.mT])).mul(2 / math.pi).round().tolist()
    [0.0, 1.0]
    """
    side = around.shape[1]
    gx = around[:, 1:-1, 2:] - around[:, 1:-1, :-2]
    gy = around[:, 2:, 1:-1] - around[:, :-2, 1:-1]
    line = 0.5 * (torch.arange(side - 2, device=around.device, dtype=around.dtype) - (side - 3) / 2)
    near = torch.exp(-(line.square() + line[:, None].square()) / (2 * 1.5**2))
    weight = (gx.square() + gy.square()).sqrt() * near
    bins = torch.atan2(gy, gx) * (_BINS / (2 * math.pi))
    low = bins.floor()
    part, index = bins - low, low.long().flatten(1)
    histogram = around.new_zeros(len(around), _BINS)
    histogram.scatter_add_(1, index % _BINS, (weight * (1 - part)).flatten(1))
    histogram.scatter_add_(1, (index + 1) % _BINS, (weight * part).flatten(1))
    for _ in range(3):
        histogram = (histogram.roll(1, 1) + histogram + histogram.roll(-1, 1)) / 3
    best = histogram.argmax(1, keepdim=True)
    left, middle, right = (histogram.gather(1, (best + k) % _BINS)[:, 0] for k in (-1, 0, 1))
    bend = (left - 2 * middle + right).clamp_max(-1e-12)
    return (best[:, 0] + 0.5 * (left - right) / bend) * (2 * math.pi / _BINS)


def _sample(
    octaves: list[Tensor], xy: Tensor, angle: Tensor, step: Tensor, side: int, sharpness: float
) -> Tensor:
    """(N, side, side): values on grids around ``xy``, ``step`` apart, turned by ``angle``.

    Each is read from the octave whose pixels are the largest not above ``sharpness`` times the step (and a fifth).
    """
    level = (1.2 * sharpness * step).log2().floor().clamp(0, len(octaves) - 1)
    line = torch.arange(side, device=xy.device, dtype=xy.dtype) - (side - 1) / 2
    cos, sin = (angle.cos() * step)[:, None, None], (angle.sin() * step)[:, None, None]
    x = xy[:, :1, None] + cos * line - sin * line[:, None]
    y = xy[:, 1:, None] + sin * line + cos * line[:, None]
    values = xy.new_empty(len(xy), side, side)
    for n, octave in enumerate(octaves):
        rows = (level == n).nonzero()[:, 0]
        if not len(rows):
            continue
        # Pixels of the octave as grid_sample wants them: -1 and 1 at the outer borders of the outer pixels.
        height, width = octave.shape
        grid = torch.stack([(x[rows] + 0.5) / (width * 2.0**n), (y[rows] + 0.5) / (height * 2.0**n)], -1)
        read = grid_sample(
            octave[None, None],
            grid.mul_(2).sub_(1).view(1, -1, side, 2),
            padding_mode="border",
            align_corners=False,
        )
        values[rows] = read.view(-1, side, side)
    return values
