"""Motions of small patches of two volumes, as the relation network `motion3` sees them, and what they say of a guess.

As in the plane (:mod:`caunet.estimation.motions`): a patch of a is compared with b's values at the places that the
current guess gives for it, and a motion model is fitted to the motions that are left, so that wrong ones lose their
weight.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.fit import robust_fit
from caunet.estimation.motion_models import MotionModel
from caunet.estimation.motions import seen, space_network
from caunet.geometry import Matrix
from caunet.volumes.points import read_level
from caunet.volumes.pyramid import Level

__all__ = ["passed", "raster3"]

_PATCHES = 125  # that are compared, about
_PASSES = 6
_TOLERANCE = 0.7  # voxels: error of a motion from which it loses its weight
_LEAST = 8  # motions that must count for a fit


def raster3(size: tuple[int, int, int], patch: int, count: int, device: torch.device) -> Tensor:
    """Centers (N, 3), x, y, z, of about ``count`` patches spread evenly over a volume, all of them inside it."""
    rooms = [max(side - patch, 0) for side in size]
    step = max(((rooms[0] + 1) * (rooms[1] + 1) * (rooms[2] + 1) / count) ** (1 / 3), 1.0)
    lines = [
        torch.linspace(0, room, max(round(room / step) + 1, 1), device=device).round() + patch // 2
        for room in rooms
    ]
    z, y, x = torch.meshgrid(*lines, indexing="ij")
    return torch.stack([x, y, z], -1).reshape(-1, 3)


def passed(a: Level, b: Level, T: Matrix, model: MotionModel, passes: int = _PASSES) -> Matrix:
    """A guess T (4, 4), millimeters of a to millimeters of b, after passes of the network over patches of a."""
    network = space_network(a.values.device)
    side = network.model_spec.patch
    centers = raster3(a.size, side, _PATCHES, a.values.device)
    line = torch.arange(side, device=centers.device, dtype=centers.dtype) - side // 2
    z, y, x = torch.meshgrid(line, line, line, indexing="ij")
    voxels = (centers[:, None] + torch.stack([x, y, z], -1).reshape(1, -1, 3)).reshape(-1, 3)
    own, there = read_level(a, voxels, np.eye(4)[None])
    first, counts = own[0].view(len(centers), -1), there[0].view(len(centers), -1)
    unit = float(a.spacing.mean())
    for _ in range(passes):
        read, inside = read_level(b, voxels, (b.from_mm @ T @ a.to_mm)[None])
        share = (inside[0].view(len(centers), -1) * counts).mean(1)
        motion, weight = seen(network, first, read[0].view(len(centers), -1), share)
        points, ends, trust = (t.double().cpu().numpy() for t in (centers, centers + motion, weight))
        if (trust > 0.1).sum() < _LEAST:
            return T
        source, target = geometry.apply(a.to_mm, points), geometry.apply(a.to_mm, ends)
        delta, _ = robust_fit(model, source, target, trust, _TOLERANCE * unit)
        T = T @ delta
    return T
