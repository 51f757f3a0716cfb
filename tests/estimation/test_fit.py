"""Fits against closed forms, NumPy's own least squares and OpenCV."""

import cv2
import numpy as np
import pytest
from tests.estimation.scenes import corner_error, quad

from caunet.estimation.fit import residuals, robust_fit
from caunet.estimation.motion_models import create_motion_model as model_of

RNG = np.random.default_rng(1)
POINTS = RNG.uniform(0, 60, (80, 2))


def _moved(H: np.ndarray, points: np.ndarray = POINTS) -> np.ndarray:
    return cv2.perspectiveTransform(points[None], H)[0]


TRUE = {
    "translation": np.array([[1.0, 0, 2.5], [0, 1, -1.25], [0, 0, 1]]),
    "euclidean": np.array([[np.cos(0.2), -np.sin(0.2), 2], [np.sin(0.2), np.cos(0.2), 1], [0, 0, 1]]),
    "similarity": np.array([[1.1, -0.3, 2], [0.3, 1.1, 1], [0, 0, 1]]),
    "affine": np.array([[1.1, -0.2, 2], [0.1, 0.9, 1], [0, 0, 1]]),
    "projective": quad(61, 8, seed=4),
}


@pytest.mark.parametrize("model", TRUE)
def test_exact_motions_give_the_exact_answer(model: str) -> None:
    scale = 1 / 30
    into = np.diag([scale, scale, 1.0])
    H = model_of(model).fit(POINTS * scale, _moved(TRUE[model]) * scale, np.ones(80))
    found = np.linalg.inv(into) @ H @ into
    np.testing.assert_allclose(found / found[2, 2], TRUE[model], atol=1e-6)


@pytest.mark.parametrize("model", TRUE)
def test_a_third_of_wrong_motions_is_let_go(model: str) -> None:
    target = _moved(TRUE[model]) + RNG.normal(0, 0.05, POINTS.shape)
    wrong = np.arange(80) % 3 == 0
    target[wrong] += RNG.uniform(-12, 12, (int(wrong.sum()), 2))
    H, trusted = robust_fit(model_of(model), POINTS, target, np.ones(80), 0.5, prior=0.01)
    assert corner_error(H / H[2, 2], TRUE[model], (61, 61)) < 0.2
    far = np.linalg.norm(target - _moved(TRUE[model]), axis=1) > 3
    assert trusted[far].max() < 0.05
    assert trusted[~wrong].min() > 0.5


def test_noisy_affine_equals_numpy_least_squares() -> None:
    source, target = POINTS / 30, _moved(TRUE["affine"]) / 30 + RNG.normal(0, 0.01, POINTS.shape)
    weight = RNG.uniform(0.1, 1, 80)
    design = np.hstack([source, np.ones((80, 1))]) * np.sqrt(weight)[:, None]
    expected, *_ = np.linalg.lstsq(design, target * np.sqrt(weight)[:, None], rcond=None)
    np.testing.assert_allclose(model_of("affine").fit(source, target, weight)[:2], expected.T, atol=1e-6)


def test_noisy_similarity_equals_opencv() -> None:
    target = _moved(TRUE["similarity"]) + RNG.normal(0, 0.3, POINTS.shape)
    expected, _ = cv2.estimateAffinePartial2D(POINTS, target, method=cv2.LMEDS, refineIters=50)
    H, _ = robust_fit(model_of("similarity"), POINTS, target, np.ones(80), 3.0)
    assert corner_error(H, np.vstack([expected, [0, 0, 1]]), (61, 61)) < 0.1


def test_noisy_projective_is_near_opencvs() -> None:
    target = _moved(TRUE["projective"]) + RNG.normal(0, 0.1, POINTS.shape)
    expected, _ = cv2.findHomography(POINTS, target, 0)
    H, _ = robust_fit(model_of("projective"), POINTS, target, np.ones(80), 2.0, prior=0.0)
    assert corner_error(H / H[2, 2], expected, (61, 61)) < 0.05


@pytest.mark.parametrize("model", ["translation", "euclidean", "similarity", "affine"])
def test_answers_stay_in_their_group(model: str) -> None:
    H, _ = robust_fit(model_of(model), POINTS, POINTS + RNG.normal(0, 5, POINTS.shape), np.ones(80), 1.0)
    np.testing.assert_allclose(H[2], [0, 0, 1], atol=1e-12)
    linear = H[:2, :2]
    if model_of(model).freedom <= 4:
        np.testing.assert_allclose(linear @ linear.T, np.linalg.det(linear) * np.eye(2), atol=1e-9)
    if model_of(model).freedom <= 3:
        assert np.linalg.det(linear) == pytest.approx(1)


def test_residuals_are_distances_and_huge_behind_the_viewer() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0]])
    np.testing.assert_allclose(residuals(np.eye(3), points, points + np.array([3.0, 4.0])), [5, 5])
    behind = np.array([[1.0, 0, 0], [0, 1, 0], [-2, 0, 1]])
    assert residuals(behind, points, points)[1] > 100
