"""What an estimation returns: a transform, how certain it is, and the motions it was fitted to.

Convention as in :mod:`caunet.geometry`: ``matrix`` maps points (x, y) of a to points of b, in pixels, pixel centers
at integers, x to the right, y down.

Matrices, corners and covariances are NumPy arrays (float64) where the images were arrays, files or Pillow's, and
tensors (float64, on the CPU) where the first image was a tensor. ``numpy.asarray(estimate)`` is the matrix as an array
in either case.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation import exports, uncertainty
from caunet.estimation.canvas import Canvas, CanvasName, canvas_of
from caunet.estimation.carrier import Carrier, Points
from caunet.estimation.describe import summarize
from caunet.estimation.motion_models import PLANE, MotionModel, create_motion_model
from caunet.estimation.reasons import Reason
from caunet.estimation.resample import Fill, resample_onto, seen_from
from caunet.geometry import Matrix
from caunet.geometry.sampling import Mode

__all__ = ["Estimate", "Field"]


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
class Estimate(Carrier):
    """How image b is related to image a.

    >>> H = geometry.translate(3.0, -2.0)
    >>> found = Estimate(H, "translation", confidence=0.97, size_a=(100, 200), size_b=(100, 200))
    >>> found.apply(np.array([[10.0, 10.0]]))
    array([[13., 8.]])
    >>> found.parameters["shift_x"], found.parameters["angle"]
    (3.0, 0.0)
    >>> Estimate.from_json(found.to_json()).to_json() == found.to_json()
    True
    >>> found.inverse() @ found
    Estimate(translation, shift (+0.00, +0.00) px, angle +0.00°, scale 1.0000, confidence 0.94)
    """

    matrix: Tensor | Matrix
    """(3, 3) float64, from a to b, its last entry 1; an array or a tensor (see the top of this module)."""
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
    covariance: Tensor | Matrix | None = None
    """(8, 8) float64: of where the corners of a lie in b (x, y of each, in the order of ``corners``), in square pixels,
    if the answer is right. The 2 x 2 blocks on the diagonal are the corners' ellipses. None if nothing was found."""
    reason: Reason | None = None
    """How it ended: found, blank, unrelated, ambiguous, not this model, out of range (see
    :data:`caunet.estimation.reasons.Reason`); if not given, found or unrelated, by the confidence."""
    explained: float | None = None
    """Share of the texture of a that b shows where the matrix says, to half a percent of the diagonal, 0 to 1: less
    than 1 where the scene has depth or something covers it. None if nobody looked."""

    def __post_init__(self) -> None:
        matrix = torch.as_tensor(self.matrix).detach().to("cpu", torch.float64)
        geometry.check(matrix, "matrix")
        _one_matrix(matrix)
        object.__setattr__(self, "matrix", self._kind(geometry.normalize(matrix)))
        object.__setattr__(
            self, "model_options", dict(create_motion_model(self.model, **self.model_options).options)
        )
        for name in ("size_a", "size_b"):
            height, width = (int(side) for side in getattr(self, name))
            if min(height, width) < 1:
                raise ValueError(f"{name} must be (height, width) of at least 1 each, got {(height, width)}")
            object.__setattr__(self, name, (height, width))
        self._check_certainty()
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
        return self.motion_model.parameters(self._tensor, self.size_a)

    @property
    def motion_model(self) -> MotionModel:
        """The motion model, for images of these sizes."""
        model = create_motion_model(self.model, **self.model_options)
        return model.for_images(self.size_a, self.size_b)

    def __repr__(self) -> str:
        p = self.parameters
        shift = f"({p['shift_x']:+.2f}, {p['shift_y']:+.2f})"
        ended = "" if self.reason == "found" else f", {self.reason}"
        return (
            f"Estimate({self.model}, shift {shift} px, angle {p['angle']:+.2f}°, scale {p['scale']:.4f}, "
            f"confidence {self.confidence:.2f}{ended})"
        )

    def inverse(self) -> Estimate:
        """From b to a: the same knowledge, seen from the other side."""
        H = np.asarray(self)
        spread = None
        if self.covariance is not None:
            spread = uncertainty.inverted(H, self.size_a, self.size_b, np.asarray(self.covariance))
        back = geometry.normalize(geometry.invert(H))
        return dataclasses.replace(
            self,
            matrix=self._kind(torch.from_numpy(back)),
            size_a=self.size_b,
            size_b=self.size_a,
            field=Field(self.field.points + self.field.motion, -self.field.motion, self.field.weight),
            covariance=spread,
        )

    def __matmul__(self, first: Estimate) -> Estimate:
        """``bc @ ab`` is the estimate from a to c, as the product of matrices is.

        The confidence is the product of both, the covariance follows from both as if they were independent, and the
        motion model is the more general one. There is no field: nobody compared a with c.
        """
        if not isinstance(first, Estimate):
            return NotImplemented
        if first.size_b != self.size_a:
            raise ValueError(
                f"estimates must meet in one image to be composed, got one that ends in {first.size_b} and "
                f"one that begins with {self.size_a}"
            )
        spread = None
        if self.covariance is not None and first.covariance is not None:
            spread = uncertainty.composed(
                *((np.asarray(part), part.size_a, np.asarray(part.covariance)) for part in (self, first))
            )
        model, options = _joint_model(self, first)
        failed = [part.reason for part in (first, self) if part.reason != "found"]
        confidence = self.confidence * first.confidence
        return Estimate(
            first._kind(torch.from_numpy(np.asarray(self) @ np.asarray(first))),
            model,
            confidence=confidence,
            size_a=first.size_a,
            size_b=self.size_b,
            seconds=self.seconds + first.seconds,
            model_options=options,
            covariance=spread,
            reason=failed[0] if failed else None,
        )

    def uncertainty(self, points: Points | Sequence[Any]) -> Points | npt.NDArray[Any]:
        """(..., 2, 2): covariance in b of points (..., 2) of a carried to b, in square pixels, if the answer is right.

        The square roots of its diagonal are the standard deviations of x and y; 95 % of the time the point lies in
        the ellipse d^T C^-1 d < 5.99. A tensor gives a tensor, anything else an array.

        >>> exact = Estimate(np.eye(3), "affine", 1.0, (10, 10), (10, 10), covariance=np.eye(8) / 100)
        >>> exact.uncertainty([[0, 0]])[0].round(6).tolist()
        [[0.01, 0.0], [0.0, 0.01]]
        """
        H, size, known = np.asarray(self), self.size_a, self.covariance
        return self._spread(
            points, lambda place: uncertainty.of_points(H, size, np.asarray(known), place[None])
        )

    @property
    def corners(self) -> Tensor | Matrix:
        """(4, 2) float64: where the corners of a lie in b, clockwise from the upper left."""
        return self._kind(geometry.apply(self._tensor, geometry.corners(self.size_a)))

    def canvas(self, name: CanvasName = "union") -> Canvas:
        """A grid in pixels of a: ``a`` itself, the smallest that holds both (``union``), or both show (``overlap``).

        >>> found = Estimate(geometry.translate(5.0, -3.0), "translation", 0.9, size_a=(20, 30), size_b=(20, 30))
        >>> found.canvas("union")
        Canvas(x=-5, y=0, width=35, height=23)
        """
        return canvas_of(name, np.asarray(self), self.size_a, self.size_b)

    def to_opencv(self) -> Matrix:
        """(3, 3) float64 from **b to a**: ``cv2.warpPerspective(b, M, (width, height))`` is b on the grid of a.

        OpenCV takes the matrix from source to destination unless ``WARP_INVERSE_MAP`` is set; its pixel centers are at
        whole numbers, as here. For ``cv2.warpAffine`` take ``M[:2]`` of a model without perspective. From a to b, as
        ``cv2.findHomography(points_a, points_b)`` gives it, is ``matrix``.
        """
        return exports.opencv_matrix(np.asarray(self))

    def to_skimage(self) -> Any:
        """A ``ProjectiveTransform`` from **a to b**: ``warp(b, T, output_shape=size_a)`` is b on the grid of a.

        ``skimage.transform.warp`` takes the map from output to input; its points are (x, y), as here.
        """
        return exports.skimage_transform(np.asarray(self))

    def to_itk(self) -> Any:
        """A SimpleITK ``AffineTransform`` from **a (fixed) to b (moving)**: ``Resample(b, a, T)`` is b on a's grid.

        Points are (x, y) in pixels, so both images must have spacing 1 and origin 0, as ``GetImageFromArray`` makes
        them. There is no projective transform in SimpleITK: an estimate with perspective is refused.
        """
        return exports.itk_transform(np.asarray(self))

    def to_kornia(self) -> Tensor:
        """(1, 3, 3) float64 from **b to a**: ``warp_perspective(b, M, dsize=size_a)`` is b (1, C, H, W) on a's grid.

        ``kornia.geometry.warp_perspective`` takes the matrix from source to destination, in the dtype of the image;
        pixel centers are at whole numbers (``align_corners=True``, its default).
        """
        return exports.kornia_matrix(np.asarray(self))

    def warp(
        self,
        b: Any,
        size: tuple[int, int] | None = None,
        fill: Fill = 0.0,
        mode: Mode = "bilinear",
        *,
        canvas: CanvasName = "a",
        return_valid: bool = False,
    ) -> Any:
        """Resample b onto the grid of a, so that both can be compared pixel by pixel.

        An array (H, W) or (H, W, C) gives an array, a tensor (H, W) or (C, H, W) a tensor, Pillow's image such an
        image; of the same dtype. A path gives Pillow's image.

        Args:
            b: the second image, in any form.
            size: (height, width) of the grid; that of a if not given.
            fill: what lies outside of b, in b's own units: a number, or one for each channel; NaN for floats.
            mode: bilinear, bicubic or nearest.
            canvas: the grid: ``a``, ``union`` (holds a and b) or ``overlap`` (what both show); :meth:`canvas` tells
                where in a it begins.
            return_valid: also return which pixels come from b alone, (height, width) bool, as a tensor for a tensor,
                else as an array.
        """
        if size is not None and canvas != "a":
            raise ValueError(f"size must be left out with canvas {canvas!r}, which has its own, got {size}")
        grid = self.canvas(canvas)
        shape, origin = size or grid.size, (grid.x, grid.y)
        matrix = self._tensor
        warped = resample_onto(b, matrix, shape, fill, mode, expected=self.size_b, origin=origin)
        if not return_valid:
            return warped
        valid = seen_from(self.size_b, matrix, shape, mode, origin)
        return warped, valid.to(b.device) if isinstance(b, Tensor) else valid.numpy()

    def summary(self) -> str:
        """All of it in a few lines of plain text."""
        return summarize(self.to_json(field=False))

    def to_json(self, *, field: bool = True) -> dict[str, Any]:
        """Plain JSON data; ``field=False`` leaves out the motions (``matches`` and ``inliers`` count them)."""
        data: dict[str, Any] = {
            "model": self.model,
            "matrix": self._tensor.tolist(),
            "confidence": self.confidence,
            "reason": self.reason,
            "parameters": self.parameters,
            "size_a": list(self.size_a),
            "size_b": list(self.size_b),
            "matches": len(self.field),
            "inliers": int(self.inliers.sum()),
            "seconds": self.seconds,
        }
        if self.explained is not None:
            data["explained"] = self.explained
        if self.covariance is not None:
            data["covariance"] = self.covariance.tolist()
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
        """The estimate from :meth:`to_json`'s data; without a ``field`` that of the result is empty.

        Its matrix is an array.
        """
        try:
            return cls(
                matrix=_array(data["matrix"], "matrix"),
                model=data["model"],
                confidence=float(data["confidence"]),
                size_a=tuple(data["size_a"]),
                size_b=tuple(data["size_b"]),
                seconds=float(data.get("seconds", 0.0)),
                model_options=data.get("model_options", {}),
                covariance=None
                if (spread := data.get("covariance")) is None
                else _array(spread, "covariance"),
                reason=data.get("reason"),
                explained=None if (share := data.get("explained")) is None else float(share),
                **_motions(data.get("field")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"this is not the JSON of an estimate: {type(error).__name__}: {error}"
            ) from error


def _array(values: Any, name: str) -> Matrix:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, got {values!r}") from error


def _joint_model(second: Estimate, first: Estimate) -> tuple[str, Mapping[str, Any]]:
    """The motion model that holds the product: the same, the more general of two of the plane, or projective."""
    same = (second.model, dict(second.model_options)) == (first.model, dict(first.model_options))
    if same:
        return first.model, first.model_options
    if second.model in PLANE and first.model in PLANE:
        return max(second.model, first.model, key=PLANE.index), {}
    return "projective", {}


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
