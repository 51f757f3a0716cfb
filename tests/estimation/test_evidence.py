"""Evidence must tell right answers from wrong ones, what still moves from what does not, and how far H distorts."""

import numpy as np
import pytest
import torch
from tests.estimation.scenes import corner_error, pair, quad, scene
from torch import Tensor

from caunet import geometry
from caunet.estimation.confidence import FACTORS, confidence, features
from caunet.estimation.evidence import agreement, correlate, distortion, drift, explained, local_motions
from caunet.estimation.motion_models import Projective
from caunet.estimation.search import initial_guesses


def _tensors(*pictures: np.ndarray) -> list[Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(p)).float() for p in pictures]


def test_agreement_is_high_only_for_the_right_answer() -> None:
    H = quad(64, 4)
    a, b = _tensors(*pair(H, 64))
    right, wrong = agreement(a, 0.6 * b + 0.2, H)["score"], agreement(a, b, H @ quad(64, 12, seed=5))["score"]
    assert right > 0.9
    assert wrong < 0.5


def test_agreement_of_one_window_is_its_correlation() -> None:
    a, b = _tensors(*np.random.default_rng(0).random((2, 8, 8)))
    expected = np.corrcoef(a.flatten(), b.flatten())[0, 1]
    assert agreement(a, b, np.eye(3))["score"] == pytest.approx(expected, abs=2e-3)


def test_information_is_that_of_windows_that_correlate() -> None:
    """For Gaussian pixels of correlation r it is -log(1 - r^2); 0.02 of the variance is never counted on."""
    draw = np.random.default_rng(0)
    x, noise = draw.random((2, 8, 8))
    a, b = _tensors(x, 0.7 * x + 0.3 * noise)
    r = np.corrcoef(a.flatten(), b.flatten())[0, 1]
    expected = np.log(1 - r * r + 0.02) / np.log(0.02)
    found = agreement(a, b, np.eye(3))
    assert found["information"] == pytest.approx(expected, abs=2e-3)
    assert agreement(a, -b, np.eye(3))["information"] == pytest.approx(0, abs=6e-3)


def test_windows_are_correlated_each_by_itself() -> None:
    a, b = _tensors(*np.random.default_rng(0).random((2, 27, 33)))
    found = correlate(a, b, np.eye(3)).likeness
    assert found.shape == (5, 7)
    for row, column in np.ndindex(*found.shape):
        window = np.s_[4 * row : 4 * row + 8, 4 * column : 4 * column + 8]
        expected = np.corrcoef(a[window].flatten(), b[window].flatten())[0, 1]
        assert float(found[row, column]) == pytest.approx(expected, abs=2e-3)


def test_overlap_is_the_share_of_a_that_b_shows() -> None:
    a, b = _tensors(scene(40), scene(40, seed=1))
    shift = np.array([[1.0, 0, 10], [0, 1, 0], [0, 0, 1]])
    assert agreement(a, b, shift)["overlap"] == pytest.approx(30 / 40)


def test_local_motions_solve_least_squares_in_each_window() -> None:
    a, b = _tensors(*pair(np.array([[1.0, 0, 0.4], [0, 1, -0.3], [0, 0, 1]]), 40))
    b = 0.7 * b + 0.1
    found = local_motions(a, b, np.eye(3))
    A, B = a.double().numpy(), b.double().numpy()
    x, y = np.zeros_like(A), np.zeros_like(A)
    x[:, 1:-1] = (A[:, 2:] - A[:, :-2] + B[:, 2:] - B[:, :-2]) / 4
    y[1:-1] = (A[2:] - A[:-2] + B[2:] - B[:-2]) / 4
    k = 0
    for top in range(0, 31, 5):
        for left in range(0, 31, 5):
            box = (slice(top, top + 10), slice(left, left + 10))
            first, second = A[box] - A[box].mean(), B[box] - B[box].mean()
            gap = (first - second * first.std() / second.std()).flatten()
            solved = np.linalg.lstsq(np.stack([x[box].flatten(), y[box].flatten()], 1), gap, rcond=None)[0]
            np.testing.assert_allclose(found.points[k], [left + 4.5, top + 4.5])
            np.testing.assert_allclose(found.motion[k], solved, atol=0.03)
            assert found.likeness[k] == pytest.approx(
                np.corrcoef(first.flatten(), second.flatten())[0, 1], abs=0.01
            )
            k += 1
    assert k == len(found.points)
    assert np.median(found.motion, 0) == pytest.approx([0.4, -0.3], abs=0.12)


def test_what_moves_by_itself_is_not_explained() -> None:
    a, b = _tensors(*pair(np.eye(3), 96))
    assert explained(local_motions(a, b, np.eye(3)), (96, 96)) == pytest.approx(1)
    b[:, 48:] = b.roll(3, 1)[:, 48:]
    assert 0.3 < explained(local_motions(a, b, np.eye(3)), (96, 96)) < 0.65
    assert explained(local_motions(a, torch.zeros(96, 96), np.eye(3)), (96, 96)) == 0


def test_drift_is_how_far_a_homography_would_still_move_the_corners() -> None:
    H = quad(64, 1.5, seed=4)
    a, b = _tensors(*pair(H, 64))
    expected = corner_error(np.eye(3), H, (64, 64)) / np.hypot(64, 64)
    assert drift(local_motions(a, b, np.eye(3)), (64, 64)) == pytest.approx(expected, rel=0.35)
    assert drift(local_motions(a, b, H), (64, 64)) < 0.15 * expected
    assert drift(local_motions(torch.zeros(64, 64), b, H), (64, 64)) == 0.005  # nothing to see


def test_distortion_is_the_ratio_of_stretches() -> None:
    turn = np.array([[0.0, -1, 30], [1, 0, 0], [0, 0, 1]])
    assert distortion(turn, (30, 30)) == pytest.approx(0, abs=1e-9)
    assert distortion(np.diag([2.0, 0.5, 1.0]), (30, 30)) == pytest.approx(np.log(4))
    assert distortion(np.array([[1.0, 0, 0], [0, 1, 0], [-0.05, 0, 1]]), (30, 30)) == 10.0
    assert distortion(np.array([[np.nan, 0, 0], [0, 1, 0], [0, 0, 1]]), (30, 30)) == 10.0


def test_distortion_is_that_of_small_steps_at_corners_and_center() -> None:
    H = quad(30, 6, seed=3)
    points = np.array([[0, 0], [29, 0], [29, 29], [0, 29], [14.5, 14.5]])
    steps = 1e-5 * np.eye(2)
    ends = [geometry.apply(H, points + step) - geometry.apply(H, points - step) for step in steps]
    stretches = np.linalg.svd(np.stack(ends, -1) / 2e-5, compute_uv=False)
    expected = np.log(max(stretches.max(), 1) / min(stretches.min(), 1))
    assert distortion(H, (30, 30)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("degrees", [0, 75, 180])
def test_search_finds_turned_and_shifted_pictures(degrees: float) -> None:
    angle = np.radians(degrees)
    linear = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    H = np.eye(3)
    H[:2, :2] = linear
    H[:2, 2] = np.array([15.5, 15.5]) - linear @ [15.5, 15.5] + [5, -4]
    a, b = _tensors(*pair(H, 32))
    found = initial_guesses(a, b, Projective(), 4)
    assert min(corner_error(guess.H, H, (32, 32)) for guess in found) < 4
    negative = initial_guesses(a, 1 - b, Projective(), 1)
    assert negative[0].likeness < found[0].likeness - 0.05


def test_features_are_finite_at_the_extremes_and_no_evidence_is_no_confidence() -> None:
    names = (
        "score",
        "alike",
        "coarse",
        "correlation",
        "moved",
        "uncertainty",
        "inliers",
        "overlap",
        "explained",
        "drift",
        "distinct",
    )
    for value in (0.0, 1.0):
        evidence = dict.fromkeys((*names, "windows", "distortion"), value)
        assert features(evidence).keys() == {name for names in FACTORS.values() for name in names}
        assert np.isfinite(list(features(evidence).values())).all()
        assert 0 <= confidence(evidence) <= 1
    assert confidence({}) == 0
