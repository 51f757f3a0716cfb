"""Least squares on two patches, against SciPy on residuals written out in loops, and against the truth."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize

from caunet import tasks
from caunet.data import PairSource
from caunet.data.photometric import Photometric
from caunet.metrics import corner_error
from caunet.models import create_model
from caunet.refinement import information, refine, refined

SCALES = {
    name: np.subtract(tasks.get(name).high, tasks.get(name).low) / 2 for name in ("projective", "scaling")
}


def source(task: str, protocol: str = "text", noise: float = 0.0) -> PairSource:
    """Pairs of smooth random images."""
    generator = torch.Generator().manual_seed(5)
    rough = torch.rand(20, 1, 12, 12, generator=generator)
    smooth = torch.nn.functional.interpolate(rough, size=(32, 32), mode="bicubic").clamp(0, 1)
    light = Photometric(noise=(noise, noise)) if noise else None
    return PairSource((smooth[:, 0] * 255).byte(), task, protocol, photometric=light)


def residuals(t: np.ndarray, x: np.ndarray, y: np.ndarray, task: str) -> np.ndarray:
    """Of one pair: x warped by z less y, pixel by pixel; zeros where the source of a pixel lies outside x."""
    middle = np.add(tasks.get(task).high, tasks.get(task).low) / 2
    H = tasks.get(task).homography(torch.from_numpy(t * SCALES[task] + middle)).numpy()
    back = np.linalg.inv(H)
    found = []
    for row in range(11):
        for column in range(11):
            p = back @ [column - 5, row - 5, 1]
            u, v = p[0] / p[2] + 5, p[1] / p[2] + 5
            if not (0 <= u <= 10 and 0 <= v <= 10):
                found.append(0.0)
                continue
            i, j = min(int(v), 9), min(int(u), 9)
            a, b = v - i, u - j
            value = (1 - a) * ((1 - b) * x[i, j] + b * x[i, j + 1])
            value += a * ((1 - b) * x[i + 1, j] + b * x[i + 1, j + 1])
            found.append(value - y[row, column])
    return np.array(found)


@pytest.mark.parametrize("task", ["translation", "rotation", "scaling", "affine", "projective"])
def test_pairs_are_explained_from_a_start_near_the_truth(task: str) -> None:
    pairs = source(task)
    x, y, z = pairs.batch(0, torch.arange(100))
    known = pairs.task
    reach = torch.tensor(known.high) - torch.tensor(known.low)
    begin = z + 0.03 * reach * torch.randn(z.shape, generator=torch.Generator().manual_seed(1))
    found = refine(x, y, begin, known)
    before, after = (corner_error(known.homography(v), known.homography(z), 11) for v in (begin, found))
    assert before.median() > 0.15
    assert after.median() < 0.02  # of a pixel; patches are bytes, their interpolation is not
    assert (after < 0.1).double().mean() > 0.9


def test_perspective_is_seen_that_no_network_sees() -> None:
    x, y, z = source("projective").batch(0, torch.arange(100))
    begin = z.clone()
    begin[:, 4:] = 0
    found = refine(x, y, begin, tasks.get("projective"))
    r2 = 1 - (found - z)[:, 4:].square().mean(0) / z[:, 4:].var(0)
    assert (r2 > 0.9).all()


def test_a_simplex_finds_nothing_much_better() -> None:
    x, y, z = source("projective", noise=0.02).batch(0, torch.arange(8))
    found = refine(x, y, z, tasks.get("projective"), steps=60).double().numpy() / SCALES["projective"]
    for k in range(8):
        a, b = x[k].double().numpy(), y[k].double().numpy()

        def cost(t: np.ndarray, a: np.ndarray = a, b: np.ndarray = b) -> float:
            r = residuals(t, a, b, "projective")
            return float((r**2).sum() / np.count_nonzero(r))

        def measure(t: np.ndarray, weight: float, r: float) -> float:
            return r + weight * float((t**2).sum())

        # At the end the range counts by the unexplained: so much, that a minimum of the sum is what must be found.
        r = residuals(found[k], a, b, "projective")
        weight = 3 * cost(found[k]) / np.count_nonzero(r)
        mine = measure(found[k], weight, cost(found[k]))
        best = optimize.minimize(
            lambda t, weight=weight: measure(t, weight, cost(t)),
            found[k],
            bounds=[(-1, 1)] * 6,
            method="Nelder-Mead",
            options={"maxfev": 300},
        )
        # (Pixels that come and go at the border make steps, of which a simplex may use one.)
        assert mine <= best.fun * 1.1


def test_an_answer_is_never_worse_than_its_start_and_stays_in_its_range() -> None:
    x, y, z = source("scaling").batch(0, torch.arange(50))
    begin = torch.tensor([[0.4, 2.5]]).expand(50, 2)  # out of the range 0.5 to 2
    found = refine(x, y, begin, tasks.get("scaling"))
    assert found.min() >= 0.5
    assert found.max() <= 2.0
    assert torch.equal(refine(x, y, z, tasks.get("scaling"), steps=0), z)


def test_flat_patches_leave_the_start_or_the_middle() -> None:
    flat = torch.full((3, 11, 11), 0.5)
    begin = torch.tensor([[3.0], [-20.0], [45.0]])
    assert torch.allclose(refine(flat, flat, begin, tasks.get("rotation")), begin)


def test_rows_first() -> None:
    pairs = source("translation", "release")
    x, y, z = pairs.batch(0, torch.arange(60))
    near = z + 0.3
    found = refined(lambda x, y: near, pairs.task, rows_first=pairs.rows_first)(x, y)
    assert (found - z).abs().median() < 0.01


def test_a_network_knows_its_task_and_a_function_does_not() -> None:
    pairs = source("rotation")
    x, y, z = pairs.batch(0, torch.arange(20))
    network = create_model("can", "rotation", seed=0)
    with torch.no_grad():
        expected = refine(x, y, network(x, y), pairs.task)
    assert torch.equal(refined(network)(x, y), expected)
    assert torch.equal(refined(lambda x, y: z, "rotation")(x, y), refine(x, y, z, pairs.task))
    with pytest.raises(ValueError, match="task must be given for a predictor that is no network"):
        refined(lambda x, y: z)


def test_pairs_do_not_depend_on_those_beside_them() -> None:
    """Some end sooner than others, and many go in parts."""
    pairs = source("affine")
    x, y, z = pairs.batch(0, torch.arange(200))
    begin = z + 0.1
    together = refine(x.repeat(7, 1, 1), y.repeat(7, 1, 1), begin.repeat(7, 1), pairs.task)
    alone = torch.cat([refine(x[k : k + 1], y[k : k + 1], begin[k : k + 1], pairs.task) for k in range(20)])
    assert torch.allclose(together[:20], alone, atol=1e-5)
    assert torch.allclose(together.view(7, 200, 4)[6], together[:200], atol=1e-5)
    assert refine(x[:0], y[:0], z[:0], pairs.task).shape == (0, 4)


def test_information_is_that_of_the_linear_model() -> None:
    """Against the normal equations, with derivatives by differences of residuals that loops compute."""
    task = "scaling"
    x, y, z = source(task).batch(0, torch.arange(4))
    noise, step = 4 / 255, 1e-5
    got = information(x, y, z, tasks.get(task), noise).numpy()
    middle = np.add(tasks.get(task).high, tasks.get(task).low) / 2
    for k in range(4):
        a, b = x[k].double().numpy(), y[k].double().numpy()
        t = (z[k].double().numpy() - middle) / SCALES[task]
        columns = []
        for unit in np.eye(2) * step:
            ahead, behind = residuals(t + unit, a, b, task), residuals(t - unit, a, b, task)
            inside = (ahead != 0) & (behind != 0)
            columns.append((ahead - behind) / (2 * step) * inside)
        J = np.stack(columns, 1)
        left = np.linalg.inv(J.T @ J / noise**2 + 3 * np.eye(2)).diagonal()
        assert np.allclose(got[k], 1 - 3 * left, rtol=0.02, atol=0.02)
    assert math.isclose(float(information(x, y, z, tasks.get(task), 1e6).abs().max()), 0, abs_tol=1e-6)


@pytest.mark.parametrize(
    ("x", "z", "task", "message"),
    [
        (torch.zeros(2, 121), torch.zeros(2, 1), "rotation", r"x and y must be patches \(B, side, side\)"),
        (
            torch.zeros(2, 11, 11),
            torch.zeros(2, 2),
            "rotation",
            r"z must be of the shape \(2, 1\), got \(2, 2\)",
        ),
        (torch.zeros(2, 7, 7), torch.zeros(2, 3), "translation3", "task must be one of the plane"),
    ],
)
def test_what_does_not_fit_is_refused(x: torch.Tensor, z: torch.Tensor, task: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refine(x, x, z, tasks.get(task))
