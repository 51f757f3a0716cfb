"""What speaks for an answer, and against it: numbers that rank hypotheses and give the confidence.

None of them is what the answer was fitted to: the agreement of many small windows, each with its own gain and bias,
the precision that the textures allow, whether the motions of patches agree, and what still moves under the answer.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from caunet import geometry
from caunet.estimation.fit import robust_fit
from caunet.estimation.motion_models import Projective
from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid
from caunet.geometry.matrices import NEAR

__all__ = [
    "FAR",
    "LocalMotions",
    "Seen",
    "Windows",
    "agreement",
    "corner_covariance",
    "correlate",
    "distortion",
    "drift",
    "explained",
    "local_motions",
    "point_moves",
    "see",
    "uncertainty",
]

FAR = 1e6
"""Pixels: where points behind the viewer are put."""

_WINDOW = 8
_LOCAL = 10  # side of the windows whose motion is measured
_NEAR = 0.005  # of the diagonal, up to which a window's motion is explained
_LIKE = 0.3  # correlation from which a window shows the same
_ROUNDING = 0.02  # share of a window's variance that is not counted on to be explained
_FEWEST = 4.0  # windows that determine a homography
_UNSEEN = 0.005  # of the diagonal: a drift between those of right and of wrong answers
_FAINT = 0.001**2  # squared gradient that shows nothing
_LONGEST = 3.0  # pixels: of what one step can measure
_TORN = 10.0  # distortion of what is no image any more
_FLAT = 0.004**2  # variance of gray levels below which a window shows nothing: one level is 1/255 = 0.0039


def agreement(
    a: Tensor,
    b: Tensor,
    H: Matrix,
    mask_a: Tensor | None = None,
    mask_b: Tensor | None = None,
    *,
    windows: "Windows | None" = None,
) -> dict[str, float]:
    """How well windows of a (H, W) correlate with b's under H, each up to a gain and a bias; those in the masks.

    ``windows``: what :func:`correlate` says, if it was asked already.

    ``score``: mean correlation of the windows, weighted by their contrast (its logarithm, so that no strong edge
    decides alone). ``alike``: share of those above 0.7. ``windows``: share of windows that show something.
    ``overlap``: share of the smaller one's scene seen in the other. ``rank`` and ``information``: what hypotheses
    are compared by, at a coarse level and at a finer one.
    """
    # No more of a can be seen in b than there is of b, in pixels of a.
    there = b.numel() if mask_b is None else float(mask_b.sum())
    here = a.numel() if mask_a is None else float(mask_a.sum())
    enlarged = geometry.local_scale(H, (a.shape[0], a.shape[1])) ** 2
    possible = max(min(here, there / max(enlarged, 1e-6)), 1.0) / a.numel()
    likeness, weight, inside = windows or correlate(a, b, H, mask_a, mask_b)
    overlap = min(inside / possible, 1.0)
    numbers = torch.stack(
        [
            likeness,
            likeness.clamp_min(0).square(),
            (likeness > 0.7).to(a.dtype),
            _told(likeness),
            torch.ones_like(weight),
        ]
    )
    score, squares, alike, told, total = (numbers * weight).sum((1, 2)).tolist()
    total = max(total, 1e-6)
    return {
        "score": score / total,
        "windows": float((weight > 0.7).to(a.dtype).mean()) / (max(here, 1.0) / a.numel()),
        "alike": alike / total,
        "overlap": overlap,
        # To choose among hypotheses. Squares, because behind an obstacle a right answer correlates well in some windows
        # and not at all in others, a wrong one a little everywhere; and a small overlap proves little.
        "rank": squares / total * min(1.0, 2 * overlap) ** 0.5,
        # What the windows of one image tell of the other's: in smooth regions a wrong answer correlates a little
        # everywhere, which is worth little, and finer windows correlate less still.
        "information": told / total * overlap**0.5,
    }


def _told(likeness: Tensor) -> Tensor:
    """Mutual information of windows that correlate by ``likeness``, as a share of what rounding leaves: 0 to 1."""
    return -torch.log(1 - likeness.clamp(0, 1).square() + _ROUNDING) / -math.log(_ROUNDING)


class Windows(NamedTuple):
    """Small windows of a, half overlapping, compared with b's: (rows, columns)."""

    likeness: Tensor
    """Correlation of each window, -1 to 1."""
    weight: Tensor
    """Logarithm of its contrast; 0 where b or a mask ends."""
    inside: float
    """Share of a's pixels that b shows."""


class Seen(NamedTuple):
    """b's pixels at the places that a transform gives for those of a."""

    values: Tensor
    """(H, W)."""
    inside: Tensor
    """(H, W) bool: which of them show the scene in both."""


def see(a: Tensor, b: Tensor, H: Matrix, mask_a: Tensor | None = None, mask_b: Tensor | None = None) -> Seen:
    """What of b (H, W) is seen under H at the pixels of a (H, W)."""
    height, width = a.shape
    line = torch.arange(max(height, width), device=a.device, dtype=a.dtype)
    grid, inside = grid_places(
        H, line[None, None, :width], line[None, :height, None], (b.shape[0], b.shape[1])
    )
    if mask_b is not None:
        inside &= read_grid(mask_b.to(a.dtype), grid) > 0.99
    if mask_a is not None:
        inside &= mask_a
    return Seen(read_grid(b, grid)[0], inside[0])


def correlate(
    a: Tensor,
    b: Tensor,
    H: Matrix,
    mask_a: Tensor | None = None,
    mask_b: Tensor | None = None,
    *,
    seen: Seen | None = None,
) -> Windows:
    """How each small window of a (H, W) correlates with b's pixels under H, up to a gain and a bias of its own.

    ``seen``: what :func:`see` says, if it was asked already.
    """
    w, inside = seen or see(a, b, H, mask_a, mask_b)
    side = min(_WINDOW, *a.shape)
    planes = a.new_empty(6, *a.shape)
    planes[0], planes[1], planes[5] = a, w, inside
    torch.mul(planes[:2], planes[:2], out=planes[2:4])
    torch.mul(a, w, out=planes[4])
    means = _half_overlapping(planes, side)
    middle = means[:2]
    spread = (means[2:4] - middle * middle).clamp_min_(0)
    weight = torch.log1p(torch.maximum(*spread).div_(_FLAT)) * (means[5] > 0.9)
    # Noise of half a gray level in both: what is flat correlates with nothing.
    spread_x, spread_y = spread.add_(_FLAT / 4)
    likeness = (means[4] - middle[0] * middle[1]).div_((spread_x * spread_y).sqrt_())
    return Windows(likeness, weight, float(inside.sum()) / a.numel())


def _half_overlapping(planes: Tensor, side: int) -> Tensor:
    """Means over windows of ``side`` pixels, half of it apart, of planes (N, H, W): (N, rows, columns)."""
    half = max(side // 2, 1)
    if side != 2 * half:
        return avg_pool2d(planes, side, half)
    # Rows are added up in strips of half a window; a product with ones and zeros, which takes a fifth of the time of
    # torch's pooling, adds up columns.
    count, height, width = planes.shape
    strips = planes[:, : height // half * half].reshape(count, -1, half, width).sum(2)
    added: Tensor = strips @ _columns(width, half, planes.dtype, planes.device)
    return added[:, 1:] + added[:, :-1]


@functools.lru_cache(maxsize=16)
def _columns(width: int, half: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(width, columns): what sums of rows are multiplied by to give means over windows, half overlapping."""
    first = half * torch.arange(width // half - 1, device=device)
    place = torch.arange(width, device=device)[:, None] - first
    return ((place >= 0) & (place < 2 * half)).to(dtype) / (4 * half * half)


class LocalMotions(NamedTuple):
    """What is left to move in separate windows of a, in pixels of it."""

    points: Matrix
    """(N, 2): centers of the windows that show something in both images."""
    motion: Matrix
    """(N, 2): a's content at ``points`` is found in b at H (points + motion)."""
    weight: Matrix
    """(N,): how well the texture determines the motion, 0 to 1."""
    likeness: Matrix
    """(N,): correlation of the window."""


def local_motions(
    a: Tensor,
    b: Tensor,
    H: Matrix,
    mask_a: Tensor | None = None,
    mask_b: Tensor | None = None,
    *,
    seen: Seen | None = None,
) -> LocalMotions:
    """One step of Lucas and Kanade in each window of a (H, W), whose gain and bias are its own.

    ``seen``: what :func:`see` says, if it was asked already.

    Exact for motions below a pixel, too short for longer ones; enough to see that something moves, and where to.
    """
    w, inside = seen or see(a, b, H, mask_a, mask_b)
    side = min(_LOCAL, *a.shape)
    planes = a.new_zeros(15, *a.shape)
    planes[0], planes[1], planes[14] = a, w, inside
    # The gradient of both: its mean is that at half the motion.
    both = a + w
    torch.sub(both[:, 2:], both[:, :-2], out=planes[2, :, 1:-1])
    torch.sub(both[2:], both[:-2], out=planes[3, 1:-1])
    planes[2:4] *= 0.25
    torch.mul(planes[:4], planes[:4], out=planes[4:8])
    torch.mul(planes[:3], planes[1:4], out=planes[8:11])  # a w, w x, x y
    torch.mul(planes[0], planes[2:4], out=planes[11:13])  # a x, a y
    torch.mul(planes[1], planes[3], out=planes[13])
    pooled = _half_overlapping(planes, side).flatten(1).double().cpu().numpy()
    ma, mw, mx, my, aa, ww, xx, yy, aw, xw, xy, xa, ya, yw, part = pooled
    spread_a, spread_w = (np.maximum(v, 0) + _FLAT / 4 for v in (aa - ma * ma, ww - mw * mw))
    gain = np.sqrt(spread_a / spread_w)
    right_x = (xa - mx * ma) - gain * (xw - mx * mw)
    right_y = (ya - my * ma) - gain * (yw - my * mw)
    # Held by gradients that rounding to gray levels has, too: where there is no texture nothing moves.
    xx, yy = xx + _FAINT, yy + _FAINT
    determinant = xx * yy - xy * xy
    motion = np.stack([yy * right_x - xy * right_y, xx * right_y - xy * right_x], 1) / determinant[:, None]
    length = np.linalg.norm(motion, axis=1, keepdims=True)
    motion *= np.minimum(1.0, _LONGEST / np.maximum(length, 1e-9))
    smaller = determinant / (xx + yy)
    weight = np.maximum(smaller - _FAINT, 0) / (smaller + 3 * _FAINT)
    rows = np.arange((a.shape[0] - side) // max(side // 2, 1) + 1) * max(side // 2, 1) + (side - 1) / 2
    columns = np.arange((a.shape[1] - side) // max(side // 2, 1) + 1) * max(side // 2, 1) + (side - 1) / 2
    points = np.stack(np.meshgrid(columns, rows), -1).reshape(-1, 2)
    kept = part > 0.9
    likeness = (aw - ma * mw) / np.sqrt(spread_a * spread_w)
    return LocalMotions(points[kept], motion[kept], weight[kept], likeness[kept])


def explained(left: LocalMotions, size: tuple[int, int]) -> float:
    """Share of the texture that b shows where the answer says, to half a percent of the diagonal: 0 to 1.

    Parallax, what covers the scene and what moves by itself are not explained.
    """
    near = np.linalg.norm(left.motion, axis=1) < max(_NEAR * math.hypot(*size), 0.5)
    total = float(left.weight.sum())
    return min(float(left.weight @ (near & (left.likeness > _LIKE))) / total, 1.0) if total > 1e-6 else 0.0


def drift(left: LocalMotions, size: tuple[int, int]) -> float:
    """How far a homography that explains the motions ``left`` would still move the corners, over the diagonal.

    More than the noise of the motions means that the images are related by more than the motion model can express. Too
    few windows to see that say little for the answer, and little against it.
    """
    weight = left.weight * np.maximum(left.likeness, 0)
    if float(weight.sum()) < _FEWEST:
        return _UNSEEN
    H, _ = robust_fit(Projective(), left.points, left.points + left.motion, weight, tolerance=0.7)
    corners = geometry.corners(size, like=H)
    gap = np.linalg.norm(geometry.apply(H, corners, far=FAR) - corners, axis=1).mean()
    return min(float(gap) / math.hypot(*size), 1.0)


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
    moves = np.zeros((len(points), 2, 8))
    moves[:, 0, 0] = moves[:, 1, 3] = x
    moves[:, 0, 1] = moves[:, 1, 4] = y
    moves[:, 0, 2] = moves[:, 1, 5] = 1
    moves[:, 0, 6] = -x * x
    moves[:, 0, 7] = moves[:, 1, 6] = -x * y
    moves[:, 1, 7] = -y * y
    return moves


def uncertainty(covariance: Matrix, generators: Matrix, size: tuple[int, int]) -> float:
    """Standard deviation of the corners of an image of ``size``, in pixels; see :func:`corner_covariance`."""
    spread = corner_covariance(covariance, generators, size)
    return math.sqrt(max(float(np.trace(spread, axis1=1, axis2=2).mean()), 0.0))


def distortion(H: Matrix, size: tuple[int, int]) -> float:
    """The logarithm of H's largest stretch over its smallest in the image; 0 for a rigid motion."""
    (a, b, c), (d, e, f), (g, h, i) = H.tolist()
    height, width = size
    longest, shortest = 1.0, 1.0
    for x, y in ((0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1), geometry.center_of(size)):
        third = g * x + h * y + i
        if not third > NEAR:
            return _TORN
        u, v = (a * x + b * y + c) / third, (d * x + e * y + f) / third
        # The derivative there, and its singular values.
        xx, xy, yx, yy = (a - u * g) / third, (b - u * h) / third, (d - v * g) / third, (e - v * h) / third
        sum_of_both = math.hypot(xx + yy, yx - xy)
        difference = math.hypot(xx - yy, yx + xy)
        if not math.isfinite(sum_of_both + difference):
            return _TORN
        longest = max(longest, (sum_of_both + difference) / 2)
        shortest = min(shortest, abs(sum_of_both - difference) / 2)
    if not (shortest > 1e-6 and longest < 1e3):
        return _TORN
    return math.log(longest / shortest)
