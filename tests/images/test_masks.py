"""Borders are found where they are, and nowhere else."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from caunet.benchmark.photographs import GROUPS, photographs
from caunet.images.masks import erode, fill, find_border, halve_mask
from caunet.images.pyramid import halve


@pytest.mark.parametrize("group", GROUPS)
def test_photographs_have_no_border(group: str) -> None:
    for name, photo in photographs(group).items():  # type: ignore[arg-type]
        found = find_border(photo)
        # The retina is seen through a round aperture; the page is text on paper, which is not of one level.
        assert (found is None) == (name != "retina"), name


@settings(max_examples=40, deadline=None)
@given(
    top=st.integers(0, 12),
    bottom=st.integers(0, 12),
    left=st.integers(0, 12),
    right=st.integers(0, 12),
    level=st.sampled_from([0.0, 0.5, 1.0]),
    noise=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bars_are_found_to_the_pixel(
    top: int, bottom: int, left: int, right: int, level: float, noise: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(60, 70, generator=generator)
    inside = torch.zeros(60, 70, dtype=torch.bool)
    inside[top : 60 - bottom, left : 70 - right] = True
    border = level + noise * (torch.rand(60, 70, generator=generator) - 0.5) * 2 / 255
    found = find_border(torch.where(inside, image, border))
    expected = inside if not bool(inside.all()) else None
    assert (found is None) == (expected is None)
    if expected is not None and found is not None:
        assert torch.equal(found, expected)


@pytest.mark.parametrize("radius", [0.6, 0.95])
def test_a_round_aperture_is_found_and_a_dark_sky_is_not(radius: float) -> None:
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(80, 80, generator=generator) * 0.5 + 0.3
    line = torch.linspace(-1, 1, 80)
    disc = line.square() + line[:, None].square() < radius**2
    found = find_border(torch.where(disc, image, 0.0))
    assert found is not None
    assert float((found == disc).float().mean()) > 0.999
    sky = image.clone()
    sky[:30, :50] = 0.0  # touches two corners, not all
    assert find_border(sky) is None
    assert find_border(torch.full((30, 30), 0.4)) is None  # nothing but one level: no scene to frame


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 4), st.integers(0, 999))
def test_erosion_is_scipys(radius: int, seed: int) -> None:
    mask = np.random.default_rng(seed).random((17, 23)) > 0.03
    expected = (
        ndimage.binary_erosion(mask, np.ones((2 * radius + 1,) * 2), border_value=1) if radius else mask
    )
    np.testing.assert_array_equal(erode(torch.from_numpy(mask), radius).numpy(), expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(5, 20), st.integers(5, 20), st.integers(0, 999))
def test_a_halved_mask_is_true_where_no_masked_pixel_was_averaged(height: int, width: int, seed: int) -> None:
    mask = torch.from_numpy(np.random.default_rng(seed).random((height, width)) > 0.05)
    poisoned = torch.where(mask, 0.0, float("nan"))
    assert torch.equal(halve_mask(mask), ~halve(poisoned).isnan())


def test_filling_continues_smoothly_and_leaves_the_scene_alone() -> None:
    ramp = torch.linspace(0, 1, 64).expand(64, 64).contiguous()
    mask = torch.ones(64, 64, dtype=torch.bool)
    mask[:, 40:50] = False
    made = fill(torch.where(mask, ramp, 5.0), mask)
    assert torch.equal(made[mask], ramp[mask])
    assert float((made - ramp).abs().max()) < 0.15
    assert torch.equal(fill(ramp, torch.zeros_like(mask)), ramp)  # nothing to continue
