"""See whether it fits: image a in orange, and b, resampled onto it, in azure; where they agree it is gray.

Orange and azure are complementary, and nearly everybody can tell them apart, unlike red and green.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from caunet.estimation.resample import resample_onto
from caunet.estimation.result import Estimate
from caunet.files import atomic_write
from caunet.images import SUFFIXES, read_image

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["check_output", "overlay", "save_image"]

FRAME = (255, 220, 0)


def overlay(
    a: Any, b: Any, estimate: Estimate, *, margin: float = 0.0, outline: bool = False
) -> "Image.Image":
    """a in orange under b in azure, on a's grid: an RGB image.

    Brightness and contrast of b are brought to those of a where both are, so that only misplaced parts have color.

    Args:
        a, b: the two images, in any form that :func:`caunet.estimate` reads.
        estimate: what was found for them.
        margin: how far beyond a the result reaches, as a share of its larger side; there is only b.
        outline: draw the frame of a.

    >>> import numpy as np
    >>> ramp = np.tile(np.arange(64, dtype=np.uint8), (64, 1))
    >>> found = Estimate(torch.eye(3), "affine", confidence=1.0, size_a=(64, 64), size_b=(64, 64))
    >>> overlay(ramp, ramp, found).getpixel((40, 5))
    (40, 40, 40)
    """
    from PIL import Image, ImageDraw

    first, second = read_image(a, "a"), read_image(b, "b")
    if first.size != estimate.size_a:
        raise ValueError(
            f"a must be the image that was compared, of size {estimate.size_a}, got {first.size}"
        )
    if not 0 <= margin <= 10:
        raise ValueError(f"margin must be a share of the larger side, 0..10, got {margin}")
    pad = round(margin * max(first.size))
    size = (first.size[0] + 2 * pad, first.size[1] + 2 * pad)
    below, above, seen = _layers(first.gray, second.gray, estimate, size, pad)
    above = _like(above, below, seen, seen & _inside(first.size, size, pad).to(seen.device))
    colors = torch.stack([below, (below + above) / 2, above], -1)
    image = Image.fromarray((colors.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy())
    if outline:
        height, width = first.size
        corner = (pad + width - 1, pad + height - 1)
        ImageDraw.Draw(image).rectangle(((pad, pad), corner), outline=FRAME, width=max(1, max(size) // 400))
    return image


def _layers(
    a: Tensor, b: Tensor, estimate: Estimate, size: tuple[int, int], pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """a and b on the canvas, black where they are not, and where b is."""
    below = torch.nn.functional.pad(a, (pad, pad, pad, pad))
    matrix, origin, expected = torch.as_tensor(estimate.matrix), (-pad, -pad), estimate.size_b
    above = resample_onto(b, matrix, size, expected=expected, origin=origin)
    seen = resample_onto(torch.ones_like(b), matrix, size, expected=expected, origin=origin) > 0.5
    return below, above, seen


def _inside(inner: tuple[int, int], outer: tuple[int, int], pad: int) -> Tensor:
    mask = torch.zeros(outer, dtype=torch.bool)
    mask[pad : pad + inner[0], pad : pad + inner[1]] = True
    return mask


def _like(b: Tensor, a: Tensor, seen: Tensor, both: Tensor) -> Tensor:
    """b with a's mean and spread where both are; as it is where there is nothing to compare."""
    if int(both.sum()) < 2:
        return b
    ours, theirs = a[both], b[both]
    spread = theirs.std()
    if float(spread) < 1e-3:
        return b
    matched = (b - theirs.mean()) * (ours.std() / spread) + ours.mean()
    return torch.where(seen, matched, b)  # what is black because b is not there stays black


def check_output(path: str | os.PathLike[str], argument: str) -> Path:
    """``path``, if an image can be written under its name; checked before any work is done."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        takes = ", ".join(sorted(SUFFIXES))
        raise ValueError(f"{argument} must be a file name ending in one of {takes}, got {str(path)!r}")
    if path.is_dir():
        raise ValueError(f"{argument} must be a file, got the directory {path}")
    return path


def save_image(image: "Image.Image", path: str | os.PathLike[str], argument: str = "path") -> None:
    """Write ``image`` to ``path``, whole or not at all; its suffix gives the format."""
    from PIL import Image

    path = check_output(path, argument)
    kind = Image.registered_extensions()[path.suffix.lower()]
    if kind == "JPEG" and image.mode not in ("L", "RGB"):
        raise ValueError(f"{argument}: JPEG cannot hold an image of mode {image.mode}; write a .png")
    with atomic_write(path) as temporary:
        image.save(temporary, kind)
