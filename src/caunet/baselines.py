"""What networks are compared with: predictors (x, y) -> z that have learned nothing.

- :func:`predict_mean`: the middle of the range, whatever the images show.
- :func:`exhaustive_translation`: try every whole shift, keep the one with the least mean squared difference.
- :func:`exhaustive_grid`: the same for any task, over a grid of z, by warping.
- :func:`ecc`: OpenCV's gradient-based alignment (enhanced correlation coefficient), started at identity.

:func:`baselines_for` picks those that apply to a source of pairs. Patches are (B, side, side), of volumes (B, side,
side, side).

A warning about :func:`exhaustive_grid`: it warps with the very interpolation that made ``text`` pairs, so at
the true z nothing is left to differ. No camera is that kind; its tiny errors do not carry over to photographs.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from caunet import geometry
from caunet.errors import MissingExtraError
from caunet.extras import require
from caunet.tasks import Task

__all__ = [
    "baselines_for",
    "ecc",
    "exhaustive_grid",
    "exhaustive_translation",
    "predict_mean",
]

Predictor = Callable[[Tensor, Tensor], Tensor]

# Steps along each dimension of the grid: half a degree, 0.05 of a factor; in space 7.5 degrees, 0.19 of a factor.
_GRID_STEPS = {"rotation": 181, "scaling": 31, "rotation3": 9, "scaling3": 9}
_CHUNK = 16  # candidates compared at once: (2000, 16, 121) floats are 15 MB
_KEPT = 1 << 26  # numbers in warps that are kept; more are made again for every batch


class _Source(Protocol):
    """A source of pairs, as far as baselines are concerned."""

    task: Task
    protocol: str
    patch: int

    @property
    def rows_first(self) -> bool: ...


def baselines_for(source: _Source) -> dict[str, Predictor]:
    """The baselines that apply to ``source``, by name, in its order of z. ECC is left out without OpenCV."""
    task = source.task
    found: dict[str, Predictor] = {"mean": predict_mean(task)}
    if task.name in ("translation", "translation3"):
        whole, radius = source.protocol == "release", int(task.high[0])
        found["exhaustive search"] = _ordered(
            source, lambda x, y: exhaustive_translation(x, y, radius, subpixel=not whole)
        )
    elif task.name in _GRID_STEPS:
        found["exhaustive search"] = exhaustive_grid(task, source.patch)
    if task.name in _MOTIONS:
        with contextlib.suppress(MissingExtraError):
            found["OpenCV ECC"] = _ordered(source, ecc(task))
    return found


def predict_mean(task: Task) -> Predictor:
    """Always the middle of the task's range, which is the mean of z.

    >>> from caunet import tasks
    >>> predict_mean(tasks.get("scaling"))(torch.zeros(1, 11, 11), torch.zeros(1, 11, 11))
    tensor([[1.2500, 1.2500]])
    """
    middle = [(low + high) / 2 for low, high in zip(task.low, task.high, strict=True)]
    return lambda x, y: x.new_tensor(middle).expand(len(x), task.dim)


def exhaustive_translation(x: Tensor, y: Tensor, radius: int = 5, subpixel: bool = False) -> Tensor:
    """The whole shift (B, 2), right and down, with the least mean squared difference on the overlap.

    Of volumes (B, 3): right, down and through the slices.

    Of equally good shifts the shortest is taken. ``subpixel`` adds the vertex of the parabola through the
    least difference and its two neighbors, along each axis (not where a neighbor lies beyond ``radius``).

    >>> scene = torch.rand(1, 20, 20, generator=torch.Generator().manual_seed(0))
    >>> x, y = scene[:, 5:16, 5:16], scene[:, 7:18, 4:15]      # the content moves right by 1, up by 2
    >>> exhaustive_translation(x, y)
    tensor([[ 1., -2.]])
    """
    _check_patches(x, y)
    side, d = min(x.shape[1:]), x.ndim - 1
    if not 0 < radius < side:
        raise ValueError(f"radius must be 1 to {side - 1} for patches of {tuple(x.shape[1:])}, got {radius}")
    shifts = itertools.product(range(-radius, radius + 1), repeat=d)  # ([tz,] ty, tx)
    costs = torch.stack([_shift_cost(x, y, shift) for shift in shifts], dim=1)
    steps = torch.arange(-radius, radius + 1, device=x.device, dtype=x.dtype)
    return _least(costs.reshape(len(x), *[len(steps)] * d), [steps] * d, subpixel).flip(-1)


def exhaustive_grid(
    task: Task, patch: int, steps: int | tuple[int, ...] | None = None, refine: bool = True
) -> Predictor:
    """Warp x by every z of a grid over the task's range; keep the z with the least squared difference to y.

    Only pixels of y whose source lies in x are compared. Warps are put into matrices, once where they fit in memory.

    Args:
        task: its range is the grid's.
        patch: side of the patches.
        steps: points of the grid along each dimension; default 181 for rotation, 31 x 31 for scaling; of volumes
            9 along each of three dimensions.
        refine: add the vertex of a parabola along each dimension.
    """
    if steps is None:
        steps = _GRID_STEPS.get(task.name, 9)
    counts = (steps,) * task.dim if isinstance(steps, int) else steps
    if len(counts) != task.dim or min(counts) < 2:
        raise ValueError(f"steps must be {task.dim} numbers of at least 2 for {task.name}, got {steps!r}")
    axes = [torch.linspace(a, b, n) for a, b, n in zip(task.low, task.high, counts, strict=True)]
    grid = torch.tensor(list(itertools.product(*(axis.tolist() for axis in axes))))  # (G, dim)
    shape = (patch,) * task.dimensions
    parts = geometry.center(task.homography(grid), shape).split(_CHUNK)  # type: ignore[no-untyped-call]
    warps: Iterable[_Warps] = _LazyWarps(parts, shape)
    if len(grid) * math.prod(shape) ** 2 <= _KEPT:
        warps = list(warps)

    def predict(x: Tensor, y: Tensor) -> Tensor:
        _check_patches(x, y, shape)
        first, second = x.flatten(1), y.flatten(1)
        costs = torch.cat([_grid_costs(first, second, *(t.to(x) for t in some)) for some in warps], 1)
        return _least(costs.reshape(len(x), *counts), [axis.to(x) for axis in axes], refine)

    return predict


_MOTIONS = {
    "translation": "MOTION_TRANSLATION",
    "rotation": "MOTION_EUCLIDEAN",
    "scaling": "MOTION_AFFINE",
    "affine": "MOTION_AFFINE",
    "projective": "MOTION_HOMOGRAPHY",
}


def ecc(task: Task, iterations: int = 50, smoothing: int = 1) -> Predictor:
    """OpenCV's ``findTransformECC`` from identity, the answer held to the task's range.

    Where it does not converge the answer is the identity. The motion model may be wider than the task (a
    rotation may come with a shift); z is read off it. Needs ``pip install caunet[bench]``.
    ``smoothing`` is the side of OpenCV's Gaussian filter; on patches of 11 pixels none (1) serves best.
    """
    cv2 = require("cv2", "bench", "ECC")
    if task.name not in _MOTIONS:
        raise ValueError(f"task must be one of {', '.join(_MOTIONS)} for ECC, got {task.name!r}")
    motion = getattr(cv2, _MOTIONS[task.name])
    rows = 3 if motion == cv2.MOTION_HOMOGRAPHY else 2
    criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, iterations, 1e-6)

    def align(first: Any, second: Any) -> Tensor:
        H = torch.eye(3)
        try:
            # x(p) = y(W p): OpenCV's warp is our H, in pixels of the patch.
            start = H[:rows].numpy()
            found = cv2.findTransformECC(first, second, start, motion, criteria, None, smoothing)[1]
        except cv2.error:
            return torch.eye(3)
        H[:rows] = torch.from_numpy(found)
        return H if bool(H.isfinite().all()) and H[2, 2] != 0 else torch.eye(3)

    def predict(x: Tensor, y: Tensor) -> Tensor:
        _check_patches(x, y)
        # OpenCV reads zero beyond the border; with the mean at zero that is the least false thing there.
        first, second = ((t - y.mean(dim=(1, 2), keepdim=True)).float().cpu() for t in (x, y))
        pairs = zip(first.numpy(), second.numpy(), strict=True)
        H = torch.stack([align(first, second) for first, second in pairs])
        z = task.read(geometry.normalize(geometry.uncenter(H, x.shape[1:])))
        return z.clamp(torch.tensor(task.low), torch.tensor(task.high)).to(x)

    return predict


def _ordered(source: _Source, predictor: Predictor) -> Predictor:
    """A predictor of shifts (right, down) in the source's order."""
    return (lambda x, y: predictor(x, y).flip(-1)) if source.rows_first else predictor


def _shift_cost(x: Tensor, y: Tensor, shift: Sequence[int]) -> Tensor:
    """Mean over the overlap of (y(p + t) - x(p))^2: (B,); the shift t is in the order of the axes."""
    for axis, t in enumerate(shift, start=1):
        length = x.shape[axis] - abs(t)
        x, y = x.narrow(axis, max(0, -t), length), y.narrow(axis, max(0, t), length)
    return (y - x).square().flatten(1).mean(dim=1)


_Warps = tuple[Tensor, Tensor]


class _LazyWarps:
    """`_warp_matrices` of parts of a grid, made whenever they are gone through."""

    def __init__(self, parts: Sequence[Tensor], shape: tuple[int, ...]) -> None:
        self.parts, self.shape = parts, shape

    def __iter__(self) -> Iterator[_Warps]:
        return (_warp_matrices(H, self.shape) for H in self.parts)


def _warp_matrices(H: Tensor, shape: tuple[int, ...]) -> _Warps:
    """Linear warps by H (G, d+1, d+1) as matrices (G, P, P), P pixels in a patch, and which pixels they know (G, P).

    Warping is linear in the image, so warping each pixel alone shows the matrix.
    """
    pixels = torch.eye(math.prod(shape)).reshape(-1, *shape)
    warps = torch.stack([geometry.warp(pixels, one).flatten(1) for one in H])
    return warps, (warps.sum(dim=1) > 1 - 1e-4).to(warps.dtype)


def _grid_costs(x: Tensor, y: Tensor, warps: Tensor, seen: Tensor) -> Tensor:
    """Mean squared differences (B, G) of x (B, P) warped by each candidate to y (B, P), over what is seen."""
    warped = torch.einsum("bp,gpq->bgq", x, warps)
    total = ((warped - y[:, None]).square_() * seen).sum(dim=-1)
    # A candidate that shows nothing of x cannot be judged.
    return torch.where(seen.sum(-1) > 0, total / seen.sum(-1).clamp(min=1), torch.inf)


def _least(costs: Tensor, axes: list[Tensor], refine: bool) -> Tensor:
    """Where ``costs`` (B, n1, n2, ...) are least, in the coordinates of ``axes``: (B, dims)."""
    sizes = costs.shape[1:]
    # In order of distance from the grid's middle, so that ties go to the smallest change.
    mesh = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in sizes), indexing="ij")
    nearest = sum(m.square() for m in mesh).flatten().argsort(stable=True).to(costs.device)  # type: ignore[union-attr]
    flat = costs.flatten(1)
    best = nearest[flat[:, nearest].argmin(dim=1)]
    place = torch.stack(torch.unravel_index(best, sizes), dim=-1)  # (B, dims)
    found = [axis[place[:, d]] for d, axis in enumerate(axes)]
    if refine:
        strides = [costs[0].stride(d) for d in range(len(sizes))]
        found = [
            value + _vertex(flat, best, place[:, d], stride, len(axes[d])) * (axes[d][1] - axes[d][0])
            for d, (value, stride) in enumerate(zip(found, strides, strict=True))
        ]
    return torch.stack(found, dim=-1)


def _vertex(flat: Tensor, best: Tensor, place: Tensor, stride: int, length: int) -> Tensor:
    """How far, in steps, the parabola through a least cost and its neighbors has its vertex: -1/2 to 1/2."""
    inside = (place > 0) & (place < length - 1)
    step = torch.where(inside, stride, 0)
    before, here, after = (flat.gather(1, (best + s)[:, None])[:, 0] for s in (-step, 0 * step, step))
    curve = before - 2 * here + after
    vertex = (before - after) / (2 * torch.where(curve > 0, curve, 1.0))
    return torch.where(inside & (curve > 0) & curve.isfinite(), vertex, 0.0).clamp(-0.5, 0.5)


def _check_patches(x: Tensor, y: Tensor, shape: tuple[int, ...] | None = None) -> None:
    if x.ndim not in (3, 4) or x.shape != y.shape:
        got = f"{tuple(x.shape)} and {tuple(y.shape)}"
        raise ValueError(f"x and y must have one shape (B, side, side) or (B, side, side, side), got {got}")
    if shape is not None and tuple(x.shape[1:]) != shape:
        sides = " x ".join(map(str, shape))
        raise ValueError(f"x and y must be patches of {sides} here, got {tuple(x.shape[1:])}")
