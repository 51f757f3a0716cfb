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
from collections.abc import Mapping, Sized
from typing import Any, NamedTuple

import numpy as np

from caunet import geometry
from caunet.errors import DataError
from caunet.estimation.estimator import Estimator
from caunet.estimation.limits import Bounds, Limits
from caunet.estimation.motion_models import PLANE, MotionModel
from caunet.geometry import Matrix
from caunet.images.frames import Frame, Frames, open_frames
from caunet.progress import track
from caunet.sizes import size_text
from caunet.stacks.alignment import Alignment, Link, members
from caunet.stacks.graph import Relation, reconcile
from caunet.stacks.keys import KeyFrames
from caunet.stacks.relate import Related, Relater
from caunet.stacks.views import Masks, View, view_of
from caunet.threads import cpu_threads

__all__ = ["REFERENCES", "align"]

REFERENCES = ("first", "middle", "mean", "previous")
_SURE = 0.46  # agreement from which a relation counts; chosen by benchmarks/calibrate_stacks.py
_FRESH = 0.7  # overlap with every key frame below which a frame becomes one
_ENOUGH = 0.5  # overlap with a key frame from which a frame is related to it
_BLANK = 1e-3  # standard deviation of gray values below which there is nothing to see
_CHANNELS = {"gray": None, "red": 0, "green": 1, "blue": 2}


def align(
    frames: Any,
    model: str | MotionModel = "euclidean",
    reference: str | int = "first",
    *,
    channel: int | str | None = None,
    mask: Any = None,
    bounds: Bounds | Mapping[str, Any] | None = None,
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
        channel: which channel steers: an index, ``red``, ``green`` or ``blue``; the gray of all if not given.
        mask: which pixels show what is to be held still (not zero: counts). (H, W), for all frames: an array, a tensor,
            a PIL image or a path; or one for each frame: an array (T, H, W), a folder, a list, a TIFF stack.
        bounds: how far a frame may lie from the one before, a dict with some of ``shift`` (pixels), ``angle`` (degrees)
            and ``scale``, as :func:`caunet.estimate` takes them. A frame that seems to lie farther is named as a
            problem. Across k frames without an answer k + 1 times as far (scale: to that power) is allowed.
        missing: ``nan`` or ``interpolate``: what a frame without an answer gets.
        progress: show a progress bar.
        **options: of :class:`caunet.Estimator`: ``find_borders``, ``threads``, ``device``, ``network``.

    A frame that cannot be read, is blank, has another size or relates to no other is one of the ``problems`` of the
    result, and the others go on. Memory does not grow with the number of frames.
    """
    if isinstance(reference, bool) or not (isinstance(reference, int) or reference in REFERENCES):
        raise ValueError(
            f"reference must be one of {', '.join(REFERENCES)} or a frame's number, got {reference!r}"
        )
    if missing not in ("nan", "interpolate"):
        raise ValueError(f"missing must be 'nan' or 'interpolate', got {missing!r}")
    if isinstance(channel, str) and channel not in _CHANNELS:
        raise ValueError(f"channel must be gray, red, green, blue or a number, got {channel!r}")
    estimator = Estimator(model, bounds=bounds, **options)
    if estimator.motion_model.name not in PLANE:
        raise ValueError(f"model must be one of {', '.join(PLANE)}, got {estimator.motion_model.name!r}")
    if estimator.fixed is not None:
        raise ValueError(f"fixed must be left out, got {options['fixed']!r}; choose a model without it")
    source = open_frames(frames, channel=_CHANNELS[channel] if isinstance(channel, str) else channel)
    with (
        _Stack(source, estimator, Masks(mask), chain=reference == "previous") as stack,
        cpu_threads(estimator.threads),
    ):
        stack.run(progress)
        made = stack.alignment(reference)
    return made.interpolated() if missing == "interpolate" and made.problems else made


class _Last(NamedTuple):
    number: int
    view: View
    pose: Matrix


class _Stack:
    """What is known while frames go by: key frames, the last good frame, relations, poses so far."""

    def __init__(self, source: Frames, estimator: Estimator, masks: Masks, chain: bool) -> None:
        self.source, self.estimator, self.masks, self.chain = source, estimator, masks, chain
        self.names: list[str] = []
        self.problems: list[tuple[int, str]] = []
        self.others = 0  # frames of another size
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
        if self.others > sum(pose is not None for pose in self.poses):
            raise DataError(
                f"frames: most have another size than the first that can be used: {self.problems[0][1]}"
            )

    def _take(self, frame: Frame) -> None:
        self.names.append(frame.name)
        self.poses.append(None)
        problem = self._problem(frame)
        if problem is not None:
            self.problems.append((frame.index, problem))

    def _problem(self, frame: Frame) -> str | None:
        """Place a frame; why that cannot be done, if so."""
        if frame.pixels is None:
            self.masks.take(None, None)
            return frame.error
        size = (frame.pixels.shape[0], frame.pixels.shape[1])
        if self.relater is not None and size != self.relater.size:
            self.masks.take(None, None)
            self.others += 1
            return f"{frame.name} has {size_text(size)}, the frames before it have {size_text(self.relater.size)}"
        view = view_of(
            frame.pixels,
            f"frames[{frame.index}]",
            self.masks,
            find_borders=self.estimator.find_borders,
            device=self.estimator.device,
        )
        seen = view.gray if view.mask is None else view.gray[view.mask]
        if seen.numel() < 2 or float(seen.std()) < _BLANK:
            return f"{frame.name} is blank" if view.mask is None else f"{frame.name} is blank where it counts"
        if self.relater is None or self.keys is None:
            self._begin(size)
        if self.last is None:
            self._accept(frame.index, view, np.eye(3), key=True)
            return None
        return self._relate(frame, view, self.last)

    def _begin(self, size: tuple[int, int]) -> None:
        self.relater, self.keys = Relater(self.estimator, size), KeyFrames(size)
        limits = self._limits(1)
        if limits is not None and not limits.contains(np.eye(3)):
            raise ValueError(f"bounds must allow frames that do not move, got {self.estimator.bounds}")

    def _limits(self, steps: int) -> Limits | None:
        """How far a frame may lie from the one ``steps`` before."""
        bounds = self.estimator.bounds
        if bounds is None or self.relater is None:
            return None
        wide = Bounds(
            None if bounds.shift is None else steps * bounds.shift,
            None if bounds.angle is None else (steps * bounds.angle[0], steps * bounds.angle[1]),
            None if bounds.scale is None else (bounds.scale[0] ** steps, bounds.scale[1] ** steps),
        )
        return Limits.for_image(wide, self.relater.size)

    def _relate(self, frame: Frame, view: View, last: _Last) -> str | None:
        assert self.relater is not None
        limits = self._limits(frame.index - last.number)
        first = len(self.related)
        pose = self._try(frame.index, view, last.number, last.view, last.pose, np.eye(3), limits)
        for number in self._near(pose if pose is not None else last.pose, last.number):
            assert self.keys is not None
            there = self.poses[number]
            assert there is not None
            guess = np.linalg.inv(there) @ (pose if pose is not None else last.pose)
            again = self._try(frame.index, view, number, self.keys[number], there, guess)
            pose = again if again is not None else pose
        if pose is None:
            return f"{frame.name} relates to no other frame"
        if limits is not None and not limits.contains(np.linalg.inv(last.pose) @ pose):
            del self.related[first:]
            return f"{frame.name} lies farther from frame {last.number} than the bounds allow"
        covered = max((self._overlap(pose, number) for number in self._key_numbers()), default=0.0)
        self._accept(frame.index, view, pose, key=not self.chain and covered < _FRESH)
        return None

    def _try(
        self,
        number: int,
        view: View,
        other: int,
        there: View,
        pose_there: Matrix,
        guess: Matrix,
        limits: Limits | None = None,
    ) -> Matrix | None:
        """Relate frame ``number`` to frame ``other`` at ``pose_there``; its own pose if that went well."""
        assert self.relater is not None
        found = self.relater(view, there, guess, limits)
        if found.agreement < _SURE:
            return None
        self.related.append((number, other, found))
        pose: Matrix = geometry.normalize(pose_there @ found.matrix, checked=False)
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

    def _accept(self, number: int, view: View, pose: Matrix, key: bool) -> None:
        self.poses[number] = pose
        self.last = _Last(number, view, pose)
        if key and self.keys is not None:
            self.keys.add(number, view)

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
            mean = geometry.apply(poses, self.relater.corners).mean(0)
            common: Matrix = members(self.estimator.motion_model.name, self.relater.size, mean[None])[0]
            return common
        number = (
            len(self.poses) // 2 if reference == "middle" else reference if isinstance(reference, int) else 0
        )
        if not -len(self.poses) <= number < len(self.poses):
            raise ValueError(f"reference must be below {len(self.poses)}, the number of frames, got {number}")
        nearest = min(good, key=lambda k: abs(k - number % len(self.poses)))
        pose: Matrix = poses[good.index(nearest)]
        return pose
