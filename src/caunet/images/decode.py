"""From files and Pillow's images to arrays of samples: formats on a list, upright, at most 40 megapixels.

What Pillow has in many modes becomes one of these, by fixed rules:

- gray (H, W): uint8, uint16 where the file has 16 bits, int32 or int64 where it has signed or wider whole numbers,
  float32 where it has floats;
- RGB (H, W, 3): uint8. Palettes, CMYK and the like are expanded; transparency is blended with white, or kept as a
  fourth channel (H, W, 4) where that is asked for.

EXIF orientation is applied. Of an animation or a file with several pages the first is read.

Data sets are read from formats that decode to the same bytes everywhere (``FORMATS``). Single images may also be AVIF
and JPEG 2000, where Pillow was built with them, and HEIC, with the extra ``heif``.
"""

import contextlib
import errno
import functools
import io
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError, features

from caunet.errors import DataError, MissingExtraError
from caunet.extras import require
from caunet.files import address_reason, open_regular, printable_path
from caunet.sizes import size_text

__all__ = [
    "FORMATS",
    "MAX_PIXELS",
    "SUFFIXES",
    "ImageError",
    "Samples",
    "decode",
    "formats_for",
    "image_formats",
    "read_samples",
]

Samples = npt.NDArray[Any]

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".pnm")
)
MAX_PIXELS = 40_000_000

_OPTIONAL = {"avif": "AVIF", "jpg_2000": "JPEG2000"}  # what Pillow may be built with: feature and format
_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx")  # brands in the first bytes of a file


class ImageError(DataError):
    """An image could not be read: missing, damaged, too large, or no image at all.

    ``name`` says which one (an argument, a path), ``reason`` why.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason

    def __reduce__(self) -> tuple[type["ImageError"], tuple[str, str]]:
        return type(self), (self.name, self.reason)  # else it could not come back from another process


@functools.cache
def image_formats() -> tuple[str, ...]:
    """``FORMATS``, and AVIF and JPEG 2000 where this Pillow has them."""
    return FORMATS + tuple(kind for feature, kind in _OPTIONAL.items() if features.check(feature))


def read_samples(
    source: str | os.PathLike[str] | bytes,
    name: str | None = None,
    formats: tuple[str, ...] = FORMATS,
    *,
    opacity: bool = False,
) -> Samples:
    """The image in a file, or in a file's content, as an array of samples (see the top of this module).

    Only regular files are opened. What goes wrong is an :class:`ImageError` that begins with ``name`` (by default
    the path). ``opacity``: keep transparency as a fourth channel.
    """
    name = name or ("the bytes" if isinstance(source, bytes) else printable_path(source))
    with _decoding_errors(name, formats), contextlib.ExitStack() as stack:
        file = io.BytesIO(source) if isinstance(source, bytes) else stack.enter_context(open_regular(source))
        if formats == image_formats():
            formats = formats_for(file, name)
        return decode(stack.enter_context(Image.open(file, formats=formats)), name, opacity=opacity)


def formats_for(file: Any, name: str) -> tuple[str, ...]:
    """``image_formats()``, and HEIC where the open ``file`` is one; an :class:`ImageError` if its extra is missing."""
    return (*image_formats(), _heif_format(name)) if _is_heic(file) else image_formats()


def _is_heic(file: Any) -> bool:
    """Whether a file is HEIC: a box ``ftyp`` at its beginning that names one of its brands."""
    start = file.read(64)
    file.seek(0)
    return start[4:8] == b"ftyp" and any(brand in start[8:] for brand in _HEIC)


def _heif_format(name: str) -> str:
    """Let Pillow read HEIC, and say what it calls it."""
    try:
        require("pillow_heif", "heif", "Reading HEIC").register_heif_opener()
    except MissingExtraError as error:
        raise ImageError(name, f"cannot be read: {error}") from error
    return "HEIF"


def decode(image: Image.Image, name: str, *, opacity: bool = False) -> Samples:
    """Samples of an image that Pillow has opened. Its size is checked before anything is decoded.

    This is the place where further pages of a stack would be read (``image.seek``).
    """
    with _decoding_errors(name):
        if image.width * image.height > MAX_PIXELS:
            raise ImageError(name, _too_large(f": {size_text((image.height, image.width))}"))
        image.load()
        upright = ImageOps.exif_transpose(image)
        if upright.mode == "F":
            return np.array(upright, np.float32)
        if upright.mode.startswith("I"):
            return _whole_numbers(np.asarray(upright), unsigned=_is_uint32(image))
        if upright.has_transparency_data:
            rgba = np.asarray(upright.convert("RGBA"))
            return rgba.copy() if opacity else _on_white(rgba)
        if upright.mode in ("1", "L"):
            return np.array(upright.convert("L"))
        return np.array(upright.convert("RGB"))


@contextlib.contextmanager
def _decoding_errors(name: str, formats: tuple[str, ...] = FORMATS) -> Iterator[None]:
    """Turn everything that decoders raise into an :class:`ImageError`, and keep their warnings to ourselves."""
    try:
        # Pillow warns about what it can read all the same (odd metadata, sizes that are checked here).
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (ImageError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise ImageError(name, f"not an image in a known format ({', '.join(formats)})") from error
    except Image.DecompressionBombError as error:
        raise ImageError(name, _too_large("")) from error
    except IsADirectoryError as error:
        raise ImageError(name, "is a directory; name one image in it") from error
    except OSError as error:
        address = address_reason(error.filename) if isinstance(error.filename, str | os.PathLike) else None
        raise ImageError(name, address or f"cannot be read: {_os_reason(error)}") from error
    except Exception as error:  # decoders of damaged files raise whatever they meet
        raise ImageError(name, f"cannot be read: {error or type(error).__name__}") from error


def _os_reason(error: OSError) -> str:
    return "the path is too long" if error.errno == errno.ENAMETOOLONG else (error.strerror or str(error))


def _too_large(detail: str) -> str:
    return f"too large{detail}, at most {MAX_PIXELS // 10**6} megapixels; make it smaller first"


def _is_uint32(image: Image.Image) -> bool:
    """Whether these are unsigned 32-bit samples of a TIFF file, which Pillow has as signed ones."""
    tags: Any = getattr(image, "tag_v2", {})
    bits, sample_format = tags.get(258, (0,)), tags.get(339, (1,))
    return image.mode == "I" and tuple(bits) == (32,) and tuple(sample_format) == (1,)


def _whole_numbers(values: npt.NDArray[Any], unsigned: bool) -> Samples:
    """As uint16 where they fit: Pillow has some 16-bit samples in 32 bits."""
    if unsigned:
        values = values.astype(np.int64) & 0xFFFFFFFF
    return values.astype(np.uint16) if values.min() >= 0 and values.max() <= 65535 else values.copy()


def _on_white(rgba: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Colors over white by their opacity, rounded, in exact integers."""
    alpha = rgba[..., 3:].astype(np.uint32)
    blended = rgba[..., :3] * alpha + 255 * (255 - alpha)
    return ((blended + 127) // 255).astype(np.uint8)
