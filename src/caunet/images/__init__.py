"""Images as they come from outside, read, checked and brought to one form.

Two readers cover every need. :func:`read_image` takes an image in any form (a path, bytes, an open file, Pillow, an
array, a tensor) and gives floats 0..1, gray and in color, ready to be compared; :func:`read_uint8` reads a file into
bytes that are the same on every machine, for data sets:

>>> import numpy as np
>>> scan = np.linspace(-1000, 2000, 600).reshape(20, 30).astype(np.int16)  # what a CT scanner gives
>>> image = read_image(scan)
>>> image.size, float(image.gray.min()), float(image.gray.max())
((20, 30), 0.0, 1.0)

Below them: :mod:`~caunet.images.decode` (files to arrays, the only caller of decoders), :mod:`~caunet.images.gray`
(the one gray), :mod:`~caunet.images.photographs` (those embedded in scikit-image). Another file format, or the
further pages of a stack, belongs into ``decode``.
"""

from caunet.images.decode import FORMATS, MAX_PIXELS, SUFFIXES, image_formats
from caunet.images.gray import to_gray
from caunet.images.photographs import photograph, photograph_path
from caunet.images.read import MIN_SIDE, ImageError, LoadedImage, read_image, read_uint8, read_upright
from caunet.images.read_mask import read_mask

__all__ = [
    "FORMATS",
    "MAX_PIXELS",
    "MIN_SIDE",
    "SUFFIXES",
    "ImageError",
    "LoadedImage",
    "image_formats",
    "photograph",
    "photograph_path",
    "read_image",
    "read_mask",
    "read_uint8",
    "read_upright",
    "to_gray",
]
