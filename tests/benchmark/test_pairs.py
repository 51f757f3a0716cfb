"""Pairs of the benchmark are what they say: pictures of one scene, related by H."""

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caunet import geometry
from caunet.benchmark import CONDITIONS, MOTIONS, draw_pair, frames, make_pair, pairs, photographs
from caunet.benchmark.photographs import GROUPS

SIDE = 96
STEP = 1 / 255


def scene(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A smooth landscape that never repeats within a photograph."""
    waves = np.sin(x / 11 + y / 37) + np.cos(y / 13 - x / 29) + np.sin(x * y / 9000)
    return 0.5 + 0.13 * waves


def photo(height: int = 300, width: int = 340) -> Tensor:
    y, x = np.mgrid[:height, :width]
    return torch.from_numpy(scene(x, y)).float()


def carried(H: Tensor, side: int = SIDE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each pixel of a: where H takes it in b, and whether that is well inside."""
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 1, 2).astype(np.float64)
    q = cv2.perspectiveTransform(grid, H.numpy()).reshape(side, side, 2)
    inside = ((q > 2) & (q < side - 3)).all(-1)
    return q[..., 0].astype(np.float32), q[..., 1].astype(np.float32), inside


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6), motion=st.sampled_from(MOTIONS))
def test_h_relates_the_pictures(seed: int, motion: float) -> None:
    pair = make_pair(photo(), "clean", motion, seed, SIDE)
    x, y, inside = carried(pair.H)
    seen = cv2.remap(pair.b.numpy(), x, y, cv2.INTER_CUBIC)
    assert inside.mean() > 0.3
    gap = np.abs(seen - pair.a.numpy())[inside]
    # Half a step of rounding each, the cubic and pixels that are squares of different sizes.
    assert gap.max() < 2.5 * STEP
    assert gap.mean() < 0.6 * STEP
    # A homography half a pixel off would be seen.
    wrong = cv2.remap(pair.b.numpy(), x + 0.5, y, cv2.INTER_CUBIC)
    assert np.abs(wrong - pair.a.numpy())[inside].mean() > 2 * gap.mean()


def test_a_picture_is_the_mean_over_each_pixels_square() -> None:
    # Pixels of the photograph are those of a checkerboard: squares of 2 x 2 of them average to gray.
    board = torch.from_numpy(np.indices((40, 40)).sum(0) % 2).float()
    half = geometry.scale(torch.tensor(2.0).double())
    frame = geometry.compose(geometry.translate(4.5, 4.5).double(), half)
    assert torch.allclose(frames.take(board, frame, (10, 10)), torch.full((10, 10), 0.5), atol=1e-3)
    ramp = torch.arange(40.0).expand(40, 40) / 40
    assert torch.allclose(
        frames.take(ramp, frame, (10, 10))[3], (4.5 + 2 * torch.arange(10.0)) / 40, atol=1e-4
    )


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), motion=st.sampled_from([0.0, *MOTIONS, 0.4]))
def test_corners_move_as_far_as_said(seed: int, motion: float) -> None:
    H = frames.draw_homography(motion, 256, pairs.generator_for(seed, 0))
    corners = np.array([[[0, 0]], [[255, 0]], [[255, 255]], [[0, 255]]], np.float64)
    moved = cv2.perspectiveTransform(corners, H.numpy())
    assert np.abs(moved - corners).max() <= motion * 256 + 1e-6
    hull = cv2.convexHull(moved.astype(np.float32))
    assert len(hull) == 4
    assert cv2.contourArea(moved.astype(np.float32), oriented=True) > 0


def test_corners_use_the_whole_range() -> None:
    corners = geometry.corners((256, 256))
    moves = torch.stack(
        [
            geometry.apply(frames.draw_homography(0.1, 256, pairs.generator_for(0, i)), corners) - corners
            for i in range(300)
        ]
    )
    assert moves.mean().abs() < 1.5
    assert abs(float(moves.std()) - 25.6 / 3**0.5) < 1.0  # uniform on [-25.6, 25.6]


def test_homography_of_four_points_is_opencvs() -> None:
    a, b = np.float32([[0, 0], [9, 1], [8, 8], [1, 9]]), np.float32([[2, 1], [12, 0], [11, 9], [3, 8]])
    ours = frames.quad_homography(torch.from_numpy(a).double(), torch.from_numpy(b).double())
    assert np.allclose(ours.numpy(), cv2.getPerspectiveTransform(a, b), atol=1e-6)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pairs_depend_on_seed_and_index_only(condition: pairs.Condition) -> None:
    again = [draw_pair("test", condition, 0.1, 3, seed=5, side=64) for _ in range(2)]
    torch.rand(7)
    for left, right in zip(*again, strict=True):
        assert torch.equal(left, right)
    other = draw_pair("test", condition, 0.1, 5, seed=5, side=64)
    assert not torch.equal(again[0].a, other.a)
    assert not torch.equal(again[0].a, draw_pair("test", condition, 0.1, 3, seed=6, side=64).a)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pictures_are_bytes(condition: pairs.Condition) -> None:
    pair = draw_pair("test", condition, 0.1, 0, side=64)
    for picture in (pair.a, pair.b):
        assert picture.dtype == torch.float32
        levels = picture * 255
        assert torch.allclose(levels, levels.round(), atol=1e-4)
        assert 0 <= levels.min() <= levels.max() <= 255.001


def test_motion_is_the_same_in_all_conditions() -> None:
    H = [draw_pair("test", condition, 0.1, 2, side=64).H for condition in CONDITIONS]
    assert all(torch.equal(H[0], other) for other in H[1:])


def test_occlusion_covers_a_fifth() -> None:
    for seed in range(8):
        clean, pair = (make_pair(photo(), c, 0.1, seed, SIDE) for c in ("clean", "occlusion"))
        assert abs(float((~pair.mask).float().mean()) - 0.2) < 0.01
        assert torch.equal(pair.a, clean.a)
        assert torch.equal(pair.b[pair.mask], clean.b[pair.mask])
        assert (pair.b - clean.b)[~pair.mask].abs().mean() > 10 * STEP


def test_photometric_is_gain_bias_and_noise() -> None:
    gains = []
    for seed in range(8):
        clean, pair = (make_pair(photo() * 0.5 + 0.2, c, 0.1, seed, SIDE) for c in ("clean", "photometric"))
        gain, bias = np.polyfit(clean.b.flatten().numpy(), pair.b.flatten().numpy(), 1)
        assert pairs.GAIN[0] - 0.03 < gain < pairs.GAIN[1] + 0.03
        assert abs(bias) < 0.1 + 0.03
        assert abs(float((pair.a - clean.a).std()) / pairs.NOISE - 1) < 0.05
        assert abs(float((pair.b - gain * clean.b - bias).std()) / pairs.NOISE - 1) < 0.05
        gains.append(gain)
    assert np.std(gains) > 0.05


def test_blur_is_opencvs_gaussian() -> None:
    picture = torch.rand(40, 50)
    expected = cv2.GaussianBlur(picture.numpy(), (0, 0), 1.5, borderType=cv2.BORDER_REFLECT_101)
    assert np.allclose(frames.blurred(picture, 1.5).numpy(), expected, atol=2e-3)


def test_blur_leaves_the_first_picture_sharp() -> None:
    clean, pair = (draw_pair("test", c, 0.1, 0, side=SIDE) for c in ("clean", "blur"))
    assert torch.equal(clean.a, pair.a)
    assert pair.b.diff(dim=1).abs().mean() < 0.7 * clean.b.diff(dim=1).abs().mean()


def test_low_texture_is_calm_but_not_empty() -> None:
    for index in range(4):
        clean, pair = (draw_pair("test", c, 0.1, index, side=SIDE) for c in ("clean", "low-texture"))
        assert pair.a.diff(dim=1).abs().mean() < 0.5 * clean.a.diff(dim=1).abs().mean()
        assert pair.a.std() > 1.5 * STEP


def test_groups_share_no_photograph() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    for group in GROUPS:
        for name, picture in photographs(group).items():
            assert picture.ndim == 2, name
            assert 0 <= picture.min() < picture.max() <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((photo(), "foggy", 0.1, 0), "condition must be one of clean, .* got 'foggy'"),
        ((photo(), "clean", 0.6, 0), "motion takes a share of the side from 0 to 0.45, got 0.6"),
        (
            (photo()[None], "clean", 0.1, 0),
            r"photo must be a floating-point \(H, W\), got torch.float32 \(1, 300, 340\)",
        ),
        ((photo(40, 40), "clean", 0.1, 0), "photo of 40 x 40 is too small"),
    ],
)
def test_bad_arguments_are_named(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_pair(*arguments)


def test_unknown_group() -> None:
    with pytest.raises(ValueError, match="group must be one of bench, calibration, test, got 'training'"):
        photographs("training")
