"""The last digits: align intensities directly, from an answer that is already near.

What is minimized, over the transformation, the light and a difference in sharpness, is

    sum of w(p) (b(H p) - gain(p) a(p) - bias(p) - blur (laplacian of a)(p))^2

by Gauss-Newton steps whose gradients are the mean of both images' (Benhimane and Malis' second-order
minimization). Both images are to be smoothed before by the same filter. After it linear interpolation is enough, and
better than the usual cubic one (a = -0.75), which does not reproduce a ramp and so pulls a pure translation by up to
0.05 pixels. The last digit is in what smoothing takes away: at full resolution images that are equally sharp are
compared as they are, and b is read linearly between values twice as dense (see ``finer``).

The light is a smooth field: the gain a quadratic function of the place, the bias a linear one. A lamp at one side or
the vignette of a lens would otherwise be explained by a motion. Seven more unknowns among thousands of pixels cost no
precision.

w is small where a neighborhood differs by far more than usual: where something covers the scene. What is usual is the
median residual, as long as most of the scene is free. Where neighborhoods that correlate (each up to a gain and a bias
of its own) differ by far less than the median one, less than half of the scene is free, and they say what is usual.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from caunet import geometry
from caunet.estimation.blocks import Blocks, SmoothedWhereRead
from caunet.estimation.evidence import FAR, point_moves
from caunet.estimation.motion_models import MotionModel
from caunet.estimation.normal_equations import GAIN, LIGHT, ONE, PLANES, UNIFORM, fill_columns, products
from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid
from caunet.images.pyramid import smooth

__all__ = ["Polished", "polish", "unit_coordinates"]

_BLOCK = 4  # side of the neighborhoods that are weighted as one
_TOLERANCE = 6.0  # mean squared residual, relative to the median, at which a neighborhood keeps a quarter of its weight
_AROUND = (3, 1, 1)  # neighborhoods whose correlation is taken: 3 x 3 blocks around each (size, step, margin)
_RELATED = 4.0  # times that the median residual exceeds that of correlated neighborhoods when they decide
_FIRST = 3  # steps in which what does not correlate has no weight at all, where an answer is first looked for
_CORRELATE = 4  # steps after which correlations are taken again
_PART = 16  # side of the parts of the image whose gradients are compared for the covariance
_PARTS = 60  # how many of them there should be
_SAMPLES = 1000  # pixels from which the share of noise in the normal equations is taken, about
# Variance of the mean gradient's noise, as a share of the residual's: of images as they are, and behind `smooth`.
_GRADIENT_NOISE = {False: 0.125, True: 0.075}
# Parts are few, and the residuals of what was fitted to them a little too small. Chosen on calibration photographs.
_INFLATION = 1.4
# Pixels: what reading between pixels costs, everywhere, and all of the image together; as they are, and smoothed.
_RESAMPLING = {False: 0.0007, True: 0.0014}
_PULL = {False: 0.0015, True: 0.003}
_OTHERWISE = 0.75  # share of the normal equations, in any direction, that is not what it seems, at most
_UNEVEN = 0.5  # share by which a field of light must lower the squared residuals to be one
_LEAP = 4.0  # size of a step (1 is half the image) that no image justifies
_FLAT = 0.004**2 / 4  # variance of gray levels of noise: what is flatter correlates with nothing
_GRID = np.stack(np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 5)), -1).reshape(-1, 2)
_QUIET = 1e-7  # squared residual (gray levels 0..1) below which differences are rounding


@dataclass(frozen=True)
class Polished:
    """The answer, and what the last step knew of it."""

    H: Matrix
    moved: float
    """How far the last step moved the corners, in pixels; nan when it could not be made."""
    correlation: float
    """Weighted correlation of a and warped b."""
    uneven: bool
    """Whether the light is a field: whether one gain and one bias explain clearly less."""
    covered: bool
    """Whether neighborhoods that correlate say what is usual: whether less than half of the scene is free."""
    light: list[float]
    """Gain, bias and sharpness, then those of the field."""
    _work: "_Work" = field(repr=False, compare=False)

    @property
    def noise_share(self) -> float:
        """How much of what looks like texture is noise, in the direction where that is most: 0 to about 1."""
        return self._work.noise_share()

    @cached_property
    def covariance(self) -> Matrix:
        """(k, k): of the transformation's k generators, in :func:`unit_coordinates`; computed when asked for."""
        return self._work.covariance()


def unit_coordinates(size: tuple[int, int]) -> Matrix:
    """(3, 3): from pixels of an image of ``size`` to coordinates about its center, half its longer side being 1.

    Coordinates of the order of 1 keep the normal equations well conditioned.
    """
    unit = max(size) / 2
    x, y = geometry.center_of(size)
    return np.array([[1 / unit, 0, -x / unit], [0, 1 / unit, -y / unit], [0, 0, 1]])


def polish(
    blocks: Blocks,
    b: Tensor | SmoothedWhereRead,
    H: Matrix,
    motion_model: MotionModel,
    size: tuple[int, int],
    steps: int,
    stop: float,
    mask: Tensor | None = None,
    *,
    uneven: bool = True,
    before: Polished | None = None,
    smoothed: bool = True,
) -> Polished:
    """Improve ``H``, from the image of ``size`` that ``blocks`` were cut from to ``b`` (H, W).

    At most ``steps`` steps are made, fewer once one moves the corners by less than ``stop`` pixels. ``mask`` (H, W)
    tells which pixels of ``b`` count. ``uneven``: the light may be a field; otherwise it is one gain and one bias,
    which is faster. ``before``: the answer of a coarser level that ``H`` is, where it is not a first guess.
    ``smoothed``: whether both images are; otherwise they are as they were, and b has been made :func:`finer
    <caunet.images.pyramid.finer>`.
    """
    work = _Work(blocks, b, mask, motion_model, size, LIGHT if uneven else UNIFORM, before, smoothed)
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
        b: Tensor | SmoothedWhereRead,
        mask: Tensor | None,
        motion_model: MotionModel,
        size: tuple[int, int],
        light: int,
        before: Polished | None,
        smoothed: bool,
    ) -> None:
        self.smoothed = smoothed
        self.lights, self.last = light, 8 + light  # columns of the light, and the column of b
        a, self.b, self.size, self.first = blocks.values, b, size, before is None
        height, width = b.shape
        self.size_b = (height, width) if smoothed else ((height + 1) // 2, (width + 1) // 2)
        self.mask_a = None if blocks.mask is None else blocks.mask[:, 1:-1, 1:-1].to(a.dtype)
        self.mask_b = None if mask is None else mask.to(a.dtype)
        self.count = 0  # of steps
        self.x, self.y, self.places = _places(blocks, size)
        self.unit = max(size) / 2
        cx, cy = geometry.center_of(size)
        self.corners = geometry.corners(size, like=np.eye(3))
        self.out = np.array([[self.unit, 0, cx], [0, self.unit, cy], [0, 0, 1]])
        self.into = unit_coordinates(size)
        self.generators = motion_model.in_coordinates(self.into).generators()
        free = len(self.generators)
        self.basis = np.eye(free + light, 8 + light, 8 - free)
        self.basis[:free, :8] = 0.25 * self.unit * self.generators
        self.basis[:free, 6:8] *= -1  # as these columns are
        # Both gradients, a, ones, the Laplacian and b; what is of a stays.
        shape = self.places.shape[1:]
        self.planes = a.new_empty(6, *shape)
        self.g, self.a, self.ones, self.laplacian, self.seen = (
            self.planes[:2],
            *self.planes[2:].unbind(),
        )
        self.a.copy_(a[:, 1:-1, 1:-1])
        self.ones.fill_(1.0)
        torch.add(a[:, 1:-1, 2:], a[:, 1:-1, :-2], out=self.laplacian)
        self.laplacian.add_(a[:, 2:, 1:-1]).add_(a[:, :-2, 1:-1]).sub_(self.a, alpha=4)
        self.slopes = _gradient(a, torch.empty_like(self.g))
        self.summed = a.new_empty(
            2, *shape
        )  # what is summed up over neighborhoods: squares, and what is inside
        self.inside = self.summed[1]
        self.counts = _pool(self.ones)
        self.covered = before is None or before.covered  # until correlations say otherwise
        self.correlated: Tensor | None = None
        self.light: list[float] | None = None
        if before is not None and len(before.light) == light:
            self.light = before.light.copy()
            self.light[2] = 0.0  # sharpness depends on the level

    def step(self, H: Matrix) -> tuple[Matrix, float]:
        """One Gauss-Newton step: the new H, and how far it moved the corners at most."""
        grid, inside = grid_places(H, self.x, self.y, self.size_b)
        seen = self.b.read(grid) if isinstance(self.b, SmoothedWhereRead) else read_grid(self.b, grid)
        self.seen.copy_(seen[:, 1:-1, 1:-1])
        self.inside.copy_(inside[:, 1:-1, 1:-1])
        if self.mask_a is not None:
            self.inside *= self.mask_a
        if self.mask_b is not None:
            self.inside *= read_grid(self.mask_b, grid)[:, 1:-1, 1:-1] > 0.99
        if (self.first or self.covered) and self.count % _CORRELATE == 0:
            self.correlated = self._correlated()
        self.count += 1
        if self.light is None:
            self.light = self._initial_light()
        _gradient(seen, self.g)
        self.residual = self._unexplained()
        self.root = self._trust()
        return self._solve(H, products(self.planes, self.root, self.places, self.lights))

    def _solve(self, H: Matrix, both: Matrix) -> tuple[Matrix, float]:
        """``both`` (columns, columns): weighted products of the columns."""
        free, end = len(self.generators), self.last
        reduced = self.basis @ both[:end]
        self.both, self.normal, self.right = both, reduced[:, :end] @ self.basis.T, reduced[:, end]
        theta = _solve(self.normal, self.right, 1e-7)
        if not np.isfinite(theta).all() or theta[free] < 0.02:  # a gain that is none
            return H, float("nan")
        self.light = theta[free:].tolist()
        algebra = np.zeros(9)
        algebra[:8] = theta[:free] @ self.generators
        if not np.abs(algebra).sum() < _LEAP:
            return H, float("nan")
        return self._moved(H, self.out @ geometry.exponential(-algebra.reshape(3, 3)) @ self.into)

    def _moved(self, H: Matrix, D: Matrix) -> tuple[Matrix, float]:
        moved = float(np.abs(geometry.apply(D, self.corners, far=FAR) - self.corners).max())
        new = H @ D
        if not moved < max(self.size) or not abs(new[2, 2]) > 1e-9:
            return H, float("nan")
        return new / new[2, 2], moved

    def _unexplained(self) -> Tensor:
        """What b differs by from a in the light of b, with its sharpness; a's gradients are added to those of b."""
        assert self.light is not None
        if self.lights == UNIFORM:
            gain, bias, sharpness = self.light
            self.g.add_(self.slopes, alpha=gain)
            return self.seen.sub(self.a, alpha=gain).sub_(self.laplacian, alpha=sharpness).sub_(bias)
        gains, biases = self._field()
        self.g.addcmul_(gains, self.slopes)
        left = self.seen.addcmul(gains, self.a, value=-1).sub_(self.laplacian, alpha=self.light[2])
        return left.sub_(biases)

    def _field(self) -> tuple[Tensor, Tensor]:
        """Gain and bias, (K, h, w) each."""
        assert self.light is not None
        gain, bias, _, bias_x, bias_y, x, y, xx, xy, yy = self.light
        terms = (
            [[gain, x, xx], [y, xy, 0.0], [yy, 0.0, 0.0]],
            [[bias, bias_x, 0.0], [bias_y, 0.0, 0.0], [0.0] * 3],
        )
        across, down = self.places[0, :, :1], self.places[1, :, :, :1]  # (K, 1, w), (K, h, 1)
        powers_x = torch.cat([torch.ones_like(across), across, across.square()], 1)  # (K, 3, w)
        powers_y = torch.cat([torch.ones_like(down), down, down.square()], 2)  # (K, h, 3)
        gains, biases = powers_y @ (self.places.new_tensor(terms)[:, None] @ powers_x)
        return gains, biases

    def _initial_light(self) -> list[float]:
        """One gain and one bias, from what correlates if anything does."""
        share = self.inside
        if self.correlated is not None and float(self.correlated.mean()) > 0.1:
            share = share * self._pixels(self.correlated)
        total = share.sum().clamp_min(1.0)
        mean_a, mean_b = (self.a * share).sum() / total, (self.seen * share).sum() / total
        spread_a = ((self.a - mean_a).square() * share).sum()
        spread_b = ((self.seen - mean_b).square() * share).sum()
        gain = (spread_b / spread_a.clamp_min(1e-9)).sqrt().clamp(0.1, 10.0)
        return [float(gain), float(mean_b - gain * mean_a)] + [0.0] * (self.lights - 2)

    def _correlated(self) -> Tensor:
        """How far the surroundings of each block correlate in both images: (K, rows, columns), from 0 to 1."""
        a, b = self.a * self.inside, self.seen * self.inside
        planes = torch.stack([self.inside, a, b, a * a, b * b, a * b])
        # Windows are made of neighboring blocks, so that each pixel is added up once.
        sums, counts = (avg_pool2d(t, *_AROUND, divisor_override=1) for t in (_pool(planes), self.counts))
        means = sums[1:] / sums[0].clamp_min(1e-3 * counts)
        middle = means[:2]
        spread = (means[2:4] - middle * middle).clamp_min_(0).add_(_FLAT)
        together = means[4] - middle[0] * middle[1]
        likeness = together.div_((spread[0] * spread[1]).sqrt_())
        return likeness.sub_(0.3).div_(0.5).clamp_(0, 1).mul_(sums[0] > 0.5 * counts)

    def _trust(self) -> Tensor:
        """Roots of the weights from the mean squared residual of blocks, in units of the usual one; 0 outside b."""
        torch.mul(self.residual, self.residual, out=self.summed[0]).mul_(self.inside)
        energy, self.shares = _pool(self.summed).div_(self.counts).unbind()
        mean = energy.div_(self.shares.clamp_min(1e-3))
        self.tolerated = _TOLERANCE * max(self._usual(mean), _QUIET)
        root = mean.div_(self.tolerated).add_(1).reciprocal_()
        if self.first and self.correlated is not None and self.count <= _FIRST:
            root *= self.correlated.sqrt()
        self.trusted = root
        return self._pixels(root) * self.inside

    def _usual(self, mean: Tensor) -> float:
        """The median of the blocks' mean squared residuals; of those that correlate, if theirs is far lower."""
        full = mean[self.shares > 0.5]
        usual = float(full.median() if full.numel() else mean.median())
        if self.correlated is None or not float(self.correlated.mean()) > 0.05:
            return usual
        lower = self.correlated * (_RELATED * mean < usual)
        self.covered = bool(2 * lower.sum() > self.correlated.sum())
        if not self.covered:
            return usual
        values, order = mean.flatten().sort()
        weight = self.correlated.flatten()[order].cumsum(0)
        return 2 * float(values[torch.searchsorted(weight, 0.5 * weight[-1]).clamp_max(len(values) - 1)])

    def _pixels(self, blocks: Tensor) -> Tensor:
        """Values of blocks (K, rows, columns), for each pixel."""
        count, height, width = self.a.shape
        rows = blocks.shape[1]
        wide = blocks[..., None].expand(-1, -1, -1, _BLOCK).reshape(count, rows, -1)[..., :width]
        return wide.repeat_interleave(_BLOCK, 1, output_size=rows * _BLOCK)[:, :height]

    def result(self, H: Matrix, moved: float) -> Polished:
        """The answer, with what the last step knew of it."""
        correlation = self._correlation(*self._moments())
        return Polished(H, moved, correlation, self._uneven(), self.covered, self.light or [], self)

    def _moments(self) -> tuple[float, ...]:
        """Weighted means of a, b and their products a a, b b, a b; of both smoothed, so that they tell no noise."""
        if self.smoothed:
            one, b = max(self.both[ONE, ONE], 1e-6), self.last
            pairs = ((GAIN, ONE), (b, ONE), (GAIN, GAIN), (b, b), (GAIN, b))
            return tuple(float(self.both[pair]) / one for pair in pairs)
        both = smooth(torch.stack([self.a, self.seen])).flatten(1)
        a, b = both - both.mean(1, keepdim=True)  # so that little is lost in squares
        weight = self.weight.flatten()
        total = weight.sum().clamp_min(1e-6)
        means = torch.stack([a, b, a * a, b * b, a * b]) @ weight / total
        return tuple(means.tolist())

    @staticmethod
    def _correlation(a: float, b: float, aa: float, bb: float, ab: float) -> float:
        return float((ab - a * b) / max((aa - a * a) * (bb - b * b), 1e-14) ** 0.5)

    def _uneven(self) -> bool:
        """Whether the weighted squares that a uniform light leaves exceed those that a field leaves."""
        if self.lights == UNIFORM:
            return False
        kept = len(self.basis) - self.lights + UNIFORM
        total = float(self.both[self.last, self.last])
        field, uniform = (total - self._explained(count) for count in (len(self.basis), kept))
        return uniform - field > _UNEVEN * max(field, 0.0) + _QUIET * float(self.both[ONE, ONE])

    def _explained(self, count: int) -> float:
        """The weighted squares of b that the first ``count`` unknowns explain."""
        right = self.right[:count]
        return float(right @ _solve(self.normal[:count, :count], right, 1e-9))

    def covariance(self) -> Matrix:
        """Of the generators, the light being unknown, too: the sandwich A^-1 B A^-1 of least squares.

        B is how far the gradients of the cost of separate parts of the image scatter, so that nothing need be known of
        the noise: it may differ from place to place and, as smoothed noise does, agree between neighbors. The parts are
        small, so that a part's coordinates are those of its middle. A is how the gradient of the whole changes with
        the unknowns: the normal equations, less what the change of the weights takes from them, less what is noise.
        """
        count, height, width = self.a.shape
        side = _PART
        while side > _BLOCK and count * (height // side) * (width // side) < _PARTS:
            side //= 2
        force = self.weight.mul_(self.residual)
        fine = _pool_rows(self.planes[:5] * force, _BLOCK)
        gradients = self._gradients(_pool(fine, side // _BLOCK), side)
        free = len(self.generators)
        less = self._of_weights(self._gradients(fine, _BLOCK))
        less[:free, :free] += self.noise
        inverse = _inverse_less(self.normal, less)
        # Rounding to gray levels is always there, even where no residual shows it.
        spread = inverse @ (gradients @ gradients.T) @ inverse + _QUIET * inverse
        covariance: Matrix = _INFLATION * spread[:free, :free] + self._resampling(free)
        return covariance

    def _gradients(self, sums: Tensor, side: int) -> Matrix:
        """(unknowns, blocks): gradients of the cost, from ``sums`` (5, K, rows, columns) over blocks of ``side``."""
        x = avg_pool2d(self.places[0, :, :1], (1, side), ceil_mode=True)  # (K, 1, columns)
        y = avg_pool2d(self.places[1, :, :, :1], (side, 1), ceil_mode=True)  # (K, rows, 1)
        columns = sums.new_empty(self.last, *sums.shape[1:])
        columns[list(PLANES)] = sums
        fill_columns(columns, _both(x, y), self.lights)
        gradients: Matrix = self.basis @ columns.flatten(1).double().cpu().numpy()
        return gradients

    def _of_weights(self, gradients: Matrix) -> Matrix:
        """What the normal equations lose because weights depend on the residuals, from the ``gradients`` of blocks.

        A block of n pixels has the weight w = (1 + e / t)^-2 of its mean squared residual e and what is tolerated, t.
        The derivative of w, 4 / (n t) w^(3/2) times the gradient of the cost at weight 1, is against the gradient.
        """
        inside = (self.shares * self.counts).flatten().double().cpu().numpy()
        root = self.trusted.flatten().double().cpu().numpy()
        known = (inside > 0.5) & (root > 1e-2)
        factor = np.where(known, 4 / (np.maximum(inside, 1) * self.tolerated) / np.maximum(root, 1e-2), 0.0)
        lost: Matrix = (gradients * factor) @ gradients.T
        return lost

    def _resampling(self, free: int) -> Matrix:
        """The covariance that lets every place be off by what reading between pixels costs, noise or none."""
        moves = (
            self.unit * point_moves(_GRID * np.array(self.size[::-1]) / max(self.size)) @ self.generators.T
        )
        moves = moves.reshape(-1, free)  # (50, k)
        normal = moves.T @ moves / len(_GRID)
        along = np.linalg.solve(
            normal, moves.reshape(-1, 2, free).mean(0).T
        )  # (k, 2): of shifts of all of it
        own, common = _RESAMPLING[self.smoothed], _PULL[self.smoothed]
        floor = own**2 * np.linalg.inv(normal) + common**2 * along @ along.T
        return np.asarray(floor, np.float64)

    @property
    def weight(self) -> Tensor:
        """(K, h, w): of every pixel, as the last step saw it."""
        return self.root.square()

    def noise_share(self) -> float:
        """See :attr:`Polished.noise_share`."""
        free = len(self.generators)
        normal = self.normal[:free, :free]
        scale = 1 / np.sqrt(np.maximum(normal.diagonal(), 1e-12))
        scale = scale[:, None] * scale
        whiten = np.linalg.inv(_root(normal * scale))
        return float(np.linalg.eigvalsh(whiten @ (self.noise * scale) @ whiten.T)[-1])

    @cached_property
    def noise(self) -> Matrix:
        """(k, k): what noise in the images' gradients adds to the normal equations: it looks like texture, and is none.

        Noise has gradients of a known share of its variance, and the residual shows its variance.
        """
        free = len(self.generators)
        spacing = max(4, round((self.a.numel() / _SAMPLES) ** 0.5))
        thin = slice(spacing // 2, None, spacing)
        root = self.root[:, thin, thin].double().cpu().numpy()
        places = self.places[:, :, thin, thin].flatten(1).T.double().cpu().numpy()
        moves = point_moves(places) @ self.generators.T * self.unit  # (N, 2, k)
        weighted = (moves * root.reshape(-1, 1, 1)).reshape(-1, free)
        sums = weighted.T @ weighted
        left = (self.root * self.residual).flatten()
        residual = float(left @ left) / max(float(self.both[ONE, ONE]), 1e-6)
        share = _GRADIENT_NOISE[self.smoothed] * self.root.numel() / max(root.size, 1)
        noise: Matrix = sums * (residual * share)
        return noise


def _root(scaled: Matrix) -> Matrix:
    """The lower triangle L of L L' = ``scaled``, whose diagonal is 1 or 0, held by what rounding needs.

    Sums in float32 of an image that shows nothing are not exactly those of squares.
    """
    for ridge in (1e-7, 1e-5, 1e-3):
        try:
            return np.asarray(np.linalg.cholesky(scaled + ridge * np.eye(len(scaled))), np.float64)
        except np.linalg.LinAlgError:
            continue
    return np.eye(len(scaled))


def _inverse_less(normal: Matrix, less: Matrix) -> Matrix:
    """The inverse of ``normal`` - ``less``, of which at most three quarters are taken away in any direction."""
    scale = 1 / np.sqrt(np.maximum(normal.diagonal(), 1e-12))
    scale = scale[:, None] * scale
    whiten = np.linalg.inv(_root(normal * scale))
    share, along = np.linalg.eigh(whiten @ (less * scale) @ whiten.T)
    half = whiten.T @ along
    inverse: Matrix = (half / (1 - np.minimum(share, _OTHERWISE))) @ half.T * scale
    return inverse


def _solve(normal: Matrix, right: Matrix, ridge: float) -> Matrix:
    """x of ``normal`` x = ``right``, after all unknowns are brought to one size and held by a ``ridge``."""
    scale = 1 / np.sqrt(np.maximum(normal.diagonal(), 1e-12))
    scaled = normal * (scale[:, None] * scale)
    scaled.flat[:: len(scale) + 1] += ridge
    solution: Matrix = np.linalg.solve(scaled, right * scale) * scale
    return solution


def _pool(planes: Tensor, side: int = _BLOCK) -> Tensor:
    """Sums over blocks of ``side`` pixels of planes (..., K, h, w); those at the edges may be smaller."""
    return avg_pool2d(planes, side, ceil_mode=True, divisor_override=1)


def _pool_rows(planes: Tensor, side: int) -> Tensor:
    """The same of planes (N, K, h, w), rows first: for larger blocks it takes a quarter of the time."""
    *several, height, width = planes.shape
    full = height // side * side
    rows = planes[..., :full, :].reshape(*several, -1, side, width).sum(-2)
    if full < height:
        rows = torch.cat([rows, planes[..., full:, :].sum(-2, keepdim=True)], -2)
    return avg_pool2d(rows, (1, side), ceil_mode=True, divisor_override=1)


def _gradient(image: Tensor, out: Tensor) -> Tensor:
    """Twice the gradient of blocks (K, h, w) in pixels, into (2, K, h - 2, w - 2).

    The basis of the unknowns has the factor that makes a mean gradient of the sum of two of them.
    """
    torch.sub(image[:, 1:-1, 2:], image[:, 1:-1, :-2], out=out[0])
    torch.sub(image[:, 2:, 1:-1], image[:, :-2, 1:-1], out=out[1])
    return out


def _places(blocks: Blocks, size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """x (K, 1, w) and y (K, h, 1) of the blocks' pixels, and those inside in units about the center: (2, K, h, w)."""
    _, height, width = blocks.values.shape
    line = torch.arange(max(height, width), device=blocks.values.device, dtype=blocks.values.dtype)
    x, y = blocks.corners[:, :1, None] + line[:width], blocks.corners[:, 1:, None] + line[:height, None]
    cx, cy = geometry.center_of(size)
    unit = max(size) / 2
    return x, y, _both(((x - cx) / unit)[..., 1:-1], ((y - cy) / unit)[:, 1:-1])


def _both(x: Tensor, y: Tensor) -> Tensor:
    """(2, K, h, w) of x (K, 1, w) and y (K, h, 1)."""
    shape = (len(x), y.shape[1], x.shape[2])
    return torch.stack([x.expand(shape), y.expand(shape)])
