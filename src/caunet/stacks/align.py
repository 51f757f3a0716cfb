"""``caunet.align``: where does every frame of a stack lie?

Each frame is related to the one before, to the key frame that shows most of it, and to the oldest key frame that still
shows enough of it: where it comes back to. All relations are then reconciled in one pose graph, so that small errors do
not add up from frame to frame. A frame that relates to none of them (blank, torn, of something else) is named, and the
others do not suffer from it.

>>> scene = np.random.default_rng(0).random((16, 16)).repeat(8, 0).repeat(8, 1)
>>> found = align([scene[:80, :80], scene[2:82, 3:83], scene[4:84, 6:86]], model="translation")
>>> found.matrices[:, :2, 2].round()
array([[0., 0.],
       [3., 2.],
       [6., 4.]])
"""

import contextlib
import math
from collections.abc import Sized
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from caunet import geometry
from caunet.errors import DataError
from caunet.estimation.estimator import Estimator
from caunet.estimation.motion_models import MotionModel
from caunet.geometry import Matrix
from caunet.images import read_image
from caunet.images.frames import Frame, Frames, open_frames
from caunet.progress import track
from caunet.stacks.alignment import Alignment, Link
from caunet.stacks.graph import Relation, reconcile
from caunet.stacks.keys import KeyFrames
from caunet.stacks.relate import Related, Relater

__all__ = ["REFERENCES", "align"]

REFERENCES = ("first", "middle", "mean", "previous")
_SURE = 0.2  # confidence from which a relation counts; a wrong one loses its weight in the graph
_FRESH = 0.7  # overlap with every key frame below which a frame becomes one
_ENOUGH = 0.5  # overlap with a key frame from which a frame is related to it


def align(
    frames: Any,
    model: str | MotionModel = "euclidean",
    reference: str | int = "first",
    *,
    channel: int | None = None,
    missing: str = "nan",
    progress: bool = True,
    **options: Any,
) -> Alignment:
    """Bring all frames of a stack or video into one common frame.

    Args:
        frames: a folder of images, a list of paths, a multi-page TIFF, OME-TIFF or video, an array (T, H, W) or
            (T, H, W, C), a tensor (T, H, W) or (T, C, H, W), or any iterable of images. All of one size.
        model: the motion model: translation, euclidean, similarity, affine, projective.
        reference: whose frame the common one is: ``first``, ``middle``, the number of a frame, or ``mean``, the mean
            of all. ``previous``: relate every frame to the one before and to no other (errors add up).
        channel: which channel steers; the gray of all if not given.
        missing: ``nan`` or ``interpolate``: what a frame without an answer gets.
        progress: show a progress bar.
        **options: of :class:`caunet.Estimator`: ``threads``, ``device``, or of the motion model.

    Memory does not grow with the number of frames.
    """
    if not isinstance(reference, int) and reference not in REFERENCES:
        raise ValueError(
            f"reference must be one of {', '.join(REFERENCES)} or a frame's number, got {reference!r}"
        )
    if missing not in ("nan", "interpolate"):
        raise ValueError(f"missing must be 'nan' or 'interpolate', got {missing!r}")
    source = open_frames(frames, channel=channel)
    with _Stack(source, Estimator(model, **options), chain=reference == "previous") as stack:
        stack.run(progress)
        made = stack.alignment(reference)
    return made.interpolated() if missing == "interpolate" and made.problems else made


class _Last(NamedTuple):
    number: int
    frame: Tensor
    pose: Matrix


class _Stack:
    """What is known while frames go by: key frames, the last good frame, relations, poses so far."""

    def __init__(self, source: Frames, estimator: Estimator, chain: bool) -> None:
        self.source, self.estimator, self.chain = source, estimator, chain
        self.names: list[str] = []
        self.problems: list[tuple[int, str]] = []
        self.poses: list[Matrix | None] = []
        self.related: list[tuple[int, int, Related]] = []
        self.last: _Last | None = None
        self.keys: KeyFrames | None = None
        self.relater: Relater | None = None

    def __enter__(self) -> "_Stack":
        return self

    def __exit__(self, *exception: object) -> None:
        if self.keys is not None:
            self.keys.close()

    def run(self, progress: bool) -> None:
        total = None
        if isinstance(self.source, Sized):
            with contextlib.suppress(TypeError):
                total = len(self.source)
        bar = track(total, "aligning", "frames") if progress else contextlib.nullcontext(None)
        with bar as shown:
            for frame in self.source:
                self._take(frame)
                if shown is not None:
                    shown.advance()
        if not self.names:
            raise DataError(f"frames: {self.source.name} holds no frames")
        if self.last is None:
            raise DataError(f"frames: no frame of {self.source.name} can be used: {self.problems[0][1]}")

    def _take(self, frame: Frame) -> None:
        self.names.append(frame.name)
        self.poses.append(None)
        if frame.pixels is None:
            self.problems.append((frame.index, frame.error))
            return
        gray = read_image(_scaled(frame.pixels), f"frames[{frame.index}]", device=self.estimator.device).gray
        if self.relater is None or self.keys is None:
            size = (gray.shape[0], gray.shape[1])
            self.relater, self.keys = Relater(self.estimator, size), KeyFrames(size)
        elif tuple(gray.shape) != self.relater.size:
            (h, w), (height, width) = gray.shape, self.relater.size
            raise DataError(f"{frame.name} is {w} x {h} pixels, the frames before it are {width} x {height}")
        if float(gray.std()) < 1e-3:
            self.problems.append((frame.index, f"{frame.name} is blank"))
            return
        if self.last is None:
            self._accept(frame.index, gray, np.eye(3), key=True)
        else:
            self._relate(frame, gray, self.last)

    def _relate(self, frame: Frame, gray: Tensor, last: _Last) -> None:
        assert self.relater is not None
        pose = self._try(frame.index, gray, last.number, last.frame, last.pose, np.eye(3))
        for number in self._near(pose if pose is not None else last.pose, last.number):
            assert self.keys is not None
            there = self.poses[number]
            assert there is not None
            guess = np.linalg.inv(there) @ (pose if pose is not None else last.pose)
            again = self._try(frame.index, gray, number, self.keys[number], there, guess)
            pose = again if again is not None else pose
        if pose is None:
            self.problems.append((frame.index, f"{frame.name} relates to no other frame"))
            return
        covered = max((self._overlap(pose, number) for number in self._key_numbers()), default=0.0)
        self._accept(frame.index, gray, pose, key=not self.chain and covered < _FRESH)

    def _try(
        self, number: int, gray: Tensor, other: int, frame: Tensor, there: Matrix, guess: Matrix
    ) -> Matrix | None:
        """Relate frame ``number`` to frame ``other``, whose pose is ``there``; its own pose if that went well."""
        assert self.relater is not None
        found = self.relater(gray, frame, guess)
        if found.confidence < _SURE:
            return None
        self.related.append((number, other, found))
        pose: Matrix = geometry.normalize(there @ found.matrix, checked=False)
        return pose

    def _key_numbers(self) -> list[int]:
        return [] if self.keys is None else self.keys.numbers

    def _near(self, pose: Matrix, last: int) -> list[int]:
        """Key frames to relate a frame at ``pose`` to: the oldest that shows enough of it, the one that shows most."""
        if self.chain:
            return []
        shown = [(self._overlap(pose, number), number) for number in self._key_numbers() if number != last]
        enough = [(overlap, number) for overlap, number in shown if overlap >= _ENOUGH]
        if not enough:
            return []
        oldest = min(number for _, number in enough)
        most = max(enough)[1]
        return [oldest] if oldest == most else [oldest, most]

    def _overlap(self, pose: Matrix, number: int) -> float:
        """About which share of a frame at ``pose`` a key frame shows: on a raster of points."""
        there = self.poses[number]
        assert self.relater is not None
        assert there is not None
        height, width = self.relater.size
        x, y = np.meshgrid(np.linspace(0, width - 1, 8), np.linspace(0, height - 1, 8))
        moved = geometry.apply(np.linalg.inv(there) @ pose, np.stack([x.ravel(), y.ravel()], 1))
        inside = (moved >= 0).all(1) & (moved[:, 0] <= width - 1) & (moved[:, 1] <= height - 1)
        return float(inside.mean())

    def _accept(self, number: int, gray: Tensor, pose: Matrix, key: bool) -> None:
        self.poses[number] = pose
        self.last = _Last(number, gray, pose)
        if key and self.keys is not None:
            self.keys.add(number, gray)

    def alignment(self, reference: str | int) -> Alignment:
        """All relations reconciled, seen from the reference."""
        assert self.relater is not None
        good = [number for number, pose in enumerate(self.poses) if pose is not None]
        place = {number: k for k, number in enumerate(good)}
        relations = [Relation(place[i], place[j], r.matrix, r.information) for i, j, r in self.related]
        initial = np.stack([pose for pose in self.poses if pose is not None])
        poses, trust = reconcile(
            len(good), relations, self.relater.generators, self.relater.corners, initial=initial
        )
        back = np.linalg.inv(self._common(reference, good, poses))
        matrices = np.full((len(self.poses), 3, 3), math.nan)
        matrices[good] = geometry.normalize(back @ poses, checked=False)
        confidence = np.zeros(len(self.poses))
        confidence[good[0]] = 1.0
        links = []
        for (i, j, found), weight in zip(self.related, trust.tolist(), strict=True):
            confidence[i] = max(confidence[i], found.confidence)
            links.append(Link(i, j, found.confidence, weight))
        return Alignment(
            matrices,
            confidence,
            self.relater.size,
            self.estimator.motion_model.name,
            tuple(self.names),
            tuple(links),
            tuple(self.problems),
        )

    def _common(self, reference: str | int, good: list[int], poses: Matrix) -> Matrix:
        """(3, 3): the pose of the common frame."""
        assert self.relater is not None
        if reference == "mean":
            corners = self.relater.corners
            mean = geometry.apply(poses, corners).mean(0)
            model = self.estimator.motion_model
            into = self.relater.size[1] / 2
            fitted = model.fit(corners / into, mean / into, np.ones(4))
            scale = np.diag([into, into, 1.0])
            made: Matrix = scale @ fitted @ np.linalg.inv(scale)
            return made
        number = (
            len(self.poses) // 2 if reference == "middle" else reference if isinstance(reference, int) else 0
        )
        if not -len(self.poses) <= number < len(self.poses):
            raise ValueError(f"reference must be below {len(self.poses)}, the number of frames, got {number}")
        nearest = min(good, key=lambda k: abs(k - number % len(self.poses)))
        pose: Matrix = poses[good.index(nearest)]
        return pose


def _scaled(pixels: Any) -> Any:
    """Frames of more than a byte use a part of their range: 12 bits in 16, say. What they use becomes the range."""
    if pixels.dtype.kind in "ui" and pixels.dtype.itemsize > 1:
        return pixels.astype(np.float32)
    return pixels
