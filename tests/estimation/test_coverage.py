"""The ellipses of the corners hold the true corners about as often as they say."""

import numpy as np
import torch

from caunet import geometry
from caunet.benchmark.misleading import PLANE_MODELS, moved_by
from caunet.estimation import Estimator
from caunet.estimation.register import register


def test_ellipses_of_95_percent_hold_most_corners() -> None:
    inside, distances = [], []
    for index in range(25):
        model, noise = PLANE_MODELS[index % 5], (0.005, 0.01, 0.02, 0.03, 0.04)[index // 5]
        pair = moved_by("test", model, index, motion=0.04, noise=noise, seed=4, side=128)
        estimator = Estimator(model)
        with torch.inference_mode():
            found = register(pair.a, pair.b, estimator.network, estimator.motion_model)
        assert found.covariance is not None
        corners = geometry.corners((128, 128), like=found.H)
        assert pair.H is not None
        gap = geometry.apply(found.H, corners) - geometry.apply(pair.H.numpy(), corners)
        for k in range(4):
            block = found.covariance[2 * k : 2 * k + 2, 2 * k : 2 * k + 2]
            distances.append(float(gap[k] @ np.linalg.solve(block, gap[k])))
            inside.append(distances[-1] < 5.991)
    assert 0.88 <= np.mean(inside) <= 1.0
    assert 0.4 < np.median(distances) < 2.0  # 1.39 of a normal distribution
