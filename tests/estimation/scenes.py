"""Small pairs with known answers: a scene that is a formula, so that both pictures are exact samples of it."""

import cv2
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

WAVES = 80


def shade(x: Array, y: Array, seed: int = 0) -> Array:
    """Grey levels 0..1 of a scene at any places: plane waves of 4 to 90 pixels' length, the long ones stronger."""
    rng = np.random.default_rng(seed)
    length, angle = np.exp(rng.uniform(np.log(4), np.log(90), WAVES)), rng.uniform(0, 2 * np.pi, WAVES)
    phase, strength = rng.uniform(0, 2 * np.pi, WAVES), length**0.7
    total = np.zeros(np.broadcast(x, y).shape)
    for k in range(WAVES):
        along = (x * np.cos(angle[k]) + y * np.sin(angle[k])) * (2 * np.pi / length[k])
        total += strength[k] * np.sin(along + phase[k])
    scale = np.sqrt(np.square(strength).sum() / 2)
    return np.clip(0.5 + 0.18 * total / scale, 0, 1)


def scene(side: int, seed: int = 0) -> Array:
    """(side, side): the scene at whole pixels."""
    y, x = np.mgrid[:side, :side].astype(np.float64)
    return shade(x, y, seed)


def quad(side: int, motion: float, seed: int = 0) -> Array:
    """A homography whose corners move by up to ``motion`` pixels."""
    rng = np.random.default_rng(seed)
    corners = np.float32([[0, 0], [side - 1, 0], [side - 1, side - 1], [0, side - 1]])
    moved = corners + rng.uniform(-motion, motion, (4, 2)).astype(np.float32)
    return cv2.getPerspectiveTransform(corners, moved).astype(np.float64)


def pair(H: Array, side: int, seed: int = 0) -> tuple[Array, Array]:
    """a and b (side, side) with b(H p) = a(p), exact but for the rounding to bytes' grey levels."""
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).astype(np.float64)
    back = cv2.perspectiveTransform(grid, np.linalg.inv(H))
    a, b = scene(side, seed), shade(back[..., 0], back[..., 1], seed)
    return np.round(a * 255) / 255, np.round(b * 255) / 255


def corner_error(found: Array, true: Array, size: tuple[int, int]) -> float:
    """Mean distance of the corners in pixels."""
    bottom, right = size[0] - 1.0, size[1] - 1.0
    corners = np.array([[[0.0, 0], [right, 0], [right, bottom], [0, bottom]]])
    difference = cv2.perspectiveTransform(corners, found) - cv2.perspectiveTransform(corners, true)
    return float(np.linalg.norm(difference[0], axis=1).mean())
