"""The sums of a polish step against loops over pixels."""

import numpy as np
import pytest
import torch

from caunet.estimation.normal_equations import LIGHT, UNIFORM, products


def _expected(planes: np.ndarray, root: np.ndarray, x: np.ndarray, y: np.ndarray, lights: int) -> np.ndarray:
    count, height, width = root.shape
    total = np.zeros((9 + lights, 9 + lights))
    for k in range(count):
        for row in range(height):
            for column in range(width):
                g, h, a, _, laplacian, b = planes[:, k, row, column]
                u, v = x[k, row, column], y[k, row, column]
                radial = g * u + h * v
                line = [g * u, g * v, g, h * u, h * v, h, radial * u, radial * v, a, 1, laplacian]
                if lights == LIGHT:
                    line += [u, v, a * u, a * v, a * u * u, a * u * v, a * v * v]
                line = np.array([*line, b])
                total += root[k, row, column] ** 2 * np.outer(line, line)
    return total


@pytest.mark.parametrize("lights", [UNIFORM, LIGHT])
@pytest.mark.parametrize("shape", [(1, 95, 101), (12, 30, 30)])
def test_products_are_the_weighted_sums_over_all_pixels(lights: int, shape: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    planes = torch.randn(6, *shape, generator=generator)
    planes[3] = 1.0
    root = torch.rand(*shape, generator=generator)
    places = torch.rand(2, *shape, generator=generator)
    found = products(planes, root, places, lights)
    expected = _expected(*(t.double().numpy() for t in (planes, root, *places)), lights)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    np.testing.assert_array_equal(found[-1], found[:, -1])
