"""Uploaded images: bounded by their headers before they are decoded, reduced before they become floats.

Pillow holds at most 4 bytes per pixel, so an image of :data:`MAX_PIXELS` takes 96 MB. Floats would take four times
as much, and more for every step between: large images are therefore reduced as bytes. Decoding has a limit of CPU
time of its own, far below that of a computation.
"""

import io
import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from caunet.images import MIN_SIDE, ImageError, read_image
from caunet.images.decode import formats_for
from caunet.sizes import size_text
from caunet.web.refusals import FieldError
from caunet.web.uploads import Form, file_content
from caunet.web.worker import cpu_limit

__all__ = ["LONGEST", "MAX_PIXELS", "Upload", "read_upload", "reduction", "upload_size"]

MAX_PIXELS = 24_000_000
"""Of an uploaded image. Fewer than the package reads from disk: several may be decoded at once."""
LONGEST = 1600
"""Longer sides are reduced to at most so many pixels before anything is computed."""
DECODE_SECONDS = 5.0
"""CPU time to decode one image; 24 megapixels of any format take less than two."""
_BYTES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")  # modes with 8 bits per channel


class Upload(NamedTuple):
    """An image as it is compared, values 0..1."""

    gray: Tensor
    """(H, W) float32."""
    pixels: Tensor
    """(H, W), or (H, W, 3) if it has color."""
    size: tuple[int, int]
    """(height, width) of the original."""
    mask: Tensor | None = None
    """(H, W) bool: which pixels are there, where the image is transparent somewhere."""

    @property
    def compared(self) -> Tensor | np.ma.MaskedArray[Any, Any]:
        """The gray values, without what is transparent."""
        if self.mask is None:
            return self.gray
        return np.ma.MaskedArray(self.gray.numpy(), ~self.mask.numpy())


def upload_size(form: Form, name: str) -> tuple[int, int]:
    """(height, width) of the image in the field ``name`` by its header alone; refuses what is too large.

    An image that cannot be opened is (0, 0), and left to :func:`read_upload`, which says why.
    """
    with cpu_limit(DECODE_SECONDS):
        try:
            with _opened(file_content(form, name, "an image"), name) as image:
                width, height = image.size
        except Image.DecompressionBombError as error:
            raise FieldError(f"{name}: too large; at most {MAX_PIXELS // 10**6} megapixels.") from error
        except MemoryError:
            raise
        except Exception:
            return 0, 0
    if width * height > MAX_PIXELS:
        raise FieldError(
            f"{name}: too large, {size_text((height, width))}; at most {MAX_PIXELS // 10**6} megapixels."
        )
    return height, width


def reduction(*sizes: tuple[int, int]) -> int:
    """The whole number by which images of these sizes are reduced: the same for all, so that a shift remains a shift.

    >>> reduction((1600, 1200), (400, 300)), reduction((1601, 100))
    (1, 2)
    """
    return math.ceil(max(1, *(side for size in sizes for side in size)) / LONGEST)


def read_upload(form: Form, name: str, factor: int = 1) -> Upload:
    """The image in the field ``name`` with sides ``factor`` times shorter: means of factor x factor pixels.

    What remains at the right and at the bottom is dropped.
    """
    content = file_content(form, name, "an image")
    upload_size(form, name)
    try:
        with cpu_limit(DECODE_SECONDS), torch.inference_mode():
            reduced = _reduced_bytes(content, factor, name) if factor > 1 else None
            if reduced is not None:
                image, size = reduced
                loaded = read_image(image, name)
                return Upload(loaded.gray, loaded.pixels, size, loaded.mask)
            loaded = read_image(content, name)
    except ImageError as error:
        raise FieldError(_sentence(f"{name}: {error.reason}")) from error
    except ValueError as error:
        raise FieldError(_sentence(str(error))) from error
    _check_side(loaded.size, factor, name)
    # A pixel of the reduced image is there if all that it was made of is.
    mask = None if loaded.mask is None else _reduce(loaded.mask.float(), factor) > 0.99
    return Upload(_reduce(loaded.gray, factor), _reduce(loaded.pixels, factor), loaded.size, mask)


def _opened(content: bytes, name: str) -> Image.Image:
    file = io.BytesIO(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of sizes that are refused here anyway
        return Image.open(file, formats=formats_for(file, name))


def _reduced_bytes(content: bytes, factor: int, name: str) -> tuple[Image.Image, tuple[int, int]] | None:
    """The upright image reduced as bytes, and its original size; None where it has more than 8 bits per channel."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _opened(content, name) as image:
                if image.mode not in _BYTES:
                    return None
                image.load()
                ImageOps.exif_transpose(image, in_place=True)
                size = image.height, image.width
                _check_side(size, factor, name)
                box = (0, 0, image.width // factor * factor, image.height // factor * factor)
                return _plain(image).reduce(factor, box), size
    except (FieldError, ImageError, MemoryError):
        raise
    except Exception as error:  # decoders of damaged files raise whatever they meet
        raise ImageError(name, f"cannot be read: {error}") from error


def _plain(image: Image.Image) -> Image.Image:
    """In a mode whose channels may be averaged: gray, RGB, or RGBA (which Pillow averages by opacity)."""
    if image.has_transparency_data:
        return image if image.mode in ("LA", "RGBA") else image.convert("RGBA")
    if image.mode in ("1", "L"):
        return image.convert("L")
    return image.convert("RGB")


def _check_side(size: tuple[int, int], factor: int, name: str) -> None:
    if min(size) // factor < MIN_SIDE:
        raise FieldError(f"{name}: too small beside the other image, which has to be reduced {factor} times.")


def _reduce(values: Tensor, factor: int) -> Tensor:
    """(H, W) or (H, W, C): means of factor x factor pixels."""
    if factor == 1:
        return values
    planes = values[None] if values.ndim == 2 else values.permute(2, 0, 1)
    made = torch.nn.functional.avg_pool2d(planes[None], factor)[0]
    return made[0] if values.ndim == 2 else made.permute(1, 2, 0).contiguous()


def _sentence(text: str) -> str:
    text = " ".join(text.split())[:300].rstrip(".")
    return f"{text}."
