"""The embedded images: photographs that come inside scikit-image's package, so nothing has to be fetched.

docs/data.md says which ones, and why not the others. No photograph is in both train and test.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from caunet.data.tiles import check_options, cut, join, shuffled
from caunet.images import photograph

__all__ = ["TEST", "TRAIN", "load"]

# The last two, about a tenth of the tiles, are the validation images.
TRAIN = (
    "astronaut.png",
    "coins.png",
    "rocket.jpg",
    "motorcycle_left.png",
    "moon.png",
    "brick.png",
    "grass.png",
    "chelsea.png",
    "clock_motion.png",
)
TEST = ("camera.png", "coffee.png", "gravel.png")


def load(
    training: bool, *, tile: int = 32, stride: int | None = None, scales: Sequence[int] = (1, 2, 3, 4)
) -> tuple[npt.NDArray[np.uint8], int]:
    """Tiles (N, tile, tile) of the training or test photographs; where validation begins among them.

    ``stride`` is a quarter of ``tile`` unless given.
    """
    stride = max(1, tile // 4) if stride is None else stride
    check_options(tile, stride, scales)
    groups = [
        cut(photograph(name), tile=tile, stride=stride, scales=scales)
        for name in (TRAIN if training else TEST)
    ]
    tiles, border = join(groups)
    # What is measured on is not divided further: mixed as a whole, its first N pairs are a fair sample of all.
    return (tiles, border) if training else (tiles[shuffled(len(tiles))], border)
