"""A network's answer made precise: least squares on the two patches, begun there.

A network sees at a glance roughly how two patches are related, and no finer: what moves their corners by less than a
quarter of a pixel, as perspective of ±0.01 does, is lost in its error. The patches know more. :func:`refine` looks for
the z near the answer under which the first patch, warped, is most like the second, by damped Gauss-Newton steps
(Levenberg and Marquardt). It needs a good start: that is the network's part.

>>> from caunet import tasks
>>> axis = torch.arange(11.0) - 5
>>> wave = lambda x, y: torch.sin(0.7 * x + 0.2 * y) + torch.cos(0.5 * y - 0.3 * x)
>>> x = wave(axis, axis[:, None])[None]
>>> y = wave(axis - 1.3, axis[:, None] + 0.6)[None]       # the content moves right by 1.3, up by 0.6
>>> refine(x, y, torch.tensor([[1.0, -1.0]]), tasks.get("translation")).round(decimals=1)
tensor([[ 1.3000, -0.6000]])
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from caunet import geometry, tasks
from caunet.tasks import Task

__all__ = ["information", "refine", "refined"]

Predictor = Callable[[Tensor, Tensor], Tensor]

_STEPS = 30
_STILL = 1e-7  # a step that moves no parameter further, in units of half its range, is a pair's last
_PAIRS = 1024  # at a time: a few hundred MB
_FEWEST = 20  # pixels that both patches must show
_DIFFERENCE = 1e-6  # of a parameter, in units of half its range
_VARIANCE = 1 / 3  # of a parameter that is uniform on its range, in the same units


def refined(predictor: Predictor, task: Task | str | None = None, rows_first: bool = False) -> Predictor:
    """``predictor``, each of its answers refined: ``caunet.refined(network)(x, y)``.

    Args:
        predictor: from patches x and y (B, side, side) to z (B, dim): a network, or any function.
        task: what it infers; a network knows.
        rows_first: z is (rows, columns), as in :func:`refine`.
    """
    wanted = getattr(predictor, "spec", {}).get("task") if task is None else task
    if wanted is None:
        raise ValueError("task must be given for a predictor that is no network of caunet, got None")
    known = tasks.get(wanted)
    return lambda x, y: refine(x, y, predictor(x, y), known, rows_first=rows_first)


def refine(
    x: Tensor, y: Tensor, z: Tensor, task: Task, *, steps: int = _STEPS, rows_first: bool = False
) -> Tensor:
    """The z (B, dim) near ``z`` under which patches x, warped, are most like patches y.

    What is made least is the mean squared difference over the pixels of y whose source lies in x, plus the squared
    distance from the middle of each parameter's range, which counts as much as is still unexplained: without noise
    not at all. Parameters stay in their ranges. An answer is never worse, in that measure, than its start; where
    fewer than 20 pixels are shown by both patches it is its start.

    Pairs must be what the task says: those of the protocol ``release``, but for translation, have a shift that no
    parameter stands for.

    Args:
        x, y: patches (B, side, side), of the plane.
        z: where to begin, (B, dim).
        task: what relates them.
        steps: at most so many.
        rows_first: z is (rows, columns), as translations of the protocol ``release`` are.
    """
    if task.dimensions != 2:
        raise ValueError(f"task must be one of the plane, got {task.name}")
    if x.ndim != 3 or x.shape != y.shape or x.shape[1] != x.shape[2]:
        raise ValueError(
            f"x and y must be patches (B, side, side), got {tuple(x.shape)} and {tuple(y.shape)}"
        )
    if z.shape != (len(x), task.dim):
        raise ValueError(f"z must be of the shape {(len(x), task.dim)}, got {tuple(z.shape)}")
    with torch.no_grad():
        begin = z.flip(-1) if rows_first else z
        parts = zip(*(torch.split(one, _PAIRS) for one in (x, y, begin)), strict=True)
        found = torch.cat([_refine(_Fit(a, b, task), c, steps) for a, b, c in parts])
    return (found.flip(-1) if rows_first else found).to(z.dtype)


def information(x: Tensor, y: Tensor, z: Tensor, task: Task, noise: float) -> Tensor:
    """How much of each parameter the patches tell at the true ``z``, (B, dim): from 0, nothing, to 1, all.

    The share of its variance that the best estimator explains if each difference of pixels has the standard deviation
    ``noise``, by the Fisher information of the patches and the variance of the range. The mean over pairs bounds R².
    """
    with torch.no_grad():
        fit = _Fit(x, y, task)
        *_, J = fit.linearized(fit.units(z))
        known = J.transpose(1, 2) @ J / noise**2
        prior = torch.eye(task.dim, dtype=J.dtype, device=J.device) / _VARIANCE
        left: Tensor = torch.linalg.inv(known + prior).diagonal(dim1=1, dim2=2)
        return 1 - left / _VARIANCE


def _refine(fit: "_Fit", z: Tensor, steps: int) -> Tensor:
    return _descend(fit, fit.units(z), steps) * fit.scale + fit.middle


def _descend(fit: "_Fit", start: Tensor, steps: int) -> Tensor:
    found, moving = start.clone(), torch.arange(len(start), device=start.device)
    damping = torch.full((len(start),), 1e-3, dtype=start.dtype, device=start.device)
    for _ in range(steps):
        if not len(moving):
            break
        here, t = fit.of(moving), found[moving]
        r, cost, count, J = here.linearized(t)
        # Of the range, against one squared pixel.
        weight = (cost / _VARIANCE).where(cost.isfinite(), 0)[:, None]
        normal = J.transpose(1, 2) @ J
        diagonal = normal.diagonal(dim1=1, dim2=2)
        damped = damping[moving][:, None] * (diagonal + 1e-3 * diagonal.mean(1, keepdim=True))
        slope = (J.transpose(1, 2) @ r[..., None]).squeeze(-1) + weight * t
        step = torch.linalg.solve(normal + torch.diag_embed(damped + weight + 1e-12), slope)
        moved = (t - step).clamp(-1, 1)
        _, after, _ = here.residuals(moved)
        share = weight.squeeze(1) / count
        better = after + share * moved.square().sum(1) < cost + share * t.square().sum(1)
        found[moving] = torch.where(better[:, None], moved, t)
        damping[moving] = (damping[moving] * torch.where(better, 0.2, 4.0)).clamp(1e-9, 1e6)
        moving = moving[(moved - t).abs().amax(1) > _STILL]
    return found


class _Fit:
    """Residuals of pairs: patches x warped, less patches y, where both are known.

    Parameters are in units of half their ranges, from the middle, so that one damping suits all.
    """

    def __init__(self, x: Tensor, y: Tensor, task: Task) -> None:
        self.task, self.x, self.y = task, x.double().flatten(1), y.double().flatten(1)
        self.side = x.shape[-1]
        self.half = (self.side - 1) / 2
        axis = torch.arange(self.side, dtype=torch.float64, device=x.device) - self.half
        self.grid = torch.stack([axis.repeat(self.side), axis.repeat_interleave(self.side)], -1)  # x, y
        low, high = self.grid.new_tensor(task.low), self.grid.new_tensor(task.high)
        self.scale, self.middle = (high - low) / 2, (high + low) / 2

    def of(self, pairs: Tensor) -> "_Fit":
        """The same of some of the pairs."""
        some = copy.copy(self)
        some.x, some.y = self.x[pairs], self.y[pairs]
        return some

    def units(self, z: Tensor) -> Tensor:
        """z in units of half its range, kept in it."""
        return ((z.double() - self.middle) / self.scale).clamp(-1, 1)

    def places(self, t: Tensor) -> Tensor:
        """Where in x each pixel of y reads, (..., P, 2), from the center."""
        back = geometry.invert(self.task.homography(t * self.scale + self.middle), checked=False)
        return geometry.apply(back, self.grid.expand(*t.shape[:-1], -1, -1), far=1e6)

    def read(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values (B, P) and gradients (B, P, 2) of x by bilinear interpolation, and which places lie in it."""
        inside = (places.abs() <= self.half).all(-1)
        moved = (places + self.half).clamp(0, 2 * self.half)
        low = moved.floor().clamp(max=2 * self.half - 1)
        u, v = (moved - low).unbind(-1)
        index = (low[..., 1] * self.side + low[..., 0]).long()
        a, b, c, d = (self.x.gather(1, index + step) for step in (0, 1, self.side, self.side + 1))
        value = (1 - v) * ((1 - u) * a + u * b) + v * ((1 - u) * c + u * d)
        gradient = torch.stack([(1 - v) * (b - a) + v * (d - c), (1 - u) * (c - a) + u * (d - b)], -1)
        return value, gradient, inside

    def residuals(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Residuals (B, P), zero where unknown; their mean square, infinite where too few are; how many they are."""
        value, _, inside = self.read(self.places(t))
        return self._misfit(value, inside)

    def linearized(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same, and the derivatives of the residuals by t, (B, P, dim)."""
        value, gradient, inside = self.read(self.places(t))
        steps = torch.eye(self.task.dim, dtype=t.dtype, device=t.device) * _DIFFERENCE
        ahead, behind = self.places(torch.stack([t[:, None] + steps, t[:, None] - steps]))
        moved = (ahead - behind) / (2 * _DIFFERENCE)  # (B, dim, P, 2)
        J = (gradient[:, None] * moved).sum(-1) * inside[:, None]
        return *self._misfit(value, inside), J.transpose(1, 2)

    def _misfit(self, value: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r = (value - self.y) * inside
        count = inside.sum(1)
        cost = (r.square().sum(1) / count.clamp(min=1)).masked_fill(count < _FEWEST, torch.inf)
        return r, cost, count.clamp(min=1)
