"""Consensus on matches with known answers and many wrong ones, beside OpenCV's MAGSAC."""

import math

import numpy as np
import pytest
import torch

from caunet.geometry import apply
from caunet.matching.consensus import Matches, consensus

_CORNERS = torch.tensor([[0.0, 0.0], [640.0, 0.0], [640.0, 480.0], [0.0, 480.0]], dtype=torch.float64)


def _transform(model: str, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    angle = 0.0 if model == "translation" else rng.uniform(-3, 3)
    scale = 1.0 if model in ("translation", "euclidean") else math.exp(rng.uniform(-0.7, 0.7))
    H = np.eye(3)
    H[:2, :2] = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    if model in ("affine", "projective"):
        H[:2, :2] @= np.eye(2) + rng.uniform(-0.2, 0.2, (2, 2))
    middle = np.array([320.0, 240.0])
    H[:2, 2] = middle + rng.uniform(-80, 80, 2) - H[:2, :2] @ middle
    if model == "projective":
        lift = np.eye(3)
        lift[2, :2] = rng.uniform(-3e-4, 3e-4, 2)
        lift[2, 2] = 1 - lift[2, :2] @ middle
        H = H @ lift
    return torch.from_numpy(H / H[2, 2])


def _matches(H: torch.Tensor, right: int, wrong: int, seed: int, noise: float = 0.5) -> Matches:
    """``right`` matches that H explains up to noise of place, scale and angle, and ``wrong`` ones."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=draw, dtype=torch.float64)

    size = torch.tensor([640.0, 480.0], dtype=torch.float64)
    a = uniform(right + wrong, 2) * size
    b = apply(H, a)
    step = apply(H, a + torch.tensor([0.5, 0.0])) - apply(H, a - torch.tensor([0.5, 0.0]))
    down = apply(H, a + torch.tensor([0.0, 0.5])) - apply(H, a - torch.tensor([0.0, 0.5]))
    area = step[:, 0] * down[:, 1] - step[:, 1] * down[:, 0]
    scale = 0.5 * area.abs().log() + 0.1 * normal(right + wrong)
    turn = torch.atan2(step[:, 1], step[:, 0]) + 0.1 * normal(right + wrong)
    b = b + noise * normal(right + wrong, 2)
    b[right:] = uniform(wrong, 2) * size
    scale[right:], turn[right:] = 0.5 * normal(wrong), 6.3 * uniform(wrong)
    one = torch.ones(right + wrong)
    return Matches(a, b, scale, turn, 2 * one, one)


def _error(H: torch.Tensor, truth: torch.Tensor) -> float:
    return float((apply(H, _CORNERS) - apply(truth, _CORNERS)).norm(dim=1).mean())


@pytest.mark.parametrize("model", ["translation", "euclidean", "similarity", "affine", "projective"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_model_is_found_among_wrong_matches(model: str, seed: int) -> None:
    truth = _transform(model, seed)
    found = consensus(_matches(truth, 60, 120, seed), model, tolerance=2.5)
    assert _error(found[0].H, truth) < 1.5
    assert int(found[0].inliers[:60].sum()) > 55
    assert int(found[0].inliers[60:].sum()) < 5


def test_it_finds_what_magsac_finds() -> None:
    cv2 = pytest.importorskip("cv2")
    ours, theirs = [], []
    for seed in range(12):
        truth = _transform("projective", seed)
        matches = _matches(truth, 20, 100, seed)
        found = consensus(matches, tolerance=2.5)
        ours.append(_error(found[0].H, truth) if found else 1e3)
        H, _ = cv2.findHomography(matches.a.numpy(), matches.b.numpy(), cv2.USAC_MAGSAC, 2.5, maxIters=10000)
        theirs.append(1e3 if H is None else _error(torch.from_numpy(H), truth))
    assert sum(e < 6.4 for e in ours) >= sum(e < 6.4 for e in theirs) - 1
    assert np.median(ours) < 1.5 * np.median(theirs) + 0.3


def test_two_motions_are_both_proposed() -> None:
    first, second = _transform("similarity", 0), _transform("similarity", 5)
    parts = _matches(first, 50, 20, 0), _matches(second, 40, 20, 1)
    both = Matches(*(torch.cat(columns) for columns in zip(*parts, strict=True)))
    found = consensus(both, "similarity", tolerance=2.5)
    assert _error(found[0].H, first) < 1.5
    assert _error(found[1].H, second) < 1.5
    assert found[0].score > found[1].score > found[-1].score or len(found) == 2


def test_the_same_matches_give_the_same_answer() -> None:
    matches = _matches(_transform("projective", 3), 30, 60, 3)
    first, second = (consensus(matches, tolerance=2.5) for _ in range(2))
    assert all(bool((p.H == q.H).all()) and p.score == q.score for p, q in zip(first, second, strict=True))


def test_too_few_matches_propose_nothing() -> None:
    matches = _matches(_transform("projective", 3), 3, 0, 3)
    assert consensus(matches, tolerance=2.5) == []
    empty = Matches(*(column[:0] for column in matches))
    assert consensus(empty, "translation", tolerance=2.5) == []


def test_all_in_one_place_is_survived() -> None:
    one = torch.ones(8)
    same = Matches(torch.ones(8, 2), torch.ones(8, 2), 0 * one, 0 * one, one, one)
    for hypothesis in consensus(same, tolerance=1.0):
        assert bool(hypothesis.H.isfinite().all())


def test_bad_arguments_are_named() -> None:
    matches = _matches(_transform("projective", 3), 9, 0, 3)
    with pytest.raises(ValueError, match=r"model must be one of translation, .* got 'affin'"):
        consensus(matches, "affin", tolerance=1.0)
    with pytest.raises(ValueError, match="tolerance must be positive, got 0"):
        consensus(matches, tolerance=0)
