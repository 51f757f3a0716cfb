"""A directory of your own pictures, cut into tiles like the embedded photographs.

Every file below the directory whose suffix is that of a known format counts, hidden ones excepted. A fifth
of them, by the hash of their names, are the test pictures: no picture is in both parts.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from caunet.data.tiles import check_options, cut, join
from caunet.errors import DataError
from caunet.files import sha256
from caunet.images.decode import SUFFIXES, read_image
from caunet.progress import track

__all__ = ["list_pictures", "load"]


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
    """Tiles (N, tile, tile) of the training or test pictures below ``path``; where validation begins.

    ``stride`` is half of ``tile`` unless given; at most ``limit`` tiles a picture. Files that cannot be read,
    or are smaller than a tile, are named in a :class:`DataError`; with ``skip_bad`` they are passed over.
    """
    stride = max(1, tile // 2) if stride is None else stride
    check_options(tile, stride, scales, limit)
    files = _part(path, training)
    groups: list[npt.NDArray[np.uint8]] = []
    bad: list[str] = []
    with track(len(files), f"reading {path.name}", "pictures") as bar:
        for file in files:
            try:
                groups.append(cut(_read(file, tile), tile=tile, stride=stride, scales=scales, limit=limit))
            except DataError as error:
                bad.append(str(error))
            bar.advance()
    if bad and not skip_bad:
        raise DataError(_complaint(path, bad))
    groups = [group for group in groups if len(group)]
    if not groups:
        raise DataError(
            f"{path}: no usable tile in {len(files)} pictures: all are unreadable or without features"
        )
    return join(groups)


def list_pictures(path: Path) -> list[Path]:
    """The pictures below ``path``, in the order of the hashes of their names relative to it."""
    files = [
        file
        for file in path.rglob("*")
        if file.suffix.lower() in SUFFIXES
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
        and file.is_file()
    ]
    return sorted(files, key=lambda file: sha256(file.relative_to(path).as_posix().encode()))


def _part(path: Path, training: bool) -> list[Path]:
    files = list_pictures(path)
    if len(files) < 2:
        raise DataError(
            f"{path} has {len(files)} pictures; at least two are needed, one to train and one to test "
            f"({', '.join(sorted(SUFFIXES))})"
        )
    test = max(1, round(len(files) / 5))
    return files[test:] if training else files[:test]


def _read(file: Path, tile: int) -> npt.NDArray[np.uint8]:
    gray = read_image(file)
    if min(gray.shape) < tile:
        raise DataError(f"{file}: {gray.shape[1]} x {gray.shape[0]} pixels, smaller than a tile of {tile}")
    return gray


def _complaint(path: Path, bad: list[str]) -> str:
    shown = "\n  ".join(bad[:20])
    rest = f"\n  and {len(bad) - 20} more" if len(bad) > 20 else ""
    return (
        f"{path}: {len(bad)} pictures cannot be used; mend or remove them, or pass over them with "
        f"skip_bad (--skip-bad):\n  {shown}{rest}"
    )
