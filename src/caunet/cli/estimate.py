"""``caunet estimate``: the transformation between two images."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from caunet.estimation.result import Estimate

__all__ = ["EstimateCommand"]

UNSURE = 3
"""Exit code when the confidence is lower than asked for."""


@dataclass(frozen=True)
class EstimateCommand:
    """Estimate the transformation from image a to image b: matrix, shift, angle, scale, shear, and a confidence.

    The matrix maps points of a to points of b, in pixels: x to the right, y down, the center of the first pixel
    at (0, 0). Confidence is the probability that the corners are off by less than 1 % of the diagonal on average.
    The exit code is 0; 3 if the confidence is below --min-confidence; 2 if an image cannot be used.

    Example: caunet estimate left.jpg right.jpg --out aligned.png --overlay overlay.png
    """

    a: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="A")]
    """The first image: PNG, JPEG, TIFF, BMP, GIF, WebP or PPM, 16 x 16 pixels to 40 megapixels. Of an animation or a
    file of several pages the first is taken; transparent pixels are put on white."""
    b: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="B")]
    """The second image; it may have another size."""
    model: str = "projective"
    """The motion model, what may relate them. translation: shift; euclidean: and angle; similarity: and scale; affine:
    and shear and stretch; projective: and perspective; camera-rotation: a camera that only turns (needs --focal). The
    simplest model that can hold is the most reliable."""
    focal: Annotated[float | None, tyro.conf.arg(metavar="PIXELS")] = None
    """The focal length in pixels, for --model camera-rotation."""
    principal_point: Annotated[tuple[float, float] | None, tyro.conf.arg(metavar="X Y")] = None
    """Where the optical axis meets the images, in pixels, for --model camera-rotation; default: their centers."""
    json: bool = False
    """Print one JSON object instead of text."""
    field: bool = False
    """Also put the motions that the matrix was fitted to into the JSON."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write b, resampled onto the grid of a, to this file. What is outside of b is black."""
    overlay: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write both to this file: a in orange, b resampled onto it in azure, gray where they agree."""
    min_confidence: float = 0.5
    """The confidence below which the exit code is 3 (the files asked for are written all the same)."""
    device: str = "cpu"
    """Where to compute."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """CPU threads to use; default: what torch finds."""
    server: Annotated[str | None, tyro.conf.arg(metavar="URL")] = None
    """Send the images to a running `caunet serve`: its address, such as http://localhost:8000."""
    timeout: float = 60.0
    """Seconds to wait for that server."""

    def run(self) -> int:
        """Estimate, print, write the files asked for."""
        self._check()
        found = self._locally() if self.server is None else self._remotely(self.server)
        written = self._write(found)
        if self.json:
            about = {
                "a": str(self.a),
                "b": str(self.b),
                **{name: str(path) for name, path in written.items()},
            }
            print(json.dumps({**about, **found.to_json(field=self.field)}, allow_nan=False))
        else:
            print(found.summary())
            for name, path in written.items():
                print(f"  {name:<12} {path}")
        if found.confidence < self.min_confidence:
            print(
                f"caunet: confidence {found.confidence:.2f} is below --min-confidence {self.min_confidence:g}",
                file=sys.stderr,
            )
            return UNSURE
        return 0

    def _check(self) -> None:
        """Everything that can be wrong without reading an image."""
        from caunet.estimation.motion_models import create_motion_model
        from caunet.estimation.overlay import check_output

        try:
            create_motion_model(self.model, **self._options())
        except TypeError as error:  # an option of another model
            raise ValueError(f"--{error}") from error
        if self.server is not None and self._options():
            raise ValueError(
                "--focal and --principal-point must be left out with --server, which does not know them"
            )
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"--min-confidence must be within 0..1, got {self.min_confidence}")
        if self.field and not self.json:
            raise ValueError("--field must be used with --json")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {self.threads}")
        for option, path in (("--out", self.out), ("--overlay", self.overlay)):
            if path is None:
                continue
            check_output(path, option)
            if path.resolve() in (self.a.resolve(), self.b.resolve()):
                raise ValueError(f"{option} would overwrite {path}, which is one of the two images")
        if self.out is not None and self.overlay is not None and self.out.resolve() == self.overlay.resolve():
            raise ValueError(f"--out and --overlay must be different files, got {self.out} for both")

    def _locally(self) -> "Estimate":
        device = _device(self.device)
        from caunet.estimation.estimator import Estimator

        estimator = Estimator(self.model, device=device, threads=self.threads, **self._options())
        return estimator(self.a, self.b)

    def _options(self) -> dict[str, Any]:
        """Of the motion model, as far as they are given."""
        options = {"focal": self.focal, "principal_point": self.principal_point}
        return {name: value for name, value in options.items() if value is not None}

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


def _writable(image: Any, path: Path) -> Any:
    """16 bits are kept where the format has them; the others get bytes."""
    if image.mode.startswith("I") and path.suffix.lower() not in (".png", ".tif", ".tiff", ".pgm", ".ppm"):
        import numpy as np
        from PIL import Image

        return Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))
    return image


def _device(name: str) -> Any:
    """A torch device that is there, or a message instead of a traceback."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"--device {name} cannot be used here: {reason}") from error
    return device
