"""An estimate in the terms of other libraries. All of them count pixels as caunet does: centers at whole numbers.

They differ in the direction of the matrix that they want for the same picture, b on the grid of a.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.extras import require
from caunet.geometry import Matrix

__all__ = ["itk_transform", "kornia_matrix", "opencv_matrix", "skimage_transform"]


def opencv_matrix(H: Matrix) -> Matrix:
    """(3, 3): see :meth:`caunet.Estimate.to_opencv`."""
    return geometry.normalize(geometry.invert(H))


def kornia_matrix(H: Matrix) -> Tensor:
    """(1, 3, 3): see :meth:`caunet.Estimate.to_kornia`."""
    return torch.from_numpy(opencv_matrix(H))[None]


def skimage_transform(H: Matrix) -> Any:
    """A transform: see :meth:`caunet.Estimate.to_skimage`."""
    return require("skimage.transform", "report", "to_skimage").ProjectiveTransform(H)


def itk_transform(H: Matrix) -> Any:
    """A transform: see :meth:`caunet.Estimate.to_itk`."""
    if np.abs(H[2, :2]).max() > 1e-12:
        raise ValueError(
            "to_itk must have an affine estimate, got one with perspective, which SimpleITK has no transform for; "
            "estimate with model='affine' or a simpler one"
        )
    sitk = require("SimpleITK", "bench", "to_itk")
    transform = sitk.AffineTransform(2)
    transform.SetMatrix(H[:2, :2].ravel().tolist())
    transform.SetTranslation(H[:2, 2].tolist())
    return transform
