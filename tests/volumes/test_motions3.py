"""The network's motions of patches in space, and the fit to them."""

import numpy as np
import torch

from caunet.data import shapes3
from caunet.estimation.fit import robust_fit
from caunet.estimation.motion_models import create_motion_model
from caunet.volumes import Volume
from caunet.volumes.light import CURVED_FIELD
from caunet.volumes.motions import passed, raster3
from caunet.volumes.prepare import prepare
from caunet.volumes.pyramid import levels
from tests.volumes.scenes import carried, mean_distance, middle_of, turned


def test_robust_fit_in_space_leaves_out_wrong_motions():
    rng = np.random.default_rng(0)
    points = rng.uniform(-50, 50, (60, 3))
    M = turned(12, (1, 2, -1), (4.0, -3.0, 2.0), np.zeros(3))
    target = points @ M[:3, :3].T + M[:3, 3]
    target[:15] += rng.normal(size=(15, 3)) * 20
    found, weight = robust_fit(create_motion_model("rigid", dimensions=3), points, target, np.ones(60), 0.5)
    np.testing.assert_allclose(found, M, atol=1e-2)
    assert weight[:15].max() < 0.1 < weight[15:].min()


def test_the_network_brings_a_guess_nearer():
    a = shapes3.make(1, "test").astype(np.float32) / 255
    M = turned(10, (1, 2, 1), (3.0, -3.0, 2.0), middle_of(a.shape))
    levels_ab = [
        levels(prepare(Volume(v, np.eye(4)), None, torch.device("cpu")), [2.0, 1.0])[0]
        for v in (a, carried(a, M))
    ]
    with torch.inference_mode():
        found = passed(*levels_ab, np.eye(4), create_motion_model("rigid", dimensions=3))
    assert mean_distance(found, M, a.shape) < 0.35 * mean_distance(np.eye(4), M, a.shape)


def test_patches_lie_inside():
    centers = raster3((20, 9, 7), 7, 30, torch.device("cpu")).numpy()
    assert centers.min() >= 3
    assert (centers.max(0) <= [3, 5, 16]).all()


def test_a_curve_that_drifts_explains_what_it_is_made_for():
    """b = (a^2 + 0.1) (1 + 0.2 x): least squares on the columns leaves nearly nothing."""
    rng = np.random.default_rng(0)
    values, u = torch.from_numpy(rng.random(4000)), torch.from_numpy(rng.uniform(-1, 1, (1, 4000, 3)))
    other = (values.square() + 0.1) * (1 + 0.2 * u[0, :, 0])
    columns = CURVED_FIELD.columns(u, values)[0]
    found = torch.linalg.lstsq(columns, other[:, None]).solution
    assert float((columns @ found - other[:, None]).abs().max()) < 0.01
    slope = CURVED_FIELD.slope(found.T, values)[0]
    assert float((slope - 2 * values).abs().max()) < 0.2
