"""The polish against known homographies."""

import numpy as np
import pytest
import torch
from tests.estimation.scenes import corner_error, pair, quad

from caunet import geometry
from caunet.estimation.blocks import choose_blocks, whole_image
from caunet.estimation.evidence import uncertainty
from caunet.estimation.motion_models import Projective, create_motion_model
from caunet.estimation.polish import polish, unit_coordinates
from caunet.images.masks import erode
from caunet.images.pyramid import finer, smooth

SIDE = 96


def _polished(
    a: np.ndarray, b: np.ndarray, H: np.ndarray, model: str = "projective", steps: int = 12
) -> np.ndarray:
    first, second = (smooth(torch.from_numpy(t).float()) for t in (a, b))
    return polish(whole_image(first), second, H, create_motion_model(model), a.shape, steps, 0.001).H


def test_finds_a_homography_to_a_hundredth_of_a_pixel() -> None:
    H = quad(SIDE, 6, seed=2)
    a, b = pair(H, SIDE)
    start = H @ quad(SIDE, 1.5, seed=3)
    assert corner_error(start, H, (SIDE, SIDE)) > 0.5
    assert corner_error(_polished(a, b, start), H, (SIDE, SIDE)) < 0.03


def test_gain_bias_and_blur_do_not_matter() -> None:
    H = quad(SIDE, 6, seed=2)
    a, b = pair(H, SIDE)
    dim = smooth(torch.from_numpy(0.5 * b + 0.1)).numpy()
    assert corner_error(_polished(a, dim, H @ quad(SIDE, 1.5, seed=3)), H, (SIDE, SIDE)) < 0.05


def test_something_in_front_does_not_matter() -> None:
    H = quad(SIDE, 6, seed=2)
    a, b = pair(H, SIDE)
    b = b.copy()
    b[20:62, 30:72] = pair(H, SIDE, seed=9)[1][20:62, 30:72]
    assert corner_error(_polished(a, b, H @ quad(SIDE, 1.0, seed=3)), H, (SIDE, SIDE)) < 0.05


@pytest.mark.parametrize("model", ["translation", "euclidean", "similarity", "affine"])
def test_stays_in_the_group_and_finds_its_member(model: str) -> None:
    angle, scale = (0.05, 1.06) if model in ("similarity", "affine") else (0.05, 1.0)
    if model == "translation":
        angle = 0.0
    H = np.array(
        [
            [scale * np.cos(angle), -scale * np.sin(angle), 3.2],
            [scale * np.sin(angle), scale * np.cos(angle), -2.6],
            [0, 0, 1.0],
        ]
    )
    if model == "affine":
        H[0, 1] += 0.05
    a, b = pair(H, SIDE)
    start = H.copy()
    start[:2, 2] += [0.8, -0.6]
    found = _polished(a, b, start, model)
    assert corner_error(found, H, (SIDE, SIDE)) < 0.015
    np.testing.assert_allclose(found[2], [0, 0, 1], atol=1e-12)
    if model != "affine":
        np.testing.assert_allclose(
            found[:2, :2] @ found[:2, :2].T, np.linalg.det(found[:2, :2]) * np.eye(2), atol=1e-9
        )


def test_tiles_find_what_the_whole_finds() -> None:
    H = quad(400, 6, seed=2)
    a, b = (torch.from_numpy(t).float() for t in pair(H, 400))
    start = H @ quad(400, 1.0, seed=3)
    blocks = choose_blocks(a, (400, 400), start)
    assert blocks.values.numel() < 0.5 * a.numel()
    found = polish(blocks, smooth(b), start, Projective(), (400, 400), 12, 0.001)
    assert corner_error(found.H, H, (400, 400)) < 0.05


def test_exponential_is_the_matrix_exponential() -> None:
    A = np.random.default_rng(0).normal(0, 0.7, (3, 3))
    expected = torch.matrix_exp(torch.from_numpy(A)).numpy()
    np.testing.assert_allclose(geometry.exponential(A), expected, rtol=1e-9)


@pytest.mark.parametrize("model", ["translation", "projective"])
def test_stated_uncertainty_is_that_of_repeated_noise(model: str) -> None:
    rng = np.random.default_rng(5)
    H = quad(SIDE, 3, seed=2) if model == "projective" else np.array([[1, 0, 2.3], [0, 1, -1.6], [0, 0, 1.0]])
    a, b = pair(H, SIDE)
    motion_model = create_motion_model(model)
    errors, stated = [], []
    for _ in range(60):
        noisy = [smooth(torch.from_numpy(t + rng.normal(0, 0.03, t.shape)).float()) for t in (a, b)]
        found = polish(whole_image(noisy[0]), noisy[1], H, motion_model, (SIDE, SIDE), 8, 0.001)
        corners = geometry.corners((SIDE, SIDE), like=H)
        gap = geometry.apply(np.linalg.inv(H) @ found.H, corners) - corners
        errors.append(np.square(gap).sum(1).mean())
        generators = motion_model.in_coordinates(unit_coordinates((SIDE, SIDE))).generators()
        stated.append(uncertainty(found.covariance, generators, (SIDE, SIDE)) ** 2)
    assert 0.7 < np.sqrt(np.mean(errors) / np.mean(stated)) < 1.15


@pytest.mark.parametrize("kind", ["ramp", "vignette"])
def test_uneven_light_is_not_taken_for_a_motion(kind: str) -> None:
    H = quad(SIDE, 6, seed=2)
    a, b = pair(H, SIDE)
    line = np.linspace(-1, 1, SIDE)
    # Smoothing an image that gets darker pulls it a little: 0.05 pixels at the darkest corner of this vignette.
    light = 1 + 0.5 * line if kind == "ramp" else 1 - 0.15 * (line**2 + line[:, None] ** 2)
    assert corner_error(_polished(a, b * light, H @ quad(SIDE, 1.5, seed=3)), H, (SIDE, SIDE)) < 0.1


def test_most_of_the_scene_may_be_covered() -> None:
    H = quad(SIDE, 6, seed=2)
    a, b = pair(H, SIDE)
    b = b.copy()
    b[5:78, 12:90] = pair(H, SIDE, seed=9)[1][5:78, 12:90]  # 62 %
    first, second = (smooth(torch.from_numpy(t).float()) for t in (a, b))
    start = H @ quad(SIDE, 0.7, seed=3)
    found = polish(whole_image(first), second, start, Projective(), a.shape, 16, 0.001)
    assert corner_error(found.H, H, (SIDE, SIDE)) < 0.1


def test_what_is_masked_in_either_image_does_not_count() -> None:
    H = quad(SIDE, 6, seed=2)
    a, b = (t.copy() for t in pair(H, SIDE))
    keep = np.zeros_like(a, bool)
    keep[22:80, 20:74] = True
    # The same surroundings in both: strong evidence for no motion at all.
    still = np.random.default_rng(1).random((12, 12)).repeat(8, 0).repeat(8, 1)
    a[~keep] = b[~keep] = still[~keep]
    first, second = (smooth(torch.from_numpy(t).float()) for t in (a, b))
    inside = erode(torch.from_numpy(keep), 3)
    start = H @ quad(SIDE, 1.0, seed=3)

    def found(mask_a: torch.Tensor | None, mask_b: torch.Tensor | None) -> float:
        blocks = whole_image(first, mask_a)
        made = polish(blocks, second, start, Projective(), a.shape, 16, 0.001, mask_b)
        return corner_error(made.H, H, (SIDE, SIDE))

    assert max(found(inside, inside), found(inside, None), found(None, inside)) < 0.15
    assert found(None, None) > 1


def test_images_as_they_are_say_more_under_noise_than_smoothed_ones() -> None:
    """What smoothing takes away tells of the motion, too, as long as it is more than noise."""
    draw, model = np.random.default_rng(4), create_motion_model("affine")
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(8):
        H = np.array([[1.01, 0.02, 1.3 + seed / 7], [-0.015, 0.99, 2.0], [0, 0, 1]])
        a, b = (t + 0.01 * draw.standard_normal(t.shape) for t in pair(H, SIDE, seed=seed))
        first, second = (torch.from_numpy(t).float() for t in (a, b))
        for smoothed in (True, False):
            images = (smooth(first), smooth(second)) if smoothed else (first, finer(second))
            found = polish(
                whole_image(images[0]),
                images[1],
                H,
                model,
                a.shape,
                8,
                0.001,
                uneven=False,
                smoothed=smoothed,
            )
            errors[smoothed].append(corner_error(found.H, H, (SIDE, SIDE)))
    assert np.mean(errors[False]) < 0.9 * np.mean(errors[True])


def test_the_share_of_noise_is_that_of_its_gradients() -> None:
    H = np.array([[1.01, 0.02, 1.3], [-0.015, 0.99, 2.0], [0, 0, 1]])
    a, b = pair(H, SIDE)
    draw, noise = np.random.default_rng(4), 0.05
    model = create_motion_model("translation")
    clean, noisy = (
        polish(
            whole_image(torch.from_numpy(a + n * draw.standard_normal(a.shape)).float()),
            finer(torch.from_numpy(b + n * draw.standard_normal(b.shape)).float()),
            H,
            model,
            a.shape,
            1,
            0.001,
            uneven=False,
            smoothed=False,
        )
        for n in (0.0, noise)
    )
    slopes = np.stack(np.gradient(a), -1).reshape(-1, 2)
    texture = np.linalg.eigvalsh(slopes.T @ slopes / len(slopes))[0]
    # Half of a central difference's squares are the noise's; the mean of two images has half of that.
    expected = noise**2 / 4 / (noise**2 / 4 + texture)
    assert clean.noise_share < 0.01
    assert abs(noisy.noise_share - expected) < 0.25 * expected
