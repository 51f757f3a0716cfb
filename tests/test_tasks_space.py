"""Tasks in space against closed forms, SciPy's rotations and their own inverses."""

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from caunet import geometry, tasks

SPACE = tuple(task.name for task in tasks.SPACE)
RANGES = {
    "translation3": ([-3] * 3, [3] * 3),
    "rotation3": ([-30] * 3, [30] * 3),
    "scaling3": ([0.5] * 3, [2] * 3),
    "affine3": ([-0.3] * 9, [0.3] * 9),
    "rigid3": ([-30] * 3 + [-3] * 3, [30] * 3 + [3] * 3),
    "motion3": ([-3] * 3 + [-0.2] * 9, [3] * 3 + [0.2] * 9),
}


def written_out(name: str, z: np.ndarray) -> np.ndarray:
    """The H of one z: blocks of a 4 x 4 matrix, the rotation by SciPy."""
    H = np.eye(4)
    if name in ("rotation3", "rigid3"):
        H[:3, :3] = Rotation.from_euler("xyz", z[:3], degrees=True).as_matrix()
    if name == "scaling3":
        H[:3, :3] = np.diag(z)
    if name in ("affine3", "motion3"):
        H[:3, :3] += z[-9:].reshape(3, 3)
    if name in ("translation3", "motion3"):
        H[:3, 3] = z[:3]
    if name == "rigid3":
        H[:3, 3] = z[3:]
    return H


def test_the_families_are_these_and_in_space():
    assert tuple(RANGES) == SPACE
    for name, (low, high) in RANGES.items():
        task = tasks.get(name)
        assert (list(task.low), list(task.high)) == (low, high)
        assert task.dim == len(task.names) == len(task.units) == len(low)
        assert (task.dimensions, task.default_patch) == (3, 7)
    assert all(task.dimensions == 2 and task.default_patch == 11 for task in tasks.PLANE)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(SPACE), st.integers(0, 2**31))
def test_matrices_are_those_written_out(name, seed):
    task = tasks.get(name)
    z = task.sample(4, torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = np.stack([written_out(name, row) for row in z.numpy()])
    np.testing.assert_allclose(task.homography(z).numpy(), expected, atol=1e-14)
    np.testing.assert_array_equal(task.homography(z[1]), task.homography(z)[1])


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(SPACE), st.integers(0, 2**31), st.floats(-10, 10).filter(lambda s: abs(s) > 0.01))
def test_parameters_undo_homography_at_any_scale(name, seed, multiple):
    task = tasks.get(name)
    for dtype, atol in ((torch.float64, 1e-10), (torch.float32, 2e-4)):
        z = task.sample(6, torch.Generator().manual_seed(seed), dtype=dtype).reshape(2, 3, -1)
        torch.testing.assert_close(task.parameters(multiple * task.homography(z)), z, atol=atol, rtol=0)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**31))
def test_angles_are_read_as_scipy_reads_them(seed):
    """Of any rotation, far beyond the task's range."""
    turn = Rotation.random(rng=seed)
    H = torch.eye(4, dtype=torch.float64)
    H[:3, :3] = torch.from_numpy(turn.as_matrix())
    expected = turn.as_euler("xyz", degrees=True)
    if abs(abs(expected[1]) - 90) > 1e-3:
        np.testing.assert_allclose(tasks.get("rotation3").parameters(H), expected, atol=1e-7)


def test_which_way_positive_angles_turn():
    x, y, z = torch.eye(3, dtype=torch.float64)
    for angles, start, end in (([90.0, 0, 0], y, z), ([0, 90.0, 0], z, x), ([0, 0, 90.0], x, y)):
        H = tasks.get("rotation3").homography(torch.tensor(angles, dtype=torch.float64))
        torch.testing.assert_close(geometry.apply(H, start[None])[0], end, atol=1e-14, rtol=0)


@pytest.mark.parametrize(
    ("name", "H"),
    [
        ("translation3", geometry.rotate(1.0, axis=(0, 0, 1))),
        ("rotation3", geometry.translate(1.0, 0.0, 0.0)),
        ("rotation3", geometry.scale(1.0, 1.0, -1.0)),
        ("scaling3", geometry.rotate(10.0, axis=(1, 0, 0))),
        ("affine3", geometry.translate(0.0, 0.0, 1.0)),
        ("rigid3", geometry.scale(1.1, 1.1, 1.1)),
        ("motion3", torch.eye(4).index_put((torch.tensor(3), torch.tensor(0)), torch.tensor(0.1))),
        ("rotation3", torch.full((4, 4), math.nan)),
    ],
)
def test_parameters_refuse_another_family_and_name_the_first(name, H):
    with pytest.raises(ValueError, match=rf"H is not of the task '{name}'"):
        tasks.get(name).parameters(H)
    with pytest.raises(ValueError, match=r"H\[2\] is not of"):
        tasks.get(name).parameters(torch.stack([torch.eye(4), torch.eye(4), H, H]))


def test_matrices_of_the_other_space_are_refused():
    with pytest.raises(ValueError, match=r"H must have shape \(\.\.\., 4, 4\) for affine3, got 3 x 3"):
        tasks.get("affine3").parameters(torch.eye(3))
    with pytest.raises(ValueError, match=r"H must have shape \(\.\.\., 3, 3\) for rotation, got 4 x 4"):
        tasks.get("rotation").parameters(torch.eye(4))
    with pytest.raises(ValueError, match=r"dimensions must be 2 \(the plane\) or 3 \(space\), got 4"):
        tasks.Task("t", ("a",), (0.0,), (1.0,), geometry.affine, geometry.affine, dimensions=4)
    with pytest.raises(
        ValueError, match=r"z must have shape \(\.\.\., 4\) or, in space, \(\.\.\., 9\), got \(5,\)"
    ):
        geometry.affine(torch.zeros(5))


def test_gradients():
    for name in SPACE:
        task = tasks.get(name)
        z = task.sample(2, torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(task.homography, (z,))
        assert torch.autograd.gradcheck(lambda z, task=task: task.parameters(task.homography(z)), (z,))


def test_tasks_can_be_sent_to_other_processes():
    for name in SPACE:
        assert pickle.loads(pickle.dumps(tasks.get(name))) == tasks.get(name)
