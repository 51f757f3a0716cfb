"""Pairs the slow way: plain loops, whole pictures, no cleverness. What `caunet.data` must agree with."""

import math

import numpy as np

MASK = 0xFFFFFFFF


def philox(counter, key):
    """Philox-4x32-10 with Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & MASK, (first >> 32) ^ c[3] ^ k[1], first & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def uniform(seed, epoch, index, lane, stream):
    """One number on [0, 1)."""
    counter = (index & MASK, index >> 32, epoch, stream * 2**20 + lane // 4)
    return philox(counter, (seed & MASK, seed >> 32))[lane % 4] / 2**32


def homography(task, z):
    """The paper's matrices; z in the paper's order (horizontal first)."""
    z = [float(v) for v in z]
    if task == "translation":
        return np.array([[1, 0, z[0]], [0, 1, z[1]], [0, 0, 1]])
    if task == "rotation":
        c, s = math.cos(math.radians(z[0])), math.sin(math.radians(z[0]))
        return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    if task == "scaling":
        return np.diag([z[0], z[1], 1.0])
    last = [z[4], z[5], 1] if task == "projective" else [0, 0, 1]
    return np.array([[1 + z[0], z[1], 0], [z[2], 1 + z[3], 0], last])


def pixel(image, row, column):
    """A pixel, 0 outside the image."""
    inside = 0 <= row < image.shape[0] and 0 <= column < image.shape[1]
    return float(image[row, column]) if inside else 0.0


def linear_weight(d):
    return max(0.0, 1.0 - abs(d))


def cubic_weight(d, a=-0.5):
    """Keys's kernel by its two pieces."""
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def value_at(image, x, y, weight):
    """Interpolated value at (x, y): the sum over the pixels around it of their separable weights."""
    row, column = math.floor(y), math.floor(x)
    return sum(
        weight(y - r) * weight(x - c) * pixel(image, r, c)
        for r in range(row - 1, row + 3)
        for c in range(column - 1, column + 3)
    )


def text_pair(image, task, z, patch):
    """x and y (patch, patch) as floats: every pixel of y asks where it came from."""
    top, left = image.shape[0] // 2 - patch // 2, image.shape[1] // 2 - patch // 2
    half = (patch - 1) / 2
    back = np.linalg.inv(homography(task, z))
    y = np.zeros((patch, patch))
    for r in range(patch):
        for c in range(patch):
            p = back @ (c - half, r - half, 1.0)
            y[r, c] = value_at(image, p[0] / p[2] + left + half, p[1] / p[2] + top + half, linear_weight)
    return image[top : top + patch, left : left + patch].astype(float), y


def release_pair(image, task, z, patch):
    """x and y by warping the whole image into its bounding box and cutting around pixel floor(S / 2)."""
    height, width = image.shape
    weight = cubic_weight if task == "rotation" else linear_weight
    H = homography(task, z)
    back = np.linalg.inv(H)
    # The origin of H: the middle of the first patch.
    top, left = height // 2 - patch // 2, width // 2 - patch // 2
    x0, y0 = left + (patch - 1) / 2, top + (patch - 1) / 2
    outline = [(c - x0, r - y0, 1.0) for c in (-0.5, width - 0.5) for r in (-0.5, height - 0.5)]
    ends = np.array([(H @ p)[:2] / (H @ p)[2] for p in outline])
    low, high = ends.min(0), ends.max(0)
    columns, rows = (math.ceil(n - 1e-9) for n in high - low)
    # The box, grown on both sides to whole pixels; its first pixel's center is half a pixel inside.
    start = (low + high) / 2 - np.array([columns, rows]) / 2 + 0.5
    y = np.zeros((patch, patch))
    for r in range(patch):
        for c in range(patch):
            place = start + np.array([columns // 2 - patch // 2 + c, rows // 2 - patch // 2 + r])
            p = back @ (*place, 1.0)
            y[r, c] = value_at(image, p[0] / p[2] + x0, p[1] / p[2] + y0, weight)
    return image[top : top + patch, left : left + patch].astype(float), y


def to_byte(value):
    """Nearest whole number, halves up, kept in 0..255."""
    return min(255, max(0, math.floor(value + 0.5)))
