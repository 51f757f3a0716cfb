"""A directory of your own images, cut into tiles like the embedded photographs.

Every file below the directory whose suffix is that of a known format counts, hidden ones excepted. A fifth
of them, by the hash of their names, are the test images: no file is in both parts.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from caunet.data.tiles import check_options, cut, join
from caunet.errors import DataError
from caunet.files import printable_path, sha256
from caunet.images import SUFFIXES, ImageError, read_uint8
from caunet.progress import track

__all__ = ["list_images", "load"]


def load(
    path: Path,
    training: bool,
    *,
    tile: int = 32,
    stride: int | None = None,
    scales: Sequence[int] = (1, 2, 3, 4),
    limit: int | None = 1000,
    skip_bad: bool = False,
) -> tuple[npt.NDArray[np.uint8], int]:
    """Tiles (N, tile, tile) of the training or test files below ``path``; where validation begins.

    ``stride`` is half of ``tile`` unless given; at most ``limit`` tiles per file. Files that cannot be read or are
    smaller than a tile, and folders that cannot be listed, are named in a :class:`DataError`; with ``skip_bad`` they
    are left out.
    """
    stride = max(1, tile // 2) if stride is None else stride
    check_options(tile, stride, scales, limit)
    found, bad = list_images(path)
    files = _part(path, found, bad, training)
    groups: list[npt.NDArray[np.uint8]] = []
    with track(len(files), f"reading {printable_path(path.name)}", "images") as bar:
        for file in files:
            try:
                groups.append(cut(_read(file, tile), tile=tile, stride=stride, scales=scales, limit=limit))
            except DataError as error:
                bad.append(str(error))
            bar.advance()
    if bad and not skip_bad:
        raise DataError(_bad_files_message(path, bad))
    groups = [group for group in groups if len(group)]
    if not groups:
        raise DataError(
            f"{printable_path(path)}: no usable tile in {len(files)} images: all are unreadable or without features"
        )
    return join(groups)


def list_images(path: Path) -> tuple[list[Path], list[str]]:
    """The image files below ``path``, in the order of the hashes of their names relative to it; what is unreadable.

    The second list has a sentence for every folder that could not be listed and every file that could not be
    looked at.
    """
    files: list[Path] = []
    problems: list[str] = []

    def add_problem(error: OSError) -> None:
        where = printable_path(os.fspath(error.filename or path))
        problems.append(f"{where}: cannot be read: {error.strerror or error}")

    for folder, folders, names in os.walk(path, onerror=add_problem):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            file = Path(folder, name)
            if name.startswith(".") or file.suffix.lower() not in SUFFIXES:
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


def _part(path: Path, files: list[Path], problems: list[str], training: bool) -> list[Path]:
    if len(files) < 2:
        also = "".join(f"\n  {problem}" for problem in problems[:20])
        raise DataError(
            f"{printable_path(path)} has {len(files)} images; at least two are needed, one to train and one to test "
            f"({', '.join(sorted(SUFFIXES))}){also}"
        )
    test = max(1, round(len(files) / 5))
    return files[test:] if training else files[:test]


def _read(file: Path, tile: int) -> npt.NDArray[np.uint8]:
    gray = read_uint8(file)
    if min(gray.shape) < tile:
        height, width = gray.shape
        raise ImageError(printable_path(file), f"{width} x {height} pixels, smaller than a tile of {tile}")
    return gray


def _bad_files_message(path: Path, bad: list[str]) -> str:
    shown = "\n  ".join(bad[:20])
    rest = f"\n  and {len(bad) - 20} more" if len(bad) > 20 else ""
    return (
        f"{printable_path(path)}: {len(bad)} files or folders cannot be used; repair or remove them, or leave them "
        f"out with skip_bad (--skip-bad):\n  {shown}{rest}"
    )
