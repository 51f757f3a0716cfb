"""Transforms of the plane and of space: against loops, OpenCV and SciPy, by their laws, in both kinds of arrays."""

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from caunet import geometry

FEW = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**31)
dimensions = st.sampled_from([2, 3])


def some_transform(d: int, seed: int, *batch: int) -> np.ndarray:
    """A general but well-conditioned H (*batch, d+1, d+1)."""
    rng = np.random.default_rng(seed)
    H = np.eye(d + 1) + rng.uniform(-0.2, 0.2, (*batch, d + 1, d + 1))
    H[..., :d, d] += rng.uniform(-5, 5, (*batch, d))
    H[..., d, :d] = rng.uniform(-0.02, 0.02, (*batch, d))
    return H


def loop_apply(H: np.ndarray, points: np.ndarray) -> np.ndarray:
    carried = []
    for p in points:
        q = [sum(H[i, j] * v for j, v in enumerate([*p, 1.0])) for i in range(len(H))]
        carried.append([value / q[-1] for value in q[:-1]])
    return np.array(carried)


def shift_loops(H: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    before, after = np.eye(len(H)), np.eye(len(H))
    before[:-1, -1], after[:-1, -1] = first, last
    return after @ H @ before


@FEW
@given(seeds, dimensions)
def test_both_kinds_of_arrays_give_the_same_numbers_as_loops(seed: int, d: int) -> None:
    A, B = some_transform(d, seed), some_transform(d, seed + 1)
    points = np.random.default_rng(seed).uniform(-4, 4, (5, d))
    tensors = [torch.from_numpy(value) for value in (A, B, points)]
    for function, expected in (
        (lambda A, B, p: geometry.compose(A, B), A @ B),
        (lambda A, B, p: geometry.invert(A), np.linalg.inv(A)),
        (lambda A, B, p: geometry.adjugate(A)[0], np.linalg.inv(A) * np.linalg.det(A)),
        (lambda A, B, p: geometry.adjugate(A)[1], np.linalg.det(A)),
        (lambda A, B, p: geometry.normalize(-3 * A), A / A[d, d]),
        (lambda A, B, p: geometry.apply(A, p), loop_apply(A, points)),
        (lambda A, B, p: geometry.center(A, (4, 7, 9)[-d:]), None),
        (lambda A, B, p: geometry.uncenter(A, (4, 7, 9)[-d:]), None),
        (lambda A, B, p: geometry.with_shifts(A, p[0], p[1]), shift_loops(A, points[0], points[1])),
        (lambda A, B, p: geometry.rescale(A, 0.25), None),
        (lambda A, B, p: geometry.exponential(A), expm(A)),
    ):
        array, tensor = function(A, B, points), function(*tensors)
        assert isinstance(array, np.ndarray | np.float64)
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_allclose(array, tensor.numpy(), atol=1e-10)
        if expected is not None:
            np.testing.assert_allclose(array, expected, atol=1e-9)


@FEW
@given(seeds, dimensions)
def test_the_laws_of_a_group(seed: int, d: int) -> None:
    A, B, C = (some_transform(d, seed + k, 3) for k in range(3))
    points = np.random.default_rng(seed).uniform(-4, 4, (3, 5, d))
    eye = np.broadcast_to(np.eye(d + 1), A.shape)
    np.testing.assert_allclose(geometry.compose(A, geometry.invert(A)), eye, atol=1e-10)
    left, right = geometry.compose(geometry.compose(A, B), C), geometry.compose(A, geometry.compose(B, C))
    np.testing.assert_allclose(left, right, atol=1e-10)
    together, in_turn = (
        geometry.apply(geometry.compose(A, B), points),
        geometry.apply(A, geometry.apply(B, points)),
    )
    np.testing.assert_allclose(together, in_turn, atol=1e-7)


@FEW
@given(seeds, dimensions, st.sampled_from([0.25, 0.5, 2.0, 3.0]))
def test_a_change_of_scale_commutes_with_everything(seed: int, d: int, factor: float) -> None:
    A, B = some_transform(d, seed), some_transform(d, seed + 1)
    points = np.random.default_rng(seed).uniform(-4, 4, (5, d))
    moved = geometry.apply(geometry.rescale(A, factor), geometry.rescale_points(points, factor))
    np.testing.assert_allclose(moved, geometry.rescale_points(geometry.apply(A, points), factor), atol=1e-8)
    product = geometry.compose(geometry.rescale(A, factor), geometry.rescale(B, factor))
    whole = geometry.rescale(geometry.compose(A, B), factor)
    np.testing.assert_allclose(geometry.normalize(product), whole, atol=1e-9)
    there_and_back = geometry.rescale(geometry.rescale(A, factor), 1 / factor)
    np.testing.assert_allclose(there_and_back, geometry.normalize(A), atol=1e-10)
    scaled = geometry.apply(geometry.pixel_scale(factor, d, A), points)
    np.testing.assert_allclose(scaled, geometry.rescale_points(points, factor), atol=1e-12)


def test_a_shrunk_image_lies_where_opencv_puts_it() -> None:
    """A ramp averaged over 4 x 4 pixels holds the coordinates that the change of scale gives."""
    x, y = np.meshgrid(np.arange(40.0), np.arange(24.0))
    small = [cv2.resize(ramp, (10, 6), interpolation=cv2.INTER_AREA) for ramp in (x, y)]
    points = np.stack(np.meshgrid(np.arange(10.0), np.arange(6.0)), -1)
    np.testing.assert_allclose(np.stack(small, -1), geometry.rescale_points(points, 4.0))


@FEW
@given(seeds)
def test_points_of_the_plane_go_where_opencv_sends_them(seed: int) -> None:
    H, points = some_transform(2, seed), np.random.default_rng(seed).uniform(-4, 4, (5, 2))
    np.testing.assert_allclose(
        geometry.apply(H, points), cv2.perspectiveTransform(points[None], H)[0], rtol=1e-9
    )


@FEW
@given(seeds, st.floats(-200, 200))
def test_rotations_of_space_are_scipys(seed: int, degrees: float) -> None:
    axis = np.random.default_rng(seed).normal(size=3)
    expected = Rotation.from_rotvec(np.radians(degrees) * axis / np.linalg.norm(axis)).as_matrix()
    H = geometry.rotate(torch.tensor(degrees, dtype=torch.float64), axis=axis.tolist())
    np.testing.assert_allclose(H[:3, :3], expected, atol=1e-12)
    assert H[3].tolist() == [0, 0, 0, 1]


def test_space_has_the_builders_of_the_plane() -> None:
    about_z = geometry.rotate(torch.tensor(30.0, dtype=torch.float64), axis=(0, 0, 2))
    torch.testing.assert_close(about_z[:2, :2], geometry.rotate(torch.tensor(30.0).double())[:2, :2])
    point = torch.tensor([[1.0, 2.0, 3.0]])
    assert geometry.apply(geometry.translate(1.0, -1.0, 2.0), point).tolist() == [[2, 1, 5]]
    assert geometry.apply(geometry.scale(2.0, 3.0, 4.0), point).tolist() == [[2, 6, 12]]
    turn = geometry.center(geometry.rotate(180.0, axis=(1, 0, 0)), (3, 5, 7))
    torch.testing.assert_close(geometry.apply(turn, point), torch.tensor([[1.0, 2.0, -1.0]]))


def test_gradients_in_space() -> None:
    H = torch.from_numpy(some_transform(3, 0, 2)).requires_grad_()

    def all_of_it(H: torch.Tensor) -> torch.Tensor:
        moved = geometry.compose(
            geometry.normalize(geometry.invert(H)), geometry.exponential(0.1 * H[0])[None]
        )
        return geometry.apply(moved, H.new_ones(2, 3, 3))

    assert torch.autograd.gradcheck(all_of_it, (H,))


def test_each_matrix_has_the_same_bits_alone_and_in_a_batch() -> None:
    for d in (2, 3):
        H = torch.from_numpy(some_transform(d, 7, 37))
        for function in (
            geometry.invert,
            lambda H: geometry.compose(H, H),
            lambda H: geometry.adjugate(H)[0],
        ):
            whole = function(H)
            assert all(torch.equal(function(H[k : k + 1])[0], whole[k]) for k in range(37))


@pytest.mark.parametrize("d", [2, 3])
def test_singular_transforms_are_refused_in_both_kinds(d: int) -> None:
    H = np.stack([np.eye(d + 1), np.ones((d + 1, d + 1))])
    for bad in (H, torch.from_numpy(H)):
        with pytest.raises(ValueError, match=r"H\[1\] is singular, must be invertible"):
            geometry.invert(bad)
    assert not np.isfinite(geometry.invert(H[1:], checked=False)).any()


def test_points_behind_the_viewer_can_be_put_far_away() -> None:
    H = np.array([[1.0, 0, 0], [0, 1, 0], [-0.5, 0, 1]])
    points = np.array([[1.0, 3.0], [2.0, 0.0], [5.0, 1.0]])
    for kind in (np.asarray, torch.from_numpy):
        moved = geometry.apply(kind(H), kind(points), far=1e6)
        assert moved.tolist() == [[2, 6], [1e6, 1e6], [1e6, 1e6]]


@pytest.mark.parametrize("centered", [False, True])
def test_corners_of_boxes(centered: bool) -> None:
    size = (3, 5, 7)
    found = geometry.corners(size, centered=centered)
    loops = [
        [x, y, z]
        for z in (0.0, 2.0)
        for x, y in ((0.0, 0.0), (6.0, 0.0), (6.0, 4.0), (0.0, 4.0))
    ]  # fmt: skip
    expected = np.array(loops) - (np.array([3.0, 2.0, 1.0]) if centered else 0)
    np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(geometry.corners(size[1:], centered=centered).numpy(), expected[:4, :2])
    assert isinstance(geometry.corners(size, like=np.eye(4)), np.ndarray)
    assert geometry.corners(size, like=torch.eye(4)).dtype == torch.float32


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"shift must be two numbers .* got 1"):
        geometry.translate(1.0)
    with pytest.raises(ValueError, match=r"factors must be two numbers .* got 4"):
        geometry.scale(1.0, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="axis must be a direction"):
        geometry.rotate(3.0, axis=(0, 0, 0))
    with pytest.raises(ValueError, match=r"H\[1\] must have 2 dimensions like H\[0\], got 3"):
        geometry.compose(torch.eye(3), torch.eye(4))
    with pytest.raises(
        ValueError, match=r"H must have shape \(\.\.\., 3, 3\) or \(\.\.\., 4, 4\), got \(2, 2\)"
    ):
        geometry.invert(np.eye(2))
    with pytest.raises(TypeError, match=r"H must be a floating tensor or array .* got int64"):
        geometry.invert(np.eye(3, dtype=np.int64))
    with pytest.raises(ValueError, match=r"size must be \(depth, height, width\)"):
        geometry.center(np.eye(4), (3, 3))
    with pytest.raises(ValueError, match="factor must be a positive number, got 0"):
        geometry.rescale(np.eye(3), 0.0)
    with pytest.raises(ValueError, match=r"points must have shape \(\.\.\., 3\)"):
        geometry.apply(np.eye(4), np.zeros((1, 2)))


def test_one_array_has_the_bits_that_it_has_in_a_batch() -> None:
    batch = np.random.default_rng(0).normal(0, 1, (50, 3, 3))
    inverses, (cofactors, determinants) = geometry.invert(batch), geometry.adjugate(batch)
    for k, H in enumerate(batch):
        np.testing.assert_array_equal(geometry.invert(H), inverses[k])
        np.testing.assert_array_equal(geometry.adjugate(H)[0], cofactors[k])
        assert geometry.adjugate(H)[1] == determinants[k]
