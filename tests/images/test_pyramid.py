"""Levels of a pyramid against OpenCV and closed forms."""

import cv2
import numpy as np
import pytest
import torch

from caunet import geometry
from caunet.images import pyramid as module
from caunet.images.pyramid import finer, halve, pyramid, smooth


def test_smoothing_equals_opencv() -> None:
    image = np.random.default_rng(0).random((40, 33))
    kernel = np.array([1, 4, 6, 4, 1]) / 16
    expected = cv2.sepFilter2D(image, -1, kernel, kernel, borderType=cv2.BORDER_REPLICATE)
    np.testing.assert_allclose(smooth(torch.from_numpy(image)).numpy(), expected, atol=1e-12)


def test_levels_lie_where_the_change_of_scale_says() -> None:
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(48.0), indexing="ij")
    inner = np.array([[3.0, 2.0], [5.0, 4.0]])
    for level, (of_x, of_y) in enumerate(zip(pyramid(x, 3), pyramid(y, 3), strict=True)):
        expected = geometry.rescale_points(inner, 2.0**level)
        for (column, row), (true_x, true_y) in zip(inner.astype(int), expected, strict=True):
            assert abs(float(of_x[row, column]) - true_x) < 1e-4
            assert abs(float(of_y[row, column]) - true_y) < 1e-4


def test_halving_keeps_odd_sizes() -> None:
    assert halve(torch.rand(7, 10)).shape == (4, 5)


@pytest.mark.parametrize("size", [(7, 10), (64, 33), (101, 40), (2, 50)])
def test_strips_of_a_large_image_are_halved_to_the_same_bits(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = torch.rand(size, generator=torch.Generator().manual_seed(0))
    whole = halve(image)
    monkeypatch.setattr(module, "_STRIP", 3 * size[1])
    assert torch.equal(halve(image), whole)


def test_between_pixels_lie_polynomials_of_degree_five() -> None:
    draw = np.random.default_rng(0)
    p, q = draw.normal(size=6), draw.normal(size=6)

    def surface(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.polyval(p, x / 8)[None] * np.polyval(q, y / 8)[:, None]

    image = torch.from_numpy(surface(np.arange(12.0), np.arange(10.0)))
    made = finer(image)
    assert made.shape == (19, 23)
    expected = surface(np.arange(23) / 2, np.arange(19) / 2)
    inner = (slice(4, -4), slice(4, -4))  # beyond the border the border continues
    np.testing.assert_allclose(made.numpy()[inner], expected[inner], atol=1e-12)
    assert torch.equal(made[::2, ::2], image)
    assert torch.equal(finer(torch.stack([image, -image]))[1], -made)
