"""A directory of your own images or volumes, cut into tiles like the embedded ones.

Every file below the directory whose suffix is that of a known format counts, hidden ones excepted. A fifth
of them, by the hash of their names, are the test images: no file is in both parts.
"""

import math
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caunet.data.tiles import check_options, cut, join
from caunet.errors import DataError
from caunet.files import printable_path, sha256
from caunet.images import SUFFIXES, ImageError, read_uint8
from caunet.progress import track
from caunet.sizes import size_text

__all__ = ["list_images", "list_volumes", "load", "load_volumes", "volume_bytes"]

_COUNTED = 1 << 22  # voxels that percentiles are taken of, about
_TINY = float(np.finfo(np.float64).tiny)

Bytes = npt.NDArray[np.uint8]
Listed = tuple[list[Path], list[str]]


def load(
    path: Path,
    training: bool,
    *,
    tile: int = 32,
    stride: int | None = None,
    scales: Sequence[int] = (1, 2, 3, 4),
    limit: int | None = 1000,
    skip_bad: bool = False,
) -> tuple[Bytes, int]:
    """Tiles (N, tile, tile) of the training or test files below ``path``; where validation begins.

    ``stride`` is half of ``tile`` unless given; at most ``limit`` tiles per file. Files that cannot be read or are
    smaller than a tile, and folders that cannot be listed, are named in a :class:`DataError`; with ``skip_bad`` they
    are left out.
    """
    stride = max(1, tile // 2) if stride is None else stride
    check_options(tile, stride, scales, limit)
    found, bad = list_images(path)
    files = _part(path, found, bad, training, "images", SUFFIXES)

    def tiles(file: Path) -> Bytes:
        return cut(_read(file, tile), tile=tile, stride=stride, scales=scales, limit=limit)

    return _load(path, files, bad, tiles, "images", skip_bad)


def load_volumes(
    path: Path,
    training: bool,
    *,
    tile: int = 20,
    stride: int | None = None,
    scales: Sequence[int] = (1, 2),
    limit: int | None = 2000,
    skip_bad: bool = False,
) -> tuple[Bytes, int]:
    """Tiles (N, tile, tile, tile) of the training or test volumes below ``path``, as `load` has them of images.

    Voxels are taken as they are: spacing and direction are not asked for, for a tile shows no millimeters.
    """
    from caunet.volumes.read import SUFFIXES as VOLUME_SUFFIXES

    stride = max(1, 2 * tile // 5) if stride is None else stride
    check_options(tile, stride, scales, limit)
    found, bad = list_volumes(path)
    files = _part(path, found, bad, training, "volumes", VOLUME_SUFFIXES)

    def tiles(file: Path) -> Bytes:
        return cut(_read_volume(file, tile), tile=tile, stride=stride, scales=scales, limit=limit)

    return _load(path, files, bad, tiles, "volumes", skip_bad)


def volume_bytes(values: npt.NDArray[Any]) -> Bytes:
    """Values (D, H, W) as bytes: from the 0.5th percentile, black, to the 99.5th, white; one value alone is black.

    What is not finite, as some programs mark what is no part of a body, is black. Of a large volume the percentiles
    are those of every second voxel, or fewer, along each axis.

    >>> volume_bytes(np.array([[[-1000, 0, 1000]]], np.int16))
    array([[[  0, 128, 255]]], dtype=uint8)
    """
    step = max(1, math.ceil((values.size / _COUNTED) ** (1 / 3)))
    some = values[::step, ::step, ::step].astype(np.float64).ravel()
    some = some[np.isfinite(some)]
    if not len(some):
        raise DataError("no voxel is finite")
    low, high = np.percentile(some, [0.5, 99.5])
    out = np.empty(values.shape, np.uint8)
    for shown, stored in zip(
        out, values, strict=True
    ):  # a slice at a time: only that much is held in float64
        share = np.clip(
            (np.nan_to_num(stored.astype(np.float64), nan=low) - low) / max(high - low, _TINY), 0, 1
        )
        shown[:] = np.floor(255 * share + 0.5)
    return out


def _read_volume(file: Path, tile: int) -> Bytes:
    from caunet.volumes.read import read_volume

    shown = printable_path(file)
    try:
        volume = read_volume(file, "volume")
        gray = volume_bytes(volume.values)
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, DataError) else DataError(f"{shown}: {error}") from error
    if min(gray.shape) < tile:
        size = " x ".join(map(str, gray.shape[::-1]))
        raise DataError(f"{shown}: {size} voxels, smaller than a tile of {tile}")
    return gray if volume.slope > 0 else 255 - gray


def _load(
    path: Path, files: list[Path], bad: list[str], tiles: Callable[[Path], Bytes], kind: str, skip_bad: bool
) -> tuple[Bytes, int]:
    """The tiles of all files, joined; what cannot be used is named, or left out."""
    groups: list[Bytes] = []
    with track(len(files), f"reading {printable_path(path.name)}", kind) as bar:
        for file in files:
            try:
                groups.append(tiles(file))
            except DataError as error:
                bad.append(str(error))
            bar.advance()
    if bad and not skip_bad:
        raise DataError(_bad_files_message(path, bad))
    groups = [group for group in groups if len(group)]
    if not groups:
        raise DataError(
            f"{printable_path(path)}: no usable tile in {len(files)} {kind}: all are unreadable or without features"
        )
    return join(groups)


def list_images(path: Path) -> Listed:
    """The image files below ``path``, in the order of the hashes of their names relative to it; what is unreadable.

    The second list has a sentence for every folder that could not be listed and every file that could not be
    looked at.
    """
    return _list(path, lambda file: file.suffix.lower() in SUFFIXES)


def list_volumes(path: Path) -> Listed:
    """The same for files of volumes."""
    from caunet.volumes.read import is_volume_path

    return _list(path, is_volume_path)


def _list(path: Path, wanted: Callable[[Path], bool]) -> Listed:
    files: list[Path] = []
    problems: list[str] = []

    def add_problem(error: OSError) -> None:
        where = printable_path(os.fspath(error.filename or path))
        problems.append(f"{where}: cannot be read: {error.strerror or error}")

    for folder, folders, names in os.walk(path, onerror=add_problem):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            file = Path(folder, name)
            if name.startswith(".") or not wanted(file):
                continue
            try:
                if stat.S_ISREG(file.stat().st_mode):
                    files.append(file)
            except FileNotFoundError:  # a link that leads nowhere
                continue
            except OSError as error:
                add_problem(error)
    return sorted(files, key=lambda file: _name_hash(file.relative_to(path))), problems


def _name_hash(relative: Path) -> str:
    return sha256(os.fsencode(relative.as_posix()))  # a file name is bytes, and need not be UTF-8


def _part(
    path: Path, files: list[Path], problems: list[str], training: bool, kind: str, suffixes: Iterable[str]
) -> list[Path]:
    if len(files) < 2:
        also = "".join(f"\n  {problem}" for problem in problems[:20])
        raise DataError(
            f"{printable_path(path)} has {len(files)} {kind}; at least two are needed, one to train and one to test "
            f"({', '.join(sorted(suffixes))}){also}"
        )
    test = max(1, round(len(files) / 5))
    return files[test:] if training else files[:test]


def _read(file: Path, tile: int) -> Bytes:
    gray = read_uint8(file)
    if min(gray.shape) < tile:
        raise ImageError(printable_path(file), f"{size_text(gray.shape)}, smaller than a tile of {tile}")
    return gray


def _bad_files_message(path: Path, bad: list[str]) -> str:
    shown = "\n  ".join(bad[:20])
    rest = f"\n  and {len(bad) - 20} more" if len(bad) > 20 else ""
    return (
        f"{printable_path(path)}: {len(bad)} files or folders cannot be used; repair or remove them, or leave them "
        f"out with skip_bad (--skip-bad):\n  {shown}{rest}"
    )
