"""From two images to transformations."""

import math

import pytest
import torch

from caunet.geometry import apply, compose, corners, rotate, scale, translate
from caunet.geometry.warping import warp
from caunet.matching import Matcher

from .test_points import _scene


def _error(H: torch.Tensor, truth: torch.Tensor, size: tuple[int, int]) -> float:
    box = corners(size).double()
    return float((apply(H, box) - apply(truth.double(), box)).norm(dim=1).mean())


@pytest.mark.parametrize(
    ("degrees", "factor"), [(0.0, 1.0), (35.0, 0.8), (180.0, 1.0), (-70.0, 1.5), (10.0, 0.5)]
)
def test_turned_and_scaled_images_are_found(degrees: float, factor: float) -> None:
    a = _scene(256)
    to_center, back = translate(-127.5, -127.5), translate(127.5, 127.5)
    truth = compose(back, scale(factor), rotate(degrees), to_center)
    b = warp(a[None, None], truth, fill=0.5)[0, 0]
    found = Matcher()(a, b)
    assert found
    assert _error(found[0].H, truth, (256, 256)) < 3.6 * factor + 1


def test_light_does_not_matter() -> None:
    a = _scene(256)
    b = (0.2 + 0.5 * a.roll((9, -14), (0, 1))) ** 1.7
    found = Matcher()(a, b, "translation")
    assert found[0].H[:2, 2].tolist() == pytest.approx([-14, 9], abs=0.5)


def test_images_of_other_sizes_are_halved_and_doubled() -> None:
    a = _scene(320)
    small = torch.nn.functional.interpolate(a[None, None], size=(80, 80), mode="area")[0, 0]
    truth = torch.tensor([[0.25, 0, -0.375], [0, 0.25, -0.375], [0, 0, 1]])
    found = Matcher(pixels=60_000)(a, small, "similarity")
    assert _error(found[0].H, truth, (320, 320)) < 1.2


def test_blank_images_propose_nothing() -> None:
    assert Matcher()(torch.zeros(64, 64), _scene(64)) == []


def test_the_answer_is_the_same_every_time() -> None:
    a, b = _scene(160), _scene(160).roll(5, 1)
    first, second = (Matcher()(a, b)[0].H for _ in range(2))
    assert bool((first == second).all())


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="points must be at least 1, got 0"):
        Matcher(points=0)


def test_features_of_a_turned_image_are_those_of_the_image() -> None:
    a = _scene(192)
    matcher = Matcher(pixels=40_000)
    first, second = matcher.describe(a), matcher.describe(torch.rot90(a))
    matches, _ = matcher.match(first, second)
    moved = torch.stack([matches.a[:, 1], 191 - matches.a[:, 0]], 1)
    assert float(((moved - matches.b).norm(dim=1) < 1.0).float().mean()) > 0.9
    turned = (matches.turn + math.pi / 2 + math.pi) % (2 * math.pi) - math.pi
    assert float(turned.abs().median()) < 0.02


def test_what_is_masked_is_not_matched() -> None:
    a = _scene(192)
    mask = torch.ones(192, 192, dtype=torch.bool)
    mask[:, :90] = False
    matcher = Matcher()
    described = matcher.describe(a, mask)
    assert len(described.points.xy) > 10
    assert float(described.points.xy[:, 0].min()) >= 90
    assert len(described.features) == len(described.points.xy)
    with pytest.raises(ValueError, match=r"mask must be bool of shape \(192, 192\), got torch.float32"):
        matcher.describe(a, mask.float())


def test_a_small_part_of_a_large_image_is_found_by_looking_again() -> None:
    a = _scene(900)
    crop = a[700:780, 120:210]
    found = Matcher()(crop, a, "translation")
    assert found[0].H[:2, 2].tolist() == pytest.approx([120, 700], abs=2)
    hasty = Matcher(points=40, pixels=60_000, patient=False)(crop, a, "translation")
    assert not hasty or hasty[0].score < found[0].score
