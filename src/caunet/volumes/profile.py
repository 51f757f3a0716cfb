"""Thick slices: what a long voxel shows is the mean of what lies across it.

A volume of thin slices is compared with one of thick slices by its mean over several places across each thick voxel.
The other way round, thick slices read between each other, would be no comparison, and is left out.
"""

from __future__ import annotations

import numpy as np

from caunet.geometry import Matrix
from caunet.volumes.pyramid import Level

__all__ = ["profile"]

_THICK = 1.5  # voxels of the other volume along an axis from which a voxel is a mean of several
_PLACES = 6  # along an axis, at most


def profile(own: Level, other: Level, turn: Matrix) -> Matrix | None:
    """(P, 3): places across a voxel of ``own``, in voxels, whose mean in ``other`` it shows; None if no axis is longer.

    ``turn`` (3, 3) takes millimeters of own to those of other. The other volume is blurred by voxels of its own, so the
    places lie within a box whose square is less by theirs.

    >>> import torch
    >>> thin, thick = (Level(torch.zeros(8, 8, 8), np.diag([1.0, 1.0, z, 1.0])) for z in (1.0, 4.0))
    >>> profile(thick, thin, np.eye(3))[:, 2].round(3)
    array([-0.363, -0.121,  0.121,  0.363])
    >>> profile(thin, thick, np.eye(3))
    """
    lengths = np.sqrt(
        np.square(other.from_mm[:3, :3] @ turn @ own.to_mm[:3, :3]).sum(0)
    )  # in voxels of other
    if (lengths < _THICK).all():
        return None
    lines = []
    for length in lengths.tolist():
        count = min(round(length), _PLACES) if length >= _THICK else 1
        box = (1 - 1 / length**2) ** 0.5 if count > 1 else 0.0
        lines.append(((np.arange(count) + 0.5) / count - 0.5) * box)
    return np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, 3)
