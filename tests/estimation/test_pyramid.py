"""Levels, places and readings against OpenCV and closed forms."""

import cv2
import numpy as np
import torch
from tests.estimation.scenes import quad, scene

from caunet.estimation.pyramid import (
    apply,
    between_levels,
    halve,
    level_matrix,
    places,
    pyramid,
    read,
    smooth,
)
from caunet.estimation.tiles import choose


def test_smoothing_equals_opencv() -> None:
    picture = scene(40)
    kernel = np.array([1, 4, 6, 4, 1]) / 16
    expected = cv2.sepFilter2D(picture, -1, kernel, kernel, borderType=cv2.BORDER_REPLICATE)
    np.testing.assert_allclose(smooth(torch.from_numpy(picture)).numpy(), expected, atol=1e-12)


def test_levels_lie_where_their_matrix_says() -> None:
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(48.0), indexing="ij")
    for level, (of_x, of_y) in enumerate(zip(pyramid(x, 3), pyramid(y, 3), strict=True)):
        inner = np.array([[3.0, 2.0], [5.0, 4.0]])
        expected = apply(level_matrix(level), inner)
        for (column, row), (true_x, true_y) in zip(inner.astype(int), expected, strict=True):
            assert abs(float(of_x[row, column]) - true_x) < 1e-4
            assert abs(float(of_y[row, column]) - true_y) < 1e-4


def test_homographies_change_level_with_their_points() -> None:
    H = quad(64, 6)
    points = np.array([[3.0, 4.0], [11.0, 9.0]])
    moved = apply(level_matrix(2), apply(between_levels(H, 0, 2), points))
    np.testing.assert_allclose(moved, apply(H, apply(level_matrix(2), points)), atol=1e-9)
    np.testing.assert_allclose(between_levels(between_levels(H, 0, 2), 2, 0), H, atol=1e-12)


def test_reading_through_a_homography_equals_opencv() -> None:
    picture, H = scene(40), quad(40, 5)
    line = torch.arange(40.0)
    grid, inside = places(H, line[None, None], line[None, :, None], (40, 40))
    found = read(torch.from_numpy(picture).float(), grid)[0].numpy()
    # OpenCV rounds places to 1/32 of a pixel unless it is given a map of its own.
    points = cv2.perspectiveTransform(np.stack(np.meshgrid(np.arange(40.0), np.arange(40.0)), -1), H)
    x, y = points[..., 0], points[..., 1]
    true_inside = (x >= 0) & (x <= 39) & (y >= 0) & (y <= 39)
    assert (inside[0].numpy() == true_inside).mean() > 0.999
    low_x, low_y = np.floor(x).astype(int).clip(0, 38), np.floor(y).astype(int).clip(0, 38)
    t, s = x - low_x, y - low_y
    upper = picture[low_y, low_x] * (1 - t) + picture[low_y, low_x + 1] * t
    lower = picture[low_y + 1, low_x] * (1 - t) + picture[low_y + 1, low_x + 1] * t
    np.testing.assert_allclose(found[true_inside], (upper * (1 - s) + lower * s)[true_inside], atol=1e-4)


def test_points_behind_the_viewer_are_outside() -> None:
    H = np.array([[1.0, 0, 0], [0, 1, 0], [-0.1, 0, 1]])  # the third coordinate is 0 at x = 10
    line = torch.arange(30.0)
    _, inside = places(H, line[None, None], line[None, :1, None], (30, 300))
    assert not bool(inside[0, 0, 11:].any())
    assert bool(inside[0, 0, :9].all())


def test_halving_keeps_odd_sizes() -> None:
    assert halve(torch.rand(7, 10)).shape == (4, 5)


def test_tiles_are_parts_of_the_smoothed_picture_where_texture_is() -> None:
    picture = torch.full((400, 500), 0.5)
    picture[200:, 250:] = torch.from_numpy(scene(250)[:200]).float()
    tiles = choose(picture, (400, 500), np.eye(3))
    whole = smooth(picture)
    textured = 0
    for value, (x, y) in zip(tiles.values, tiles.corners.long().tolist(), strict=True):
        torch.testing.assert_close(value, whole[y : y + 32, x : x + 32], atol=1e-6, rtol=0)
        textured += x > 250 and y > 200
    assert textured >= 9  # of a grid of 8 x 8 tiles a quarter lies there, less its rim
