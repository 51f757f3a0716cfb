"""What speaks for an answer, and against it: numbers that rank hypotheses and give the confidence.

None of them is what the answer was fitted to: the agreement of many small windows, each with its own gain and bias,
the precision that the textures allow, whether the pattern repeats, and whether the motions of patches agree.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from caunet import geometry
from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid

__all__ = ["FAR", "agreement", "corner_covariance", "distortion", "point_moves", "repetition", "uncertainty"]

FAR = 1e6
"""Pixels: where points behind the viewer are put."""

_WINDOW = 8
_MIDDLE = 64  # side of what is searched for repetition
_BROAD = 15
_FLAT = 0.004**2  # variance of gray levels below which a window shows nothing: one level is 1/255 = 0.0039


def agreement(
    a: Tensor, b: Tensor, H: Matrix, mask_a: Tensor | None = None, mask_b: Tensor | None = None
) -> dict[str, float]:
    """How well windows of a (H, W) correlate with b's under H, each up to a gain and a bias; those in the masks.

    ``score``: mean correlation of the windows, weighted by their contrast (its logarithm, so that no strong edge
    decides alone). ``alike``: share of those above 0.7. ``windows``: share of windows that show something.
    ``overlap``: share of the smaller one's scene seen in the other. ``rank``: what hypotheses are compared by.
    """
    # No more of a can be seen in b than there is of b, in pixels of a.
    there = b.numel() if mask_b is None else float(mask_b.sum())
    here = a.numel() if mask_a is None else float(mask_a.sum())
    enlarged = geometry.local_scale(H, (a.shape[0], a.shape[1])) ** 2
    possible = max(min(here, there / max(enlarged, 1e-6)), 1.0) / a.numel()
    likeness, weight, inside = correlate(a, b, H, mask_a, mask_b)
    total = weight.sum()
    overlap = min(inside / possible, 1.0)
    return {
        "score": float((weight * likeness).sum() / total.clamp_min(1e-6)),
        "windows": float((weight > 0.7).to(a.dtype).mean()) / (max(here, 1.0) / a.numel()),
        "alike": float((weight * (likeness > 0.7)).sum() / total.clamp_min(1e-6)),
        "overlap": overlap,
        # To choose among hypotheses. Squares, because behind an obstacle a right answer correlates well in some windows
        # and not at all in others, a wrong one a little everywhere; and a small overlap proves little.
        "rank": float((weight * likeness.clamp_min(0).square()).sum() / total.clamp_min(1e-6))
        * min(1.0, 2 * overlap) ** 0.5,
    }


class Windows(NamedTuple):
    """Small windows of a, half overlapping, compared with b's: (rows, columns)."""

    likeness: Tensor
    """Correlation of each window, -1 to 1."""
    weight: Tensor
    """Logarithm of its contrast; 0 where b or a mask ends."""
    inside: float
    """Share of a's pixels that b shows."""


def correlate(
    a: Tensor, b: Tensor, H: Matrix, mask_a: Tensor | None = None, mask_b: Tensor | None = None
) -> Windows:
    """How each small window of a (H, W) correlates with b's pixels under H, up to a gain and a bias of its own."""
    seen, inside = _seen(a, b, H, mask_a, mask_b)
    share = inside.to(a.dtype)
    side = min(_WINDOW, *a.shape)
    planes = torch.stack([a[None], seen, a[None].square(), seen.square(), a[None] * seen, share])
    x, y, xx, yy, xy, part = avg_pool2d(planes[:, 0], side, max(side // 2, 1)).unbind()
    spread_x, spread_y = (xx - x * x).clamp_min(0), (yy - y * y).clamp_min(0)
    # Noise of half a gray level in both: what is flat correlates with nothing.
    likeness = (xy - x * y) / ((spread_x + _FLAT / 4) * (spread_y + _FLAT / 4)).sqrt()
    weight = torch.log1p(torch.maximum(spread_x, spread_y) / _FLAT) * (part > 0.9)
    return Windows(likeness, weight, float(share.mean()))


def _seen(
    a: Tensor, b: Tensor, H: Matrix, mask_a: Tensor | None, mask_b: Tensor | None
) -> tuple[Tensor, Tensor]:
    """b's pixels under H, (1, H, W), and which of them show the scene in both."""
    height, width = a.shape
    line = torch.arange(max(height, width), device=a.device, dtype=a.dtype)
    grid, inside = grid_places(
        H, line[None, None, :width], line[None, :height, None], (b.shape[0], b.shape[1])
    )
    if mask_b is not None:
        inside &= read_grid(mask_b.to(a.dtype), grid) > 0.99
    if mask_a is not None:
        inside &= mask_a
    return read_grid(b, grid), inside


def corner_covariance(covariance: Matrix, generators: Matrix, size: tuple[int, int]) -> Matrix:
    """(4, 2, 2): covariance of the corners of an image of ``size``, in square pixels of it.

    ``covariance`` (k, k) is that of the polish for ``generators`` (k, 8), in its ``unit_coordinates``.
    """
    unit = max(size) / 2
    points = geometry.corners(size, centered=True, like=covariance) / unit
    moves = unit * point_moves(points) @ generators.T  # (4, 2, k)
    spread: Matrix = moves @ covariance @ np.swapaxes(moves, 1, 2)
    return spread


def point_moves(points: Matrix) -> Matrix:
    """(N, 2, 8): how ``points`` (N, 2) move with the first eight entries of a matrix near the identity."""
    x, y = points.T
    one, nil = np.ones(len(points)), np.zeros(len(points))
    to_x = np.stack([x, y, one, nil, nil, nil, -x * x, -x * y], 1)
    to_y = np.stack([nil, nil, nil, x, y, one, -x * y, -y * y], 1)
    return np.stack([to_x, to_y], 1)


def uncertainty(covariance: Matrix, generators: Matrix, size: tuple[int, int]) -> float:
    """Standard deviation of the corners of an image of ``size``, in pixels; see :func:`corner_covariance`."""
    spread = corner_covariance(covariance, generators, size)
    return math.sqrt(max(float(np.trace(spread, axis1=1, axis2=2).mean()), 0.0))


def distortion(H: Matrix, size: tuple[int, int]) -> float:
    """The logarithm of H's largest stretch over its smallest in the image; 0 for a rigid motion."""
    corners = geometry.corners(size, like=H)
    centers = np.vstack([corners, corners.mean(0)])
    half = np.array([0.5, 0.0])
    right = geometry.apply(H, centers + half, far=FAR) - geometry.apply(H, centers - half, far=FAR)
    down = geometry.apply(H, centers + half[::-1], far=FAR) - geometry.apply(H, centers - half[::-1], far=FAR)
    stretches = np.linalg.svd(np.stack([right, down], -1), compute_uv=False)
    if not np.isfinite(stretches).all() or stretches.min() < 1e-6 or stretches.max() > 1e3:
        return 10.0
    return float(np.log(max(stretches.max(), 1.0) / min(stretches.min(), 1.0)))


def repetition(a: Tensor) -> float:
    """How well the middle of a (H, W) correlates with itself a few pixels away: 1 for a perfect pattern.

    The highest correlation of the image with itself shifted by 4 pixels or more that is a peak of its own.
    """
    top, left = (max(n - _MIDDLE, 0) // 2 for n in a.shape)
    a = a[top : top + _MIDDLE, left : left + _MIDDLE]
    # Without the broad structure: a slow change of brightness correlates everywhere.
    a = a - avg_pool2d(a[None], _BROAD, 1, _BROAD // 2, count_include_pad=False)[0]
    height, width = a.shape
    ones = torch.ones_like(a)
    size = [2 * height, 2 * width]
    flat = a - a.mean()
    spectrum, mask, power = (torch.fft.rfft2(t, size) for t in (flat, ones, flat.square()))
    product = torch.fft.irfft2(spectrum * spectrum.conj(), size)
    count = torch.fft.irfft2(mask * mask.conj(), size)
    first = torch.fft.irfft2(power * mask.conj(), size).clamp_min(1e-9)
    second = torch.fft.irfft2(mask * power.conj(), size).clamp_min(1e-9)
    likeness = product / (first * second).sqrt().clamp_min(1e-6)
    y, x = (torch.fft.fftfreq(n, 1 / n, device=a.device) for n in size)
    far = (y[:, None].square() + x.square()) >= 16
    likeness = torch.where(far & (count > 0.35 * a.numel()), likeness, -1.0)
    around = torch.nn.functional.max_pool2d(likeness[None], 3, 1, 1)[0]
    peak = (likeness >= around) & (likeness > 0)
    return float(torch.where(peak, likeness, 0.0).amax())
