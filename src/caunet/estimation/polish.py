"""The last digits: align intensities directly, from an answer that is already near.

What is minimized, over the transformation, the light and a difference in sharpness, is

    sum of w(p) (b(H p) - gain(p) a(p) - bias(p) - blur (laplacian of a)(p))^2

by Gauss-Newton steps whose gradients are the mean of both images' (Benhimane and Malis' second-order
minimization). Both images are to be smoothed before by the same filter. After it linear interpolation is enough, and
better than the usual cubic one (a = -0.75), which does not reproduce a ramp and so pulls a pure translation by up to
0.05 pixels.

The light is a smooth field: the gain a quadratic function of the place, the bias a linear one. A lamp at one side or
the vignette of a lens would otherwise be explained by a motion. Seven more unknowns among thousands of pixels cost no
precision.

w is small where a neighborhood differs by far more than usual: where something covers the scene. What is usual is the
median residual, as long as most of the scene is free. Where neighborhoods that correlate (each up to a gain and a bias
of its own) differ by far less than the median one, less than half of the scene is free, and they say what is usual.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from caunet import geometry
from caunet.estimation.blocks import Blocks
from caunet.estimation.evidence import FAR, point_moves
from caunet.estimation.motion_models import MotionModel
from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid

__all__ = ["Polished", "polish", "unit_coordinates"]

_BLOCK = 4  # side of the neighborhoods that are weighted as one
_TOLERANCE = 6.0  # mean squared residual, relative to the median, at which a neighborhood keeps a quarter of its weight
_WINDOW = 12  # side of the neighborhoods whose correlation is taken
_RELATED = 4.0  # times that the median residual exceeds that of correlated neighborhoods when they decide
_FIRST = 3  # steps in which what does not correlate has no weight at all, where an answer is first looked for
_CORRELATE = 4  # steps after which correlations are taken again
_PART = 16  # side of the parts of the image whose gradients are compared for the covariance
_PARTS = 60  # how many of them there should be
_GRADIENT_NOISE = (
    0.075  # variance of the mean gradient's noise, as a share of the residual's, behind `smooth`
)
_UNEVEN = 0.5  # share by which a field of light must lower the squared residuals to be one
_LEAP = 4.0  # size of a step (1 is half the image) that no image justifies
_FLAT = 0.004**2 / 4  # variance of gray levels of noise: what is flatter correlates with nothing
_QUIET = 1e-7  # squared residual (gray levels 0..1) below which differences are rounding


# Columns of the linear system: H's first eight entries, the light, then b. Of the light the first three are uniform.
_LIGHT, _UNIFORM = 10, 3
_A, _ONE = 8, 9


class Polished(NamedTuple):
    """The answer, and what the last step knew of it."""

    H: Matrix
    covariance: Matrix
    """(k, k): of the transformation's k generators, in :func:`unit_coordinates`."""
    moved: float
    """How far the last step moved the corners, in pixels; nan when it could not be made."""
    correlation: float
    """Weighted correlation of a and warped b."""
    uneven: bool
    """Whether the light is a field: whether one gain and one bias explain clearly less."""


def unit_coordinates(size: tuple[int, int]) -> Matrix:
    """(3, 3): from pixels of an image of ``size`` to coordinates about its center, half its longer side being 1.

    Coordinates of the order of 1 keep the normal equations well conditioned.
    """
    unit = max(size) / 2
    x, y = geometry.center_of(size)
    return np.array([[1 / unit, 0, -x / unit], [0, 1 / unit, -y / unit], [0, 0, 1]])


def polish(
    blocks: Blocks,
    b: Tensor,
    H: Matrix,
    motion_model: MotionModel,
    size: tuple[int, int],
    steps: int,
    stop: float,
    mask: Tensor | None = None,
    *,
    first: bool = False,
    uneven: bool = True,
) -> Polished:
    """Improve ``H``, from the image of ``size`` that ``blocks`` were cut from to ``b`` (H, W).

    At most ``steps`` steps are made, fewer once one moves the corners by less than ``stop`` pixels. ``mask`` (H, W)
    tells which pixels of ``b`` count. ``first``: ``H`` is a guess and not yet an answer of a coarser level. ``uneven``:
    the light may be a field; otherwise it is one gain and one bias, which is faster.
    """
    work = _Work(blocks, b, mask, motion_model, size, first, _LIGHT if uneven else _UNIFORM)
    for _ in range(steps):
        H, moved = work.step(H)
        if not moved > stop:
            break
    return work.result(H, moved)


class _Work:
    """What stays the same from step to step, and what the last step saw."""

    def __init__(
        self,
        blocks: Blocks,
        b: Tensor,
        mask: Tensor | None,
        motion_model: MotionModel,
        size: tuple[int, int],
        first: bool,
        light: int,
    ) -> None:
        self.lights, self.last = light, 8 + light  # columns of the light, and the column of b
        a, self.b, self.size, self.first = blocks.values, b, size, first
        self.mask_a = None if blocks.mask is None else blocks.mask[:, 1:-1, 1:-1].to(a.dtype)
        self.mask_b = None if mask is None else mask.to(a.dtype)
        self.count = 0  # of steps
        _, height, width = a.shape
        line = torch.arange(max(height, width), device=a.device, dtype=a.dtype)
        self.x = blocks.corners[:, :1, None] + line[:width]  # (K, 1, w)
        self.y = blocks.corners[:, 1:, None] + line[:height, None]  # (K, h, 1)
        self.unit = max(size) / 2
        cx, cy = geometry.center_of(size)
        self.corners = geometry.corners(size, like=np.eye(3))
        self.inner_x = ((self.x - cx) / self.unit)[..., 1:-1]
        self.inner_y = ((self.y - cy) / self.unit)[:, 1:-1]
        self.out = np.array([[self.unit, 0, cx], [0, self.unit, cy], [0, 0, 1]])
        self.into = unit_coordinates(size)
        generators = motion_model.in_coordinates(self.into).generators()
        free = len(generators)
        self.basis = np.eye(free + light, 8 + light, 8 - free)
        self.basis[:free, :8] = generators
        self._prepare(a)
        self.light: list[float] | None = None

    def _prepare(self, a: Tensor) -> None:
        self.a = a[:, 1:-1, 1:-1]
        self.a_x, self.a_y = self._gradient(a)
        c = self.columns = a.new_empty(9 + self.lights, *self.a.shape)
        c[_A], c[_ONE] = self.a, 1
        torch.add(a[:, 1:-1, 2:], a[:, 1:-1, :-2], out=c[10])  # the Laplacian
        c[10].add_(a[:, 2:, 1:-1]).add_(a[:, :-2, 1:-1]).sub_(self.a, alpha=4)
        if self.lights == _UNIFORM:
            return
        c[11], c[12] = self.inner_x, self.inner_y
        for k, (factor, column) in enumerate(
            [
                (self.inner_x, _A),
                (self.inner_y, _A),
                (self.inner_x, 13),
                (self.inner_y, 13),
                (self.inner_y, 14),
            ]
        ):  # the gain: a x, a y, a x^2, a x y, a y^2
            torch.mul(c[column], factor, out=c[13 + k])

    def _gradient(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Twice the gradient in units of pixels: the halves are taken where both images' are added."""
        right = image[:, 1:-1, 2:] - image[:, 1:-1, :-2]
        return right, image[:, 2:, 1:-1] - image[:, :-2, 1:-1]

    def step(self, H: Matrix) -> tuple[Matrix, float]:
        """One Gauss-Newton step: the new H, and how far it moved the corners at most."""
        grid, inside = grid_places(H, self.x, self.y, (self.b.shape[0], self.b.shape[1]))
        seen = read_grid(self.b, grid)
        b, self.inside = seen[:, 1:-1, 1:-1], inside[:, 1:-1, 1:-1].to(seen.dtype)
        if self.mask_a is not None:
            self.inside *= self.mask_a
        if self.mask_b is not None:
            self.inside *= read_grid(self.mask_b, grid)[:, 1:-1, 1:-1] > 0.99
        if self.count % _CORRELATE == 0:
            self.correlated = self._correlated(b)
        self.count += 1
        if self.light is None:
            self.light = self._initial_light(b)
        b_x, b_y = self._gradient(seen)
        gain, half = self._gain(), 0.25 * self.unit
        x = b_x.addcmul_(gain, self.a_x).mul_(half)
        y = b_y.addcmul_(gain, self.a_y).mul_(half)
        self.columns[self.last] = b
        lit = b.new_tensor(self.light) @ self.columns[_A : self.last].flatten(1)
        self.residual = b - lit.view(b.shape)
        self.weight = self._trust(self.residual.square())
        self._fill(x, y)
        columns = self.columns.flatten(1)
        both = (columns * self.weight.reshape(-1)) @ columns.mT
        return self._solve(H, both.double().cpu().numpy())

    def _fill(self, x: Tensor, y: Tensor) -> None:
        """Columns of the linearized model: H's first eight entries. After them stand those of the light and b, so that
        one product holds all the sums that are needed."""
        c = self.columns
        torch.mul(x, self.inner_x, out=c[0])
        torch.mul(x, self.inner_y, out=c[1])
        c[2] = x
        torch.mul(y, self.inner_x, out=c[3])
        torch.mul(y, self.inner_y, out=c[4])
        c[5] = y
        radial = c[0].add(c[4]).neg_()
        torch.mul(radial, self.inner_x, out=c[6])
        torch.mul(radial, self.inner_y, out=c[7])

    def _solve(self, H: Matrix, both: Matrix) -> tuple[Matrix, float]:
        """``both`` (columns, columns): weighted products of the columns."""
        free, end = len(self.basis) - self.lights, self.last
        system, right = self.basis @ both[:end, :end] @ self.basis.T, self.basis @ both[:end, end]
        self.both = both
        scale = 1 / np.sqrt(np.maximum(np.diag(system), 1e-12))
        normal = system * scale[:, None] * scale + 1e-7 * np.eye(len(scale))
        theta = np.linalg.solve(normal, right * scale) * scale
        gain = float(theta[free])
        self.normal, self.right = system, right
        if not np.isfinite(theta).all() or gain < 0.02:
            return H, float("nan")
        self.light = theta[free:].tolist()
        algebra = np.append(theta[:free] @ self.basis[:free, :8], 0.0).reshape(3, 3)
        if not np.abs(algebra).sum() < _LEAP:
            return H, float("nan")
        return self._moved(H, self.out @ geometry.exponential(-algebra) @ self.into)

    def _moved(self, H: Matrix, D: Matrix) -> tuple[Matrix, float]:
        moved = float(np.abs(geometry.apply(D, self.corners, far=FAR) - self.corners).max())
        new = H @ D
        if not moved < max(self.size) or not abs(new[2, 2]) > 1e-9:
            return H, float("nan")
        return geometry.normalize(new, checked=False), moved

    def _gain(self) -> Tensor:
        """The gain at every pixel of the blocks."""
        assert self.light is not None
        if self.lights == _UNIFORM:
            return self.a.new_full((1, 1, 1), self.light[0])
        one, x, y, xx, xy, yy = self.light[0], *self.light[5:]
        along = self.inner_x * (self.inner_x * xx + x) + one
        gain: Tensor = along + self.inner_y * (self.inner_x * xy + self.inner_y * yy + y)
        return gain

    def _initial_light(self, b: Tensor) -> list[float]:
        """One gain and one bias, from what correlates if anything does."""
        share = self.inside
        if float(self.correlated.mean()) > 0.1:
            share = share * self._pixels(self.correlated)
        total = share.sum().clamp_min(1.0)
        mean_a, mean_b = (self.a * share).sum() / total, (b * share).sum() / total
        spread_a = ((self.a - mean_a).square() * share).sum()
        spread_b = ((b - mean_b).square() * share).sum()
        gain = (spread_b / spread_a.clamp_min(1e-9)).sqrt().clamp(0.1, 10.0)
        return [float(gain), float(mean_b - gain * mean_a)] + [0.0] * (self.lights - 2)

    def _correlated(self, b: Tensor) -> Tensor:
        """How far the surroundings of each block correlate in both images: (K, rows, columns), from 0 to 1."""
        planes = torch.stack([self.inside, self.a, b, self.a * self.a, b * b, self.a * b])
        planes[1:] *= self.inside
        shape = planes.shape
        pad = (_WINDOW - _BLOCK) // 2
        pooled = avg_pool2d(
            planes.view(-1, 1, *shape[2:]), _WINDOW, _BLOCK, pad, ceil_mode=True, count_include_pad=False
        )
        rows, columns = (-(-side // _BLOCK) for side in shape[2:])
        n, x, y, xx, yy, xy = pooled[..., :rows, :columns].reshape(6, shape[1], rows, columns)
        x, y, xx, yy, xy = (t / n.clamp_min(1e-3) for t in (x, y, xx, yy, xy))
        spread = ((xx - x * x).clamp_min(0) + _FLAT) * ((yy - y * y).clamp_min(0) + _FLAT)
        likeness: Tensor = (((xy - x * y) / spread.sqrt() - 0.3) / 0.5).clamp_(0, 1) * (n > 0.5)
        return likeness

    def _trust(self, squares: Tensor) -> Tensor:
        """Weights from the mean squared residual of blocks, in units of the usual one; 0 outside b."""
        energy = avg_pool2d(squares * self.inside, _BLOCK, ceil_mode=True)
        shares = avg_pool2d(self.inside, _BLOCK, ceil_mode=True)
        mean = energy / shares.clamp_min(1e-3)
        usual = self._usual(mean, shares)
        trust = mean.div_(usual.clamp_min(_QUIET).mul(_TOLERANCE)).add_(1).square_().reciprocal_()
        if self.first and self.count <= _FIRST:
            trust *= self.correlated
        return self._pixels(trust) * self.inside

    def _usual(self, mean: Tensor, shares: Tensor) -> Tensor:
        """The median of the blocks' mean squared residuals; of those that correlate, if theirs is far lower."""
        full = mean[shares > 0.5]
        usual = full.median() if full.numel() else mean.median()
        if float(self.correlated.mean()) < 0.05:
            return usual
        values, order = mean.flatten().sort()
        weight = self.correlated.flatten()[order].cumsum(0)
        related = values[torch.searchsorted(weight, 0.5 * weight[-1]).clamp_max(len(values) - 1)]
        return 2 * related if float(usual) > _RELATED * float(related) else usual

    def _pixels(self, blocks: Tensor) -> Tensor:
        """Values of blocks (K, rows, columns), for each pixel."""
        _, height, width = self.a.shape
        wide = blocks[:, :, None, :, None].expand(-1, -1, _BLOCK, -1, _BLOCK)
        rows, columns = blocks.shape[1] * _BLOCK, blocks.shape[2] * _BLOCK
        return wide.reshape(-1, rows, columns)[:, :height, :width]

    def result(self, H: Matrix, moved: float) -> Polished:
        """The answer, with what the last step knew of it."""
        sums, total = self.both, max(self.both[_ONE, _ONE], 1e-6)
        b = self.last
        mean_a, mean_b = sums[_A, _ONE] / total, sums[_ONE, b] / total
        product = sums[_A, b] / total - mean_a * mean_b
        lengths = (sums[_A, _A] / total - mean_a**2) * (sums[b, b] / total - mean_b**2)
        correlation = float(product / np.sqrt(max(lengths, 1e-14)))
        return Polished(H, self._covariance(), moved, correlation, self._uneven())

    def _uneven(self) -> bool:
        """Whether the weighted squares that a uniform light leaves exceed those that a field leaves."""
        if self.lights == _UNIFORM:
            return False
        kept = len(self.basis) - self.lights + _UNIFORM
        total = float(self.both[self.last, self.last])
        field, uniform = (total - self._explained(count) for count in (len(self.basis), kept))
        return uniform - field > _UNEVEN * max(field, 0.0) + _QUIET * float(self.both[_ONE, _ONE])

    def _explained(self, count: int) -> float:
        """The weighted squares of b that the first ``count`` unknowns explain."""
        scale = 1 / np.sqrt(np.maximum(np.diag(self.normal)[:count], 1e-12))
        normal = self.normal[:count, :count] * scale[:, None] * scale + 1e-9 * np.eye(count)
        right = self.right[:count] * scale
        return float(right @ np.linalg.solve(normal, right))

    def _covariance(self) -> Matrix:
        """Of the generators, the light being unknown, too: the sandwich A^-1 B A^-1 of least squares.

        A are the normal equations. B is how far the gradients of the cost of separate parts of the image scatter, so
        that nothing need be known of the noise: it may differ from place to place and, as smoothed noise does, agree
        between neighbors.
        """
        scores = self.columns[: self.last] * (self.weight * self.residual)
        side = _PART
        while side > 4 and scores.shape[1] * (scores.shape[2] // side) * (scores.shape[3] // side) < _PARTS:
            side //= 2
        parts = avg_pool2d(scores, side, ceil_mode=True, divisor_override=1).flatten(1).double().cpu().numpy()
        gradients = self.basis @ parts
        free = len(self.basis) - self.lights
        normal = self.normal - self._noise(free)
        scale = 1 / np.sqrt(np.maximum(np.diag(normal), 1e-12))
        inverse = np.linalg.inv(normal * scale[:, None] * scale + 1e-9 * np.eye(len(scale)))
        inverse *= scale[:, None] * scale
        # Rounding to gray levels is always there, even where no residual shows it.
        covariance: Matrix = inverse @ (gradients @ gradients.T) @ inverse + _QUIET * inverse
        return covariance[:free, :free]

    def _noise(self, free: int) -> Matrix:
        """What noise in the images' gradients adds to the normal equations: it looks like texture, and is none.

        Noise has gradients of a known share of its variance behind the smoothing filter, and the residual shows its
        variance. At most three quarters of what is there are called noise, in any direction.
        """
        step = (slice(None), slice(2, None, 4), slice(2, None, 4))
        weight = self.weight[step].flatten().double().cpu().numpy()
        x = self.inner_x.expand_as(self.a)[step].flatten().double().cpu().numpy()
        y = self.inner_y.expand_as(self.a)[step].flatten().double().cpu().numpy()
        moves = point_moves(np.stack([x, y], 1)) @ self.basis[:free, :8].T * self.unit  # (N, 2, k)
        sums = np.einsum("n,nak,nal->kl", weight, moves, moves)
        residual = (self.weight * self.residual.square()).sum() / self.weight.sum().clamp_min(1e-6)
        noise = np.zeros_like(self.normal)
        noise[:free, :free] = sums * (
            _GRADIENT_NOISE * float(residual) * self.weight.numel() / max(len(weight), 1)
        )
        scale = 1 / np.sqrt(np.maximum(np.diag(self.normal)[:free], 1e-12))
        scale = scale[:, None] * scale
        root = np.linalg.cholesky(self.normal[:free, :free] * scale + 1e-6 * np.eye(free))
        whitened = np.linalg.solve(root, np.linalg.solve(root, noise[:free, :free] * scale).T)
        return noise * min(1.0, 0.75 / max(float(np.linalg.eigvalsh(whitened).max()), 1e-12))
