"""The fast reader against loops and OpenCV."""

import cv2
import numpy as np
import torch

from caunet import geometry
from caunet.data.lookup import Canvas, linear, pad
from caunet.geometry.grids import grid_of, grid_places, read_grid
from caunet.geometry.sampling import sample
from tests.estimation.scenes import quad, scene


def test_reading_through_a_homography_equals_interpolation_at_opencvs_places() -> None:
    image, H = scene(40), quad(40, 5)
    line = torch.arange(40.0)
    grid, inside = grid_places(H, line[None, None], line[None, :, None], (40, 40))
    found = read_grid(torch.from_numpy(image).float(), grid)[0].numpy()
    # OpenCV rounds places to 1/32 of a pixel unless it is given a map of its own.
    points = cv2.perspectiveTransform(np.stack(np.meshgrid(np.arange(40.0), np.arange(40.0)), -1), H)
    x, y = points[..., 0], points[..., 1]
    true_inside = (x >= 0) & (x <= 39) & (y >= 0) & (y <= 39)
    assert (inside[0].numpy() == true_inside).mean() > 0.999
    low_x, low_y = np.floor(x).astype(int).clip(0, 38), np.floor(y).astype(int).clip(0, 38)
    t, s = x - low_x, y - low_y
    upper = image[low_y, low_x] * (1 - t) + image[low_y, low_x + 1] * t
    lower = image[low_y + 1, low_x] * (1 - t) + image[low_y + 1, low_x + 1] * t
    np.testing.assert_allclose(found[true_inside], (upper * (1 - s) + lower * s)[true_inside], atol=1e-4)


def test_both_grids_are_the_same_places() -> None:
    H, line = quad(40, 5), torch.arange(40.0)
    grid, _ = grid_places(H, line[None, None], line[None, :, None], (40, 40))
    points = cv2.perspectiveTransform(np.stack(np.meshgrid(np.arange(40.0), np.arange(40.0)), -1), H)
    x, y = torch.from_numpy(points).unbind(-1)
    torch.testing.assert_close(grid, grid_of(x, y, (40, 40)).float(), atol=1e-5, rtol=0)


def test_points_behind_the_viewer_are_outside() -> None:
    H = np.array([[1.0, 0, 0], [0, 1, 0], [-0.1, 0, 1]])  # the third coordinate is 0 at x = 10
    line = torch.arange(30.0)
    _, inside = grid_places(H, line[None, None], line[None, :1, None], (30, 300))
    assert not bool(inside[0, 0, 11:].any())
    assert bool(inside[0, 0, :9].all())


def test_all_three_readers_read_the_same_numbers() -> None:
    """sample, read_grid and the look-up of training pairs, at the places of one projective map inside the image."""
    image = torch.randint(0, 256, (1, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    pull = np.array([[0.9, 0.1, 9.3], [-0.15, 1.05, 10.6], [0.002, -0.001, 1.0]])
    rows, columns = np.mgrid[:11, :11]
    places = geometry.apply(pull, np.stack([columns.ravel(), rows.ravel()], -1).astype(float)).reshape(
        11, 11, 2
    )
    x, y = torch.from_numpy(places).unbind(-1)
    assert 0 <= places.min() <= places.max() <= 31
    exact = sample(image.double(), (x[None], y[None]), torch.tensor([0]))
    torch.testing.assert_close(
        read_grid(image[0].double(), grid_of(x, y, (32, 32))), exact, atol=1e-9, rtol=0
    )
    pairs = linear(Canvas(pad(image)), torch.from_numpy(pull)[None], 11)
    torch.testing.assert_close(pairs.double(), exact, atol=1e-4, rtol=0)
