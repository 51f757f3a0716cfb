"""Evidence must tell right answers from wrong ones, patterns from pictures, and rigid motions from violent ones."""

import numpy as np
import pytest
import torch
from tests.estimation.scenes import corner_error, pair, quad, scene
from torch import Tensor

from caunet.estimation.confidence import FEATURES, confidence, features
from caunet.estimation.evidence import agreement, distortion, repetition
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


def test_overlap_is_the_share_of_a_that_b_shows() -> None:
    a, b = _tensors(scene(40), scene(40, seed=1))
    shift = np.array([[1.0, 0, 10], [0, 1, 0], [0, 0, 1]])
    assert agreement(a, b, shift)["overlap"] == pytest.approx(30 / 40)


def test_patterns_repeat_and_pictures_do_not() -> None:
    x = np.arange(64)
    stripes = 0.5 + 0.4 * np.sin(x * (2 * np.pi / 9))[None] * np.ones((64, 1))
    squares = 0.5 + 0.4 * np.sin(x * (2 * np.pi / 9))[None] * np.sin(x * (2 * np.pi / 7))[:, None]
    assert repetition(_tensors(stripes)[0]) > 0.9
    assert repetition(_tensors(squares)[0]) > 0.9
    assert repetition(_tensors(np.random.default_rng(0).random((64, 64)))[0]) < 0.3


def test_distortion_is_the_ratio_of_stretches() -> None:
    turn = np.array([[0.0, -1, 30], [1, 0, 0], [0, 0, 1]])
    assert distortion(turn, (30, 30)) == pytest.approx(0, abs=1e-9)
    assert distortion(np.diag([2.0, 0.5, 1.0]), (30, 30)) == pytest.approx(np.log(4))
    assert distortion(np.array([[1.0, 0, 0], [0, 1, 0], [-0.05, 0, 1]]), (30, 30)) == 10.0


@pytest.mark.parametrize("degrees", [0, 75, 180])
def test_search_finds_turned_and_shifted_pictures(degrees: float) -> None:
    angle = np.radians(degrees)
    linear = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    H = np.eye(3)
    H[:2, :2] = linear
    H[:2, 2] = np.array([15.5, 15.5]) - linear @ [15.5, 15.5] + [5, -4]
    a, b = _tensors(*pair(H, 32))
    found = initial_guesses(a, b, Projective(), 4)
    assert min(corner_error(guess, H, (32, 32)) for guess in found) < 4


def test_features_are_finite_at_the_extremes_and_no_evidence_is_no_confidence() -> None:
    names = (
        "score",
        "alike",
        "coarse",
        "correlation",
        "moved",
        "uncertainty",
        "repetition",
        "inliers",
        "overlap",
    )
    for value in (0.0, 1.0):
        evidence = dict.fromkeys((*names, "windows", "distortion"), value)
        assert len(features(evidence)) == len(FEATURES)
        assert np.isfinite(features(evidence)).all()
        assert 0 <= confidence(evidence) <= 1
    assert confidence({}) == 0
