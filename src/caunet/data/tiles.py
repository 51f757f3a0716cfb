"""Tiles of equal sides from images and volumes at several scales, by integer arithmetic: the same bytes everywhere.

>>> image = np.arange(64, dtype=np.uint8).reshape(8, 8)
>>> shrink(image, 4).tolist()
[[14, 18], [46, 50]]
>>> cut(image, tile=4, stride=4, scales=(1, 2)).shape
(5, 4, 4)
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["check_options", "cut", "join", "shrink", "shuffled"]

MIN_DEVIATION = 4  # gray levels: a tile flatter than this shows no relation to learn


def check_options(tile: int, stride: int, scales: Sequence[int], limit: int | None = None) -> None:
    """Refuse options that make no tiles, by name."""
    for name, value in (("tile", tile), ("stride", stride), ("limit", 1 if limit is None else limit)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
    if len(scales) == 0 or any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in scales):
        raise ValueError(f"scales must be positive integers, at least one, got {scales!r}")


def shrink(gray: npt.NDArray[np.uint8], factor: int) -> npt.NDArray[np.uint8]:
    """``gray`` (H, W) or (D, H, W), blocks of ``factor`` along each side replaced by their rounded mean.

    What remains at the far ends is cut off.
    """
    sides = [side // factor for side in gray.shape]
    whole = gray[tuple(slice(side * factor) for side in sides)]
    blocks = whole.reshape([part for side in sides for part in (side, factor)])
    sums = blocks.sum(axis=tuple(range(1, 2 * gray.ndim, 2)), dtype=np.uint32)
    area = factor**gray.ndim
    means: npt.NDArray[np.uint8] = ((sums + area // 2) // area).astype(np.uint8)
    return means


def cut(
    gray: npt.NDArray[np.uint8],
    *,
    tile: int,
    stride: int,
    scales: Sequence[int],
    limit: int | None = None,
) -> npt.NDArray[np.uint8]:
    """Tiles (N, tile, tile) of ``gray`` (H, W), shrunk by each of ``scales``, one every ``stride`` pixels.

    At most ``limit`` places are looked at, spread over the image and its scales. Tiles whose standard
    deviation is below 4 gray levels are left out. Of a volume (D, H, W), tiles (N, tile, tile, tile) likewise.
    """
    sizes = [tuple(side // s for side in gray.shape) for s in scales]
    places = np.concatenate([_grid(i, size, tile, stride) for i, size in enumerate(sizes)])  # (P, 1 + d)
    if limit is not None and len(places) > limit:
        places = places[np.sort(shuffled(len(places))[:limit])]
    shape = (tile,) * gray.ndim
    tiles = [np.empty((0, *shape), np.uint8)]
    for i, factor in enumerate(scales):
        first = places[places[:, 0] == i, 1:]
        if len(first):
            windows = np.lib.stride_tricks.sliding_window_view(shrink(gray, factor), shape)
            tiles.append(windows[tuple(first.T)])
    found = np.concatenate(tiles)
    return found[_has_features(found)]


def _grid(scale: int, size: tuple[int, ...], tile: int, stride: int) -> npt.NDArray[np.int64]:
    """Places (P, 1 + d) of scale index, [z,] y, x."""
    axes = [np.arange(0, n - tile + 1, stride) for n in size]
    grid = np.stack(np.meshgrid([scale], *axes, indexing="ij"), axis=-1)
    return grid.reshape(-1, 1 + len(size)).astype(np.int64)


def _has_features(tiles: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    flat = tiles.reshape(len(tiles), math.prod(tiles.shape[1:]))
    count = flat.shape[1]
    sums = flat.sum(axis=1, dtype=np.int64)
    squares = np.einsum("ni,ni->n", flat, flat, dtype=np.int64, casting="safe")
    # count² times the variance, in whole numbers
    enough: npt.NDArray[np.bool_] = count * squares - sums**2 >= MIN_DEVIATION**2 * count**2
    return enough


def shuffled(count: int) -> npt.NDArray[np.int64]:
    """A fixed permutation of ``range(count)``: by the splitmix64 hash, which no library version can change.

    >>> shuffled(6).tolist()
    [2, 4, 5, 1, 0, 3]
    """
    z = (np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(z ^ (z >> np.uint64(31)), kind="stable")


def join(groups: Sequence[npt.NDArray[np.uint8]]) -> tuple[npt.NDArray[np.uint8], int]:
    """All tiles of all images, and where validation begins: at the border between images nearest to 90 %.

    Both parts are shuffled within themselves, because neighbors in an image overlap and a batch of
    consecutive tiles should not be one place seen ten times. One image alone is not divided.
    """
    ends = np.cumsum([len(group) for group in groups])
    borders = ends[:-1] if len(ends) > 1 else ends
    nearest = int(np.argmin(np.abs(borders - 0.9 * ends[-1])))
    k = nearest + 1
    parts = [np.concatenate(part) for part in (groups[:k], groups[k:]) if len(part)]
    mixed = [part[shuffled(len(part))] for part in parts]
    return np.concatenate(mixed), int(borders[nearest])
