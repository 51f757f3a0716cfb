"""The photographs that come inside scikit-image's package: nothing has to be downloaded.

This is the only place that knows where they are. Which of them are used for what is decided elsewhere
(``caunet.data.photos``, ``caunet.benchmark.photographs``, the web page).
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from caunet.errors import DataError
from caunet.extras import require
from caunet.images.read import read_uint8

__all__ = ["photograph", "photograph_path"]


def photograph_path(name: str) -> Path:
    """Where the photograph with the file name ``name`` is.

    Without scikit-image this is a :class:`~caunet.errors.MissingExtraError` that says what to install.
    """
    package = require("skimage", "report", "The embedded photographs")
    path = Path(str(package.__file__)).parent / "data" / name
    if not path.is_file():
        raise DataError(f"scikit-image lacks {path}; run: pip install --force-reinstall scikit-image")
    return path


def photograph(name: str, *, rgb: bool = False) -> npt.NDArray[np.uint8]:
    """The photograph with the file name ``name``: gray bytes (H, W), or RGB bytes (H, W, 3).

    >>> photograph("camera.png").shape, photograph("astronaut.png", rgb=True).shape
    ((512, 512), (512, 512, 3))
    """
    return read_uint8(photograph_path(name), rgb=rgb)
