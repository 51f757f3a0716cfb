"""Fit a transformation of a given model to motions, some of which are wrong.

Every model is a group: what is fitted may be composed with what was there. ``fit`` is least squares in closed
form; ``robust_fit`` lets go of motions that disagree, its tolerance narrowing from step to step.
"""

import math

import torch
from torch import Tensor

from caunet.estimation.result import MODELS

__all__ = ["FREEDOM", "fit", "residuals", "robust_fit"]

FREEDOM = {"translation": 2, "euclidean": 3, "similarity": 4, "affine": 6, "projective": 8}
"""Degrees of freedom of each model; half as many motions determine it."""


def fit(model: str, source: Tensor, target: Tensor, weight: Tensor, prior: float = 0.0) -> Tensor:
    """The H (3, 3) of ``model`` that takes ``source`` (N, 2) nearest to ``target`` (N, 2), weighted squares.

    Coordinates should be of the order of 1 (see :func:`robust_fit`). For the projective model what is minimised is
    the algebraic distance. ``prior`` holds linear and perspective terms to those of the identity, as this many
    motions of weight one would.

    >>> points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    >>> fit("similarity", points, 2 * points + 1, torch.ones(4, dtype=torch.float64))
    tensor([[2., -0., 1.],
            [0., 2., 1.],
            [0., 0., 1.]], dtype=torch.float64)
    """
    if model in ("translation", "euclidean", "similarity"):
        return _fit_similarity(model, source, target, weight)
    return _fit_linear(model, source, target, weight, prior)


def _fit_similarity(model: str, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Closed form: shift of the weighted means, angle and scale from one complex number."""
    total = weight.sum().clamp_min(1e-12)
    from_mean, to_mean = (weight @ source) / total, (weight @ target) / total
    p, q = source - from_mean, target - to_mean
    cos = (weight * (p * q).sum(1)).sum()
    sin = (weight * (p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0])).sum()
    if model == "translation":
        cos, sin = torch.ones_like(cos), torch.zeros_like(sin)
    elif model == "euclidean":
        length = torch.hypot(cos, sin).clamp_min(1e-12)
        cos, sin = cos / length, sin / length
    else:
        spread = (weight * p.square().sum(1)).sum().clamp_min(1e-12)
        cos, sin = cos / spread, sin / spread
    linear = torch.stack([torch.stack([cos, -sin]), torch.stack([sin, cos])])
    H = torch.eye(3, dtype=source.dtype, device=source.device)
    H[:2, :2] = linear
    H[:2, 2] = to_mean - linear @ from_mean
    return H


def _fit_linear(model: str, source: Tensor, target: Tensor, weight: Tensor, prior: float) -> Tensor:
    """Affine and projective: the normal equations of p' x H p = 0, with the last entry of H set to 1."""
    free = FREEDOM[model]
    rows = _equations(source, target)[..., :free]
    weighted = rows * weight[:, None, None]
    flat = rows.reshape(-1, free)
    system = weighted.reshape(-1, free).mT @ flat
    right = weighted.reshape(-1, free).mT @ target.reshape(-1)
    still = right.new_tensor([1, 0, 0, 0, 1, 0, 0, 0])[:free]
    hold = right.new_tensor([1, 1, 0, 1, 1, 0, 4, 4])[:free] * prior + 1e-9
    system.diagonal().add_(hold)
    solution = torch.linalg.solve(system, right + hold * still)
    H = torch.eye(3, dtype=source.dtype, device=source.device)
    H.view(-1)[:free] = solution
    return H


def _equations(source: Tensor, target: Tensor) -> Tensor:
    """(N, 2, 8): rows whose product with H's first eight entries is the target."""
    count = len(source)
    rows = source.new_zeros(count, 2, 8)
    rows[:, 0, 0:2], rows[:, 0, 2] = source, 1
    rows[:, 1, 3:5], rows[:, 1, 5] = source, 1
    rows[:, :, 6:8] = -target[:, :, None] * source[:, None, :]
    return rows


def residuals(H: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Distances (N,) between H's places of ``source`` and ``target``; behind the viewer they are large."""
    moved = source @ H[:, :2].mT + H[:, 2]
    third = moved[:, 2:]
    error = (moved[:, :2] / third.clamp_min(0.1) - target).norm(dim=1)
    return torch.where(third[:, 0] > 0.1, error, error + 1e3)


def robust_fit(
    model: str,
    source: Tensor,
    target: Tensor,
    weight: Tensor,
    tolerance: float,
    *,
    start: float = 8.0,
    steps: int = 6,
    prior: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """H (3, 3) float64 from ``source`` to ``target`` (N, 2) and the final weights (N,), wrong motions near 0.

    Iteratively reweighted least squares with Geman and McClure's weights, whose tolerance (in the points' units)
    falls from ``start`` times ``tolerance`` to ``tolerance``: with the wide one nearly all motions count, and those
    that disagree with the many lose their say one after the other.
    """
    if model not in MODELS:
        raise ValueError(f"model takes one of {', '.join(MODELS)}; got {model!r}")
    source, target, weight = source.double(), target.double(), weight.double()
    middle = source.mean(0)
    size = float((source - middle).abs().amax().clamp_min(1e-6))
    p, q = (source - middle) / size, (target - middle) / size
    trusted = weight
    H = torch.eye(3, dtype=torch.float64, device=source.device)
    for step in range(steps):
        H = fit(model, p, q, trusted, prior)
        share = step / max(steps - 1, 1)
        wide = tolerance * math.exp((1 - share) * math.log(start)) / size
        trusted = weight / (1 + (residuals(H, p, q) / wide).square()).square()
    H = fit(model, p, q, trusted, prior * 0.1)
    x, y = middle.tolist()
    into = torch.tensor([[1 / size, 0, -x / size], [0, 1 / size, -y / size], [0, 0, 1]], dtype=torch.float64)
    out = torch.tensor([[size, 0, x], [0, size, y], [0, 0, 1]], dtype=torch.float64)
    return out.to(H.device) @ H @ into.to(H.device), trusted
