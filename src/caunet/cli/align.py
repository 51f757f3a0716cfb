"""``caunet align``: a stack or a video brought into one common frame."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

__all__ = ["Align"]

LOST = 3
"""Exit code when frames are left without an answer."""


@dataclass(frozen=True)
class Align:
    """Bring the frames of a stack or video into one common frame: take out drift, or what shakes.

    FRAMES is a folder of images (in the natural order of their names: frame2 before frame10; other files are left
    alone), a multi-page TIFF or OME-TIFF, or a video. Each frame is related to the one before and to key frames, and
    all relations are reconciled, so that errors do not add up. The matrix of a frame maps its points into the common
    frame, in pixels: x to the right, y down, the center of the first pixel at (0, 0).

    A frame that is blank, cannot be read, has another size or shows something else is named and harms no other. The
    exit code is 0; 3 if frames are left without an answer; 2 if nothing can be done.

    A microscope's drift: caunet align cells.tif --out aligned.tif --table matrices.csv

    The second channel of an OME-TIFF steers: caunet align cells.ome.tif --channel 1 --out aligned.ome.tif

    A video from a hand: caunet align walk.mp4 --stabilise 15 --crop common --out steady.mp4

    Only the matrices: caunet align frames/ --model translation --table matrices.json
    """

    frames: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FRAMES")]
    """A folder, a TIFF stack or a video (.avi, .gif, .mkv, .mov, .mp4, .webm, ...)."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the aligned frames here: .tif or .ome.tif (any dtype and channels, as they are), .mkv (bytes, lossless) or
    .mp4 (bytes)."""
    table: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the matrices here: .csv (one row for each frame) or .json (also which frames were related to which)."""
    model: Literal["translation", "euclidean", "similarity", "affine", "projective"] = "euclidean"
    """What may relate two frames. translation: shift; euclidean: and angle; similarity: and scale; affine: and shear
    and stretch; projective: and perspective. The simplest that can hold is the most precise."""
    reference: Annotated[str, tyro.conf.arg(metavar="FRAME")] = "first"
    """Whose frame the common one is: first, middle, a number from 0 (-1 is the last), or mean, the mean of all.
    previous: relate each frame to the one before only, in which errors add up."""
    channel: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Which channel is compared: red, green, blue or a number from 0; default: the gray of all. All are written."""
    mask: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """An image as large as a frame, black where frames do not show what is to be held still (a clock in the picture,
    dirt on the lens); or a folder or TIFF stack with one for each frame."""
    max_shift: Annotated[float | None, tyro.conf.arg(metavar="PIXELS")] = None
    """The farthest that a frame may lie from the one before; one that seems to lie farther gets no answer."""
    max_angle: Annotated[float | None, tyro.conf.arg(metavar="DEGREES")] = None
    """The largest angle from one frame to the next, to either side."""
    max_scale: Annotated[float | None, tyro.conf.arg(metavar="FACTOR")] = None
    """The largest scale from one frame to the next; 1.05 also allows down to 1 / 1.05."""
    crop: Literal["first", "common", "union"] = "first"
    """What of the common frame is written: as much as one frame (what lies outside is black), what all frames show
    (no black border), or what any of them shows."""
    stabilise: Annotated[float | None, tyro.conf.arg(metavar="N", aliases=["--stabilize"])] = None
    """For videos: keep the slow motion of the camera and take out what shakes. Its path is smoothed over about N frames
    to either side: the more, the steadier; 10 to 30 for a camera in a hand."""
    missing: Literal["nan", "interpolate"] = "nan"
    """Frames without an answer: black, or moved along with their neighbors."""
    rate: Annotated[float | None, tyro.conf.arg(metavar="PER_SECOND")] = None
    """Frames a second of a video that is written; default: those of FRAMES, or 25."""
    device: str = "cpu"
    """Where to compute."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """CPU threads to use; default: what torch finds. Frames are small: 1 is often as fast."""

    def run(self) -> int:
        """Align, write, and say what was found."""
        from caunet.cli.estimate import existing_device
        from caunet.images.frames import frame_rate
        from caunet.sizes import size_text
        from caunet.stacks import align
        from caunet.stacks.writing import check_writable, write_frames

        self._check()
        if self.out is not None:
            check_writable(self.out, "--out")
        found = align(
            self.frames,
            self.model,
            _number(self.reference),
            channel=None if self.channel is None else _number(self.channel),
            mask=self.mask,
            bounds=self._bounds() or None,
            missing=self.missing,
            device=existing_device(self.device),
            threads=self.threads,
        )
        lost = len(found.problems)
        if self.stabilise is not None:
            found = found.smoothed(self.stabilise)
        print(f"{len(found)} frames of {size_text(found.size)}, {len(found.links)} relations")
        if lost:
            print(f"{lost} without an answer:")
        for _, reason in found.problems[:10]:
            print(f"  {reason}")
        if lost > 10:
            print(f"  and {lost - 10} more")
        # The table first: it is small, and there when the frames do not fit on the disk.
        if self.table is not None:
            found.save(self.table)
            print(f"Matrices: {self.table}")
        if self.out is not None:
            rate = self.rate or frame_rate(self.frames) or 25.0
            write_frames(found.warp(self.frames, crop=self.crop), self.out, rate=rate)
            print(f"Frames: {self.out}")
        if self.table is None and self.out is None:
            print("caunet: nothing was written; name a file by --out or --table", file=sys.stderr)
        return LOST if lost else 0

    def _check(self) -> None:
        """What can be wrong without reading a frame."""
        if self.table is not None and self.table.suffix.lower() not in (".csv", ".json"):
            raise ValueError(f"--table must end in .csv or .json, got {str(self.table)!r}")
        if self.out is not None and self.out.resolve() == self.frames.resolve():
            raise ValueError(f"--out must be another file than FRAMES, got {self.out} for both")
        if self.stabilise is not None and not self.stabilise > 0:
            raise ValueError(f"--stabilise must be positive, got {self.stabilise:g}")
        if self.rate is not None and not self.rate > 0:
            raise ValueError(f"--rate must be positive, got {self.rate:g}")

    def _bounds(self) -> dict[str, float]:
        bounds = {"shift": self.max_shift, "angle": self.max_angle, "scale": self.max_scale}
        return {name: value for name, value in bounds.items() if value is not None}


def _number(word: str) -> Any:
    """A number, if it is one."""
    return int(word) if word.lstrip("-").isdecimal() else word
