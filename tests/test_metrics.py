"""Errors against plain loops, and sums that do not depend on how samples are split."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caunet import tasks
from caunet.metrics import ErrorSums, corner_error, parameter_error, transformation_error
from caunet.metrics.exact import ExactSum
from tests.oracles import metrics as oracle

TASKS = ("translation", "rotation", "scaling", "affine", "projective")


def _guesses(task: tasks.Task, n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z, z_hat = task.sample(2 * n, generator, dtype=torch.float64).chunk(2)
    return 0.9 * z + 0.1 * z_hat, z


@pytest.mark.parametrize("name", TASKS)
def test_errors_equal_plain_loops(name: str) -> None:
    task = tasks.get(name)
    z_hat, z = _guesses(task, 20)
    H_hat, H = task.homography(z_hat), task.homography(z)
    expected = [
        (oracle.parameter(*p), oracle.transformation(*q), oracle.corner(*q, 11))
        for p, q in zip(
            zip(z_hat.tolist(), z.tolist(), strict=True),
            zip(H_hat.tolist(), H.tolist(), strict=True),
            strict=True,
        )
    ]
    found = torch.stack(
        [parameter_error(z_hat, z), transformation_error(H_hat, H), corner_error(H_hat, H, 11)], 1
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_closed_forms() -> None:
    task = tasks.get("rotation")
    z = torch.tensor([[0.0], [90.0]], dtype=torch.float64)
    H, H_hat = task.homography(z), task.homography(z + 60)
    # A corner at distance r moves by the chord 2 r sin(30 degrees) = r.
    torch.testing.assert_close(corner_error(H_hat, H, 11), torch.full((2,), 5 * math.sqrt(2)).double())
    # Of the square's corners, at distances 0, 1, sqrt 2, 1, each moves by its distance.
    above, below = 2 + math.sqrt(2), 1 + 2 * math.sqrt(2) + math.sqrt(3)
    torch.testing.assert_close(transformation_error(H_hat, H), torch.full((2,), above / below).double())
    torch.testing.assert_close(parameter_error(z + 60, z), torch.full((2,), 3600.0).double())


def test_transformation_error_ignores_a_common_scale_and_corner_error_any() -> None:
    task = tasks.get("projective")
    z_hat, z = _guesses(task, 8)
    H_hat, H = task.homography(z_hat), task.homography(z)
    torch.testing.assert_close(transformation_error(-3 * H_hat, -3 * H), transformation_error(H_hat, H))
    torch.testing.assert_close(corner_error(2 * H_hat, -7 * H, 11), corner_error(H_hat, H, 11))


def test_oblong_patches_have_their_own_corners() -> None:
    eye, grow = torch.eye(3)[None], torch.diag(torch.tensor([2.0, 1.0, 1.0]))[None]
    assert corner_error(grow, eye, (1, 9)).item() == 4.0
    assert corner_error(grow, eye, (9, 1)).item() == 0.0


def test_corners_of_images_and_of_volumes_are_those_of_loops() -> None:
    rng = np.random.default_rng(0)
    for d, size in ((2, (5, 9)), (3, (3, 5, 9))):
        true, found = np.eye(d + 1) + rng.uniform(-0.02, 0.02, (2, d + 1, d + 1))
        distances = []
        for corner in itertools.product(*((0, side - 1) for side in reversed(size))):
            p, q = (H @ [*corner, 1.0] for H in (true, found))
            distances.append(math.dist(p[:-1] / p[-1], q[:-1] / q[-1]))
        error = corner_error(torch.from_numpy(found), torch.from_numpy(true), size, centered=False)
        assert float(error) == pytest.approx(np.mean(distances), rel=1e-12)


def test_a_corner_at_infinity_is_infinitely_far() -> None:
    eye = torch.eye(3)[None]
    away = torch.eye(3)[None].clone()
    away[0, 2, 0] = -0.25  # the third coordinate of (4, y) is zero
    assert corner_error(away, eye, 9).item() == math.inf
    assert corner_error(eye, away, 9).item() == math.inf
    assert corner_error(away, away, 9).item() == math.inf


def test_float32_predictions_are_measured_in_float64() -> None:
    z = torch.tensor([[1e-3]])
    assert parameter_error(z + 1, z).dtype == torch.float64
    sums = ErrorSums()
    sums.update(torch.full((3, 1), 0.1), torch.full((3, 1), 0.1), tasks.get("rotation"), 11)
    assert sums.compute()["parameter_error"] == 0.0


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None, max_examples=200)
@given(st.lists(finite, max_size=40), st.lists(st.integers(0, 40), max_size=5), st.randoms())
def test_exact_sums_are_exact_in_any_order_and_sharding(
    values: list[float], cuts: list[int], random: object
) -> None:
    expected = sum(map(Fraction, values), Fraction(0))
    random.shuffle(values)  # type: ignore[attr-defined]
    whole = ExactSum(1)
    edges = [0, *sorted(min(c, len(values)) for c in cuts), len(values)]
    for start, stop in itertools.pairwise(edges):
        shard = ExactSum(1)
        shard.add(torch.tensor([values[start:stop]], dtype=torch.float64))
        whole.merge(shard)
    assert whole.fractions() == [expected]


def test_exact_sums_survive_what_plain_addition_does_not() -> None:
    values = torch.tensor(
        [[1e308, 1e308, 5e-324, -1e308, -1e308], [0.0, 0.1, 0.2, -0.3, 1e-30]], dtype=torch.float64
    )
    sums = ExactSum(2)
    sums.add(values)
    assert sums.totals() == [5e-324, math.fsum(values[1].tolist())]
    sums.add(torch.tensor([[1e308], [0.0]], dtype=torch.float64).expand(2, 10))
    assert sums.totals()[0] == math.inf


@pytest.mark.parametrize("bad", [torch.zeros(3), torch.zeros(1, 3), torch.full((1, 2), math.nan).double()])
def test_exact_sums_refuse_what_they_cannot_hold(bad: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="values must be"):
        ExactSum(1).add(bad)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 60), st.lists(st.integers(0, 60), max_size=4), st.sampled_from(TASKS), st.integers(0, 99)
)
def test_any_sharding_gives_the_same_result(n: int, cuts: list[int], name: str, seed: int) -> None:
    task = tasks.get(name)
    z_hat, z = _guesses(task, n, seed)
    whole, merged = ErrorSums(), ErrorSums()
    whole.update(z_hat, z, task, 11)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    edges = [0, *sorted(min(c, n) for c in cuts), n]
    for start, stop in itertools.pairwise(edges):
        shard = ErrorSums()
        shard.update(z_hat[order[start:stop]], z[order[start:stop]], task, 11)
        merged.merge(shard)
    assert merged.compute() == whole.compute()  # to the last bit
    for mine, theirs in zip(merged.tensors(), whole.tensors(), strict=True):
        assert torch.equal(mine, theirs)


def test_means_and_quantiles_equal_numpy() -> None:
    generator = torch.Generator().manual_seed(0)
    corner = torch.randn(5001, generator=generator, dtype=torch.float64).exp()
    parameter = torch.rand(5001, generator=generator, dtype=torch.float64)
    sums = ErrorSums()
    sums.add(parameter, 3 * parameter, corner)
    found = sums.compute()
    assert found["count"] == 5001
    assert found["parameter_error"] == pytest.approx(parameter.mean().item(), rel=1e-14)
    assert found["transformation_error"] == pytest.approx(3 * parameter.mean().item(), rel=1e-14)
    assert found["corner_error"]["mean"] == pytest.approx(corner.mean().item(), rel=1e-14)
    for name, q in (("median", 0.5), ("p90", 0.9)):
        exact = np.quantile(corner.numpy(), q, method="inverted_cdf")
        assert found["corner_error"][name] == pytest.approx(exact, rel=0.0055)
    histogram = found["histogram"]
    counts, _ = np.histogram(corner.numpy(), histogram["edges"])
    assert counts.tolist() == histogram["counts"]
    assert sum(histogram["counts"]) + histogram["below"] + histogram["above"] == 5001
    json.dumps(found, allow_nan=False)


def test_zero_huge_and_infinite_errors_have_their_place() -> None:
    sums = ErrorSums()
    corner = torch.tensor([0.0, 0.0, 0.0, 1e9, math.inf], dtype=torch.float64)
    zero = torch.zeros(5)
    sums.add(zero, zero, corner)
    found = sums.compute()
    assert found["corner_error"] == {"mean": None, "median": 0.0, "p90": None}
    assert (found["histogram"]["below"], found["histogram"]["above"], found["not_finite"]) == (3, 2, 1)


def test_predictions_that_are_not_numbers_do_not_hide() -> None:
    sums = ErrorSums()
    sums.update(torch.tensor([[math.nan], [1.0]]), torch.zeros(2, 1), tasks.get("rotation"), 11)
    found = sums.compute()
    assert found["parameter_error"] is None
    assert found["transformation_error"] is None
    assert found["not_finite"] == 1
    json.dumps(found, allow_nan=False)


def test_bad_arguments_are_named() -> None:
    eye = torch.eye(3)[None]
    with pytest.raises(ValueError, match="z_hat and z must have the same shape"):
        parameter_error(torch.zeros(2, 1), torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"H must have shape \(\.\.\., 3, 3\)"):
        transformation_error(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2))
    with pytest.raises(ValueError, match="size must be"):
        corner_error(eye, eye, 0)
    with pytest.raises(ValueError, match="no samples"):
        ErrorSums().compute()
    with pytest.raises(ValueError, match="q must be"):
        ErrorSums().quantile(1.5)
