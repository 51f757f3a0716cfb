"""A homography in numbers with a meaning: shift, angle, scale, shear, perspective, and back.

Everything is measured at the center c of the first image. H sends c to c'. Seen from these two points,

    T(-c') H T(c)  =  [[ J  0 ], [ p^T  1 ]]       (up to a factor),

where J (2 x 2) is how H acts on the neighborhood of c, and p is the perspective,
which acts more the farther from c. J is split into

    J = R(angle) · [[1, shear], [0, 1]] · diag(scale_x, scale_y):

stretch along the axes, shear, rotate. The eight numbers determine H, and H determines them.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from caunet import geometry

__all__ = ["PARAMETERS", "compose", "decompose"]

PARAMETERS = (
    "shift_x",
    "shift_y",
    "angle",
    "scale_x",
    "scale_y",
    "shear",
    "perspective_x",
    "perspective_y",
)
"""The eight that make a homography."""


def decompose(matrix: Tensor, size: tuple[int, int]) -> dict[str, float]:
    """What ``matrix`` (3, 3) does to an image of ``size`` (height, width).

    - ``shift_x``, ``shift_y``: pixels by which the center moves, to the right and down;
    - ``angle``: degrees by which the horizontal through the center turns, clockwise on the screen;
    - ``scale_x``, ``scale_y``: by which the axes are stretched there (``scale_y`` < 0 if mirrored);
    - ``scale``: their geometric mean, the root of the growth of the area there;
    - ``shear``: by how much a vertical line leans over, in x for each unit of y (a tangent);
    - ``perspective_x``, ``perspective_y``: by how much the third coordinate, 1 at the center, grows on the
      way to the right and to the lower border. What has 1.1 there appears smaller by that factor; 0 is affine.

    >>> H = geometry.center(geometry.rotate(torch.tensor(90.0, dtype=torch.float64)), (101, 101))
    >>> found = decompose(geometry.compose(geometry.translate(3.0, -2.0).double(), H), (101, 101))
    >>> {name: round(value, 6) + 0.0 for name, value in found.items()}
    {'shift_x': 3.0, 'shift_y': -2.0, 'angle': 90.0, 'scale_x': 1.0, 'scale_y': 1.0, 'scale': 1.0,
     'shear': 0.0, 'perspective_x': 0.0, 'perspective_y': 0.0}
    """
    rows = matrix.detach().double().cpu().tolist()
    cx, cy = geometry.center_of(size)
    x, y, w = (row[0] * cx + row[1] * cy + row[2] for row in rows)
    terms = abs(rows[2][0]) * cx + abs(rows[2][1]) * cy + abs(rows[2][2])
    if abs(w) <= 1e-12 * terms:  # nothing but rounding is left of it
        raise ValueError("matrix must not send the center of the image to infinity")
    p, q = rows[2][0] / w, rows[2][1] / w
    # The derivative at the center: where its image is subtracted from.
    (a, b), (c, d) = (
        (row[0] / w - end / w * p, row[1] / w - end / w * q)
        for row, end in zip(rows[:2], (x, y), strict=True)
    )
    scale_x, determinant = math.hypot(a, c), a * d - b * c
    if scale_x == 0 or determinant == 0:
        raise ValueError("matrix is singular, must be invertible")
    height, width = size
    return {
        "shift_x": x / w - cx,
        "shift_y": y / w - cy,
        "angle": math.degrees(math.atan2(c, a)),
        "scale_x": scale_x,
        "scale_y": determinant / scale_x,
        "scale": math.sqrt(abs(determinant)),
        "shear": (a * b + c * d) / determinant,
        "perspective_x": p * width / 2,
        "perspective_y": q * height / 2,
    }


def compose(parameters: Mapping[str, float], size: tuple[int, int]) -> Tensor:
    """The homography (3, 3), float64, that has these parameters; what is not named does nothing.

    >>> compose({"shift_x": 3.0}, (100, 100))[0].tolist()
    [1.0, 0.0, 3.0]
    """
    unknown = sorted(set(parameters) - {*PARAMETERS, "scale"})
    if unknown:
        raise ValueError(
            f"parameters must be among {', '.join(PARAMETERS)} and scale, got {', '.join(unknown)}"
        )
    get = {"scale_x": parameters.get("scale", 1.0), "scale_y": parameters.get("scale", 1.0), **parameters}
    angle, shear = math.radians(get.get("angle", 0.0)), get.get("shear", 0.0)
    cos, sin = math.cos(angle), math.sin(angle)
    stretch_x, stretch_y = get["scale_x"], get["scale_y"]
    height, width = size
    local = [
        [cos * stretch_x, (cos * shear - sin) * stretch_y, 0.0],
        [sin * stretch_x, (sin * shear + cos) * stretch_y, 0.0],
        [get.get("perspective_x", 0.0) * 2 / width, get.get("perspective_y", 0.0) * 2 / height, 1.0],
    ]
    cx, cy = geometry.center_of(size)
    there = _translate(cx + get.get("shift_x", 0.0), cy + get.get("shift_y", 0.0))
    moved = geometry.compose(there, torch.tensor(local, dtype=torch.float64), _translate(-cx, -cy))
    return geometry.normalize(moved)


def _translate(x: float, y: float) -> Tensor:
    return geometry.translate(*torch.tensor([x, y], dtype=torch.float64))
