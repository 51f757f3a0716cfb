"""Covariances carried through transforms, against many draws of the transforms themselves."""

import cv2
import numpy as np
import pytest

from caunet import geometry
from caunet.estimation.limits import Bounds, Limits
from caunet.estimation.uncertainty import composed, inverted, jacobian, of_points

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


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (3, r"^bounds must be a dict with some of shift, angle, scale, got 3"),
        ({}, r"^bounds must be a dict with some of"),
        ({"shear": 1}, r"^bounds must be a dict with some of"),
        ({"shift": "far"}, r"^bounds\['shift'\] must be a number of pixels, 0 or more, got 'far'"),
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
