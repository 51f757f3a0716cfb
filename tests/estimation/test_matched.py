"""Pairs that only matching finds: zoomed, cropped, small beside large; and simple pairs, where nothing is matched."""

import math

import numpy as np
import pytest
import torch

import caunet
from caunet import geometry
from caunet.benchmark.cases import relative_error, stress_cases
from caunet.estimation.register import register
from caunet.geometry import corners, warp
from caunet.matching import Matcher
from caunet.models import load_pretrained


def _scene(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """Detail of all sizes, sharp edges among it."""
    draw = torch.Generator().manual_seed(seed)
    scene = torch.zeros(height, width)
    for cells in (4, 9, 20, 45, 90):
        coarse = torch.rand(1, 1, cells, cells, generator=draw)
        mode = "nearest" if cells in (9, 45) else "bilinear"
        scene += torch.nn.functional.interpolate(coarse, size=(height, width), mode=mode)[0, 0] / 5
    return scene


def _error(found: caunet.Estimate, truth: torch.Tensor, size: tuple[int, int]) -> float:
    box = corners(size).double()
    moved = geometry.apply(found.matrix, box) - geometry.apply(truth.double(), box)
    return float(moved.norm(dim=1).mean())


@pytest.mark.parametrize(("factor", "degrees"), [(0.3, 10.0), (3.0, -20.0), (0.6, 120.0)])
def test_zoomed_images_are_found(factor: float, degrees: float) -> None:
    a = _scene(400, 400)
    to_center, back = geometry.translate(-199.5, -199.5), geometry.translate(199.5, 199.5)
    truth = geometry.compose(back, geometry.scale(factor), geometry.rotate(degrees), to_center)
    source = caunet.images.pyramid.gaussian(a, 0.5 / factor) if factor < 1 else a
    b = warp(source[None, None], truth, fill=0.5)[0, 0]
    found = caunet.estimate(a, b)
    assert _error(found, truth, (400, 400)) < 0.01 * math.hypot(400, 400) * factor
    assert found.confidence > 0.5


def test_a_crop_is_found_in_the_image_it_was_cut_from_and_the_other_way_round() -> None:
    image = _scene(600, 800, seed=1)
    crop = image[380:500, 560:700]
    found, back = caunet.estimate(crop, image), caunet.estimate(image, crop)
    np.testing.assert_allclose(found.matrix[:2, 2], [560, 380], atol=0.5)
    np.testing.assert_allclose(back.matrix[:2, 2], [-560, -380], atol=3)


def test_a_thumbnail_is_found_beside_its_original() -> None:
    image = _scene(480, 640, seed=2)
    small = torch.nn.functional.interpolate(image[None, None], size=(96, 128), mode="area")[0, 0]
    truth = torch.tensor([[0.2, 0.0, -0.4], [0.0, 0.2, -0.4], [0.0, 0.0, 1.0]])
    assert _error(caunet.estimate(image, small, "similarity"), truth, (480, 640)) < 1.0


def test_simple_pairs_are_not_matched() -> None:
    def refuse() -> Matcher:
        raise AssertionError("nothing needs matching here")

    scene = _scene(200, 200)
    network = caunet.Estimator().network
    with torch.inference_mode():
        found = register(scene[:180, :180], scene[6:186, 3:183], network, matcher=refuse)
    np.testing.assert_allclose(found.H[:2, 2], [-3, -6], atol=0.1)


def test_a_negative_is_found() -> None:
    case = next(stress_cases("calibration", ("negative",)))
    found = caunet.estimate(case.a, case.b, threads=1)
    assert relative_error(torch.as_tensor(found.matrix), case) < 0.01
    assert found.confidence > 0.9
    assert (
        relative_error(torch.as_tensor(caunet.estimate(case.b, case.a, threads=1).inverse().matrix), case)
        < 0.01
    )


def test_unrelated_images_are_not_believed() -> None:
    found = caunet.estimate(_scene(200, 240, seed=3), _scene(200, 240, seed=4))
    assert found.confidence < 0.5


def test_an_answer_of_low_rank_is_not_out_of_range_where_there_are_no_limits() -> None:
    a, b = (torch.rand(64, 64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    with torch.inference_mode():
        found = register(a, b, load_pretrained("motion"))
    assert found.reason != "out of range"


@pytest.mark.parametrize(
    ("row", "photograph", "seed"), [("foreground 50 %", "cell", 2), ("foreground 30 %", "cell", 2)]
)
def test_behind_an_obstacle_the_right_answer_beats_a_small_smooth_overlap(
    row: str, photograph: str, seed: int
) -> None:
    """Smooth regions correlate under many wrong answers, but tell little of each other."""
    case = next(c for c in stress_cases("calibration", (row,), seed=seed) if c.name == photograph)
    found = caunet.estimate(case.a, case.b, threads=1)
    assert relative_error(torch.as_tensor(found.matrix), case) < 0.01


def test_where_many_places_agree_nothing_else_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of b is covered: pixels say little, but a hundred matches agree."""
    case = next(c for c in stress_cases("calibration", ("foreground 50 %",), seed=7) if c.name == "grass")
    monkeypatch.setattr("caunet.estimation.hypotheses._searched", lambda *_: pytest.fail("searched"))
    found = caunet.estimate(case.a, case.b, threads=1)
    assert relative_error(torch.as_tensor(found.matrix), case) < 0.001
