"""Transforms of the plane and of space, and warping: one direction, one pixel convention.

Convention (used everywhere in caunet)
    - H (..., 3, 3) maps points of the FIRST image to the SECOND: p' = H p, so y(p') = x(p). In space it is (..., 4, 4).
    - Points are (x, y) or (x, y, z), in pixels: x to the right, y down, z through the slices, pixel centers at
      integers, so that an image of (height, width) spans 0..width-1 and 0..height-1. Sizes are (height, width) or
      (depth, height, width), as tensors have them.
    - Positive angles turn x towards y: clockwise on the screen.
    - A task's H has its origin at the center of the patch; `center` rewrites it in pixels of an image.
    - H and any non-zero multiple of it are the same transform.
    - Outside the image is `fill`. There is no align_corners: coordinates are pixels, never normalized.

Where things are
    arrays.py    the few operations in which tensors and NumPy arrays differ; matrices.py and frames.py take both
    matrices.py  make, compose, invert, normalize, apply; the covariance of a matrix would stand here
    frames.py    boxes of pixels: center, corners, changes of scale
    sampling.py  read pixels between pixels, exactly; grids.py the same for one image at many places, fast
    warping.py   images and volumes carried by H; a warp by a dense field would stand here

A mask of an image is an image: it is warped by `warp` like any other (mode "nearest" keeps it binary).
"""

from caunet.geometry.arrays import Array, Matrix
from caunet.geometry.frames import (
    center,
    center_of,
    corners,
    local_scale,
    pixel_scale,
    rescale,
    rescale_points,
    uncenter,
)
from caunet.geometry.matrices import (
    adjugate,
    affine,
    apply,
    apply_homogeneous,
    check,
    compose,
    dimension,
    exponential,
    invert,
    normalize,
    projective,
    rotate,
    scale,
    translate,
    with_shifts,
)
from caunet.geometry.warping import warp

__all__ = [
    "Array",
    "Matrix",
    "adjugate",
    "affine",
    "apply",
    "apply_homogeneous",
    "center",
    "center_of",
    "check",
    "compose",
    "corners",
    "dimension",
    "exponential",
    "invert",
    "local_scale",
    "normalize",
    "pixel_scale",
    "projective",
    "rescale",
    "rescale_points",
    "rotate",
    "scale",
    "translate",
    "uncenter",
    "warp",
    "with_shifts",
]
