"""Which answers are allowed: bounds on shift, angle and scale, at the center of the first image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from caunet import geometry
from caunet.geometry import Matrix

__all__ = ["Bounds", "Limits"]

Range = tuple[float, float]


@dataclass(frozen=True)
class Bounds:
    """How far an answer may go, in terms of :attr:`caunet.Estimate.parameters`; None is no bound.

    >>> Bounds.of({"shift": 20, "angle": 5, "scale": 1.25})
    Bounds(shift=20.0, angle=(-5.0, 5.0), scale=(0.8, 1.25))
    >>> Bounds.of({"shift": -1})
    Traceback (most recent call last):
    ...
    ValueError: bounds['shift'] must be a distance (pixels; millimeters of volumes), 0 or more, got -1
    """

    shift: float | None = None
    """The largest distance in pixels by which the center of a may move."""
    angle: Range | None = None
    """The smallest and the largest angle in degrees, clockwise."""
    scale: Range | None = None
    """The smallest and the largest scale."""

    @classmethod
    def of(cls, value: Any) -> Bounds | None:
        """From a dict with ``shift`` (the largest distance), ``angle`` and ``scale`` (the largest, or low and high)."""
        if value is None or isinstance(value, Bounds):
            return value
        names = ("shift", "angle", "scale")
        if not isinstance(value, Mapping) or not value or not set(value) <= set(names):
            raise ValueError(f"bounds must be a dict with some of {', '.join(names)}, got {value!r}")
        return cls(
            _shift(value["shift"]) if "shift" in value else None,
            _angles(value["angle"]) if "angle" in value else None,
            _scales(value["scale"]) if "scale" in value else None,
        )


class Limits(NamedTuple):
    """Bounds for two images, in the coordinates of those images or of parts of them."""

    bounds: Bounds
    point: Matrix
    """(2,): the center of a."""
    factor: Range = (1.0, 1.0)
    """Pixels of the part to one of the image, in a and in b."""
    origin: Matrix = np.zeros(2)
    """(2,): where a center that does not move would be in b."""

    @classmethod
    def for_image(cls, bounds: Bounds, size_a: tuple[int, int]) -> Limits:
        """In pixels of the whole images."""
        center = np.array(geometry.center_of(size_a))
        return cls(bounds, center, (1.0, 1.0), center)

    def inside(self, from_a: Matrix, from_b: Matrix) -> Limits:
        """For parts of the images; ``from_a`` and ``from_b`` (3, 3) are shifts and scales of their pixels."""
        point, origin = (
            geometry.apply(T, p[None])[0] for T, p in ((from_a, self.point), (from_b, self.origin))
        )
        factor = (self.factor[0] * float(from_a[0, 0]), self.factor[1] * float(from_b[0, 0]))
        return Limits(self.bounds, point, factor, origin)

    def contains(self, H: Matrix, slack: float = 1e-6) -> bool:
        """Whether H (3, 3) keeps to the bounds."""
        moved = geometry.apply_homogeneous(H, self.point[None])[0]
        if not abs(moved[2]) > 1e-9:
            return False
        place = moved[:2] / moved[2]
        if self.bounds.shift is not None:
            distance = float(np.hypot(*(place - self.origin))) / self.factor[1]
            if not distance <= self.bounds.shift + slack:
                return False
        slopes = (H[:2, :2] - place[:, None] * H[2:, :2]) / moved[2]
        angle = math.degrees(math.atan2(slopes[1, 0], slopes[0, 0]))
        scale = math.sqrt(abs(float(np.linalg.det(slopes)))) * self.factor[0] / self.factor[1]
        return self.allows_angle(angle, slack) and self.allows_scale(scale, slack)

    def allows_angle(self, degrees: float, slack: float = 0.0) -> bool:
        """Whether an angle is within the bounds, or no more than ``slack`` degrees outside of them."""
        if self.bounds.angle is None:
            return True
        low, high = self.bounds.angle
        return (degrees - low + slack) % 360 <= high - low + 2 * slack

    def allows_scale(self, scale: float, slack: float = 0.0) -> bool:
        """Whether a scale of the images is within the bounds, or outside by a share of ``slack`` at most."""
        if self.bounds.scale is None:
            return True
        low, high = self.bounds.scale
        return low / (1 + slack) <= scale <= high * (1 + slack)

    def nearest(self, H: Matrix) -> Matrix:
        """A similarity within the bounds near H, in pixels of the whole images."""
        place = geometry.apply(H, self.point[None])[0]
        slopes = H[:2, :2]
        angle = math.degrees(math.atan2(slopes[1, 0], slopes[0, 0]))
        scale = math.sqrt(abs(float(np.linalg.det(slopes))))
        if self.bounds.angle is not None and not self.allows_angle(angle):
            low, high = self.bounds.angle
            angle = min((low, high), key=lambda end: abs((angle - end + 180) % 360 - 180))
        if self.bounds.scale is not None:
            scale = min(max(scale, self.bounds.scale[0]), self.bounds.scale[1])
        if self.bounds.shift is not None:
            away = place - self.origin
            distance = float(np.hypot(*away))
            if distance > self.bounds.shift:
                place = self.origin + away * (self.bounds.shift / distance)
        cos, sin = scale * math.cos(math.radians(angle)), scale * math.sin(math.radians(angle))
        linear = np.array([[cos, -sin], [sin, cos]])
        near = np.eye(3)
        near[:2, :2], near[:2, 2] = linear, place - linear @ self.point
        return near


def _shift(value: Any) -> float:
    if not _is_number(value) or value < 0:
        raise ValueError(
            f"bounds['shift'] must be a distance (pixels; millimeters of volumes), 0 or more, got {value!r}"
        )
    return float(value)


def _angles(value: Any) -> Range:
    low, high = (-value, value) if _is_number(value) else _pair(value)
    if not -360 <= low <= high <= 360:
        raise ValueError(
            f"bounds['angle'] must be the largest angle in degrees, or (smallest, largest), got {value!r}"
        )
    return float(low), float(high)


def _scales(value: Any) -> Range:
    low, high = (1 / value if value > 0 else math.nan, value) if _is_number(value) else _pair(value)
    if not 0 < low <= high:
        raise ValueError(
            f"bounds['scale'] must be the largest factor, 1 or more, or (smallest, largest), got {value!r}"
        )
    return float(low), float(high)


def _pair(value: Any) -> Range:
    if isinstance(value, Sequence) and len(value) == 2 and all(_is_number(end) for end in value):
        return value[0], value[1]
    return math.nan, math.nan


def _is_number(value: object) -> bool:
    return type(value) is not bool and isinstance(value, int | float | np.number) and math.isfinite(value)
