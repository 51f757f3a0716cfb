"""The embedded images: photographs that come inside scikit-image's package, so nothing has to be fetched.

Which ones, and why not the others, is told in docs/data.md. No photograph is in both train and test.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from caunet.data.tiles import check_options, cut, join
from caunet.errors import DataError
from caunet.images.decode import read_image

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
        cut(_photograph(name), tile=tile, stride=stride, scales=scales)
        for name in (TRAIN if training else TEST)
    ]
    return join(groups)


def _photograph(name: str) -> npt.NDArray[np.uint8]:
    # Found without importing scikit-image, which would take longer than everything else here.
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise DataError("the embedded photographs are in scikit-image; run: pip install scikit-image")
    path = Path(spec.origin).parent / "data" / name
    if not path.is_file():
        raise DataError(f"scikit-image lacks {path}; run: pip install --force-reinstall scikit-image")
    return read_image(path)
