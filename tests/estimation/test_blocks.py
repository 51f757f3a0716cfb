"""Which blocks of a large image are aligned."""

import numpy as np
import torch
from tests.estimation.scenes import scene

from caunet.estimation.blocks import choose_blocks
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
