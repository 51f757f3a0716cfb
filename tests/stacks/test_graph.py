"""Poses from relations: against a dense solver, and against the truth."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from caunet.stacks.graph import Relation, reconcile

CORNERS = np.array([[0.0, 0], [99, 0], [99, 79], [0, 79]])


def euclidean_generators() -> np.ndarray:
    """Shift x, shift y (in tens of pixels), turn about the origin."""
    G = np.zeros((3, 3, 3))
    G[0, 0, 2] = G[1, 1, 2] = 10
    G[2, 0, 1], G[2, 1, 0] = -1, 1
    return G


def pose(x: float, y: float, angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, x], [s, c, y], [0, 0, 1.0]])


def walk(rng: np.random.Generator, count: int) -> np.ndarray:
    """A random walk that begins at the identity."""
    steps = rng.normal(0, [3, 3, 0.02], (count, 3)).cumsum(0)
    return np.stack([pose(*s) for s in steps - steps[0]])


def relation(rng: np.random.Generator, poses: np.ndarray, i: int, j: int, noise: float) -> Relation:
    true = np.linalg.inv(poses[j]) @ poses[i]
    return Relation(
        i, j, true @ pose(*rng.normal(0, [noise, noise, noise / 100])), np.eye(3) * (10 / noise) ** 2
    )


def test_noise_free_relations_give_back_the_poses_whatever_is_fixed() -> None:
    rng = np.random.default_rng(0)
    truth = walk(rng, 12)
    pairs = [relation(rng, truth, i, i - 1, 1e-7) for i in range(1, 12)] + [relation(rng, truth, 11, 2, 1e-7)]
    for fixed in (0, 5, 11):
        poses, trust = reconcile(12, pairs, euclidean_generators(), CORNERS, fixed=fixed)
        np.testing.assert_allclose(poses, np.linalg.inv(truth[fixed]) @ truth, atol=1e-5)
        assert trust.min() > 0.9


def test_a_wrong_relation_bends_nothing() -> None:
    rng = np.random.default_rng(1)
    truth = walk(rng, 20)
    pairs = [relation(rng, truth, i, i - k, 0.02) for k in (1, 3) for i in range(k, 20)]
    good, _ = reconcile(20, pairs, euclidean_generators(), CORNERS)
    wrong = Relation(10, 4, truth[10] @ pose(15, -9, 0.2), np.eye(3) * (10 / 0.02) ** 2)
    poses, trust = reconcile(20, [*pairs, wrong], euclidean_generators(), CORNERS)
    assert trust[-1] < 1e-6
    np.testing.assert_allclose(poses, good, atol=0.02)


def test_agrees_with_a_dense_solver() -> None:
    rng = np.random.default_rng(2)
    truth = walk(rng, 6)
    edges = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (5, 0), (4, 1)]
    pairs = [relation(rng, truth, i, j, 0.05) for i, j in edges]
    poses, _ = reconcile(6, pairs, euclidean_generators(), CORNERS)

    def residuals(parameters: np.ndarray) -> np.ndarray:
        made = np.stack([np.eye(3), *(pose(*p) for p in parameters.reshape(-1, 3))])
        out = []
        for r in pairs:
            left = np.linalg.inv(r.matrix) @ np.linalg.inv(made[r.target]) @ made[r.source]
            xi = np.array([left[0, 2] / 10, left[1, 2] / 10, left[1, 0]])
            size = xi @ r.information @ xi / 3
            # Geman and McClure's cost s / (1 + s / c) as a sum of squares, per relation
            out.append(np.sqrt(size / (1 + size / 9.0)))
        return np.array(out)

    start = np.array([[p[0, 2], p[1, 2], np.arctan2(p[1, 0], p[0, 0])] for p in poses[1:]]).ravel()
    best = least_squares(
        residuals, start, x_scale=np.tile([1, 1, 0.01], 5), xtol=1e-14, ftol=1e-14, gtol=1e-14
    )
    assert np.square(residuals(start)).sum() <= np.square(best.fun).sum() * (1 + 1e-3)


def test_drift_does_not_accumulate_when_frames_are_related_to_key_frames() -> None:
    rng = np.random.default_rng(3)
    truth = walk(rng, 300)
    chain = [relation(rng, truth, i, i - 1, 0.05) for i in range(1, 300)]
    keys = [relation(rng, truth, i, i // 30 * 30, 0.05) for i in range(1, 300) if i % 30]
    keys += [relation(rng, truth, 30 * k, 0, 0.05) for k in range(1, 10)]

    def last(pairs: list[Relation]) -> float:
        poses, _ = reconcile(300, pairs, euclidean_generators(), CORNERS)
        return float(np.abs(poses[-1] - truth[-1]).max())

    assert last(chain + keys) < 0.2 < last(chain)


@pytest.mark.parametrize("count", [1, 3])
def test_frames_without_relations_stay(count: int) -> None:
    poses, trust = reconcile(count, [], euclidean_generators(), CORNERS)
    np.testing.assert_array_equal(poses, np.tile(np.eye(3), (count, 1, 1)))
    assert trust.shape == (0,)
