"""One way to read a picture: formats on a list, upright, gray (or RGB) bytes, at most 40 megapixels.

What Pillow hands over in many modes becomes uint8 by fixed rules: 16-bit samples are divided by 257 and
rounded, transparency lies on white, palettes and CMYK are expanded, EXIF orientation is applied.
Of an animation or a multi-page file the first frame is taken. ``read_samples`` is the same without the
rounding: 16-bit samples stay what they are.
"""

import io
import os
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from caunet.errors import DataError

__all__ = ["FORMATS", "MAX_PIXELS", "SUFFIXES", "Samples", "decode", "read_image", "read_samples", "to_gray"]

Samples = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pbm", ".pnm")
)
MAX_PIXELS = 40_000_000


def to_gray(rgb: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Gray bytes (...) from RGB bytes (..., 3): 0.2989 R + 0.5870 G + 0.1140 B, rounded, in exact integers.

    >>> to_gray(np.array([[255, 255, 255], [255, 0, 0], [7, 7, 7]], np.uint8)).tolist()
    [255, 76, 7]
    """
    if rgb.dtype != np.uint8 or rgb.shape[-1:] != (3,):
        raise ValueError(f"rgb must be uint8 of shape (..., 3); got {rgb.dtype} {rgb.shape}")
    weighted = rgb[..., 0] * np.uint32(2989)
    weighted += rgb[..., 1] * np.uint32(5870)
    weighted += rgb[..., 2] * np.uint32(1140)
    weighted += np.uint32(5000)
    weighted //= np.uint32(10000)
    return weighted.astype(np.uint8)


def read_image(path: str | os.PathLike[str], *, rgb: bool = False) -> npt.NDArray[np.uint8]:
    """The picture at ``path`` as gray bytes (H, W), or RGB bytes (H, W, 3) with ``rgb=True``.

    A file that is missing, damaged, of a format not on the list, or larger than 40 megapixels (seen before
    decoding) is a :class:`~caunet.errors.DataError`.
    """
    samples = read_samples(path)
    pixels = _narrow(samples)
    if pixels.ndim == 2:
        return np.repeat(pixels[..., None], 3, axis=2) if rgb else pixels
    return pixels if rgb else to_gray(pixels)


def read_samples(source: str | os.PathLike[str] | bytes, name: str | None = None) -> Samples:
    """The picture in a file, or in a file's content, upright: gray (H, W) uint8 or uint16, or RGB (H, W, 3) uint8.

    What goes wrong is a :class:`~caunet.errors.DataError`, as in :func:`read_image`; it begins with ``name``
    (the path, if none is given).
    """
    name = name or ("the picture" if isinstance(source, bytes) else str(source))
    try:
        # Pillow warns about what it can read all the same (odd metadata, sizes that we check ourselves).
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            file = io.BytesIO(source) if isinstance(source, bytes) else Path(source)
            with Image.open(file, formats=FORMATS) as image:
                return decode(image, name)
    except UnidentifiedImageError as error:
        raise DataError(f"{name}: not a picture in a known format ({', '.join(FORMATS)})") from error
    except Image.DecompressionBombError as error:
        raise DataError(f"{name}: too large, more than {MAX_PIXELS // 10**6} megapixels") from error
    except DataError:
        raise
    except Exception as error:  # decoders of damaged files raise whatever they stumble over
        raise DataError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def decode(image: Image.Image, name: str) -> Samples:
    """Upright samples of an opened picture: (H, W) if it is gray, else (H, W, 3). Its size is seen first."""
    if image.width * image.height > MAX_PIXELS:
        raise DataError(
            f"{name}: too large: {image.width} x {image.height} pixels, "
            f"at most {MAX_PIXELS // 10**6} megapixels"
        )
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I") or upright.mode == "F":
        return _wide(np.asarray(upright), name)
    if upright.has_transparency_data:
        return _on_white(np.asarray(upright.convert("RGBA")))
    if upright.mode in ("1", "L"):
        return np.array(upright.convert("L"))
    return np.array(upright.convert("RGB"))


def _wide(values: npt.NDArray[np.generic], name: str) -> npt.NDArray[np.uint16]:
    """16-bit samples (Pillow may hold them in 32). Others are refused."""
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > 65535:
        raise DataError(f"{name}: has {values.dtype} samples outside 0..65535; save it with 8 or 16 bits")
    return values.astype(np.uint16)


def _narrow(samples: Samples) -> npt.NDArray[np.uint8]:
    """Bytes; of 16 bits 65535 becomes 255."""
    if samples.dtype == np.uint8:
        return samples.astype(np.uint8, copy=False)
    return ((samples.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _on_white(rgba: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Colours over white by their opacity, rounded, in exact integers."""
    alpha = rgba[..., 3:].astype(np.uint32)
    blended = rgba[..., :3] * alpha + 255 * (255 - alpha)
    return ((blended + 127) // 255).astype(np.uint8)
