"""The last digits: align intensities themselves, from an answer that is already near.

What is minimised, over the transformation, a gain, a bias and a difference in sharpness, is

    sum of w(p) (b(H p) - gain a(p) - bias - blur (laplacian of a)(p))^2

by Gauss-Newton steps whose gradients are the mean of both pictures' (Benhimane and Malis' second-order
minimisation). w is small where a neighbourhood differs by far more than the picture as a whole does: where
something covers the scene. Both pictures are smoothed before by the same filter, so that interpolation costs no
precision.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from caunet import geometry
from caunet.estimation.pyramid import places, read

__all__ = ["Polished", "Tiles", "polish", "whole"]

_BLOCK = 4  # side of the neighbourhoods that are weighted as one
_TOLERANCE = (
    6.0  # squared residual, in units of its median, at which a neighbourhood keeps a quarter of its say
)


class Tiles(NamedTuple):
    """Square or whole parts of a picture: values (K, h, w) and the (x, y) of their first pixels (K, 2)."""

    values: Tensor
    corners: Tensor


class Polished(NamedTuple):
    """The answer and what it rests on."""

    H: Tensor
    """(3, 3) float64."""
    information: Tensor
    """(k, k) float64: the normal equations of the transformation's k generators, divided by the noise."""
    moved: float
    """How far the last step still moved the corners, in pixels."""
    weight: Tensor
    """(K, h - 2, w - 2): how far each pixel is trusted; 0 outside b."""
    inside: Tensor
    """The same shape: whether the pixel is seen in b."""
    correlation: float
    """Weighted correlation of a and warped b."""
    gain: float


def whole(picture: Tensor) -> Tiles:
    """A picture (H, W) as one tile."""
    return Tiles(picture[None], torch.zeros(1, 2, device=picture.device))


def generators(model: str, device: torch.device) -> Tensor:
    """(k, 8): each generator of ``model``'s group as the first eight entries of a 3 x 3 matrix."""
    eye = torch.eye(8, device=device)
    shift = [eye[2], eye[5]]
    turn, grow = eye[3] - eye[1], eye[0] + eye[4]
    chosen = {
        "translation": shift,
        "euclidean": [*shift, turn],
        "similarity": [*shift, turn, grow],
        "affine": list(eye[:6]),
        "projective": list(eye),
    }[model]
    return torch.stack(chosen)


def polish(
    tiles: Tiles, b: Tensor, H: Tensor, model: str, size: tuple[int, int], steps: int, stop: float
) -> Polished:
    """Improve ``H``, from the picture that ``tiles`` were cut from (of ``size``) to ``b`` (H, W).

    At most ``steps`` steps are made, fewer once one moves the corners by less than ``stop`` pixels.
    """
    work = _Work(tiles, b, model, size)
    moved = float("inf")
    for _ in range(steps):
        H, moved = work.step(H)
        if not moved > stop:
            break
    return work.told(H, moved)


class _Work:
    """What stays the same from step to step."""

    def __init__(self, tiles: Tiles, b: Tensor, model: str, size: tuple[int, int]) -> None:
        self.b, self.size = b, size
        a = tiles.values
        count, height, width = a.shape
        self.shape = (count, height, width)
        device = a.device
        y, x = torch.meshgrid(
            torch.arange(height, device=device), torch.arange(width, device=device), indexing="ij"
        )
        points = torch.stack([x, y, torch.ones_like(x)], -1).to(a.dtype).expand(count, -1, -1, -1)
        if count > 1:
            points = points.clone()
            points[..., :2] += tiles.corners[:, None, None].to(a.dtype)
        self.points = points.reshape(-1, 3)
        # Coordinates of the order of 1 keep the normal equations well conditioned.
        self.unit = max(size) / 2
        cx, cy = (size[1] - 1) / 2, (size[0] - 1) / 2
        inner = points[:, 1:-1, 1:-1]
        self.x, self.y = (inner[..., 0] - cx) / self.unit, (inner[..., 1] - cy) / self.unit
        self.out = torch.tensor([[self.unit, 0, cx], [0, self.unit, cy], [0, 0, 1]], dtype=torch.float64)
        self.into = geometry.invert(self.out)
        self.a = a[:, 1:-1, 1:-1]
        self.a_x, self.a_y = self._gradient(a)
        self.laplacian = a[:, 1:-1, 2:] + a[:, 1:-1, :-2] + a[:, 2:, 1:-1] + a[:, :-2, 1:-1] - 4 * self.a
        self.basis = generators(model, device)
        self.light: tuple[Tensor, Tensor, Tensor] | None = None
        self.columns = torch.empty(11, self.a.numel(), dtype=a.dtype, device=device)
        self.columns[8], self.columns[9], self.columns[10] = self.a.reshape(-1), 1, self.laplacian.reshape(-1)

    def _gradient(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        half = 0.5 * self.unit
        right = (picture[:, 1:-1, 2:] - picture[:, 1:-1, :-2]) * half
        down = (picture[:, 2:, 1:-1] - picture[:, :-2, 1:-1]) * half
        return right, down

    def _seen(self, H: Tensor) -> tuple[Tensor, Tensor]:
        grid, inside = places(H, self.points, (self.b.shape[0], self.b.shape[1]))
        return read(self.b, grid, "bicubic").view(self.shape), inside.view(self.shape)[:, 1:-1, 1:-1]

    def step(self, H: Tensor) -> tuple[Tensor, float]:
        """One Gauss-Newton step: the new H, and how far it moved the corners at most."""
        seen, inside = self._seen(H)
        b = seen[:, 1:-1, 1:-1]
        if self.light is None:
            self.light = self._first_light(b, inside)
        gain, bias, blur = self.light
        b_x, b_y = self._gradient(seen)
        x = torch.add(self.a_x, b_x, alpha=float(1 / gain)).mul_(0.5)
        y = torch.add(self.a_y, b_y, alpha=float(1 / gain)).mul_(0.5)
        residual = b - gain * self.a - bias - blur * self.laplacian
        self.inside, self.weight = inside, self._trust(residual, inside)
        self._fill(x, y)
        weighted = self.columns * self.weight.reshape(-1)
        system = (weighted @ self.columns.mT).double()
        right = (weighted @ b.reshape(-1)).double()
        return self._solve(H, system, right, residual)

    def _fill(self, x: Tensor, y: Tensor) -> None:
        """Columns of the linearised model: H's first eight entries, then a, 1 and a's Laplacian."""
        shape = self.x.shape
        c = [self.columns[k].view(shape) for k in range(8)]
        torch.mul(x, self.x, out=c[0])
        torch.mul(x, self.y, out=c[1])
        c[2].copy_(x)
        torch.mul(y, self.x, out=c[3])
        torch.mul(y, self.y, out=c[4])
        c[5].copy_(y)
        radial = -(c[0] + c[4])
        torch.mul(radial, self.x, out=c[6])
        torch.mul(radial, self.y, out=c[7])

    def _solve(self, H: Tensor, system: Tensor, right: Tensor, residual: Tensor) -> tuple[Tensor, float]:
        basis = torch.block_diag(self.basis, torch.eye(3, device=self.basis.device)).double()
        free = len(self.basis)
        system, right = basis @ system @ basis.mT, basis @ right
        scale = system.diagonal().clamp_min(1e-12).rsqrt()
        normal = system * scale[:, None] * scale
        normal.diagonal().add_(1e-7)
        theta = torch.linalg.solve(normal, right * scale) * scale
        gain = theta[free]
        noise = (self.weight * residual.square()).sum() / self.weight.sum().clamp_min(1.0)
        self.information = system[:free, :free] * gain.square() / noise.double().clamp_min(1e-9)
        if not bool(theta.isfinite().all()) or not float(gain) > 0.02:
            return H, float("nan")
        self.light = (
            gain.to(residual.dtype),
            theta[free + 1].to(residual.dtype),
            theta[free + 2].to(residual.dtype),
        )
        algebra = (theta[:free] / gain) @ basis[:free, :8]
        D = torch.matrix_exp(torch.cat([-algebra, algebra.new_zeros(1)]).view(3, 3)).cpu()
        return self._moved(H, geometry.compose(self.out, D, self.into))

    def _moved(self, H: Tensor, D: Tensor) -> tuple[Tensor, float]:
        height, width = self.size
        corners = torch.tensor(
            [[0.0, 0.0], [width - 1.0, 0.0], [width - 1.0, height - 1.0], [0.0, height - 1.0]],
            dtype=torch.float64,
        )
        moved = float((geometry.apply(D, corners) - corners).norm(dim=1).amax())
        new = geometry.compose(H, D.to(H.device))
        if not moved < max(self.size) or not float(new[2, 2].abs()) > 1e-9:
            return H, float("nan")
        return geometry.normalise(new), moved

    def _first_light(self, b: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        share = inside.to(b.dtype)
        total = share.sum().clamp_min(1.0)
        mean_a, mean_b = (self.a * share).sum() / total, (b * share).sum() / total
        spread_a = ((self.a - mean_a).square() * share).sum()
        spread_b = ((b - mean_b).square() * share).sum()
        gain = (spread_b / spread_a.clamp_min(1e-9)).sqrt().clamp(0.1, 10.0)
        return gain, mean_b - gain * mean_a, torch.zeros_like(gain)

    def _trust(self, residual: Tensor, inside: Tensor) -> Tensor:
        """Weights from the mean squared residual of blocks, in units of the median block's."""
        share = inside.to(residual.dtype)
        squares = avg_pool2d(
            (residual.square() * share)[:, None], _BLOCK, ceil_mode=True, count_include_pad=False
        )
        shares = avg_pool2d(share[:, None], _BLOCK, ceil_mode=True, count_include_pad=False)
        mean = squares / shares.clamp_min(1e-3)
        full = mean[shares > 0.5]
        usual = full.median() if full.numel() else mean.median()
        trust = (1 + mean / (_TOLERANCE * usual.clamp_min(1e-8))).square().reciprocal()
        wide = trust.repeat_interleave(_BLOCK, -2).repeat_interleave(_BLOCK, -1)
        return wide[:, 0, : share.shape[1], : share.shape[2]] * share

    def told(self, H: Tensor, moved: float) -> Polished:
        """The answer, with the correlation that the last step saw."""
        gain = self.light[0] if self.light else torch.tensor(1.0)
        return Polished(H, self.information, moved, self.weight, self.inside, self.correlate(H), float(gain))

    def correlate(self, H: Tensor) -> float:
        seen, inside = self._seen(H)
        b, weight = seen[:, 1:-1, 1:-1], self.weight * inside
        total = weight.sum().clamp_min(1e-6)
        a, b = self.a - (self.a * weight).sum() / total, b - (b * weight).sum() / total
        product = (weight * a * b).sum()
        lengths = ((weight * a * a).sum() * (weight * b * b).sum()).clamp_min(1e-12)
        return float(product * lengths.rsqrt())
