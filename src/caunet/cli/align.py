"""``caunet align``: a stack or a video brought into one common frame."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

__all__ = ["Align"]


@dataclass(frozen=True)
class Align:
    """Bring the frames of a stack or video into one common frame.

    FRAMES is a folder of images (in the natural order of their names), a multi-page TIFF or OME-TIFF, or a video. Each
    frame is related to its neighbor and to key frames, and all relations are reconciled, so that errors do not add up.
    Frames that are blank or show something else are named and harm no other. The exit code is 0; 3 if frames are left
    without an answer; 2 if the frames cannot be used.

    Example: caunet align cells.tif --out aligned.tif --table matrices.csv
    """

    frames: Annotated[Path, tyro.conf.Positional]
    """A folder, a TIFF stack or a video."""
    out: Path | None = None
    """Write the aligned frames here: .tif or .ome.tif (their dtype kept), .mkv (lossless) or .mp4."""
    table: Path | None = None
    """Write the matrices here: .csv or .json."""
    model: Literal["translation", "euclidean", "similarity", "affine", "projective"] = "euclidean"
    """What may relate two frames."""
    reference: str = "first"
    """Whose frame the common one is: first, middle, mean, or a frame's number; previous relates neighbors only."""
    channel: int | None = None
    """Which channel steers; default: the gray of all."""
    crop: Literal["first", "common", "union"] = "first"
    """What of the common frame is written: as much as the first frame, what all frames show, or what any shows."""
    stabilise: float | None = None
    """For videos: keep slow motion and take out what shakes; how many frames are slow (10, say)."""
    missing: Literal["nan", "interpolate"] = "nan"
    """Frames without an answer: left out (filled with 0), or moved along with their neighbors."""
    rate: float = 25.0
    """Frames a second of a video that is written."""

    def run(self) -> int:
        """Align, write, and say what was found."""
        from caunet.stacks import align
        from caunet.stacks.writing import check_writable, write_frames

        if self.out is not None:
            check_writable(self.out, "--out")
        if self.table is not None and self.table.suffix.lower() not in (".csv", ".json"):
            raise ValueError(f"--table must end in .csv or .json, got {str(self.table)!r}")
        reference: str | int = self.reference
        if self.reference.lstrip("-").isdigit():
            reference = int(self.reference)
        found = align(self.frames, self.model, reference, channel=self.channel, missing=self.missing)
        lost = len(found.problems)
        if self.stabilise is not None:
            found = found.smoothed(self.stabilise)
        print(
            f"{len(found)} frames of {found.size[1]} x {found.size[0]} pixels, {len(found.links)} relations"
        )
        for _, reason in found.problems[:10]:
            print(f"  {reason}")
        if lost > 10:
            print(f"  and {lost - 10} more")
        if self.table is not None:
            found.save(self.table)
            print(f"Matrices: {self.table}")
        if self.out is not None:
            write_frames(found.warp(self.frames, crop=self.crop), self.out, rate=self.rate)
            print(f"Frames: {self.out}")
        return 3 if lost else 0
