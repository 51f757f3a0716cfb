"""What an estimation between two volumes returns: a transform in voxels and in millimeters, and how certain it is."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.carrier import Carrier, Points
from caunet.estimation.describe import confidence_line
from caunet.estimation.motion_models import SPACE, MotionModel, create_motion_model
from caunet.estimation.motion_models.space import decompose_space
from caunet.estimation.reasons import Reason
from caunet.geometry import Matrix
from caunet.geometry.sampling import VolumeMode
from caunet.sizes import size_text
from caunet.volumes import transforms, uncertainty
from caunet.volumes.resample import resample_volume
from caunet.volumes.volume import SPACES, Space, Volume, between_spaces, checked_affine

__all__ = ["VolumeEstimate"]


@dataclass(frozen=True, eq=False)
class VolumeEstimate(Carrier):
    """How volume b is related to volume a. Arrays are indexed [z, y, x], points are (x, y, z).

    >>> T = geometry.translate(3.0, 0.0, -2.0)
    >>> found = VolumeEstimate(T.double().numpy(), "translation", 0.9, (40, 50, 60), (40, 50, 60),
    ...                        affine_a=np.diag([1.0, 1, 4, 1]), affine_b=np.diag([1.0, 1, 4, 1]))
    >>> found.apply(np.array([[10.0, 10.0, 10.0]]))
    array([[13., 10.,  8.]])
    >>> found.matrix_mm[:3, 3].tolist()
    [3.0, 0.0, -8.0]
    >>> found.inverse() @ found
    VolumeEstimate(translation, shift (+0.00, +0.00, +0.00) mm, angle 0.00°, scale 1.0000, confidence 0.81)
    """

    matrix: Tensor | Matrix
    """(4, 4) float64: voxels (x, y, z) of a to voxels of b. A tensor where the first volume was one."""
    model: str
    """translation, rigid, similarity or affine."""
    confidence: float
    """Probability that the corners of a are off by less than 1 % of its diagonal, on average."""
    size_a: tuple[int, int, int]
    """(depth, height, width) of a."""
    size_b: tuple[int, int, int]
    """(depth, height, width) of b."""
    affine_a: Matrix = dataclasses.field(default_factory=lambda: np.eye(4))
    """(4, 4): voxels (x, y, z) of a to millimeters, in ``space``."""
    affine_b: Matrix = dataclasses.field(default_factory=lambda: np.eye(4))
    """(4, 4): voxels (x, y, z) of b to millimeters, in ``space``."""
    space: Space = "LPS"
    """How millimeters are counted: LPS (ITK, DICOM) or RAS (NIfTI); that of the first volume."""
    seconds: float = 0.0
    """What it took."""
    covariance: Tensor | Matrix | None = None
    """(24, 24) float64: of where the eight corners of a (in the order of ``corners``) lie in b, in square millimeters
    of ``space``, if the answer is right. None if nothing was found."""
    reason: Reason | None = None
    """How it ended: found, blank, unrelated, ambiguous, not this model, out of range; see
    :data:`caunet.estimation.reasons.Reason`."""
    explained: float | None = None
    """Share of a's texture that b shows where the matrix says, 0 to 1."""

    def __post_init__(self) -> None:
        matrix = torch.as_tensor(self.matrix).detach().to("cpu", torch.float64)
        if matrix.shape != (4, 4):
            raise ValueError(f"matrix must have shape (4, 4), got {tuple(matrix.shape)}")
        geometry.check(matrix, "matrix")
        object.__setattr__(self, "matrix", self._kind(matrix / matrix[3, 3]))
        _ = self.motion_model
        for name in ("size_a", "size_b"):
            size = tuple(int(side) for side in getattr(self, name))
            if len(size) != 3 or min(size) < 1:
                raise ValueError(f"{name} must be (depth, height, width) of at least 1 each, got {size}")
            object.__setattr__(self, name, size)
        for name in ("affine_a", "affine_b"):
            object.__setattr__(self, name, checked_affine(getattr(self, name), name))
        if self.space not in SPACES:
            raise ValueError(f"space must be one of {', '.join(SPACES)}, got {self.space!r}")
        self._check_certainty()

    @property
    def motion_model(self) -> MotionModel:
        """The motion model."""
        return create_motion_model(self.model, dimensions=3)

    @property
    def matrix_mm(self) -> Tensor | Matrix:
        """(4, 4) float64: millimeters of a to millimeters of b, as ``space`` counts them."""
        return self._kind(torch.from_numpy(self._mm))

    @property
    def _mm(self) -> Matrix:
        T: Matrix = self.affine_b @ np.asarray(self) @ geometry.invert(self.affine_a)
        T[3] = (0, 0, 0, 1)
        return T

    def in_space(self, space: Space) -> Matrix:
        """(4, 4): millimeters of a to millimeters of b, as ``space`` ("LPS" or "RAS") counts them.

        >>> found = VolumeEstimate(geometry.translate(1.0, 2.0, 3.0), "rigid", 1.0, (9, 9, 9), (9, 9, 9))
        >>> found.in_space("LPS")[:3, 3].tolist(), found.in_space("RAS")[:3, 3].tolist()
        ([1.0, 2.0, 3.0], [-1.0, -2.0, 3.0])
        """
        if space not in SPACES:
            raise ValueError(f"space must be one of {', '.join(SPACES)}, got {space!r}")
        turn = between_spaces(np.eye(4), self.space, space)
        return turn @ self._mm @ turn  # half a turn is its own inverse

    @property
    def parameters(self) -> dict[str, float]:
        """shift_x, ..., rotation_x, ..., angle, scale, stretch_1, ...: at the center of a, in millimeters of ``space``.

        See :func:`caunet.estimation.motion_models.space.decompose_space`.
        """
        center = geometry.apply(self.affine_a, np.array([geometry.center_of(self.size_a)]))[0]
        return decompose_space(self._mm, center)

    @property
    def corners(self) -> Tensor | Matrix:
        """(8, 3): where the corners of a lie in b, in voxels, in the order of :func:`caunet.geometry.corners`."""
        return self._kind(geometry.apply(self._tensor, geometry.corners(self.size_a)))

    def _corners_mm(self, which: str) -> Matrix:
        affine, size = (self.affine_a, self.size_a) if which == "a" else (self.affine_b, self.size_b)
        return geometry.apply(affine, geometry.corners(size, like=affine))

    def __repr__(self) -> str:
        p = self.parameters
        shift = ", ".join(f"{p[f'shift_{axis}'] + 0:+.2f}" for axis in "xyz").replace("-0.00", "+0.00")
        ended = "" if self.reason == "found" else f", {self.reason}"
        return (
            f"VolumeEstimate({self.model}, shift ({shift}) mm, angle {p['angle']:.2f}°, scale {p['scale']:.4f}, "
            f"confidence {self.confidence:.2f}{ended})"
        )

    def inverse(self) -> VolumeEstimate:
        """From b to a: the same knowledge, seen from the other side."""
        spread = None
        if self.covariance is not None:
            ends = self._corners_mm("a"), self._corners_mm("b")
            spread = uncertainty.inverted(self._mm, *ends, np.asarray(self.covariance))
        return dataclasses.replace(
            self,
            matrix=self._kind(torch.from_numpy(geometry.invert(np.asarray(self)))),
            size_a=self.size_b,
            size_b=self.size_a,
            affine_a=self.affine_b,
            affine_b=self.affine_a,
            covariance=spread,
        )

    def __matmul__(self, first: VolumeEstimate) -> VolumeEstimate:
        """``bc @ ab`` is the estimate from a to c; confidence and covariance follow as if both were independent."""
        if not isinstance(first, VolumeEstimate):
            return NotImplemented
        meet = first.size_b == self.size_a and first.space == self.space
        if not meet or np.abs(first.affine_b - self.affine_a).max() > 1e-6 * np.abs(self.affine_a).max():
            raise ValueError("estimates must meet in one volume to be composed, got two different ones")
        spread = None
        if self.covariance is not None and first.covariance is not None:
            spread = uncertainty.composed(
                self._mm,
                (self._corners_mm("a"), np.asarray(self.covariance)),
                first._mm,
                (first._corners_mm("a"), np.asarray(first.covariance)),
            )
        failed = [part.reason for part in (first, self) if part.reason != "found"]
        return VolumeEstimate(
            first._kind(torch.from_numpy(np.asarray(self) @ np.asarray(first))),
            max(self.model, first.model, key=SPACE.index),
            confidence=self.confidence * first.confidence,
            size_a=first.size_a,
            size_b=self.size_b,
            affine_a=first.affine_a,
            affine_b=self.affine_b,
            space=first.space,
            seconds=self.seconds + first.seconds,
            covariance=spread,
            reason=failed[0] if failed else None,
        )

    def uncertainty(self, points: Points | Sequence[Any]) -> Points | npt.NDArray[Any]:
        """(..., 3, 3): covariance of where voxels (..., 3) of a lie in b, in square millimeters, if the answer holds.

        >>> exact = VolumeEstimate(np.eye(4), "affine", 1.0, (9, 9, 9), (9, 9, 9), covariance=np.eye(24) / 100)
        >>> exact.uncertainty([[4, 4, 4]])[0].diagonal().round(6).tolist()
        [0.00125, 0.00125, 0.00125]
        """
        corners, known = self._corners_mm("a"), self.covariance

        def of_place(place: Matrix) -> Matrix:
            at = geometry.apply(self.affine_a, place[None])
            return uncertainty.of_points(corners, np.asarray(known), at)

        return self._spread(points, of_place)

    def warp(self, b: Any, mode: VolumeMode = "linear", fill: float = 0.0) -> Any:
        """b resampled onto the grid of a, so that both can be compared voxel by voxel.

        An array gives an array, a tensor a tensor (both of the same dtype), a path or a Volume a Volume.

        Args:
            b: the second volume, in any form.
            mode: linear, cubic or nearest (for labels).
            fill: what lies outside of b, in b's own units.
        """
        return resample_volume(b, np.asarray(self), self.size_a, self.size_b, mode, fill, self._grid_a())

    def _grid_a(self) -> tuple[Matrix, Space]:
        return between_spaces(self.affine_a, self.space, "LPS"), self.space

    def to_itk(self) -> Any:
        """A SimpleITK ``AffineTransform`` from **a (fixed) to b (moving)**: ``Resample(b, a, T)`` is b on a's grid.

        It counts millimeters in LPS, as ITK does for images that it has read from files.
        """
        return transforms.itk_transform(self.in_space("LPS"))

    def to_fsl(self) -> Matrix:
        """(4, 4) as FSL's flirt writes it: ``flirt -in b -ref a -applyxfm -init M`` is b on a's grid.

        From b to a, in FSL's scaled voxels: voxels times spacing, x counted from the other end where a volume is
        neurological (its affine has a positive determinant in RAS).
        """
        grids = [
            (between_spaces(affine, self.space, "RAS"), size)
            for affine, size in ((self.affine_a, self.size_a), (self.affine_b, self.size_b))
        ]
        return transforms.fsl_matrix(np.asarray(self), *grids)

    def save_transform(self, path: str | os.PathLike[str]) -> None:
        """Write the transform: ``.tfm`` or ``.txt`` for ITK, ``.mat`` for FSL, ``.json`` for caunet; by the suffix."""
        transforms.save(self, path)

    def summary(self) -> str:
        """All of it in a few lines of plain text."""
        sizes = " to ".join(
            f"{name} ({size_text(size)})" for name, size in (("a", self.size_a), ("b", self.size_b))
        )
        lines = [f"{self.model}, from {sizes}, millimeters in {self.space}:"]
        for matrix in (self._mm,):
            lines += ["  " + " ".join(f"{0 if abs(v) < 1e-12 else v:14.7g}" for v in row) for row in matrix]
        rows = self.motion_model.describe(self.parameters)
        rows.append(("confidence", confidence_line(self.confidence, self.reason)))
        rows.append(("time", f"{self.seconds:.2f} s"))
        return "\n".join([*lines, *(f"  {name:<12} {value}" for name, value in rows)])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        data: dict[str, Any] = {
            "model": self.model,
            "matrix": self._tensor.tolist(),
            "matrix_mm": self._mm.tolist(),
            "space": self.space,
            "confidence": self.confidence,
            "reason": self.reason,
            "parameters": self.parameters,
            "size_a": list(self.size_a),
            "size_b": list(self.size_b),
            "affine_a": self.affine_a.tolist(),
            "affine_b": self.affine_b.tolist(),
            "seconds": self.seconds,
        }
        if self.explained is not None:
            data["explained"] = self.explained
        if self.covariance is not None:
            data["covariance"] = self.covariance.tolist()
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> VolumeEstimate:
        """The estimate from :meth:`to_json`'s data; its matrix is an array."""
        try:
            spread = data.get("covariance")
            return cls(
                matrix=np.array(data["matrix"], dtype=np.float64),
                model=data["model"],
                confidence=float(data["confidence"]),
                size_a=tuple(data["size_a"]),
                size_b=tuple(data["size_b"]),
                affine_a=np.array(data["affine_a"], dtype=np.float64),
                affine_b=np.array(data["affine_b"], dtype=np.float64),
                space=data["space"],
                seconds=float(data.get("seconds", 0.0)),
                covariance=None if spread is None else np.array(spread, dtype=np.float64),
                reason=data.get("reason"),
                explained=None if (share := data.get("explained")) is None else float(share),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"this is not the JSON of a volume estimate: {type(error).__name__}: {error}"
            ) from error

    def volume_of(self, values: npt.NDArray[Any]) -> Volume:
        """Values (depth, height, width) on a's grid as a volume that lies where a does."""
        to_mm, space = self._grid_a()
        return Volume(values, to_mm, space)
