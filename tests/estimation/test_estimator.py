"""Whole estimations with the shipped network, on small pairs whose answer is known."""

import threading
import time

import numpy as np
import pytest
import torch
from tests.estimation.scenes import corner_error, pair, quad, scene

import caunet
from caunet.estimation import Estimator, estimate_many
from caunet.estimation.motions import measure, raster
from caunet.models import create_model
from caunet.threads import cpu_threads

SIDE = 128
SIZE = (SIDE, SIDE)


@pytest.fixture(scope="module")
def projective() -> Estimator:
    return Estimator()


@pytest.mark.parametrize("motion", [4, 13, 25])
def test_finds_homographies_to_a_tenth_of_a_pixel_and_is_sure(projective: Estimator, motion: float) -> None:
    H = quad(SIDE, motion, seed=int(motion))
    found = projective(*pair(H, SIDE))
    assert corner_error(found.matrix, H, SIZE) < 0.1
    assert found.confidence > 0.8
    moved = (found.field.points + found.field.motion)[found.inliers].numpy()
    expected = found.apply(found.field.points[found.inliers].numpy())
    assert np.median(np.linalg.norm(moved - expected, axis=1)) < 1.5
    assert int(found.inliers.sum()) > 20


def test_survives_light_noise_and_something_in_front(projective: Estimator) -> None:
    H, rng = quad(SIDE, 10, seed=1), np.random.default_rng(0)
    a, b = pair(H, SIDE)
    b = b * 0.7 + 0.1
    b[30:80, 40:90] = scene(SIDE, seed=8)[30:80, 40:90]
    a, b = (np.clip(t + rng.normal(0, 0.02, t.shape), 0, 1) for t in (a, b))
    found = projective(a, b)
    assert corner_error(found.matrix, H, SIZE) < 0.5
    assert found.confidence > 0.5


def test_finds_a_quarter_turn(projective: Estimator) -> None:
    a = scene(SIDE)
    H = np.array([[0.0, 1, 0], [-1, 0, SIDE - 1], [0, 0, 1]])
    assert corner_error(projective(a, np.rot90(a).copy()).matrix, H, SIZE) < 0.1


@pytest.mark.parametrize("model", ["translation", "euclidean", "similarity", "affine"])
def test_each_model_finds_its_own(model: str) -> None:
    angle = 0.0 if model == "translation" else 0.1
    H = np.array([[np.cos(angle), -np.sin(angle), 6.3], [np.sin(angle), np.cos(angle), -4.7], [0, 0, 1.0]])
    found = caunet.estimate(*pair(H, SIDE), model=model)
    assert corner_error(found.matrix, H, SIZE) < 0.1
    assert found.model == model


def test_sizes_may_differ(projective: Estimator) -> None:
    large = scene(200)
    found = projective(large[:150, :180], large[20:140, 35:160])
    expected = np.array([[1.0, 0, -35], [0, 1, -20], [0, 0, 1]])
    assert corner_error(found.matrix, expected, (150, 180)) < 0.1


def test_large_images_are_polished_on_blocks(projective: Estimator) -> None:
    H = quad(400, 20, seed=3)
    assert corner_error(projective(*pair(H, 400)).matrix, H, (400, 400)) < 0.1


def test_identical_pictures_are_the_identity(projective: Estimator) -> None:
    a = scene(64)
    found = projective(a, a)
    assert corner_error(found.matrix, np.eye(3), (64, 64)) < 1e-3
    assert found.confidence > 0.8


def test_unanswerable_pairs_are_not_trusted(projective: Estimator) -> None:
    rng = np.random.default_rng(3)
    even, noise = np.full((SIDE, SIDE), 0.4), rng.random((SIDE, SIDE))
    unanswerable = [
        (even, even),
        (even, scene(SIDE)),
        (noise, rng.random((SIDE, SIDE))),
        (scene(SIDE, seed=1), scene(SIDE, seed=2)),
    ]
    for a, b in unanswerable:
        assert projective(a, b).confidence < 0.5


@pytest.mark.parametrize("shape", [(16, 16), (16, 90), (33, 17)])
def test_tiny_pictures_do_not_crash(projective: Estimator, shape: tuple[int, int]) -> None:
    a = scene(100)[: shape[0], : shape[1]]
    found = projective(a, a)
    assert corner_error(found.matrix, np.eye(3), shape) < 0.1


def test_many_equal_one_by_one_and_repeat_themselves(projective: Estimator) -> None:
    pairs = [pair(quad(64, 3, seed=k), 64, seed=k) for k in range(2)]
    together = estimate_many(pairs)
    for (a, b), outcome in zip(pairs, together, strict=True):
        assert np.array_equal(projective(a, b).matrix, outcome.result().matrix)


def test_threads_are_put_back() -> None:
    before = torch.get_num_threads()
    Estimator(threads=1)(scene(32), scene(32))
    assert torch.get_num_threads() == before


def test_overlapping_calls_put_threads_back() -> None:
    """Each block begins while another is under way, so that none but the first sees the number to put back."""
    before = torch.get_num_threads()
    entered, seen = threading.Barrier(4), []

    def call(count: int) -> None:
        with cpu_threads(count):
            entered.wait(10)
            time.sleep(0.02 * count)
        seen.append(torch.get_num_threads())

    calls = [threading.Thread(target=call, args=(count,)) for count in (1, 2, 3)]
    for thread in calls:
        thread.start()
    entered.wait(10)
    for thread in calls:
        thread.join()
    assert seen == [before] * 3
    assert torch.get_num_threads() == before
    found: list[int] = []
    late = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    late.start()
    late.join()
    assert found == [before]


def test_the_callers_network_is_left_alone() -> None:
    network = create_model("can", "motion", units=8, seed=0).double().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    Estimator(network=network)(scene(32), scene(32))
    assert network.training
    assert all(parameter.dtype == torch.float64 for parameter in network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_motions_are_those_of_a_network_that_knows() -> None:
    """Forward and backward answers are averaged, and trust falls with their disagreement."""

    class Stub(torch.nn.Module):
        model_spec = create_model("can", "motion", units=2).model_spec

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            half = len(x) // 2
            z = torch.zeros(len(x), 6)
            z[:half, 0], z[half:, 0] = 2.0, -1.0
            return z

    a = torch.from_numpy(scene(40)).float()
    points = raster((40, 40), 11, 16, a.device)
    seen = measure(Stub(), a, a, np.eye(3), points)  # type: ignore[arg-type]
    torch.testing.assert_close(seen.motion, torch.tensor([[1.5, 0.0]]).expand(len(points), 2))
    assert float(seen.weight.max()) <= 0.5
    assert points.min() == 5
    assert points.max() == 34


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match="model must be one of"):
        Estimator("rigid")
    with pytest.raises(ValueError, match="threads must be a whole number"):
        Estimator(threads=0)
    with pytest.raises(ValueError, match=r"network must have a shift .* task 'rotation', which has 1$"):
        Estimator(network=create_model("can", "rotation", units=2))
    with pytest.raises(TypeError, match="network must be a RelationNetwork, got Linear"):
        Estimator(network=torch.nn.Linear(2, 2))
    with pytest.raises(
        TypeError, match="devise is no option of the motion model 'projective', which has none"
    ):
        Estimator(devise="cpu")
