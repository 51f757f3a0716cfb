"""A motion model some of whose parameters are known: they keep their values, the others are estimated."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from torch import Tensor

from caunet import geometry
from caunet.estimation.decomposition import compose
from caunet.estimation.motion_models.base import MotionModel, Rows
from caunet.estimation.motion_models.plane import fit_entries
from caunet.geometry import Matrix

__all__ = ["Fixed"]

_SHIFTS = ("shift_x", "shift_y")
_ALLOWED = {
    "translation": _SHIFTS,
    "euclidean": (*_SHIFTS, "angle"),
    "similarity": (*_SHIFTS, "angle", "scale"),
    "affine": _SHIFTS,
    "projective": _SHIFTS,
}


class Fixed(MotionModel):
    """The transforms of ``model`` that have the parameters ``fixed``, as :attr:`caunet.Estimate.parameters` has them.

    What is left must be a group about the center of a, so that fits can be composed: an angle, a scale and both shifts
    may be fixed, of affine and projective models both shifts only; one shift alone where nothing turns.

    >>> from caunet.estimation.motion_models import Similarity
    >>> model = Fixed(Similarity(), {"angle": 90.0}).for_images((101, 101), (101, 101))
    >>> model.freedom, model.nearest(np.eye(3))[:2, :2].round(6).tolist()
    (3, [[0.0, -1.0], [1.0, 0.0]])
    """

    def __init__(self, model: MotionModel, fixed: Mapping[str, float]) -> None:
        self.model, self.fixed = model, _checked(model, fixed)
        self.name = f"{model.name} with fixed {', '.join(self.fixed)}"
        self.search_angles, self.search_scales = model.search_angles, model.search_scales
        self.simpler = model.simpler
        # Coordinates about the center of a, half its longer side being 1, to those in use; and what is fixed in these.
        self._frame, self._first = np.eye(3), np.eye(3)
        self._directions = self._free_shifts(np.eye(2))
        self.freedom = len(self.generators())

    @property
    def options(self) -> dict[str, Any]:
        return self.model.options

    def for_images(self, size_a: tuple[int, int], size_b: tuple[int, int]) -> Self:
        bound, unit = copy.copy(self), max(size_a) / 2
        (xa, ya), (xb, yb) = geometry.center_of(size_a), geometry.center_of(size_b)
        bound._frame = np.array([[unit, 0, xa], [0, unit, ya], [0, 0, 1.0]])
        known = {"shift_x": xb - xa, "shift_y": yb - ya, **self.fixed}
        bound._first = compose(known, size_a).numpy()
        bound._directions = self._free_shifts(bound._first[:2, :2])
        return bound

    def in_coordinates(self, T: Matrix) -> Self:
        bound = copy.copy(self)
        bound._frame = T @ self._frame
        bound._first = T @ self._first @ geometry.invert(T, checked=False)
        return bound

    def initial(self, size_a: tuple[int, int], size_b: tuple[int, int]) -> Matrix:
        return self.for_images(size_a, size_b)._first

    def nearest(self, H: Matrix) -> Matrix:
        """What has the free parameters of H at the center of a."""
        out = geometry.invert(self._frame, checked=False)
        local = out @ geometry.invert(self._first, checked=False) @ H @ self._frame
        local = local / (local[2, 2] if abs(local[2, 2]) > 1e-9 else 1e-9)
        place = local[:2, 2].copy()
        local[:2] -= place[:, None] * local[2:]
        if self.model.name != "projective":
            local[2] = 0, 0, 1
        if self.model.name not in ("affine", "projective"):
            angle = math.atan2(local[1, 0], local[0, 0]) if self._turns else 0.0
            scale = math.sqrt(abs(float(np.linalg.det(local[:2, :2])))) if self._grows else 1.0
            cos, sin = scale * math.cos(angle), scale * math.sin(angle)
            local[:2, :2] = (cos, -sin), (sin, cos)
        share = np.linalg.lstsq(self._directions.T, place, rcond=None)[0]
        local[:2] += (share @ self._directions)[:, None] * local[2:]
        return geometry.normalize(self._first @ self._frame @ local @ out, checked=False)

    def generators(self) -> Matrix:
        parts = [_matrix({(0, 2): x, (1, 2): y}) for x, y in self._directions]
        if self.model.name in ("affine", "projective"):
            entries = [(0, 0), (0, 1), (1, 0), (1, 1)]
            entries += [(2, 0), (2, 1)] if self.model.name == "projective" else []
            parts += [_matrix({entry: 1.0}) for entry in entries]
        if self._turns:
            parts.append(_matrix({(0, 1): -1.0, (1, 0): 1.0}))
        if self._grows:
            parts.append(_matrix({(0, 0): 1.0, (1, 1): 1.0}))
        back = geometry.invert(self._frame, checked=False)
        moved = [self._frame @ part @ back for part in parts]
        return np.array([(part - part[2, 2] * np.eye(3)).reshape(-1)[:8] for part in moved]).reshape(-1, 8)

    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        back = geometry.invert(self._frame, checked=False)
        p, q = geometry.apply(back, source), geometry.apply(back, target)
        if self.model.name in ("affine", "projective"):
            entries = [0, 1, 3, 4, 6, 7] if self.model.name == "projective" else [0, 1, 3, 4]
            H = fit_entries(entries, p, q, weight, prior)
        elif self._turns:
            H = self._fit_turn(p, q, weight)
        else:
            H = self._fit_linear(p, q, weight)
        member: Matrix = self._frame @ H @ back
        return member

    def parameters(self, matrix: Tensor, size_a: tuple[int, int]) -> dict[str, float]:
        return self.model.parameters(matrix, size_a)

    @classmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        raise NotImplementedError("the motion model that is fixed describes its parameters")

    @property
    def _turns(self) -> bool:
        return self.model.name in ("euclidean", "similarity") and "angle" not in self.fixed

    @property
    def _grows(self) -> bool:
        return self.model.name == "similarity" and "scale" not in self.fixed

    def _free_shifts(self, linear: Matrix) -> Matrix:
        """(n, 2): directions in a along which it may be shifted; ``linear`` (2, 2) takes them to those of b."""
        axes = np.eye(2)[[k for k, name in enumerate(_SHIFTS) if name not in self.fixed]]
        ways = axes @ np.linalg.inv(linear).T
        free: Matrix = ways / np.linalg.norm(ways, axis=1, keepdims=True)
        return free

    def _fit_turn(self, p: Matrix, q: Matrix, weight: Matrix) -> Matrix:
        """A rotation (and a scale), about the weighted means where shifts are free, else about the center."""
        total, free = max(weight.sum(), 1e-12), len(self._directions) > 0
        from_mean, to_mean = (weight @ points / total if free else np.zeros(2) for points in (p, q))
        p, q = p - from_mean, q - to_mean
        cos = float(weight @ (p * q).sum(1))
        sin = float(weight @ (p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]))
        length = float(weight @ np.square(p).sum(1)) if self._grows else math.hypot(cos, sin)
        if length < 1e-12:
            cos, sin, length = 1.0, 0.0, 1.0
        H = np.eye(3)
        H[:2, :2] = np.array([[cos, -sin], [sin, cos]]) / length
        H[:2, 2] = to_mean - H[:2, :2] @ from_mean
        return H

    def _fit_linear(self, p: Matrix, q: Matrix, weight: Matrix) -> Matrix:
        """A scale and shifts along what is free: linear least squares."""
        columns = [np.broadcast_to(way, p.shape).reshape(-1) for way in self._directions]
        columns = [p.reshape(-1), *columns] if self._grows else columns
        design = np.stack(columns, 1)
        right = (q if self._grows else q - p).reshape(-1)
        weighted = design * np.repeat(weight, 2)[:, None]
        system = weighted.T @ design + 1e-9 * np.eye(len(columns))
        hold = np.array([1e-9 if self._grows and k == 0 else 0.0 for k in range(len(columns))])
        found = np.linalg.solve(system, weighted.T @ right + hold)
        H = np.eye(3)
        if self._grows:
            H[:2, :2] *= found[0]
            found = found[1:]
        H[:2, 2] = found @ self._directions
        return H


def _matrix(entries: Mapping[tuple[int, int], float]) -> Matrix:
    matrix = np.zeros((3, 3))
    for place, value in entries.items():
        matrix[place] = value
    return matrix


def _checked(model: MotionModel, fixed: Any) -> dict[str, float]:
    allowed = _ALLOWED.get(model.name, ())
    if not allowed:
        raise ValueError(f"fixed must be left out for the motion model {model.name!r}, got {fixed!r}")
    if not isinstance(fixed, Mapping) or not fixed or not set(fixed) <= set(allowed):
        names = ", ".join(allowed)
        raise ValueError(
            f"fixed must be a dict with some of {names} for the model {model.name!r}, got {fixed!r}"
        )
    for name, value in fixed.items():
        number = (
            type(value) is not bool and isinstance(value, int | float | np.number) and math.isfinite(value)
        )
        if not number or (name == "scale" and value <= 0):
            kind = "a positive number" if name == "scale" else "a number"
            raise ValueError(f"fixed[{name!r}] must be {kind}, got {value!r}")
    shifts = [name for name in _SHIFTS if name in fixed]
    if len(shifts) == 1 and model.name != "translation" and "angle" not in fixed:
        also = ", or the angle too," if "angle" in allowed else ""
        raise ValueError(
            f"fixed must have both shifts{also} for the model {model.name!r}, got only {shifts[0]}"
        )
    if len(fixed) == len(allowed) and model.name not in ("affine", "projective"):
        raise ValueError(f"fixed must leave a parameter of the model {model.name!r} free, got all of them")
    return {name: float(value) for name, value in fixed.items()}
