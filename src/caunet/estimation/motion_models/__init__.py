"""Motion models: what may relate two images, each complete in one class.

>>> motion_model_names()[:6]  # those that come with the package
('translation', 'euclidean', 'similarity', 'affine', 'projective', 'camera-rotation')

A new one is a subclass of :class:`MotionModel` with the decorator :func:`register_motion_model`; `camera.py` is the
example with options. Those of volumes (H (4, 4)) are in `space.py`; dense fields would be further files here.
"""

from caunet.estimation.motion_models.base import (
    MotionModel,
    create_motion_model,
    motion_model_class,
    motion_model_names,
    register_motion_model,
)
from caunet.estimation.motion_models.plane import (
    PLANE,
    Affine,
    Euclidean,
    Projective,
    Similarity,
    Translation,
)

from caunet.estimation.motion_models.camera import CameraRotation  # isort: skip  (after the plane's, in the list too)
from caunet.estimation.motion_models.fixed import Fixed  # isort: skip
from caunet.estimation.motion_models.space import SPACE  # isort: skip

__all__ = [
    "PLANE",
    "SPACE",
    "Affine",
    "CameraRotation",
    "Euclidean",
    "Fixed",
    "MotionModel",
    "Projective",
    "Similarity",
    "Translation",
    "create_motion_model",
    "motion_model_class",
    "motion_model_names",
    "register_motion_model",
]
