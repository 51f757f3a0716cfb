"""A folder of small pictures, so that nothing here waits for the photographs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dozen smooth random pictures of 64 x 64; the package splits them into training and test."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for number in range(12):
        coarse = Image.fromarray(random.integers(0, 256, (12, 12), dtype=np.uint8))
        coarse.resize((64, 64), Image.Resampling.BICUBIC).save(folder / f"{number}.png")
    return folder
