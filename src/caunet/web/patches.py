"""Photographs to look at, and pairs of patches cut out of them as in training."""

import functools
import io

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps
from torch import Tensor

from caunet import images, tasks
from caunet.data.lookup import Canvas, crop, linear, pad, to_bytes
from caunet.data.protocols import Text

__all__ = [
    "PATCH",
    "PHOTOGRAPHS",
    "SIDE",
    "cut_pair",
    "gray_photograph",
    "photograph",
    "photograph_png",
    "photograph_thumbnail",
    "shown",
]

PATCH = 11
SIDE = 512
"""Photographs are shown with sides of at most so many pixels; places are pixels of that size."""
WINDOW = 65
"""What is cut out around a patch, in its own pixels: no task's transformation looks further."""

PHOTOGRAPHS = {
    "astronaut": "astronaut.png",
    "camera": "camera.png",
    "chelsea": "chelsea.png",
    "coffee": "coffee.png",
    "rocket": "rocket.jpg",
    "motorcycle": "motorcycle_left.png",
    "coins": "coins.png",
    "clock": "clock_motion.png",
    "brick": "brick.png",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "moon": "moon.png",
    "hubble": "hubble_deep_field.jpg",
    "retina": "retina.jpg",
}
"""Names and files, all of them inside scikit-image's package."""


@functools.cache
def photograph(name: str) -> npt.NDArray[np.uint8]:
    """The photograph as RGB bytes (H, W, 3), as shown; KeyError if there is none of that name."""
    return shown(images.photograph(PHOTOGRAPHS[name], rgb=True))


@functools.cache
def gray_photograph(name: str) -> npt.NDArray[np.uint8]:
    """The same in gray, (H, W)."""
    return images.to_gray(photograph(name))


@functools.cache
def photograph_png(name: str) -> bytes:
    """The same as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(photograph(name)).save(file, "PNG")
    return file.getvalue()


@functools.cache
def photograph_thumbnail(name: str) -> bytes:
    """A square of 96 pixels from its middle, as a JPEG file of a few kilobytes."""
    file = io.BytesIO()
    ImageOps.fit(Image.fromarray(photograph(name)), (96, 96)).save(file, "JPEG", quality=80)
    return file.getvalue()


def shown(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Bytes (H, W) or (H, W, 3) with sides of at most :data:`SIDE`, made smaller where they are longer.

    >>> shown(np.zeros((600, 1024), np.uint8)).shape
    (300, 512)
    """
    height, width = pixels.shape[:2]
    factor = SIDE / max(height, width)
    if factor >= 1:
        return pixels
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))


def cut_pair(
    gray: npt.NDArray[np.uint8], task: tasks.Task, z: Tensor, center: tuple[int, int], zoom: int
) -> tuple[Tensor, Tensor]:
    """The patch around ``center`` (x, y) and the same place transformed by z (dim,): bytes (11, 11) each.

    A pixel of the patches is the mean of ``zoom`` x ``zoom`` of the photograph; beyond the photograph its border is
    repeated. From there on it is the protocol ``text``, done by the code that makes the training pairs.
    """
    window = _window(gray, center, zoom)[None]
    protocol = Text(task, (WINDOW, WINDOW), PATCH)
    canvas = Canvas(pad(window))
    first = crop(canvas, torch.tensor([protocol.corner]), PATCH)
    second = to_bytes(linear(canvas, protocol.pull(z[None]), PATCH))
    return first[0], second[0]


def _window(gray: npt.NDArray[np.uint8], center: tuple[int, int], zoom: int) -> Tensor:
    """Bytes (WINDOW, WINDOW) about ``center``, each the mean of zoom x zoom pixels."""
    reach = WINDOW * zoom
    first_x, first_y = (c - zoom // 2 - zoom * (WINDOW // 2) for c in center)
    rows = np.clip(np.arange(first_y, first_y + reach), 0, gray.shape[0] - 1)
    columns = np.clip(np.arange(first_x, first_x + reach), 0, gray.shape[1] - 1)
    cut = torch.from_numpy(gray[np.ix_(rows, columns)]).to(torch.float32)
    return to_bytes(torch.nn.functional.avg_pool2d(cut[None], zoom)[0])
