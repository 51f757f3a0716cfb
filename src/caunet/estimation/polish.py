"""The last digits: align intensities directly, from an answer that is already near.

What is minimized, over the transformation, a gain, a bias and a difference in sharpness, is

    sum of w(p) (b(H p) - gain a(p) - bias - blur (laplacian of a)(p))^2

by Gauss-Newton steps whose gradients are the mean of both images' (Benhimane and Malis' second-order
minimization). w is small where a neighborhood differs by far more than the image as a whole does: where
something covers the scene. Both images are to be smoothed before by the same filter. After it linear
interpolation is enough, and better than the usual cubic one (a = -0.75), which does not reproduce a ramp and so
pulls a pure translation by up to 0.05 pixels.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from caunet import geometry
from caunet.estimation.blocks import Blocks
from caunet.estimation.evidence import FAR
from caunet.estimation.motion_models import MotionModel
from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid

__all__ = ["Polished", "polish", "unit_coordinates"]

_BLOCK = 4  # side of the neighborhoods that are weighted as one
_TOLERANCE = 6.0  # mean squared residual, relative to the median, at which a neighborhood keeps a quarter of its weight
_LEAP = 4.0  # size of a step (1 is half the image) that no image justifies
_QUIET = 1e-7  # squared residual (gray levels 0..1) below which differences are rounding


class Polished(NamedTuple):
    """The answer, and what the last step knew of it."""

    H: Matrix
    information: Matrix
    """(k, k): the normal equations of the transformation's k generators, divided by the residual's variance."""
    moved: float
    """How far the last step moved the corners, in pixels; nan when it could not be made."""
    correlation: float
    """Weighted correlation of a and warped b."""


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
) -> Polished:
    """Improve ``H``, from the image of ``size`` that ``blocks`` were cut from to ``b`` (H, W).

    At most ``steps`` steps are made, fewer once one moves the corners by less than ``stop`` pixels.
    """
    work = _Work(blocks, b, motion_model, size)
    for _ in range(steps):
        H, moved = work.step(H)
        if not moved > stop:
            break
    return work.result(H, moved)


class _Work:
    """What stays the same from step to step, and what the last step saw."""

    def __init__(self, blocks: Blocks, b: Tensor, motion_model: MotionModel, size: tuple[int, int]) -> None:
        a, self.b, self.size = blocks.values, b, size
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
        self.basis = np.eye(free + 3, 11, 8 - free)
        self.basis[:free, :8] = generators
        self._prepare(a)
        self.light: tuple[float, float, float] | None = None

    def _prepare(self, a: Tensor) -> None:
        self.a = a[:, 1:-1, 1:-1]
        self.a_x, self.a_y = self._gradient(a)
        self.laplacian = a[:, 1:-1, 2:] + a[:, 1:-1, :-2] + a[:, 2:, 1:-1] + a[:, :-2, 1:-1]
        self.laplacian.sub_(self.a, alpha=4)
        self.columns = a.new_empty(13, *self.a.shape)
        self.columns[8], self.columns[9], self.columns[10] = self.a, 1, self.laplacian

    def _gradient(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Twice the gradient in units of pixels: the halves are taken where both images' are added."""
        right = image[:, 1:-1, 2:] - image[:, 1:-1, :-2]
        return right, image[:, 2:, 1:-1] - image[:, :-2, 1:-1]

    def step(self, H: Matrix) -> tuple[Matrix, float]:
        """One Gauss-Newton step: the new H, and how far it moved the corners at most."""
        grid, inside = grid_places(H, self.x, self.y, (self.b.shape[0], self.b.shape[1]))
        seen = read_grid(self.b, grid)
        b, self.inside = seen[:, 1:-1, 1:-1], inside[:, 1:-1, 1:-1].to(seen.dtype)
        if self.light is None:
            self.light = self._initial_light(b)
        gain, bias, blur = self.light
        b_x, b_y = self._gradient(seen)
        half = 0.25 * self.unit
        x = b_x.mul_(1 / gain).add_(self.a_x).mul_(half)
        y = b_y.mul_(1 / gain).add_(self.a_y).mul_(half)
        self.columns[11] = b
        squares = self.columns[12]
        torch.sub(b, self.a, alpha=gain, out=squares)
        squares.sub_(self.laplacian, alpha=blur).sub_(bias).square_()
        weight = self._trust(squares)
        self._fill(x, y)
        columns = self.columns.view(13, -1)
        both = (columns * weight.view(-1)) @ columns.mT
        return self._solve(H, both.double().cpu().numpy())

    def _fill(self, x: Tensor, y: Tensor) -> None:
        """Columns of the linearized model: H's first eight entries. After them stand a, 1, a's Laplacian, b and the
        squared residual, so that one product holds all the sums that are needed."""
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
        """``both`` (13, 13): weighted products of the columns."""
        free = len(self.basis) - 3
        system, right = self.basis @ both[:11, :11] @ self.basis.T, self.basis @ both[:11, 11]
        self.both = both
        scale = 1 / np.sqrt(np.maximum(np.diag(system), 1e-12))
        normal = system * scale[:, None] * scale + 1e-7 * np.eye(len(scale))
        theta = np.linalg.solve(normal, right * scale) * scale
        gain = float(theta[free])
        total, squared = both[9, 9], both[9, 12]  # sums of the weights, and of weighted squared residuals
        self.information = system[:free, :free] * gain**2 / max(squared / max(total, 1.0), _QUIET)
        if not np.isfinite(theta).all() or gain < 0.02:
            return H, float("nan")
        self.light = gain, float(theta[free + 1]), float(theta[free + 2])
        algebra = np.append((theta[:free] / gain) @ self.basis[:free, :8], 0.0).reshape(3, 3)
        if not np.abs(algebra).sum() < _LEAP:
            return H, float("nan")
        return self._moved(H, self.out @ geometry.exponential(-algebra) @ self.into)

    def _moved(self, H: Matrix, D: Matrix) -> tuple[Matrix, float]:
        moved = float(np.abs(geometry.apply(D, self.corners, far=FAR) - self.corners).max())
        new = H @ D
        if not moved < max(self.size) or not abs(new[2, 2]) > 1e-9:
            return H, float("nan")
        return geometry.normalize(new, checked=False), moved

    def _initial_light(self, b: Tensor) -> tuple[float, float, float]:
        share = self.inside
        total = share.sum().clamp_min(1.0)
        mean_a, mean_b = (self.a * share).sum() / total, (b * share).sum() / total
        spread_a = ((self.a - mean_a).square() * share).sum()
        spread_b = ((b - mean_b).square() * share).sum()
        gain = (spread_b / spread_a.clamp_min(1e-9)).sqrt().clamp(0.1, 10.0)
        return float(gain), float(mean_b - gain * mean_a), 0.0

    def _trust(self, squares: Tensor) -> Tensor:
        """Weights from the mean squared residual of blocks, in units of the median block's; 0 outside b."""
        _, height, width = squares.shape
        energy = avg_pool2d(squares * self.inside, _BLOCK, ceil_mode=True)
        shares = avg_pool2d(self.inside, _BLOCK, ceil_mode=True)
        mean = energy / shares.clamp_min(1e-3)
        full = mean[shares > 0.5]
        usual = full.median() if full.numel() else mean.median()
        trust = mean.div_(usual.clamp_min(_QUIET).mul_(_TOLERANCE)).add_(1).square_().reciprocal_()
        wide = trust[:, :, None, :, None].expand(-1, -1, _BLOCK, -1, _BLOCK)
        rows, columns = trust.shape[1] * _BLOCK, trust.shape[2] * _BLOCK
        return wide.reshape(-1, rows, columns)[:, :height, :width] * self.inside

    def result(self, H: Matrix, moved: float) -> Polished:
        """The answer, with what the last step knew of it."""
        sums, total = self.both, max(self.both[9, 9], 1e-6)
        mean_a, mean_b = sums[8, 9] / total, sums[9, 11] / total
        product = sums[8, 11] / total - mean_a * mean_b
        lengths = (sums[8, 8] / total - mean_a**2) * (sums[11, 11] / total - mean_b**2)
        return Polished(H, self.information, moved, float(product / np.sqrt(max(lengths, 1e-14))))
