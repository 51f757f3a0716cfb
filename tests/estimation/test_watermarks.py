"""Marks that stand still on both images: the scene behind them is what is asked for."""

import numpy as np
import torch
from torch.nn.functional import interpolate

from caunet.benchmark.misleading import moved_by, watermarked
from caunet.benchmark.pairs import draw_pair
from caunet.estimation import Estimator, register
from caunet.estimation.watermarks import standing, without
from caunet.metrics import corner_error

SIDE = 256


def off(found, H) -> float:
    """Mean corner error over the diagonal."""
    error = corner_error(torch.as_tensor(found.matrix).double(), H, (SIDE, SIDE), centered=False)
    return float(error) / (SIDE * 2**0.5)


def texture(seed: int, *size: int) -> torch.Tensor:
    rough = torch.rand(1, 1, *(n // 4 for n in size), generator=torch.Generator().manual_seed(seed))
    return interpolate(rough, size, mode="bicubic", align_corners=False)[0, 0].clamp(0, 1)


def test_marks_are_where_both_images_have_the_same_edges():
    a, b = texture(0, 80, 120), texture(1, 80, 120)
    a[30:34, 20:100] = b[30:34, 20:100] = 2.0
    found = standing(a, b)
    oracle = np.zeros((80, 120), dtype=bool)
    x, y = np.gradient(a.numpy(), axis=1), np.gradient(a.numpy(), axis=0)
    u, v = np.gradient(b.numpy(), axis=1), np.gradient(b.numpy(), axis=0)
    strong = np.hypot(x, y) > 0.5
    oracle[strong & (np.hypot(x - u, y - v) < 0.3 * np.hypot(x, y))] = True
    inner = (slice(2, -2), slice(2, -2))
    assert found.numpy()[inner][oracle[inner]].mean() > 0.97
    assert float(found[45:].float().mean()) < 0.2


def test_without_marks_only_what_is_around_them_is_seen():
    a, b = texture(0, 80, 120), texture(1, 80, 120)
    plain = a.clone()
    a[30:34, 20:100] = b[30:34, 20:100] = 2.0
    images = without(a, b)
    assert images is not None
    assert float(images[0].max()) <= float(plain.max()) + 0.1
    untouched = ~standing(a, b)
    assert torch.equal(images[0][untouched], a[untouched])
    assert without(a, a) is None  # what covers all of both images is the scene


def test_the_scene_behind_a_watermark_is_found():
    estimator = Estimator()
    for index, motion, strength in ((7, 0.1, 0.7), (13, 0.1, 0.5), (36, 0.05, 0.3)):
        pair = watermarked("calibration", index, motion=motion, seed=31, strength=strength)
        assert off(estimator(pair.a, pair.b), pair.H) < 0.01


def test_a_covered_scene_that_moves_is_looked_at_once(monkeypatch):
    looks = []
    monkeypatch.setattr(register, "without", lambda a, b: looks.append(1))
    estimator = Estimator()
    for index in (0, 2, 3):
        pair = draw_pair("calibration", "occlusion", 0.03, index, seed=42)
        assert off(estimator(pair.a, pair.b), pair.H) < 0.001
    assert not looks
    pair = watermarked("calibration", 7, motion=0.1, seed=31, strength=0.7)
    estimator(pair.a, pair.b)
    assert looks


def test_a_scene_that_stands_still_behind_what_moves_is_the_answer():
    estimator = Estimator("translation")
    line = torch.arange(SIDE)
    for index, radius, shift in ((4, 65, (-30, 22)), (12, 65, (-26, 7))):
        scene = moved_by("calibration", "translation", index, motion=0.0, seed=9).a
        front = moved_by("calibration", "translation", index + 1, motion=0.0, seed=10).a

        def view(x: int, y: int, scene=scene, front=front, radius=radius) -> torch.Tensor:
            disc = (line - 120 - x).square() + (line[:, None] - 130 - y).square() < radius**2
            return torch.where(disc, front.roll((y, x), (0, 1)), scene)

        found = estimator(view(0, 0), view(*shift))
        assert off(found, torch.eye(3).double()) < 0.01
