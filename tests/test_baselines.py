"""Baselines where the answer is known."""

import sys

import pytest
import torch
from torch import Tensor

from caunet import geometry, tasks
from caunet.baselines import baselines_for, ecc, exhaustive_grid, exhaustive_translation, predict_mean
from caunet.data import PairSource
from caunet.errors import CaunetError
from caunet.evaluation import evaluate


def _noise(n: int, side: int = 40, smooth: int = 1, seed: int = 0) -> Tensor:
    scenes = torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.avg_pool2d(scenes, smooth, 1, smooth // 2)[:, 0]


def _warped(task: tasks.Task, z: Tensor, smooth: int = 1) -> tuple[Tensor, Tensor]:
    """Patches around the middle of scenes and of the scenes carried by H(z)."""
    scenes = _noise(len(z), 41, smooth)
    carried = geometry.warp(scenes, geometry.center(task.homography(z), (41, 41)))
    return scenes[:, 15:26, 15:26], carried[:, 15:26, 15:26]


def test_mean_has_the_variance_of_the_uniform_distribution() -> None:
    task = tasks.get("scaling")
    z = task.sample(20_000, torch.Generator().manual_seed(0))
    z_hat = predict_mean(task)(torch.zeros(20_000, 11, 11), torch.zeros(20_000, 11, 11))
    assert (z - z_hat).square().mean().item() == pytest.approx(1.5**2 / 12, rel=0.03)


def test_every_whole_shift_is_found() -> None:
    shifts = torch.cartesian_prod(torch.arange(-5, 6), torch.arange(-5, 6))  # x, y
    scenes = _noise(121)
    x = scenes[:, 10:21, 10:21]
    y = torch.stack(
        [s[10 - ty : 21 - ty, 10 - tx : 21 - tx] for s, (tx, ty) in zip(scenes, shifts.tolist(), strict=True)]
    )
    assert torch.equal(exhaustive_translation(x, y), shifts.float())
    # and a smaller radius finds what it can reach
    near = (shifts.abs() <= 2).all(1)
    assert torch.equal(exhaustive_translation(x[near], y[near], radius=2), shifts[near].float())


def test_equal_costs_go_to_the_shortest_shift() -> None:
    flat = torch.full((2, 11, 11), 0.25)
    assert torch.equal(exhaustive_translation(flat, flat), torch.zeros(2, 2))
    stripes = torch.arange(11.0).expand(1, 11, 11)  # says nothing of y
    shifted = stripes - 2
    assert torch.equal(exhaustive_translation(stripes, shifted), torch.tensor([[2.0, 0.0]]))


def test_subpixel_search_is_nearer_than_whole_pixels() -> None:
    task = tasks.get("translation")
    z = 4 * (torch.rand(200, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1)
    x, y = _warped(task, z, smooth=5)
    whole, fine = (exhaustive_translation(x, y, subpixel=flag) for flag in (False, True))
    assert (whole - z).square().mean() == pytest.approx(1 / 12, abs=0.03)
    assert (fine - z).square().mean() < 0.2 * (whole - z).square().mean()


@pytest.mark.parametrize(("name", "limit"), [("rotation", 0.05), ("scaling", 0.001)])
def test_grid_search_finds_what_made_the_pair(name: str, limit: float) -> None:
    task = tasks.get(name)
    x, y = _warped(task, z := task.sample(30, torch.Generator().manual_seed(2)), smooth=3)
    found = exhaustive_grid(task, 11)(x, y)
    assert (found - z).square().mean().item() < limit


def test_grid_search_is_exact_on_the_grid() -> None:
    task = tasks.get("rotation")
    z = torch.tensor([[-45.0], [-20.0], [0.0], [35.0], [45.0]])
    x, y = _warped(task, z)
    assert torch.equal(exhaustive_grid(task, 11, steps=19, refine=False)(x, y), z)


@pytest.mark.parametrize(
    ("name", "smooth"), [("translation", 5), ("rotation", 5), ("scaling", 5), ("affine", 5)]
)
def test_ecc_finds_small_motions(name: str, smooth: int) -> None:
    pytest.importorskip("cv2")
    task = tasks.get(name)
    identity = task.parameters(torch.eye(3))
    reach = (torch.tensor(task.high) - identity) * 0.1
    z = identity + reach * (torch.rand(40, task.dim, generator=torch.Generator().manual_seed(3)) * 2 - 1)
    x, y = _warped(task, z, smooth)
    error = (ecc(task)(x, y) - z).square().median()
    assert error < 0.3 * (identity - z).square().median()


def test_ecc_answers_identity_where_there_is_nothing_to_see() -> None:
    pytest.importorskip("cv2")
    flat = torch.zeros(2, 11, 11)
    assert torch.equal(ecc(tasks.get("scaling"))(flat, flat), torch.ones(2, 2))


def test_ecc_without_opencv_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(CaunetError, match=r"ECC needs cv2: pip install 'caunet\[bench\]'"):
        ecc(tasks.get("rotation"))
    source = PairSource(torch.zeros(1, 32, 32, dtype=torch.uint8), "affine")
    assert list(baselines_for(source)) == ["mean"]


@pytest.mark.parametrize("protocol", ["text", "release"])
def test_baselines_speak_the_source_s_order(protocol: str) -> None:
    pixels = (_noise(20, 32) * 255).to(torch.uint8)
    source = PairSource(pixels, "translation", protocol)
    search = evaluate(baselines_for(source)["exhaustive search"], source)
    assert search["corner_error"]["median"] < (0.5 if protocol == "text" else 1e-9)
    assert search["parameter_error"] < (0.2 if protocol == "text" else 1e-9)


def test_bad_arguments_are_named() -> None:
    x = torch.zeros(2, 11, 11)
    with pytest.raises(ValueError, match="x and y must have one shape"):
        exhaustive_translation(x, x[:1])
    with pytest.raises(ValueError, match="radius must be 1 to 10"):
        exhaustive_translation(x, x, radius=11)
    with pytest.raises(ValueError, match="steps must be 2 numbers"):
        exhaustive_grid(tasks.get("scaling"), 11, steps=(3,))
    with pytest.raises(ValueError, match="patches of 7 x 7"):
        exhaustive_grid(tasks.get("rotation"), 7, steps=3)(x, x)
    own = tasks.Task("own", ("a",), (0.0,), (1.0,), geometry.rotate, geometry.normalize)
    pytest.importorskip("cv2")
    with pytest.raises(ValueError, match="task must be one of translation"):
        ecc(own)


def _volumes(task: tasks.Task, z: Tensor) -> tuple[Tensor, Tensor]:
    """Patches of 7 x 7 x 7 around the middle of smooth volumes and of the same carried by H(z)."""
    scenes = torch.rand(len(z), 1, 21, 21, 21, generator=torch.Generator().manual_seed(2))
    scenes = torch.nn.functional.avg_pool3d(scenes, 3, 1, 1)[:, 0]
    carried = geometry.warp(scenes, geometry.center(task.homography(z), (21,) * 3))
    middle = (slice(None), *[slice(7, 14)] * 3)
    return scenes[middle], carried[middle]


def test_every_whole_shift_in_space_is_found() -> None:
    task = tasks.get("translation3")
    z = torch.cartesian_prod(*[torch.arange(-3.0, 4.0)] * 3)[::5]
    x, y = _volumes(task, z)
    found = baselines_for(PairSource(torch.zeros(1, 20, 20, 20, dtype=torch.uint8), task))[
        "exhaustive search"
    ]
    exact = exhaustive_translation(x, y, radius=3)
    assert torch.equal(exact, z)
    assert (found(x, y) - z).abs().max() <= 0.5  # with fractions of a voxel


def test_a_grid_of_rotations_in_space_finds_its_own_points(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tasks.get("rotation3")
    z = torch.cartesian_prod(*[torch.tensor([-30.0, 0.0, 30.0])] * 3)[[1, 5, 13, 22]]
    x, y = _volumes(task, z)
    search = exhaustive_grid(task, 7, steps=3, refine=False)
    assert torch.equal(search(x, y), z)
    monkeypatch.setattr("caunet.baselines._KEPT", 0)  # warps made again for every batch
    lazy = exhaustive_grid(task, 7, steps=3, refine=False)
    assert torch.equal(lazy(x, y), z)
    assert torch.equal(lazy(x, y), z)
    with pytest.raises(ValueError, match=r"x and y must be patches of 7 x 7 x 7 here, got \(5, 5, 5\)"):
        search(torch.zeros(1, 5, 5, 5), torch.zeros(1, 5, 5, 5))
