"""Mutual information: its density against NumPy and SciPy, its value in closed form, and what it is for."""

import numpy as np
import pytest
import scipy.ndimage as ndi
import torch

from caunet.estimation.motion_models import create_motion_model
from caunet.volumes import Volume
from caunet.volumes.alignment import Frame, align
from caunet.volumes.light import CURVED_FIELD
from caunet.volumes.mutual import align_information, joint_density, noise_level
from caunet.volumes.prepare import prepare
from caunet.volumes.register import _finest_sides
from caunet.volumes.search import middle
from tests.volumes.scenes import carried, mean_distance, middle_of, scene, turned

BINS, LOW, HIGH = 128, -0.1, 1.2


def test_density_and_slopes_are_those_of_a_loop_and_scipy():
    rng = np.random.default_rng(0)
    first, weight = rng.random(3000), rng.random(3000)
    second = 0.7 * first**2 + 0.1 * rng.normal(size=3000)
    found = joint_density(*(torch.from_numpy(v) for v in (first, second, weight)))
    counts = np.zeros((BINS, BINS))
    pairs = (np.stack([first, second], 1).clip(LOW, HIGH) - LOW) / (HIGH - LOW) * (BINS - 1)
    for (x, y), w in zip(pairs, weight, strict=True):
        i, j = min(int(x), BINS - 2), min(int(y), BINS - 2)
        for dx, wx in ((0, 1 - x + i), (1, x - i)):
            for dy, wy in ((0, 1 - y + j), (1, y - j)):
                counts[j + dy, i + dx] += w * wx * wy
    blurred = ndi.gaussian_filter(counts, 1.5, mode="constant", radius=5)
    joint = blurred / blurred.sum()
    np.testing.assert_allclose(found.joint, joint, atol=1e-12)
    least = 1 / weight.sum()
    ratio = (
        np.log(joint + least)
        - np.log(joint.sum(0, keepdims=True) + least * BINS)
        - np.log(joint.sum(1, keepdims=True) + least * BINS)
    )
    np.testing.assert_allclose(found.ratio, ratio, atol=1e-9)
    for k, axis in ((0, 1), (1, 0)):
        change = np.gradient(ratio, (HIGH - LOW) / (BINS - 1), axis=axis)
        slope = ndi.map_coordinates(change, pairs[:, ::-1].T, order=1)
        inner = ((pairs > 2) & (pairs < BINS - 3)).all(1)
        np.testing.assert_allclose(found.slopes[k].numpy()[inner], slope[inner], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_information_of_a_gaussian_in_closed_form(rho):
    rng = np.random.default_rng(1)
    first = rng.normal(size=1_000_000)
    second = rho * first + np.sqrt(1 - rho * rho) * rng.normal(size=first.size)
    pair = [torch.from_numpy(0.5 + 0.12 * v) for v in (first, second)]
    found = joint_density(*pair, torch.ones(first.size))
    blur = 1.5 * (HIGH - LOW) / (BINS - 1)  # which the values are seen with
    seen = rho * 0.12**2 / (0.12**2 + blur**2)
    assert float((found.joint * found.ratio).sum()) == pytest.approx(-0.5 * np.log(1 - seen**2), abs=0.05)


def test_noise_is_measured():
    a = torch.from_numpy(scene())
    assert noise_level(a) < 0.02
    noise = 0.05 * torch.randn(a.shape, generator=torch.Generator().manual_seed(0))
    assert noise_level(a + noise) == pytest.approx(0.05, rel=0.1)
    assert noise_level(torch.zeros(8, 8, 8)) == 0
    assert noise_level(torch.ones(8, 8, 4)) == 0


def tissues(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A body of five tissues in two contrasts, where two that are alike in one are not in the other, under fields."""
    rng = np.random.default_rng(seed)
    size = (64, 60, 66)
    texture = ndi.gaussian_filter(rng.normal(size=size), 3.0)
    label = np.digitize(texture, np.quantile(texture, [0.2, 0.4, 0.6, 0.8])) + 1
    places = np.stack(np.meshgrid(*(np.linspace(-1.3, 1.3, n) for n in size), indexing="ij"))
    label[(places**2).sum(0) > 1] = 0
    first, second = np.array([0, 0.3, 0.45, 0.6, 0.75, 0.9]), np.array([0, 0.9, 0.7, 0.4, 0.6, 0.3])
    fields = [1 + 0.15 * places[0] - 0.1 * places[2] ** 2, 1 - 0.12 * places[1]]
    return tuple(
        (ndi.gaussian_filter(values[label], 1.0) * field).astype(np.float32)
        for values, field in zip((first, second), fields, strict=True)
    )


@pytest.mark.parametrize("thick", [1, 4])
def test_another_contrast_is_aligned_more_exactly_than_by_a_curve(thick):
    """From near the answer; where slices of b are means of four, too."""
    errors = []
    for seed in range(3):
        a, other = tissues(seed)
        M = turned(14, (1, 2, -1), (1.5, -1.0, 2.0), middle_of(a.shape))
        slices = carried(other, M).reshape(64 // thick, thick, *other.shape[1:]).mean(1)
        grid = np.diag([1.0, 1.0, thick, 1.0])
        grid[2, 3] = (thick - 1) / 2
        levels = [
            prepare(Volume(v, g), None, torch.device("cpu")) for v, g in ((a, np.eye(4)), (slices, grid))
        ]
        sides = _finest_sides(([levels[0]], [levels[1]]), True)
        frame, generators = (
            Frame(middle(levels[0]), 32.0),
            create_motion_model("rigid", dimensions=3).generators(),
        )
        near = (M @ turned(1, (0, 1, 1), (0.5, 0.3, -0.4), middle_of(a.shape)))[None]
        found = align_information(sides, near, frame, generators, 20, 1e-3)
        again = align_information(sides, near, frame, generators, 20, 1e-3)
        assert np.array_equal(found.T, again.T)
        curved = align(sides, near, frame, generators, 20, 1e-3, CURVED_FIELD)
        errors.append([mean_distance(one.T[0], M, a.shape) for one in (found, curved)])
    information, curve = np.array(errors).T
    assert information.max() < 0.06
    assert information.mean() < 0.6 * curve.mean()
