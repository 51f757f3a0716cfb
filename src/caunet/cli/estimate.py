"""``caunet estimate``: the transformation between two images."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from caunet.estimation.result import Estimate
    from caunet.volumes import VolumeEstimate

__all__ = ["EstimateCommand", "SearchOptions"]

UNSURE = 3
"""Exit code when the confidence is lower than asked for."""
FAILED = 3
"""Exit code when some of many pairs ended with an error."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What may relate images, and how it is looked for."""

    model: str = "projective"
    """The motion model, what may relate them. translation: shift; euclidean: and angle; similarity: and scale; affine:
    and shear and stretch; projective: and perspective; camera-rotation: a camera that only turns (needs --focal). The
    simplest model that can hold is the most reliable."""
    focal: Annotated[float | None, tyro.conf.arg(metavar="PIXELS")] = None
    """The focal length in pixels, for --model camera-rotation."""
    principal_point: Annotated[tuple[float, float] | None, tyro.conf.arg(metavar="X Y")] = None
    """Where the optical axis meets the images, in pixels, for --model camera-rotation; default: their centers."""
    max_shift: Annotated[float | None, tyro.conf.arg(metavar="PIXELS")] = None
    """The farthest that the center of a may move. An answer beyond a bound is not given: its reason is "out of range",
    its confidence 0."""
    max_angle: Annotated[float | None, tyro.conf.arg(metavar="DEGREES")] = None
    """The largest angle, to either side."""
    max_scale: Annotated[float | None, tyro.conf.arg(metavar="FACTOR")] = None
    """The largest scale; 1.25 also allows down to 1 / 1.25."""
    channel: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """What is compared of color images: gray (default), red, green, blue, a number from 0, or all: gray, then each
    color, and the most confident answer."""
    fixed: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Parameters that are known, such as angle=0 scale=1: shift_x, shift_y (pixels), angle (degrees), scale, as far as
    the model has them; of affine and projective both shifts."""
    find_borders: bool = True
    """Leave out borders of one gray level and what lies around a round aperture, where no mask is given."""
    device: str = "cpu"
    """Where to compute."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """CPU threads to use; default: what torch finds."""

    def check_search(self) -> None:
        """Everything that can be wrong without reading an image."""
        from caunet.estimation.motion_models import Fixed, create_motion_model

        try:
            model = create_motion_model(self.model, **self._options())
        except TypeError as error:  # an option of another model
            raise ValueError(f"--{error}") from error
        if self.fixed:
            try:
                Fixed(model, self._fixed())
            except (TypeError, ValueError) as error:
                said = str(error).replace("must be a dict with some of", "must be of")
                raise ValueError(said if said.startswith("--") else f"--{said}") from error
        channel = self._channel()
        if isinstance(channel, str) and channel not in ("gray", "red", "green", "blue", "all"):
            raise ValueError(f"--channel must be gray, red, green, blue, all or a number, got {channel!r}")
        self.check_limits()

    def check_limits(self) -> None:
        """What images and volumes have in common: bounds and threads."""
        from caunet.estimation.limits import Bounds

        for name, value in self.bounds().items():
            try:
                Bounds.of({name: value})
            except ValueError as error:
                what = "at least 1" if name == "scale" else "0 or more"
                raise ValueError(f"--max-{name} must be a number, {what}, got {value:g}") from error
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {self.threads}")

    def estimator_options(self) -> dict[str, Any]:
        """For :class:`caunet.Estimator`."""
        return {
            "bounds": self.bounds() or None,
            "fixed": self._fixed() or None,
            "channel": self._channel(),
            "find_borders": self.find_borders,
            "device": existing_device(self.device),
            "threads": self.threads,
            **self._options(),
        }

    def _options(self) -> dict[str, Any]:
        """Of the motion model, as far as they are given."""
        options = {"focal": self.focal, "principal_point": self.principal_point}
        return {name: value for name, value in options.items() if value is not None}

    def bounds(self) -> dict[str, float]:
        """How far an answer may go, as far as that is given."""
        bounds = {"shift": self.max_shift, "angle": self.max_angle, "scale": self.max_scale}
        return {name: value for name, value in bounds.items() if value is not None}

    def _fixed(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for part in self.fixed:
            name, equals, value = part.partition("=")
            try:
                found[name] = float(value)
            except ValueError:
                equals = ""
            if not equals:
                raise ValueError(f"--fixed must be NAME=VALUE, such as angle=0, got {part!r}")
        return found

    def _channel(self) -> int | str | None:
        return int(self.channel) if self.channel is not None and self.channel.isdecimal() else self.channel


@dataclass(frozen=True)
class EstimateCommand(SearchOptions):
    """Estimate the transformation from image a to image b: matrix, shift, angle, scale, shear, and a confidence.

    The matrix maps points of a to points of b, in pixels: x to the right, y down, the center of the first pixel
    at (0, 0). Confidence is the probability that the corners are off by less than 1 % of the diagonal on average.
    The exit code is 0; 3 if the confidence is below --min-confidence; 2 if an image cannot be used.

    Transparent pixels do not count, nor do borders of one gray level; say what else does not by --mask-a, --mask-b or
    --region. What you know beforehand makes the answer safer: a simpler --model, --max-shift, --max-angle, --initial.

    To see how they fit: caunet estimate left.jpg right.jpg --out aligned.png --overlay overlay.png

    For a program: caunet estimate a.tif b.tif --model euclidean --max-angle 5 --mask-a cells.png --json

    Volumes (NIfTI, MetaImage, NRRD; with the extra volumes) are told by their names; --model is then translation, rigid
    (the default), similarity or affine, --max-shift counts millimeters, and the matrix is printed in millimeters:
    caunet estimate a.nii.gz b.nii.gz --out aligned.nii.gz --transform a_to_b.tfm
    """

    a: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="A")]
    """The first image: PNG, JPEG, TIFF, BMP, GIF, WebP, PPM, AVIF, JPEG 2000 or HEIC (with the extra heif), 16 x 16
    pixels to 40 megapixels. Of an animation or a file of several pages the first is taken. Or a volume: .nii, .nii.gz,
    .mha or .nrrd."""
    b: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="B")]
    """The second image or volume; it may have another size."""
    mask_a: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """An image as large as a, black where a does not show the scene: only what is not black counts."""
    mask_b: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The same for b."""
    region: Annotated[tuple[int, int, int, int] | None, tyro.conf.arg(metavar="X Y WIDTH HEIGHT")] = None
    """The part of a to compare, in pixels; the matrix is that of the whole images."""
    region_b: Annotated[tuple[int, int, int, int] | None, tyro.conf.arg(metavar="X Y WIDTH HEIGHT")] = None
    """The part of b."""
    initial: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A matrix to try first: JSON (three rows, or what --json printed for another pair), or a text of three rows; four
    rows for volumes, in voxels."""
    json: bool = False
    """Print one JSON object instead of text."""
    field: bool = False
    """Also put the motions that the matrix was fitted to into the JSON."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write b, resampled onto the grid of a, to this file. What is outside of b is black."""
    transform: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Of volumes: write the transformation for ITK (.tfm, .txt), for FSL (.mat) or as JSON."""
    mode: Literal["linear", "cubic", "nearest"] = "linear"
    """Of volumes: how --out is read between voxels; nearest for labels."""
    overlay: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write both to this file: a in orange, b resampled onto it in azure, gray where they agree."""
    min_confidence: float = 0.5
    """The confidence below which the exit code is 3 (the files asked for are written all the same)."""
    server: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Send the images to a running `caunet serve`: its address, such as http://localhost:8000."""
    timeout: float = 60.0
    """Seconds to wait for that server."""

    def run(self) -> int:
        """Estimate, print, write the files asked for."""
        from caunet.volumes.read import is_volume_path

        if is_volume_path(self.a) or is_volume_path(self.b):
            return self._run_volumes()
        self._check()
        found = self._locally() if self.server is None else self._remotely(self.server)
        return self._report(found, found.to_json(field=self.field), self._write(found))

    def _run_volumes(self) -> int:
        from caunet.cli.volumes import check_volumes, estimate_volumes, write_volumes

        self._check_confidence()
        check_volumes(self)
        found = estimate_volumes(self, None if self.initial is None else _read_matrix(self.initial, 4))
        return self._report(found, found.to_json(), write_volumes(self, found))

    def _report(
        self, found: "Estimate | VolumeEstimate", data: dict[str, Any], written: dict[str, Path]
    ) -> int:
        """Print what was found and which files were written; the exit code."""
        if self.json:
            about = {
                "a": str(self.a),
                "b": str(self.b),
                **{name: str(path) for name, path in written.items()},
            }
            print(json.dumps({**about, **data}, allow_nan=False))
        else:
            print(found.summary())
            for name, path in written.items():
                print(f"  {name:<12} {path}")
        if found.confidence < self.min_confidence:
            print(
                f"caunet: confidence {_below(found.confidence, self.min_confidence)} is below "
                f"--min-confidence {self.min_confidence:g}",
                file=sys.stderr,
            )
            return UNSURE
        return 0

    def _check(self) -> None:
        """Everything that can be wrong without reading an image."""
        from caunet.estimation.overlay import check_output

        self.check_search()
        given = [*self._options(), *(f"max_{name}" for name in self.bounds())]
        names = ("mask_a", "mask_b", "region", "region_b", "initial", "channel")
        given += [name for name in names if getattr(self, name) is not None]
        given += ["fixed"] if self.fixed else []
        given += [] if self.find_borders else ["no_find_borders"]
        if self.server is not None and given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(f"{options} must be left out with --server, which does not know them")
        self._check_confidence()
        if self.transform is not None or self.mode != "linear":
            raise ValueError(f"--transform and --mode must be left out for images, got {self.a}")
        if self.field and not self.json:
            raise ValueError("--field must be used with --json")
        for option, path in (("--out", self.out), ("--overlay", self.overlay)):
            if path is None:
                continue
            check_output(path, option)
            if path.resolve() in (self.a.resolve(), self.b.resolve()):
                raise ValueError(f"{option} would overwrite {path}, which is one of the two images")
        if self.out is not None and self.overlay is not None and self.out.resolve() == self.overlay.resolve():
            raise ValueError(f"--out and --overlay must be different files, got {self.out} for both")

    def _check_confidence(self) -> None:
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"--min-confidence must be within 0..1, got {self.min_confidence}")

    def _locally(self) -> "Estimate":
        options = self.estimator_options()
        from caunet.estimation.estimator import Estimator

        return Estimator(self.model, **options)(
            self.a,
            self.b,
            mask_a=self.mask_a,
            mask_b=self.mask_b,
            region=self.region,
            region_b=self.region_b,
            initial=None if self.initial is None else _read_matrix(self.initial),
        )

    def _remotely(self, server: str) -> "Estimate":
        from caunet.cli.remote import estimate_remotely

        return estimate_remotely(server, self.a, self.b, self.model, timeout=self.timeout)

    def _write(self, found: "Estimate") -> dict[str, Path]:
        from caunet.estimation.overlay import overlay, save_image

        written: dict[str, Path] = {}
        if self.out is not None:
            save_image(_writable(found.warp(self.b), self.out), self.out, "--out")
            written["aligned"] = self.out
        if self.overlay is not None:
            save_image(overlay(self.a, self.b, found), self.overlay, "--overlay")
            written["overlay"] = self.overlay
        return written


def _below(confidence: float, bound: float) -> str:
    """The confidence with as many digits as it takes to be seen below ``bound``: 0.999 rather than 1.00.

    >>> _below(0.9987, 1.0), _below(0.31, 0.5)
    ('0.999', '0.31')
    """
    digits = next((n for n in range(2, 17) if float(f"{confidence:.{n}f}") < bound), 17)
    return f"{confidence:.{digits}f}"


def _writable(image: Any, path: Path) -> Any:
    """16 bits are kept where the format has them; the others get bytes."""
    if image.mode.startswith("I") and path.suffix.lower() not in (".png", ".tif", ".tiff", ".pgm", ".ppm"):
        import numpy as np
        from PIL import Image

        return Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))
    return image


def _read_matrix(path: Path, rows: int = 3) -> Any:
    """The matrix in a file: JSON of one or of an estimate, or ``rows`` rows of numbers."""
    import numpy as np

    from caunet.errors import DataError
    from caunet.files import printable_path

    name, words = f"--initial {printable_path(path)}", {3: "three", 4: "four"}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        try:
            data = json.loads(text)
            values = data["matrix"] if isinstance(data, dict) else data
        except json.JSONDecodeError:
            values = [line.replace(",", " ").split() for line in text.splitlines() if line.strip()]
        matrix = np.array(values, dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{name}: must hold a matrix, as JSON or as {words[rows]} rows of numbers") from error
    if matrix.shape != (rows, rows):
        raise DataError(
            f"{name}: must hold a matrix of {words[rows]} rows and columns, got shape {matrix.shape}"
        )
    return matrix


def existing_device(name: str) -> Any:
    """A torch device that is there, or a message instead of a traceback."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"--device {name} cannot be used here: {reason}") from error
    return device
