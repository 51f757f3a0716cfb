"""Frames written as they come: TIFF, OME-TIFF or a video, whole or not at all."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caunet.errors import DataError
from caunet.extras import require
from caunet.files import atomic_write
from caunet.images.frames import TIFF

__all__ = ["WRITABLE", "check_writable", "write_frames"]

WRITABLE = (*TIFF, ".mkv", ".mp4")
_CODECS = {
    ".mkv": ("ffv1", "gray", "bgr0"),
    ".mp4": ("mpeg4", "yuv420p", "yuv420p"),
}  # codec, for gray, for color


def check_writable(path: str | Path, argument: str = "out") -> Path:
    """``path``, if frames can be written under its name; said before any work is done."""
    path = Path(path)
    if path.suffix.lower() not in WRITABLE:
        raise ValueError(f"{argument} must end in one of {', '.join(WRITABLE)}, got {str(path)!r}")
    if path.is_dir():
        raise ValueError(f"{argument} must be a file, {path} is a directory")
    require("tifffile" if path.suffix.lower() in TIFF else "av", "stacks", f"Writing {path.suffix} files")
    return path


def write_frames(frames: Iterable[npt.NDArray[Any]], path: str | Path, *, rate: float = 25.0) -> int:
    """Write frames (H, W) or (H, W, C), all of one shape and dtype, to ``path``; how many there were.

    ``.tif`` and ``.ome.tif`` keep the dtype; ``.mkv`` (lossless) and ``.mp4`` take bytes, ``rate`` frames a second.
    One frame at a time is held. When something fails nothing is left behind.
    """
    path = check_writable(path, "path")
    source = iter(frames)
    first = next(source, None)
    if first is None:
        raise DataError(f"there are no frames to write to {path}")
    everything = itertools.chain([first], source)
    try:
        with atomic_write(path) as temporary:
            if path.suffix.lower() in TIFF:
                return _write_tiff(
                    everything, temporary, ome=path.name.lower().endswith((".ome.tif", ".ome.tiff"))
                )
            return _write_video(everything, first, temporary, path, rate)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from error


def _write_tiff(frames: Iterable[npt.NDArray[Any]], path: Path, ome: bool) -> int:
    tifffile = require("tifffile", "stacks", "Writing TIFF files")
    count, last = 0, None
    with tifffile.TiffWriter(path, bigtiff=True, ome=False) as writer:
        for last in frames:
            # The description is there to be replaced when the number of frames is known.
            note = {"description": "OME"} if ome and count == 0 else {}
            kind = "rgb" if _is_color(last) else "minisblack"
            writer.write(last, photometric=kind, contiguous=True, metadata=None, **note)
            count += 1
    if ome and last is not None:
        _add_ome(path, count, last)
    return count


def _add_ome(path: Path, count: int, frame: npt.NDArray[Any]) -> None:
    """The description that makes it an OME-TIFF: frames run in time."""
    tifffile = require("tifffile", "stacks", "Writing TIFF files")
    ome = tifffile.OmeXml()
    stored = (count, 1, 1, *frame.shape[:2], 3 if _is_color(frame) else 1)
    ome.addimage(frame.dtype, (count, *frame.shape), stored, axes="TYXS"[: frame.ndim + 1])
    tifffile.tiffcomment(path, ome.tostring().encode())


def _is_color(frame: npt.NDArray[Any]) -> bool:
    return frame.ndim == 3 and frame.shape[2] == 3


def _write_video(
    frames: Iterable[npt.NDArray[Any]], first: npt.NDArray[Any], path: Path, named: Path, rate: float
) -> int:
    av = require("av", "stacks", "Writing videos")
    if first.dtype != np.uint8 or (first.ndim == 3 and first.shape[2] != 3):
        raise ValueError(
            f"{named} takes frames of gray or RGB bytes, got {first.dtype} {first.shape}; write a .tif"
        )
    codec, gray, color = _CODECS[named.suffix.lower()]
    container_format = {".mkv": "matroska", ".mp4": "mp4"}[named.suffix.lower()]
    even = named.suffix.lower() == ".mp4"  # its colors are stored for squares of four pixels
    height, width = (side - side % 2 if even else side for side in first.shape[:2])
    count = 0
    with av.open(str(path), "w", format=container_format) as container:
        stream = container.add_stream(codec, rate=round(rate))
        stream.height, stream.width = height, width
        stream.pix_fmt = gray if first.ndim == 2 else color
        if even:
            stream.bit_rate = 8 * height * width * max(round(rate) // 5, 1)
        for frame in frames:
            count += 1
            shown = av.VideoFrame.from_ndarray(
                np.ascontiguousarray(frame[:height, :width]), format="gray" if frame.ndim == 2 else "rgb24"
            )
            container.mux(stream.encode(shown.reformat(format=stream.pix_fmt)))
        container.mux(stream.encode())
    return count
