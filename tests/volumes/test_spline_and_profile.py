"""Splines against SciPy's; thick slices; moments by their definition."""

import numpy as np
import pytest
import scipy.ndimage as ndi
import torch

from caunet.estimation.motion_models import create_motion_model
from caunet.volumes import Volume, estimate_volume
from caunet.volumes.alignment import Frame, Sides, align
from caunet.volumes.points import choose_points
from caunet.volumes.pyramid import Level
from caunet.volumes.register import _smoothed
from caunet.volumes.search import axes_turns, moments, rotations, stretched
from caunet.volumes.spline import read_spline, spline_coefficients
from tests.volumes.scenes import carried, mean_distance, middle_of, scene, turned


def test_splines_are_scipys():
    rng = np.random.default_rng(0)
    values = rng.random((9, 14, 11))
    places = rng.random((500, 3)) * (np.array(values.shape[::-1]) - 1)
    ours = read_spline(spline_coefficients(torch.from_numpy(values)), torch.from_numpy(places)).numpy()
    theirs = ndi.map_coordinates(values, places[:, ::-1].T, order=3, mode="mirror")
    np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_splines_go_through_the_voxels_of_thin_volumes():
    values = torch.rand(1, 2, 17, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z, y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in values.shape), indexing="ij")
    read = read_spline(spline_coefficients(values), torch.stack([x, y, z], -1))
    torch.testing.assert_close(read, values)


@pytest.mark.parametrize("masked", [False, True])
def test_chosen_points_are_the_blocks_of_numpys_gradient(masked):
    """Slab by slab and point by point, the same as from the gradient of the whole volume."""
    values = scene((50, 37, 41), seed=5)
    grid = np.array([[0.3, -1.9, 0, 3], [1.6, 0.2, 0.1, 4], [0, 0.3, 2.5, 5], [0, 0, 0, 1]])
    mask = (np.random.default_rng(0).random(values.shape) < 0.8).astype(np.float32) if masked else None
    level = Level(torch.from_numpy(values), grid, None if mask is None else torch.from_numpy(mask))
    points = choose_points(level, 6400)
    change = np.stack(np.gradient(values.astype(np.float64)))  # z, y, x
    for axis, part in enumerate(change):
        part.swapaxes(0, axis)[[0, -1]] = 0
    gradient = np.einsum("ij,izyx->zyxj", np.linalg.inv(grid[:3, :3]), change[::-1])
    np.testing.assert_allclose(level.gradient.permute(1, 2, 3, 0), gradient, atol=1e-6)
    texture = np.square(gradient).sum(-1) * (1 if mask is None else mask)
    blocks = {}
    for z, y, x in np.ndindex(*(-(-n // 4) for n in values.shape)):
        blocks[z, y, x] = texture[4 * z : 4 * z + 4, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4].mean()
    best = sorted(blocks, key=blocks.get, reverse=True)[:100]
    x, y, z = points.voxels.long().numpy().T
    assert {tuple(p) for p in np.stack([z, y, x], 1) // 4} == set(best)
    np.testing.assert_allclose(points.gradient, gradient[z, y, x], atol=1e-6)
    np.testing.assert_array_equal(points.values, values[z, y, x])


def test_smoothing_leaves_out_what_is_behind_a_mask():
    """Normalized convolution, as SciPy does it; what lies behind the mask was drawn into its edge."""
    rng = np.random.default_rng(0)
    values, mask = rng.random((2, 9, 8, 10))
    mask = np.where(mask < 0.3, 0, np.where(mask < 0.4, 0.5, 1.0))
    line = np.array([1, 2, 1]) / 4
    kernel = line[:, None, None] * line[:, None] * line
    both, share = (ndi.convolve(v, kernel, mode="nearest") for v in (values * mask, mask))
    wild = np.where(mask > 0, values, 1e3)
    found = _smoothed(Level(torch.from_numpy(wild), np.eye(4), torch.from_numpy(mask))).values.numpy()
    np.testing.assert_allclose(found[mask > 0], (both / share)[mask > 0], atol=1e-12)
    plain = _smoothed(Level(torch.from_numpy(values), np.eye(4))).values.numpy()
    np.testing.assert_allclose(plain, ndi.convolve(values, kernel, mode="nearest"), atol=1e-12)


def test_thick_slices_are_compared_with_means():
    """Slices six times as thick as wide, each the mean of six thin ones, in either place."""
    a = scene((72, 60, 56), seed=4)
    M = turned(17, (1, 2, 1), (1.5, -2.0, 1.0), middle_of(a.shape))
    b = carried(a, M)
    thick = b.reshape(12, 6, *b.shape[1:]).mean(1)
    into = np.diag([1.0, 1.0, 6.0, 1.0])  # voxels of thick to those of b
    into[2, 3] = 2.5
    truth = np.linalg.inv(into) @ M
    grids = np.eye(4), np.diag([1.0, 1.0, 6.0, 1.0])
    thin_first = estimate_volume(Volume(a, grids[0]), Volume(thick, grids[1]))
    thick_first = estimate_volume(Volume(thick, grids[1]), Volume(a, grids[0]))
    assert mean_distance(into @ np.asarray(thin_first), M, a.shape) < 0.02
    assert mean_distance(np.linalg.inv(np.asarray(thick_first)), truth, a.shape) < 0.02


def test_moments_by_their_definition_and_as_an_affine_map_changes_them():
    a = scene(seed=2)
    grid = np.array([[0, -2.0, 0, 30], [1.5, 0, 0, 10], [0, 0, 3.0, -5], [0, 0, 0, 1]])
    center, spread = moments(Level(torch.from_numpy(a), grid))
    mass = np.maximum(a - 0.1, 0).ravel()
    z, y, x = (one.ravel() for one in np.indices(a.shape))
    places = (grid @ np.stack([x, y, z, np.ones_like(x)]))[:3]
    np.testing.assert_allclose(center, np.average(places, axis=1, weights=mass), atol=1e-3)
    boxes = grid[:3, :3] @ grid[:3, :3].T / 12  # a voxel is a box: the variance of a uniform distribution
    np.testing.assert_allclose(spread, np.cov(places, aweights=mass, bias=True) + boxes, rtol=1e-4, atol=1e-3)
    A = rotations(5)[3] @ np.diag([1.2, 0.9, 1.0])
    moved = A @ spread @ A.T
    for linear in stretched(rotations(7), spread, moved, 12):
        np.testing.assert_allclose(linear @ spread @ linear.T, moved, atol=1e-6)
    R = rotations(5)[1]
    turns = axes_turns(spread, R @ spread @ R.T)
    assert len(turns) == 4
    assert min(np.abs(turn - R).max() for turn in turns) < 1e-6


def test_what_lies_in_one_voxel_or_plane_has_moments_that_can_be_inverted():
    """Else an affine search begins at guesses that are not numbers."""
    for where in ((4, 5, 6), (4,)):
        a = np.zeros((9, 10, 11), np.float32)
        a[where] = 1
        spreads = [moments(Level(torch.from_numpy(v), np.eye(4)))[1] for v in (a, scene(seed=2))]
        assert np.linalg.eigvalsh(spreads[0]).min() == pytest.approx(1 / 12)
        for linear in stretched(rotations(7), *spreads, 12):
            np.testing.assert_allclose(linear @ spreads[0] @ linear.T, spreads[1], atol=1e-6)


@pytest.mark.parametrize("seed", [2, 3])
def test_volumes_that_do_not_fit_are_not_flattened_until_they_do(seed):
    """Two volumes of noise: where nearly nothing is compared the residuals are smallest, and T was singular."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (Level(torch.rand(16, 16, 16, generator=generator), np.eye(4)) for _ in range(2))
    sides = Sides(a, b, choose_points(a, 500), choose_points(b, 500))
    guesses = np.stack([np.diag([x, x, y, 1.0]) for x in (0.1, 0.5, 1.0) for y in (0.03, 0.1, 1.0)])
    center = np.full(3, 7.5)
    guesses[:, :3, 3] = center - guesses[:, :3, :3] @ center
    generators = create_motion_model("affine", dimensions=3).generators()
    T = align(sides, guesses, Frame(center, 8.0), generators, 60, 1e-9).T
    stretch = np.linalg.svd(T[:, :3, :3], compute_uv=False)
    assert (stretch[:, 2] / stretch[:, 0]).min() > 0.02
    assert stretch.min() > 0.02
