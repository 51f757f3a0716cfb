"""Warping as slow, plain loops: one pixel, one tap at a time, float64, nothing shared with the package."""

import math

import numpy as np


def cubic_kernel(d: float, a: float = -0.75) -> float:
    """Keys' cubic convolution kernel at distance d."""
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    if d < 2:
        return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return 0.0


def tent_kernel(d: float) -> float:
    return max(0.0, 1 - abs(d))


def value_at(image: np.ndarray, x: float, y: float, mode: str, fill: float) -> float:
    """The image (height, width) at one place; pixels outside it have the value `fill`."""
    height, width = image.shape

    def pixel(i: int, j: int) -> float:
        return float(image[i, j]) if 0 <= i < height and 0 <= j < width else fill

    if not (-3 < x < width + 2 and -3 < y < height + 2):
        return fill
    if mode == "nearest":
        return pixel(round(y), round(x))
    kernel = tent_kernel if mode == "bilinear" else cubic_kernel
    total = 0.0
    for i in range(math.floor(y) - 1, math.floor(y) + 3):
        for j in range(math.floor(x) - 1, math.floor(x) + 3):
            total += kernel(y - i) * kernel(x - j) * pixel(i, j)
    return total


def sources(H: np.ndarray, size: tuple[int, int], origin: tuple[float, float] = (0, 0)) -> np.ndarray:
    """For each pixel of the second image, the homogeneous point of the first that H carries there."""
    back = np.linalg.inv(np.asarray(H, dtype=np.float64))
    points = np.empty((*size, 3))
    for i in range(size[0]):
        for j in range(size[1]):
            points[i, j] = back @ np.array([j + origin[0], i + origin[1], 1.0])
    return points


def warp(
    image: np.ndarray,
    H: np.ndarray,
    size: tuple[int, int],
    mode: str,
    fill: float = 0.0,
    origin: tuple[float, float] = (0, 0),
) -> np.ndarray:
    """One image (height, width) carried by one H whose third coordinate is positive in front."""
    points = sources(H, size, origin)
    result = np.empty(size)
    for i in range(size[0]):
        for j in range(size[1]):
            x, y, w = points[i, j]
            result[i, j] = value_at(image, x / w, y / w, mode, fill) if w > 0 else fill
    return result
