"""What an estimation returns: a transform, how certain it is, and the motions it was fitted to.

Convention as in :mod:`caunet.geometry`: ``matrix`` maps points (x, y) of a to points of b, in pixels, pixel centers
at integers, x to the right, y down.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.describe import summarize
from caunet.estimation.motion_models import MotionModel, create_motion_model
from caunet.estimation.resample import resample_onto
from caunet.geometry.sampling import Mode

__all__ = ["Estimate", "Field"]

Points = TypeVar("Points", Tensor, npt.NDArray[Any])


@dataclass(frozen=True, eq=False)
class Field:
    """Sparse motions: ``points`` of a are found in b at ``points + motion``, as reliable as ``weight``.

    A dense field (a motion for every pixel) would be a class of its own beside this one.

    >>> Field(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 0.0]]), torch.tensor([1.0]))
    Field(1 motions)
    """

    points: Tensor
    """(N, 2) float64, pixels of a."""
    motion: Tensor
    """(N, 2) float64, pixels."""
    weight: Tensor
    """(N,) float64, not negative."""

    def __post_init__(self) -> None:
        count = len(self.points)
        for name, shape in (("points", (count, 2)), ("motion", (count, 2)), ("weight", (count,))):
            value = torch.as_tensor(getattr(self, name)).detach().to(torch.float64)  # as JSON has it
            object.__setattr__(self, name, value)
            if tuple(value.shape) != shape:
                raise ValueError(f"{name} must have shape {shape}, got {tuple(value.shape)}")
            if not bool(value.isfinite().all()):
                raise ValueError(f"{name} must hold finite numbers, got some that are not")

    @classmethod
    def empty(cls) -> Field:
        """No motion at all."""
        return cls(torch.zeros(0, 2), torch.zeros(0, 2), torch.zeros(0))

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"Field({len(self)} motions)"


@dataclass(frozen=True, eq=False)
class Estimate:
    """How image b is related to image a.

    >>> H = geometry.translate(3.0, -2.0)
    >>> found = Estimate(H, "translation", confidence=0.97, size_a=(100, 200), size_b=(100, 200))
    >>> found.apply(np.array([[10.0, 10.0]]))
    array([[13., 8.]])
    >>> found.parameters["shift_x"], found.parameters["angle"]
    (3.0, 0.0)
    >>> Estimate.from_json(found.to_json()).to_json() == found.to_json()
    True
    """

    matrix: Tensor
    """(3, 3) float64, from a to b, its last entry 1."""
    model: str
    """The name of the motion model: translation, euclidean, similarity, affine, projective, camera-rotation, ..."""
    confidence: float
    """Probability that the corners are off by less than 1 % of a's diagonal, on average."""
    size_a: tuple[int, int]
    """(height, width) of a."""
    size_b: tuple[int, int]
    """(height, width) of b."""
    inliers: Tensor = dataclasses.field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    """(N,) bool: which motions of the field agree with the matrix."""
    field: Field = dataclasses.field(default_factory=Field.empty)
    """The motions it was fitted to."""
    seconds: float = 0.0
    """What it took."""
    model_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of the motion model: ``focal`` and ``principal_point`` of camera-rotation; most have none."""

    def __post_init__(self) -> None:
        matrix = torch.as_tensor(self.matrix).detach().to("cpu", torch.float64)
        geometry.check(matrix, "matrix")
        _one_matrix(matrix)
        object.__setattr__(self, "matrix", geometry.normalize(matrix))
        object.__setattr__(
            self, "model_options", dict(create_motion_model(self.model, **self.model_options).options)
        )
        for name in ("size_a", "size_b"):
            height, width = (int(side) for side in getattr(self, name))
            if min(height, width) < 1:
                raise ValueError(f"{name} must be (height, width) of at least 1 each, got {(height, width)}")
            object.__setattr__(self, name, (height, width))
        if not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence must be a number within 0..1, got {self.confidence}")
        object.__setattr__(self, "confidence", float(self.confidence))
        if tuple(self.inliers.shape) != (len(self.field),) or self.inliers.dtype != torch.bool:
            raise ValueError(
                f"inliers must be {len(self.field)} bools, one for each motion, got {tuple(self.inliers.shape)}"
            )
        _ = self.parameters  # refuses what sends the center to infinity

    @property
    def parameters(self) -> dict[str, float]:
        """shift_x, shift_y, angle, scale_x, scale_y, scale, shear, perspective_x, perspective_y.

        All of them describe the neighborhood of the center of a: see
        :func:`caunet.estimation.decomposition.decompose`. A camera rotation has pan, tilt and roll besides.
        """
        return self.motion_model.parameters(self.matrix, self.size_a)

    @property
    def motion_model(self) -> MotionModel:
        """The motion model, for images of these sizes."""
        model = create_motion_model(self.model, **self.model_options)
        return model.for_images(self.size_a, self.size_b)

    @property
    def inverse(self) -> Tensor:
        """(3, 3) float64, from b to a, its last entry 1."""
        return geometry.normalize(geometry.invert(self.matrix))

    @property
    def corners(self) -> Tensor:
        """(4, 2) float64: where the corners of a lie in b, clockwise from the upper left."""
        return geometry.apply(self.matrix, geometry.corners(self.size_a))

    def apply(self, points: Points | Sequence[Any]) -> Points | npt.NDArray[Any]:
        """Points of a (..., 2) carried to b; a tensor gives a tensor, anything else an array.

        Floats keep their precision; whole numbers become float64.
        """
        if isinstance(points, Tensor):
            values = points if points.is_floating_point() else points.double()
            return self._carry(values)
        array = np.asarray(points)
        if array.dtype.kind not in "uif":
            raise TypeError(f"points must be numbers (..., 2), got {array.dtype}")
        kept = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
        return self._carry(torch.from_numpy(array.astype(np.float64))).numpy().astype(kept)

    def _carry(self, points: Tensor) -> Tensor:
        if points.ndim < 1 or points.shape[-1] != 2:
            raise ValueError(f"points must have shape (..., 2), got {tuple(points.shape)}")
        carried = geometry.apply(self.matrix.to(points.device), points.double().reshape(-1, 2))
        return carried.reshape(points.shape).to(points.dtype)

    def warp(
        self, b: Any, size: tuple[int, int] | None = None, fill: float = 0.0, mode: Mode = "bilinear"
    ) -> Any:
        """Resample b onto the grid of a, so that both can be compared pixel by pixel.

        An array (H, W) or (H, W, C) gives an array, a tensor (H, W) or (C, H, W) a tensor, Pillow's image such an
        image; of the same dtype. A path gives Pillow's image.

        Args:
            b: the second image, in any form.
            size: (height, width) of the grid; that of a if not given.
            fill: what lies outside of b, in b's own units.
            mode: bilinear, bicubic or nearest.
        """
        return resample_onto(b, self.matrix, size or self.size_a, fill, mode, expected=self.size_b)

    def summary(self) -> str:
        """All of it in a few lines of plain text."""
        return summarize(self.to_json(field=False))

    def to_json(self, *, field: bool = True) -> dict[str, Any]:
        """Plain JSON data; ``field=False`` leaves out the motions (``matches`` and ``inliers`` count them)."""
        data: dict[str, Any] = {
            "model": self.model,
            "matrix": self.matrix.tolist(),
            "confidence": self.confidence,
            "parameters": self.parameters,
            "size_a": list(self.size_a),
            "size_b": list(self.size_b),
            "matches": len(self.field),
            "inliers": int(self.inliers.sum()),
            "seconds": self.seconds,
        }
        if self.model_options:
            data["model_options"] = dict(self.model_options)
        if field:
            data["field"] = {
                **{f.name: getattr(self.field, f.name).tolist() for f in dataclasses.fields(Field)},
                "inlier": self.inliers.tolist(),
            }
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Estimate:
        """The estimate from :meth:`to_json`'s data; without a ``field`` that of the result is empty."""
        try:
            return cls(
                matrix=torch.tensor(data["matrix"], dtype=torch.float64),
                model=data["model"],
                confidence=float(data["confidence"]),
                size_a=tuple(data["size_a"]),
                size_b=tuple(data["size_b"]),
                seconds=float(data.get("seconds", 0.0)),
                model_options=data.get("model_options", {}),
                **_motions(data.get("field")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"this is not the JSON of an estimate: {type(error).__name__}: {error}"
            ) from error


def _motions(data: Mapping[str, Any] | None) -> dict[str, Any]:
    if data is None:
        return {}
    wide = torch.float64
    points, motion = (torch.tensor(data[name], dtype=wide).reshape(-1, 2) for name in ("points", "motion"))
    weight, inlier = torch.tensor(data["weight"], dtype=wide), torch.tensor(data["inlier"], dtype=torch.bool)
    return {"field": Field(points, motion, weight), "inliers": inlier}


def _one_matrix(matrix: Tensor) -> None:
    if matrix.shape != (3, 3):
        raise ValueError(f"matrix must have shape (3, 3), got {tuple(matrix.shape)}")
    # An entry so small beside the others that dividing by it leaves nothing to count with.
    if not math.isfinite(float((matrix / matrix[2, 2]).abs().max())):
        raise ValueError("matrix must not send the origin to infinity, got one whose last entry is 0")
