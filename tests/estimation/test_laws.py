"""Laws of estimation, on small images: whatever is done to a pair, its answers agree.

Scenes are formulas, so both images are exact samples of them. Tolerances are mean distances of the corners, in pixels.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimation.scenes import corner_error, pair, scene, shade

from caunet import geometry
from caunet.estimation import Estimator
from caunet.estimation.decomposition import compose

SIDE = 96
SIZE = (SIDE, SIDE)
FINE, COARSE = 0.1, 0.25

motions = st.fixed_dictionaries(
    {
        "shift_x": st.floats(-8, 8),
        "shift_y": st.floats(-8, 8),
        "angle": st.floats(-8, 8),
        "scale": st.floats(0.92, 1.08),
    }
)
seeds = st.integers(0, 50)
few = settings(deadline=None, max_examples=4, derandomize=True)


@pytest.fixture(scope="module")
def similarity():
    return Estimator("similarity", threads=1)


@few
@given(motions, seeds)
def test_the_other_way_round_is_the_inverse(similarity, motion, seed):
    a, b = pair(compose(motion, SIZE).numpy(), SIDE, seed)
    there, back = similarity(a, b), similarity(b, a)
    assert corner_error(back.matrix, there.inverse().matrix, SIZE) < FINE


@few
@given(motions, seeds, st.integers(1, 3))
def test_turning_both_turns_the_answer(similarity, motion, seed, turns):
    a, b = pair(compose(motion, SIZE).numpy(), SIDE, seed)
    plain = similarity(a, b).matrix
    turned = similarity(np.rot90(a, turns).copy(), np.rot90(b, turns).copy()).matrix
    quarter = np.array([[0.0, 1, 0], [-1, 0, SIDE - 1], [0, 0, 1]])
    R = np.linalg.matrix_power(quarter, turns)
    assert corner_error(turned, R @ plain @ np.linalg.inv(R), SIZE) < FINE


@few
@given(motions, seeds, st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_cropping_shifts_the_answer(similarity, motion, seed, corner):
    a, b = pair(compose(motion, SIZE).numpy(), SIDE, seed)
    x, y = corner
    plain = similarity(a, b).matrix
    cropped = similarity(a[y:, x:], b).matrix
    moved = plain @ np.array([[1.0, 0, x], [0, 1, y], [0, 0, 1]])
    assert corner_error(cropped, moved, (SIDE - y, SIDE - x)) < COARSE


@few
@given(motions, seeds)
def test_rescaling_scales_the_answer(similarity, motion, seed):
    """The same scene with pixels half as wide, smooth enough for both."""
    H = compose(motion, SIZE).numpy()
    fine = geometry.rescale(H, 2.0)
    y, x = np.mgrid[: 2 * SIDE, : 2 * SIDE].astype(float)
    back = geometry.apply(np.linalg.inv(fine), np.stack([x, y], -1).reshape(-1, 2)).reshape(*x.shape, 2)
    a, b = (shade((u - 0.5) / 2, (v - 0.5) / 2, seed) for u, v in ((x, y), (back[..., 0], back[..., 1])))
    found = similarity(a, b).matrix
    plain = similarity(*pair(H, SIDE, seed)).matrix
    assert corner_error(found, geometry.rescale(plain, 2.0), (2 * SIDE, 2 * SIDE)) < 2 * FINE


@few
@given(motions, seeds, st.floats(0.4, 1.0), st.floats(0.0, 0.3), st.booleans())
def test_gain_and_bias_do_not_move_it(similarity, motion, seed, gain, bias, scaled):
    a, b = pair(compose(motion, SIZE).numpy(), SIDE, seed)
    plain = similarity(a, b).matrix
    changed = similarity(a, gain * b + bias * (1 - gain)).matrix
    assert corner_error(changed, plain, SIZE) < FINE
    if scaled:  # other units: scaled by their own range
        assert corner_error(similarity(a * 4000 - 1000, b).matrix, plain, SIZE) < FINE


@few
@given(motions, motions, seeds)
def test_two_steps_are_one(similarity, first, second, seed):
    H, G = compose(first, SIZE).numpy(), compose(second, SIZE).numpy()
    a, b = pair(H, SIDE, seed)
    _, c = pair(G @ H, SIDE, seed)
    direct, steps = similarity(a, c), similarity(b, c) @ similarity(a, b)
    assert corner_error(steps.matrix, direct.matrix, SIZE) < COARSE
    assert steps.confidence <= min(1.0, direct.confidence + 0.5)


def test_an_image_and_itself():
    a = scene(SIDE)
    for model in ("translation", "euclidean", "similarity", "affine", "projective"):
        found = Estimator(model, threads=1)(a, a)
        assert corner_error(found.matrix, np.eye(3), SIZE) < 1e-3
