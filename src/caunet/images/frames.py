"""Sequences of images: folders, lists of paths, multi-page TIFF, OME-TIFF, videos, arrays, iterators.

:func:`open_frames` gives a :class:`Frames`, which is read one frame at a time: memory does not grow with their number.
A frame that cannot be read is not the end of the others: it comes as a :class:`Frame` without pixels, whose ``error``
says why and names the file.

>>> import numpy as np
>>> frames = open_frames(np.zeros((3, 20, 30), np.uint8))
>>> len(frames), [frame.pixels.shape for frame in frames]
(3, [(20, 30), (20, 30), (20, 30)])
"""

import contextlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from caunet.errors import DataError
from caunet.extras import require
from caunet.files import address_reason, printable_path
from caunet.images.cut_off import missing_bytes
from caunet.images.decode import MAX_PIXELS, SUFFIXES
from caunet.images.read import stored_pixels

__all__ = ["TIFF", "VIDEO", "Frame", "Frames", "frame_rate", "open_frames"]

TIFF = (".tif", ".tiff")
VIDEO = (".avi", ".gif", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm", ".wmv")
"""Endings of files that hold many frames."""

_TAKES = (
    "a folder of images, a list of paths, a multi-page TIFF, a video, an array (T, H, W) or (T, H, W, C), "
    "or an iterable of images"
)
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Frame:
    """One image of a sequence."""

    index: int
    """Its place in the sequence, from 0."""
    name: str
    """What messages call it: a path, or the number of a page."""
    pixels: Array | None
    """(H, W) or (H, W, C), as stored; ``None`` if it could not be read."""
    error: str = ""
    """Why there are no pixels."""


class Frames(ABC):
    """A sequence of frames that can be read from its start, again and again where ``repeatable``."""

    name: str
    repeatable = True

    @abstractmethod
    def __iter__(self) -> Iterator[Frame]: ...

    def __len__(self) -> int:
        """How many there are. Raises ``TypeError`` where that is not known before they are read."""
        raise TypeError(f"the number of frames in {self.name} is not known in advance")


def open_frames(source: Any, argument: str = "frames", *, channel: int | None = None) -> Frames:
    """The frames of ``source``.

    Args:
        source: a folder (its images in the natural order of their names: 2 before 10), a list of paths, the path of a
            multi-page TIFF, OME-TIFF or video, an array (T, H, W) or (T, H, W, C), a tensor (T, H, W) or
            (T, C, H, W), or an iterable of anything that is an image by itself (arrays, tensors, PIL images, paths).
        argument: what errors call it.
        channel: which channel of files and arrays with channels to take; ``None`` for all.

    Raises:
        DataError: the file or folder cannot be used.
        TypeError: ``source`` is something else.
    """
    if channel is not None and (isinstance(channel, bool) or not isinstance(channel, int) or channel < 0):
        raise ValueError(f"channel must be a whole number of at least 0, got {channel!r}")
    if isinstance(source, Frames):
        return source
    if isinstance(source, str | os.PathLike):
        return _open_path(Path(source), argument, channel)
    if isinstance(source, torch.Tensor):
        if source.ndim not in (3, 4):
            raise ValueError(
                f"{argument} must be a tensor (T, H, W) or (T, C, H, W), got {tuple(source.shape)}"
            )
        return _ArrayFrames((source if source.ndim == 3 else source.movedim(1, -1)).cpu().numpy(), channel)
    if isinstance(source, np.ndarray):
        if source.ndim not in (3, 4):
            raise ValueError(f"{argument} must be an array (T, H, W) or (T, H, W, C), got {source.shape}")
        return _ArrayFrames(source, channel)
    if isinstance(source, Sequence) and not isinstance(source, bytes | bytearray | memoryview):
        return _ListFrames(source, argument, channel)
    if isinstance(source, Iterable) and not isinstance(source, bytes | bytearray | memoryview):
        return _IteratorFrames(source, argument, channel)
    raise TypeError(f"{argument} must be {_TAKES}, got {type(source).__name__}")


def frame_rate(path: str | os.PathLike[str]) -> float | None:
    """Frames a second of a video; None if it is none, or does not say."""
    if Path(path).suffix.lower() not in VIDEO or not Path(path).is_file():
        return None
    av = require("av", "stacks", "Reading videos")
    try:
        with av.open(str(path)) as container:
            rate = container.streams.video[0].average_rate
    except (av.error.FFmpegError, IndexError):
        return None
    return float(rate) if rate else None


def _open_path(path: Path, argument: str, channel: int | None) -> Frames:
    if not path.exists() and (reason := address_reason(path)):
        raise DataError(f"{argument}: {printable_path(path)} {reason}")
    if path.is_dir():
        try:
            names = sorted((p for p in path.iterdir() if p.suffix.lower() in SUFFIXES), key=_natural)
        except OSError as error:
            raise DataError(
                f"{argument}: cannot list {printable_path(path)}: {error.strerror or error}"
            ) from error
        if not names:
            raise DataError(
                f"{argument}: {printable_path(path)} holds no images ({', '.join(sorted(SUFFIXES))})"
            )
        return _ListFrames(names, argument, channel)
    if not path.exists():
        raise DataError(f"{argument}: there is no file or folder {printable_path(path)}")
    if not path.is_file():
        raise DataError(f"{argument}: {printable_path(path)} is not a regular file")
    if path.suffix.lower() in TIFF:
        return _TiffFrames(path, argument, channel)
    if path.suffix.lower() in VIDEO:
        return _VideoFrames(path, argument, channel)
    endings = ", ".join((*TIFF, *VIDEO))
    raise DataError(
        f"{argument}: {printable_path(path)} is neither a folder nor a file of many frames ({endings})"
    )


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key under which frame2 comes before frame10."""
    parts: list[tuple[int, int, str]] = []
    digits = ""
    for character in path.name + "\0":
        if character.isascii() and character.isdigit():
            digits += character
            continue
        if digits:
            parts.append((0, int(digits), ""))
            digits = ""
        parts.append((1, 0, character))
    return parts


class _ArrayFrames(Frames):
    name = "the array"

    def __init__(self, array: Array, channel: int | None) -> None:
        self.array = array if array.ndim == 3 or channel is None else _take(array, channel, "frames")

    def __iter__(self) -> Iterator[Frame]:
        return (Frame(i, f"frame {i}", pixels) for i, pixels in enumerate(self.array))

    def __len__(self) -> int:
        return len(self.array)


class _ListFrames(Frames):
    def __init__(self, items: Sequence[Any], argument: str, channel: int | None) -> None:
        self.items, self.argument, self.channel = items, argument, channel
        self.name = f"the list of {len(items)} images"

    def __iter__(self) -> Iterator[Frame]:
        return (_frame(i, item, self.argument, self.channel) for i, item in enumerate(self.items))

    def __len__(self) -> int:
        return len(self.items)


class _IteratorFrames(Frames):
    name = "the iterator"
    repeatable = False

    def __init__(self, items: Iterable[Any], argument: str, channel: int | None) -> None:
        self.items, self.argument, self.channel = items, argument, channel

    def __iter__(self) -> Iterator[Frame]:
        return (_frame(i, item, self.argument, self.channel) for i, item in enumerate(self.items))


def _frame(index: int, item: Any, argument: str, channel: int | None) -> Frame:
    """An image in any form as a frame; a file that cannot be read is a frame without pixels."""
    name = printable_path(item) if isinstance(item, str | os.PathLike) else f"frame {index}"
    try:
        pixels = stored_pixels(item, f"{argument}[{index}]")
        return Frame(index, name, pixels if channel is None else _take(pixels, channel, name))
    except DataError as error:
        return Frame(index, name, None, str(error))


def _take(pixels: Array, channel: int, name: str) -> Array:
    """One channel of (..., H, W, C); an image without channels has channel 0."""
    if pixels.ndim == 2 and channel == 0:
        return pixels
    channels = pixels.shape[-1] if pixels.ndim > 2 else 1
    if channel >= channels:
        raise ValueError(f"channel must be below {channels}, the number of channels of {name}, got {channel}")
    return pixels[..., channel]


class _TiffFrames(Frames):
    """Pages of a TIFF file. Of OME-TIFF (and ImageJ's) the axes are known: time or depth runs over the frames.

    A file that grew page by page has one series per page; series of the first one's shape are frames, others (previews)
    are not.
    """

    def __init__(self, path: Path, argument: str, channel: int | None) -> None:
        self.path, self.argument, self.channel = path, argument, channel
        self.name = printable_path(path)
        with _complaints() as said, self._open() as file:
            self.pages = self._layout(file)
        self.damage = said[0] if said else None
        self.channels = len(self.pages[0][1])
        if self.channels > 1 and channel is not None and channel >= self.channels:
            raise ValueError(
                f"channel must be below {self.channels}, the number of channels of {self.name}, got {channel}"
            )

    def __len__(self) -> int:
        return len(self.pages) + (self.damage is not None)

    def __iter__(self) -> Iterator[Frame]:
        with _complaints(), self._open() as file:
            for index, (series, pages) in enumerate(self.pages):
                yield self._read(file, index, series, pages)
        if self.damage is not None:
            name = f"{self.name}, frame {len(self.pages)}"
            yield Frame(
                len(self.pages),
                name,
                None,
                f"{self.name} is damaged behind {len(self.pages)} frames: {self.damage}",
            )

    def _open(self) -> Any:
        tifffile = require("tifffile", "stacks", "Reading TIFF stacks")
        try:
            return tifffile.TiffFile(self.path)
        except OSError as error:
            raise DataError(f"{self.argument}: cannot read {self.name}: {error.strerror or error}") from error
        except Exception as error:  # a parser on bytes from outside: whatever it raises, the file is at fault
            raise DataError(f"{self.argument}: {self.name} is damaged or no TIFF file: {error}") from error

    def _layout(self, file: Any) -> list[tuple[int, list[int]]]:
        """For each frame its series and the pages of that which hold its channels."""
        try:
            series = [(str(each.axes), tuple(each.shape), len(each.pages)) for each in file.series]
        except Exception as error:
            raise DataError(f"{self.argument}: {self.name} is damaged: {error}") from error
        if not series:
            raise DataError(f"{self.argument}: {self.name} holds no images")
        alike = [number for number, each in enumerate(series) if each[:2] == series[0][:2]]
        return [(number, pages) for number in alike for pages in self._pages(*series[number])]

    def _pages(self, axes: str, shape: tuple[int, ...], pages: int) -> list[list[int]]:
        """For each frame of one series the pages that hold its channels."""
        leading = axes[: axes.index("Y")] if "Y" in axes else ""
        sizes = {axis: shape[axes.index(axis)] for axis in leading}
        running = [axis for axis in leading if axis != "C" and sizes[axis] > 1]
        if len(running) > 1:
            found = " x ".join(f"{axis}={sizes[axis]}" for axis in running)
            raise DataError(
                f"{self.argument}: {self.name} has several axes that could be time ({found}); "
                "extract one of them, or pass an array"
            )
        if int(np.prod([sizes[a] for a in leading], dtype=np.int64)) != pages:
            # The file says more pages than it has: as many as there are, one after the other.
            return [[page] for page in range(pages)]
        numbers = np.arange(pages).reshape([sizes[a] for a in leading] or [1])
        if "C" in leading:
            numbers = np.moveaxis(numbers, leading.index("C"), -1)
        taken: list[list[int]] = numbers.reshape(-1, sizes.get("C", 1)).tolist()
        return taken

    def _read(self, file: Any, index: int, series: int, pages: list[int]) -> Frame:
        name = f"{self.name}, frame {index}"
        if self.channel is not None and self.channels > 1:
            pages = [pages[self.channel]]
        try:
            found = [file.series[series].pages[page] for page in pages]
            size = int(np.prod(found[0].shape[:2], dtype=np.int64))
            if size > MAX_PIXELS:  # seen before anything is decoded
                return Frame(
                    index, name, None, f"{name} is too large: {size:,} pixels, at most {MAX_PIXELS:,}"
                )
            read = [page.asarray() for page in found]
        except Exception as error:  # a decoder on bytes from outside
            return Frame(index, name, None, f"{name} is damaged: {error}")
        pixels = read[0] if len(read) == 1 else np.stack(read, -1)
        if self.channel is not None and self.channels == 1:
            pixels = _take(pixels, self.channel, name)
        return Frame(index, name, pixels)


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """What tifffile writes to its log about a damaged file, instead of raising it."""
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage().partition("> ")[2] or record.getMessage())

    log, handler = logging.getLogger("tifffile"), Handler(logging.ERROR)
    propagated, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield said
    finally:
        log.removeHandler(handler)
        log.propagate = propagated


class _VideoFrames(Frames):
    """Frames of a video's first video stream, as gray or RGB bytes."""

    def __init__(self, path: Path, argument: str, channel: int | None) -> None:
        self.path, self.argument, self.channel = path, argument, channel
        self.name = printable_path(path)
        require("av", "stacks", "Reading videos")

    def __iter__(self) -> Iterator[Frame]:
        av = require("av", "stacks", "Reading videos")
        try:
            container = av.open(str(self.path))
        except Exception as error:
            raise DataError(f"{self.argument}: {self.name} is damaged or no video: {error}") from error
        with container:
            if not container.streams.video:
                raise DataError(f"{self.argument}: {self.name} has no video stream")
            numbers = count()
            decoded = container.decode(container.streams.video[0])
            while True:
                index = next(numbers)
                name = f"{self.name}, frame {index}"
                try:
                    frame = next(decoded)
                except StopIteration:
                    if lacks := missing_bytes(self.path):
                        said = f"{self.name} is cut off behind {index} frames: {lacks:,} bytes are missing"
                        yield Frame(index, name, None, said)
                    break
                except av.error.FFmpegError as error:
                    yield Frame(index, name, None, f"{name} is damaged: {error}")
                    break  # what follows a damaged packet cannot be placed in time
                gray = frame.format.name.startswith("gray")
                pixels = frame.to_ndarray(format="gray" if gray else "rgb24")
                yield Frame(
                    index, name, pixels if self.channel is None else _take(pixels, self.channel, name)
                )
