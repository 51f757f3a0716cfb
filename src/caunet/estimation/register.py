"""From two pictures to a homography: the network from coarse to fine, then the polish."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from caunet.estimation.fit import robust_fit
from caunet.estimation.motions import Motions, measure, raster
from caunet.estimation.polish import polish, whole
from caunet.estimation.pyramid import Matrix, apply, between_levels, normalised, pyramid, smooth
from caunet.models import RelationNetwork

__all__ = ["Registration", "register"]

_COARSEST = 32  # side of the picture in which the search begins, about
_NETWORK_SIDE = 64  # the network works up to about this side; the polish goes on


class Registration(NamedTuple):
    """The answer in pixels of the pictures, and what it was drawn from."""

    H: Matrix
    """(3, 3)."""
    motions: Motions
    """The network's last ones, in pixels of ``level``."""
    targets: Matrix
    """(N, 2): where they end in b, in pixels of ``level``."""
    level: int
    evidence: dict[str, float]
    """Numbers from which the confidence is told; none if there was nothing to see."""


def levels_of(size: tuple[int, int], other: tuple[int, int]) -> int:
    """How many levels the pyramids have."""
    side = math.sqrt(math.sqrt(size[0] * size[1] * other[0] * other[1]))
    small = min(*size, *other)
    deepest = round(math.log2(max(side / _COARSEST, 1.0)))
    while deepest > 0 and small / 2**deepest < 13:
        deepest -= 1
    return deepest + 1


def register(a: Tensor, b: Tensor, network: RelationNetwork, model: str = "projective") -> Registration:
    """Relate the gray pictures ``a`` and ``b``, (H, W) each, of any sizes."""
    sizes = (a.shape[0], a.shape[1]), (b.shape[0], b.shape[1])
    count = levels_of(*sizes)
    first, second = pyramid(a, count), pyramid(b, count)
    H = _start(sizes, count - 1)
    for level in range(count - 1, -1, -1):
        small, large = first[level], second[level]
        if level == count - 1 or max(small.shape) <= _NETWORK_SIDE:
            for _ in range(3 if level == count - 1 else 2):
                before = H
                H, motions, _ = coarse_step(network, small, large, H, model)
            at = level
            targets = apply(before, (motions.points + motions.motion).double().cpu().numpy())
        if level <= max(count - 2, 0):
            tiles = whole(smooth(small))
            size = (small.shape[0], small.shape[1])
            polished = polish(
                tiles, smooth(large), H, model, size, steps=6 if level else 4, stop=0.02 if level else 0.003
            )
            H = polished.H
        if level:
            H = between_levels(H, level, level - 1)
    return Registration(H, motions, targets, at, {"correlation": polished.correlation})


def _start(sizes: tuple[tuple[int, int], tuple[int, int]], level: int) -> Matrix:
    """Identity, or for pictures of different sizes: centre upon centre."""
    (ha, wa), (hb, wb) = sizes
    H = np.array([[1, 0, (wb - wa) / 2], [0, 1, (hb - ha) / 2], [0, 0, 1]])
    return between_levels(H, 0, level)


def coarse_step(
    network: RelationNetwork, a: Tensor, b: Tensor, H: Matrix, model: str, count: int = 100
) -> tuple[Matrix, Motions, Matrix]:
    """One look of the network and a fit to what it saw."""
    points = raster((a.shape[0], a.shape[1]), network.model_spec.patch, count, a.device)
    motions = measure(network, a, b, H, points)
    seen = torch.cat([points, motions.motion, motions.weight[:, None]], 1).double().cpu().numpy()
    source, target = seen[:, :2], seen[:, :2] + seen[:, 2:4]
    delta, trusted = robust_fit(model, source, target, seen[:, 4], tolerance=0.7)
    return normalised(H @ delta), motions, trusted
