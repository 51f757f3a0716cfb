"""Which blocks of a large image are aligned."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimation.scenes import scene

from caunet.estimation.blocks import SmoothedWhereRead, choose_blocks
from caunet.geometry.grids import grid_places, read_grid
from caunet.images.pyramid import smooth


def test_blocks_are_parts_of_the_smoothed_image_where_texture_is() -> None:
    image = torch.full((400, 500), 0.5)
    image[200:, 250:] = torch.from_numpy(scene(250)[:200]).float()
    blocks = choose_blocks(image, (400, 500), np.eye(3))
    whole = smooth(image)
    textured = 0
    for value, (x, y) in zip(blocks.values, blocks.corners.long().tolist(), strict=True):
        torch.testing.assert_close(value, whole[y : y + 32, x : x + 32], atol=1e-6, rtol=0)
        textured += x > 250 and y > 200
    assert textured >= 9  # of a grid of 8 x 8 blocks a quarter lies there, less its rim


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    scale=st.floats(0.5, 2.0),
    angle=st.floats(-3.2, 3.2),
    shift=st.floats(-60.0, 60.0),
    perspective=st.floats(-1e-3, 1e-3),
)
def test_what_is_smoothed_where_it_is_read_is_what_all_smoothed_shows(
    seed: int, scale: float, angle: float, shift: float, perspective: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(230, 310, generator=generator)
    corners = torch.rand(6, 2, generator=generator) * torch.tensor([278.0, 198.0])
    line = torch.arange(32.0)
    x, y = corners[:, :1, None] + line, corners[:, 1:, None] + line[:, None]
    c, s = scale * np.cos(angle), scale * np.sin(angle)
    about = np.array([[1.0, 0.0, 155.0], [0.0, 1.0, 115.0], [0.0, 0.0, 1.0]])
    H = about @ np.array([[c, -s, shift], [s, c, -shift], [perspective, 0.0, 1.0]]) @ np.linalg.inv(about)
    reader = SmoothedWhereRead(image)
    for move in (0.0, 1.5, 5.0, -20.0):  # within the room that boxes have, and beyond it
        grid, _ = grid_places(np.array([[1, 0, move], [0, 1, move / 2], [0, 0, 1]]) @ H, x, y, (230, 310))
        torch.testing.assert_close(reader.read(grid), read_grid(smooth(image), grid), atol=2e-4, rtol=0)
