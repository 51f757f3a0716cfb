"""How two frames of a stack are related: the transform, its weight in the pose graph, how sure it is."""

import math
from typing import NamedTuple

import numpy as np
import torch

from caunet import geometry
from caunet.estimation.confidence import confidence, factors
from caunet.estimation.estimator import Estimator
from caunet.estimation.limits import Limits
from caunet.estimation.register import register
from caunet.estimation.uncertainty import jacobian
from caunet.geometry import Matrix
from caunet.stacks.views import View

__all__ = ["Related", "Relater"]

_FLOOR = 0.004  # pixels: standard deviation that interpolation leaves even without noise


class Related(NamedTuple):
    """Frame a related to frame b."""

    matrix: Matrix
    """(3, 3), from a to b."""
    information: Matrix
    """(k, k): inverse covariance of the generators, for the pose graph."""
    confidence: float
    agreement: float
    """The probability that both show the same and lie so, whatever else moves in them: of the confidence all but the
    factor that asks whether another motion model would explain more. Cells that move by themselves are no reason to
    refuse a relation."""


class Relater:
    """Relates frames of one ``size`` (height, width) with one motion model.

    ``generators`` (k, 3, 3) are those of the model, in pixels, each of about one pixel at the corners.
    """

    def __init__(self, estimator: Estimator, size: tuple[int, int]) -> None:
        self.estimator, self.size = estimator, size
        like = np.eye(3)
        model = estimator.motion_model.for_images(size, size)
        half = max(size) / 2
        x, y = geometry.center_of(size)
        out = np.array([[half, 0, x], [0, half, y], [0, 0, 1.0]])
        entries = model.in_coordinates(np.linalg.inv(out)).generators()
        matrices = np.concatenate([entries, np.zeros((len(entries), 1))], 1).reshape(-1, 3, 3)
        self.generators: Matrix = out @ matrices @ np.linalg.inv(out) / half
        self.corners: Matrix = geometry.corners(size, like=like)

    def __call__(
        self, a: View, b: View, initial: Matrix | None = None, limits: Limits | None = None
    ) -> Related:
        """The frames ``a`` and ``b``, from ``initial`` (3, 3) if that is given, within ``limits``."""
        device = self.estimator.device
        with torch.inference_mode():
            found = register(
                a.gray.to(device),
                b.gray.to(device),
                self.estimator.network,
                self.estimator.motion_model,
                self.estimator._matcher,
                None if a.mask is None else a.mask.to(device),
                None if b.mask is None else b.mask.to(device),
                no_motion=None if limits is None else np.eye(3),
                initial=initial,
                limits=limits,
            )
        known = factors(found.evidence) if found.evidence else {}
        return Related(
            found.H,
            self._information(found.H, found.covariance),
            confidence(found.evidence),
            math.prod(value for name, value in known.items() if name != "model") if known else 0.0,
        )

    def _information(self, H: Matrix, covariance: Matrix | None) -> Matrix:
        """From the covariance of the corners in b (8, 8) to that of H (I + sum of d_g G_g)."""
        points = np.concatenate([self.corners, np.ones((4, 1))], 1)
        moves = np.stack(
            [(points @ G.T)[:, :2] - self.corners * (points @ G.T)[:, 2:] for G in self.generators], -1
        )
        there = np.concatenate([J @ move for J, move in zip(jacobian(H, self.corners), moves, strict=True)])
        back = np.linalg.pinv(there)  # (k, 8)
        spread: Matrix = np.eye(8) * _FLOOR**2
        if covariance is not None:
            spread = spread + covariance
        information: Matrix = np.asarray(np.linalg.inv(back @ spread @ back.T), dtype=np.float64)
        return information
