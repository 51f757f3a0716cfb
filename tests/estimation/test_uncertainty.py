"""Covariances carried through transforms, against many draws of the transforms themselves."""

import cv2
import numpy as np
import pytest

from caunet import geometry
from caunet.estimation.evidence import LocalMotions, point_moves
from caunet.estimation.limits import Bounds, Limits
from caunet.estimation.motion_models import create_motion_model
from caunet.estimation.polish import unit_coordinates
from caunet.estimation.uncertainty import composed, inverted, jacobian, of_motions, of_points, relative

A, B = (60, 80), (70, 90)
H = np.array([[1.05, 0.1, 3.0], [-0.08, 0.95, 6.0], [4e-4, -3e-4, 1.0]])
G = np.array([[0.9, -0.2, 20.0], [0.2, 1.0, -4.0], [-2e-4, 1e-4, 1.0]])
RNG = np.random.default_rng(0)


def spread(seed: int) -> np.ndarray:
    """A covariance of eight numbers, of the order of a hundredth of a pixel."""
    root = np.random.default_rng(seed).normal(0, 0.02, (8, 8))
    return root @ root.T


def draws(matrix, size, covariance, count=4000):
    """Homographies whose corners scatter by ``covariance``."""
    frame = geometry.corners(size, like=np.eye(3))
    there = geometry.apply(matrix, frame).reshape(-1)
    for corners in np.random.default_rng(5).multivariate_normal(there, covariance, count):
        yield cv2.getPerspectiveTransform(frame.astype(np.float32), corners.reshape(4, 2).astype(np.float32))


def scatter(matrices, points):
    """(2 N, 2 N): how ``points`` scatter under the matrices."""
    return np.cov(np.stack([geometry.apply(M, points).reshape(-1) for M in matrices]).T)


def alike(ours, theirs):
    assert np.abs(ours - theirs).max() < 0.12 * np.abs(theirs).max()


def test_points_inverse_and_composition_against_draws():
    points = RNG.uniform(0, 60, (3, 2))
    first, second = spread(1), spread(2)
    ours = of_points(H, A, first, points)
    alike(ours, scatter(draws(H, A, first), points))
    frame = geometry.corners(B, like=H)
    back = [np.linalg.inv(M) for M in draws(H, A, first)]
    alike(inverted(H, A, B, first), scatter(back, frame))
    both = zip(draws(G, B, second), draws(H, A, first), strict=True)
    shuffled = [M for M, _ in both], list(draws(H, A, first))[::-1]
    product = [M @ N for M, N in zip(*shuffled, strict=True)]
    alike(composed((G, B, second), (H, A, first)), scatter(product, geometry.corners(A, like=H)))


def test_the_corners_have_their_own_covariance():
    corners = geometry.corners(A, like=H)
    np.testing.assert_allclose(of_points(H, A, spread(3), corners), spread(3), atol=1e-12)
    again = inverted(np.linalg.inv(H), B, A, inverted(H, A, B, spread(3)))
    np.testing.assert_allclose(again, spread(3), atol=1e-10)


def test_jacobian_against_differences():
    points = RNG.uniform(0, 60, (5, 2))
    for k, step in enumerate(np.eye(2) * 1e-5):
        slope = (geometry.apply(H, points + step) - geometry.apply(H, points - step)) / 2e-5
        np.testing.assert_allclose(jacobian(H, points)[:, :, k], slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("model", ["translation", "euclidean", "projective"])
def test_motions_that_are_left_against_least_squares(model):
    into = unit_coordinates(A)
    generators = create_motion_model(model).for_images(A, A).in_coordinates(into).generators()
    # Each place in four windows, as where windows overlap by half.
    points = np.repeat(RNG.uniform(0, 59, (60, 2)), 4, axis=0)
    moves = (point_moves(geometry.apply(into, points)) @ generators.T / into[0, 0]).reshape(
        -1, len(generators)
    )
    wrong = RNG.normal(0, 0.05, len(generators))  # by which the answer is off
    noise, found = 0.2, []
    for _ in range(400):
        scatter = np.repeat(RNG.normal(0, noise, (60, 2)), 4, axis=0)
        motion = (moves @ wrong).reshape(-1, 2) + scatter
        one = np.ones(len(points))
        found.append(of_motions(LocalMotions(points, motion, one, one), generators, into))
    least_squares = 4 * noise**2 * np.linalg.inv(moves.T @ moves)
    expected = 2 * least_squares + np.outer(wrong, wrong)  # its own error is measured with the same scatter
    mean = np.mean(found, axis=0)
    np.testing.assert_allclose(np.diag(mean), np.diag(expected), rtol=0.2)
    few = LocalMotions(points[:1], points[:1], one[:1], one[:1])
    assert of_motions(few, generators, into) is None


def test_the_uncertainty_is_relative_to_the_diagonal():
    covariance = 0.5**2 * np.eye(8)  # half a pixel in x and in y
    diagonal = np.hypot(79, 59)
    assert relative(np.eye(3), A, covariance) == pytest.approx(0.5 * 2**0.5 / diagonal)
    assert relative(np.diag([2.0, 2.0, 1.0]), A, 4 * covariance) == pytest.approx(0.5 * 2**0.5 / diagonal)
    assert relative(np.eye(3), A, None) == 1.0


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (3, r"^bounds must be a dict with some of shift, angle, scale, got 3"),
        ({}, r"^bounds must be a dict with some of"),
        ({"shear": 1}, r"^bounds must be a dict with some of"),
        ({"shift": "far"}, r"^bounds\['shift'\] must be a distance \(.*\), 0 or more, got 'far'"),
        ({"shift": float("nan")}, r"^bounds\['shift'\] must be"),
        ({"angle": -3}, r"^bounds\['angle'\] must be the largest angle in degrees"),
        ({"angle": (5, 3)}, r"^bounds\['angle'\] must be"),
        ({"angle": (5, 3, 2)}, r"^bounds\['angle'\] must be"),
        ({"scale": 0}, r"^bounds\['scale'\] must be the largest factor, 1 or more"),
        ({"scale": 0.5}, r"^bounds\['scale'\] must be"),
        ({"scale": (2, 1)}, r"^bounds\['scale'\] must be"),
        ({"scale": True}, r"^bounds\['scale'\] must be"),
    ],
)
def test_bad_bounds_are_refused_by_name(bounds, message):
    with pytest.raises(ValueError, match=message):
        Bounds.of(bounds)


def test_limits_in_other_coordinates_allow_the_same():
    limits = Limits.for_image(Bounds.of({"shift": 10, "angle": (170, 190), "scale": (0.5, 2)}), A)
    from_a = np.array([[0.5, 0, -7], [0, 0.5, 3.0], [0, 0, 1]])
    from_b = np.array([[0.25, 0, 2], [0, 0.25, -9.0], [0, 0, 1]])
    moved = limits.inside(from_a, from_b)
    allowed = 0
    for _ in range(300):
        angle, scale = np.radians(RNG.uniform(150, 210)), RNG.uniform(0.4, 2.2)
        M = np.eye(3)
        M[:2, :2] = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        center = np.array(geometry.center_of(A))
        shift = RNG.uniform(-9, 9, 2)
        M[:2, 2] = center + shift - M[:2, :2] @ center
        expected = np.hypot(*shift) <= 10 and abs(np.degrees(angle) - 180) <= 10 and 0.5 <= scale <= 2
        assert limits.contains(M) == expected
        assert moved.contains(from_b @ M @ np.linalg.inv(from_a)) == expected
        assert limits.contains(limits.nearest(M))
        allowed += expected
    assert 20 < allowed < 200
