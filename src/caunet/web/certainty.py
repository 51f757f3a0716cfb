"""How much a pair of patches says about z, and whether the inferred z explains it.

The confidence of a patch pair is a product of two numbers within 0..1:

*certainty*: the share of the prior uncertainty that the first patch removes. The prior is uniform over the range of
z. A change of z moves each pixel, and changes its gray level by the gradient there: J (pixels, dim). With noise of a
few gray levels, the patch determines z up to a covariance of (J'J / noise^2 + prior)^-1; certainty is one minus the
spread of the corners under that covariance, divided by their spread under the prior. In a uniform area J is 0, and so
is the certainty; what noise alone would add to J'J is subtracted.

*explained*: the share of the second patch's variance that the first patch explains after the inferred transformation,
where the two overlap. It is near 0 for a wrong answer, and for patches that have nothing to do with each other.
"""

import functools

import torch
from torch import Tensor

from caunet import geometry
from caunet.tasks import Task

__all__ = ["certainty", "explained"]

NOISE = 4 / 255
"""Standard deviation of the noise of a gray level."""
FEWEST = 16
"""Pixels that must overlap to compare them."""


def certainty(first: Tensor, task: Task) -> float:
    """Of the patch ``first`` (P, P), values 0..1, for ``task``: 0 (a uniform area) to 1.

    >>> from caunet import tasks
    >>> certainty(torch.full((11, 11), 0.5), tasks.get("rotation"))
    0.0
    """
    patch = first.shape[-1]
    image = first.double()
    along_x = (image[1:-1, 2:] - image[1:-1, :-2]) / 2
    along_y = (image[2:, 1:-1] - image[:-2, 1:-1]) / 2
    gradient = torch.stack([along_x, along_y], -1).reshape(-1, 2, 1)
    high, low = (torch.tensor(ends, dtype=torch.float64) for ends in (task.high, task.low))
    # In units of half the range, where the prior is the same for all parameters: variance 1/3.
    velocity = (_velocity(task, patch) * ((high - low) / 2)).reshape(patch, patch, 2, task.dim)
    inner = velocity[1:-1, 1:-1].reshape(-1, 2, task.dim)
    J, V = (gradient * inner).sum(1), inner.reshape(-1, task.dim)
    # What noise alone would contribute is subtracted: its central differences have a quarter of NOISE^2.
    values, vectors = torch.linalg.eigh((J.T @ J) / NOISE**2 - V.T @ V / 4)
    prior = 3 * torch.eye(task.dim, dtype=torch.float64)
    covariance = torch.linalg.inv(vectors @ torch.diag(values.clamp(min=0)) @ vectors.T + prior)
    C = velocity[:: patch - 1, :: patch - 1].reshape(-1, task.dim)
    before = (C @ C.T).trace() / 3
    after = (C @ covariance @ C.T).trace()
    return float((1 - (after / before).sqrt()).clamp(0, 1))


def explained(first: Tensor, second: Tensor, H: Tensor) -> float:
    """The share of ``second`` (P, P) that ``first`` explains, moved by H (3, 3; origin at the center): 0 to 1."""
    size = (first.shape[0], first.shape[1])
    try:
        pixels = geometry.center(H.double(), size)
        both = torch.stack([first.double(), torch.ones(size, dtype=torch.float64)])
        moved, there = geometry.warp(both[None], pixels)[0]
    except ValueError:  # a network may infer what is no transformation at all
        return 0.0
    seen = there > 0.999
    if int(seen.sum()) < FEWEST:
        return 0.0
    target, prediction = second.double()[seen], moved[seen]
    variance = (target - target.mean()).square().mean()
    missed = (target - prediction).square().mean()
    return float((1 - missed / (variance + NOISE**2)).clamp(0, 1))


def _grid(patch: int) -> Tensor:
    k = torch.arange(patch, dtype=torch.float64) - (patch - 1) / 2
    y, x = torch.meshgrid(k, k, indexing="ij")
    return torch.stack([x, y], -1).reshape(-1, 2)


@functools.lru_cache(maxsize=16)
def _velocity(task: Task, patch: int) -> Tensor:
    """How the pixels (N, 2) move with z, at the identity: (N, 2, dim), by central differences."""
    points, step = _grid(patch), 1e-5
    rest = task.parameters(torch.eye(3, dtype=torch.float64))
    steps = step * torch.eye(task.dim, dtype=torch.float64)
    ahead, behind = (geometry.apply(task.homography(rest + s), points[None]) for s in (steps, -steps))
    return ((ahead - behind) / (2 * step)).permute(1, 2, 0)
