"""Frames brought into one common frame: the matrices, how sure they are, and the frames themselves, resampled."""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from caunet import geometry
from caunet.errors import DataError
from caunet.estimation.motion_models import create_motion_model
from caunet.estimation.resample import resample_onto
from caunet.files import write_text
from caunet.geometry import Matrix
from caunet.images.frames import Frame, open_frames
from caunet.sizes import size_text

__all__ = ["Alignment", "Canvas", "Link", "members"]

Crop = Literal["first", "common", "union"]
CROPS: tuple[Crop, ...] = ("first", "common", "union")


class Link(NamedTuple):
    """Two frames that were related to each other."""

    source: int
    target: int
    confidence: float
    """Of the estimate between the two."""
    trust: float
    """How far it was trusted when all were reconciled, 0 to 1."""


class Canvas(NamedTuple):
    """A box of the common frame: its first pixel (x, y) and its (height, width)."""

    origin: tuple[int, int]
    size: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Alignment:
    """Where every frame of a stack lies in one common frame.

    >>> shift = np.tile(np.eye(3), (2, 1, 1)); shift[1, 0, 2] = 3.0
    >>> found = Alignment(shift, np.ones(2), (4, 6), "translation", ("a", "b"))
    >>> found
    Alignment(2 frames of height 4, width 6, translation, 0 without an answer)
    >>> found.canvas("common"), found.canvas("union")
    (Canvas(origin=(3, 0), size=(4, 3)), Canvas(origin=(0, 0), size=(4, 9)))
    """

    matrices: Matrix
    """(T, 3, 3): each maps points of its frame into the common one, in pixels; NaN for a frame without an answer."""
    confidence: Matrix
    """(T,): the best confidence among the relations that a frame rests on; 0 without an answer."""
    size: tuple[int, int]
    """(height, width) of the frames."""
    model: str
    """The motion model."""
    names: tuple[str, ...]
    """What the frames are called."""
    links: tuple[Link, ...] = ()
    """Which frames were related to which."""
    problems: tuple[tuple[int, str], ...] = ()
    """Frames without an answer of their own, and why."""

    def __len__(self) -> int:
        return len(self.matrices)

    def __repr__(self) -> str:
        lost = f"{len(self.problems)} without an answer"
        return f"Alignment({len(self)} frames of {size_text(self.size)}, {self.model}, {lost})"

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """(T,): which frames have a matrix."""
        return np.asarray(np.isfinite(self.matrices.reshape(len(self), 9)).all(axis=1))

    def interpolated(self) -> "Alignment":
        """Frames without an answer get a matrix between those of their neighbors: their corners move on straight lines.

        Before the first answer and behind the last one they stay with it. ``problems`` and ``confidence`` are kept.
        """
        known = np.flatnonzero(self.found)
        if len(known) == 0:
            raise ValueError("no frame has a matrix to interpolate from")
        lost = np.flatnonzero(~self.found)
        if len(lost) == 0:
            return self
        corners = self._corners(self.matrices[known]).reshape(len(known), 8)
        between = np.stack([np.interp(lost, known, column) for column in corners.T], 1)
        matrices = self.matrices.copy()
        matrices[lost] = members(self.model, self.size, between.reshape(-1, 4, 2))
        return replace(self, matrices=matrices)

    def smoothed(self, radius: float) -> "Alignment":
        """For a video: only what shakes is taken out, slow motion stays; a Gaussian of ``radius`` frames is slow.

        The matrices of the result map each frame to where a camera on the smoothed path would have seen it.
        """
        if not radius > 0:
            raise ValueError(f"radius must be positive, got {radius}")
        path = self.interpolated().matrices
        corners = self._corners(path).reshape(len(path), 8)
        steady = members(self.model, self.size, _smooth(corners, radius).reshape(-1, 4, 2))
        made: Matrix = np.linalg.inv(steady) @ path
        return replace(self, matrices=geometry.normalize(made, checked=False))

    def _corners(self, matrices: Matrix) -> Matrix:
        """(T, 4, 2): where the corners of frames lie in the common frame."""
        moved: Matrix = geometry.apply(matrices, geometry.corners(self.size, like=matrices))
        return moved

    def canvas(self, crop: Crop = "first") -> Canvas:
        """The box of the common frame that is resampled.

        ``first``: as large as a frame, at the origin; ``common``: what all frames show; ``union``: what any shows.
        """
        if crop not in CROPS:
            raise ValueError(f"crop must be one of {', '.join(CROPS)}, got {crop!r}")
        if crop == "first":
            return Canvas((0, 0), self.size)
        matrices = self.matrices[self.found]
        if len(matrices) == 0:
            raise ValueError(f"crop {crop!r} needs at least one frame with a matrix, got none")
        ends = self._corners(matrices)
        if crop == "union":
            low, high = np.floor(ends.min((0, 1)) + 1e-6), np.ceil(ends.max((0, 1)) - 1e-6)
        else:  # the largest upright box that every moved frame holds is at least this one
            low = np.ceil(np.maximum(ends[:, 0], np.stack([ends[:, 3, 0], ends[:, 1, 1]], 1)).max(0) - 1e-6)
            high = np.floor(np.minimum(ends[:, 2], np.stack([ends[:, 1, 0], ends[:, 3, 1]], 1)).min(0) + 1e-6)
        width, height = (high - low + 1).astype(int).tolist()
        if min(width, height) < 1:
            raise ValueError(f"crop {crop!r} leaves nothing: the frames have no part in common")
        return Canvas((int(low[0]), int(low[1])), (height, width))

    def warp(
        self, frames: Any, *, crop: Crop = "first", fill: float = 0.0, mode: Any = "bilinear"
    ) -> Iterator[npt.NDArray[Any]]:
        """The frames on the common grid, one at a time, in their own dtype; those without a matrix are all ``fill``.

        Args:
            frames: the same frames, in any form that :func:`caunet.align` takes.
            crop: which part, as in :meth:`canvas`.
            fill: what lies outside of a frame, in its own units.
            mode: bilinear, bicubic or nearest.
        """
        canvas = self.canvas(crop)
        count, like = 0, None
        for frame in open_frames(frames):
            if frame.index >= len(self):
                raise ValueError(f"frames must be the {len(self)} frames that were aligned, got more")
            if (
                frame.pixels is not None and like is None
            ):  # what could not be read before it looks like this one
                like = np.full((*canvas.size, *frame.pixels.shape[2:]), fill, frame.pixels.dtype)
                yield from (like.copy() for _ in range(frame.index))
            if like is not None:
                yield self._warped(frame, canvas, fill, mode, like)
            count += 1
        if count != len(self):
            raise ValueError(f"frames must be the {len(self)} frames that were aligned, got {count}")

    def _warped(
        self, frame: Frame, canvas: Canvas, fill: float, mode: Any, empty: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        if (
            frame.pixels is None
            or not self.found[frame.index]
            or frame.pixels.shape[:2]
            != self.size  # it was one of the problems, and its matrix is interpolated
        ):
            return empty.copy()
        pixels = frame.pixels
        if pixels.ndim == 2 and empty.ndim == 3:  # gray among colors
            pixels = np.repeat(pixels[..., None], empty.shape[2], 2)
        if pixels.shape[2:] != empty.shape[2:] or pixels.dtype != empty.dtype:
            raise DataError(
                f"{frame.name} has {_kind(pixels)}, the frames before it have {_kind(empty)}; convert it"
            )
        back = torch.from_numpy(np.linalg.inv(self.matrices[frame.index]))
        made: npt.NDArray[Any] = resample_onto(
            pixels, back, canvas.size, fill, mode, expected=self.size, origin=canvas.origin
        )
        return made

    def save(self, path: str | Path) -> None:
        """Write the table of matrices: ``.csv`` (one row per frame) or ``.json`` (with all that is known)."""
        path = Path(path)
        if path.suffix.lower() == ".json":
            write_text(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")
        elif path.suffix.lower() == ".csv":
            write_text(path, self._csv())
        else:
            raise ValueError(f"path must end in .csv or .json, got {str(path)!r}")

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["frame", "name", "confidence", *(f"m{r}{c}" for r in range(3) for c in range(3))])
        for k, name in enumerate(self.names):
            entries = [repr(v) if math.isfinite(v) else "" for v in self.matrices[k].ravel().tolist()]
            writer.writerow([k, name, f"{self.confidence[k]:.4f}", *entries])
        return text.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; the matrix of a frame without an answer is null."""
        return {
            "model": self.model,
            "size": list(self.size),
            "frames": [
                {
                    "name": name,
                    "confidence": float(self.confidence[k]),
                    "matrix": self.matrices[k].tolist() if self.found[k] else None,
                }
                for k, name in enumerate(self.names)
            ],
            "links": [link._asdict() for link in self.links],
            "problems": [{"frame": frame, "reason": reason} for frame, reason in self.problems],
        }


def members(model: str, size: tuple[int, int], targets: Matrix) -> Matrix:
    """(T, 3, 3): the members of a motion model that take the corners of a frame of ``size`` nearest to ``targets``.

    ``targets`` is (T, 4, 2), in the order of :func:`caunet.geometry.corners`.

    >>> targets = np.array([[[3.0, 1], [8, 1], [8, 5], [3, 5]]])
    >>> members("euclidean", (5, 6), targets).round(6)[0].tolist()
    [[1.0, 0.0, 3.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    """
    group = create_motion_model(model)
    half = max(size) / 2
    x, y = geometry.center_of(size)
    out = np.array([[half, 0, x], [0, half, y], [0, 0, 1.0]])  # coordinates of the order of 1
    into = np.linalg.inv(out)
    source = geometry.apply(into, geometry.corners(size, like=out))
    there = geometry.apply(into, targets)
    fitted = np.stack([group.fit(source, target, np.ones(4)) for target in there])
    made: Matrix = geometry.normalize(out @ fitted @ into, checked=False)
    return made


def _smooth(values: Matrix, radius: float) -> Matrix:
    """Columns (T, N), smoothed: at each row the line that fits best around it, with the weights of a Gaussian.

    Inside that is a Gaussian; near the ends, where half of it is missing, a steady motion still stays what it is.
    """
    count, reach = len(values), math.ceil(3 * radius)
    smooth = np.empty_like(values)
    for row in range(count):
        near = np.arange(max(row - reach, 0), min(row + reach + 1, count))
        offset = (near - row) / radius
        weight = np.exp(-0.5 * offset**2)
        # The line's value at the row, as weights of the values: from the normal equations.
        first, second = float(weight @ offset), float(weight @ offset**2)
        level = weight * (second - first * offset)
        total = float(level.sum())
        smooth[row] = (level if total > 0 else weight) @ values[near] / (total if total > 0 else weight.sum())
    return smooth


def _kind(pixels: npt.NDArray[Any]) -> str:
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    return f"{channels} channel{'s' if channels > 1 else ''} of {pixels.dtype}"
