"""``caunet.estimate_volume``: how are these two volumes related?

>>> import numpy as np
>>> scene = np.random.default_rng(0).random((9, 9, 9)).repeat(4, 0).repeat(4, 1).repeat(4, 2)
>>> found = estimate_volume(scene[:30, :30, :30], scene[2:32, 3:33, 1:31], model="translation")
>>> found.matrix[:3, 3].round().tolist()
[-1.0, -3.0, -2.0]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.limits import Bounds
from caunet.estimation.motion_models import MotionModel, create_motion_model
from caunet.estimation.motion_models.space import decompose_space
from caunet.estimation.reasons import Reason
from caunet.geometry import Matrix
from caunet.threads import cpu_threads
from caunet.volumes.confidence import volume_confidence
from caunet.volumes.prepare import is_blank, prepare, read_volume_mask
from caunet.volumes.pyramid import Level
from caunet.volumes.read import read_volume
from caunet.volumes.register import register
from caunet.volumes.result import VolumeEstimate
from caunet.volumes.search import about, middle
from caunet.volumes.volume import Space, Volume, between_spaces

__all__ = ["estimate_volume"]

_TURN_SLACK, _SCALE_SLACK, _SHIFT_SLACK = 1e-3, 1e-5, 1e-3  # degrees, share, millimeters


def estimate_volume(
    a: Any,
    b: Any,
    model: str | MotionModel = "rigid",
    *,
    spacing_a: Any = None,
    spacing_b: Any = None,
    affine_a: Any = None,
    affine_b: Any = None,
    mask_a: Any = None,
    mask_b: Any = None,
    initial: Any = None,
    bounds: Bounds | Mapping[str, Any] | None = None,
    device: torch.device | str | None = None,
    threads: int | None = None,
) -> VolumeEstimate:
    """How volume ``b`` is related to volume ``a``.

    Args:
        a, b: paths (NIfTI, MetaImage, NRRD), arrays or tensors (depth, height, width), of any sizes and spacings.
        model: translation, rigid, similarity or affine.
        spacing_a, spacing_b: of arrays: the lengths of a voxel (x, y, z) in millimeters; 1 if not given.
        affine_a, affine_b: of arrays: (4, 4) from voxels (x, y, z) to millimeters in RAS, as nibabel has it.
        mask_a, mask_b: which voxels show the scene: arrays, tensors or paths of the same size; what is not zero counts.
            NaN never counts.
        initial: (4, 4) from voxels of a to voxels of b, or a VolumeEstimate: tried first.
        bounds: how far an answer may go, a dict with some of ``shift`` (the farthest that the center of a may move, in
            millimeters), ``angle`` (the largest, in degrees) and ``scale`` (the largest factor, or smallest and
            largest). Other answers are not given: the reason is ``out of range``.
        device: where to compute; the CPU if not given.
        threads: CPU threads to use; what torch is set to if not given.
    """
    started = time.perf_counter()
    motion_model = create_motion_model(model, dimensions=3)
    limits = Bounds.of(bounds)
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ValueError(f"threads must be a whole number of at least 1, got {threads!r}")
    where = torch.device("cpu" if device is None else device)
    first = read_volume(a, "a", spacing=spacing_a, affine=affine_a)
    second = read_volume(b, "b", spacing=spacing_b, affine=affine_b)
    masks = read_volume_mask(mask_a, first, "mask_a"), read_volume_mask(mask_b, second, "mask_b")
    given = _initial(initial, first, second)
    with torch.inference_mode(), cpu_threads(threads):
        sides = prepare(first, masks[0], where), prepare(second, masks[1], where)
        found = _found(sides, motion_model, given, limits)
    T, confidence, reason, spread, share = found
    space: Space = first.space
    turn = between_spaces(np.eye(4), "LPS", space)
    if spread is not None and space != "LPS":
        signs = np.tile(turn.diagonal()[:3], 8)
        spread = spread * signs[:, None] * signs
    matrix = geometry.invert(second.to_mm) @ T @ first.to_mm
    matrix[3] = (0, 0, 0, 1)
    return VolumeEstimate(
        matrix=torch.from_numpy(matrix) if isinstance(a, Tensor) else matrix,
        model=motion_model.name,
        confidence=confidence,
        size_a=first.size,
        size_b=second.size,
        affine_a=turn @ first.to_mm,
        affine_b=turn @ second.to_mm,
        space=space,
        seconds=time.perf_counter() - started,
        covariance=spread,
        reason=reason,
        explained=share,
    )


_Answer = tuple[Matrix, float, Reason, Matrix | None, float | None]


def _found(
    sides: tuple[Level, Level], model: MotionModel, given: Matrix | None, limits: Bounds | None
) -> _Answer:
    """T (4, 4) in millimeters, confidence, how it ended, the corners' covariance, the share explained."""
    a, b = sides
    still = _nearest(model, np.eye(4), a) if given is None else _nearest(model, given, a)
    allowed = None if limits is None else _allowed(limits, middle(a))
    if allowed is not None and not allowed(still):
        if given is not None:
            raise ValueError(f"initial must be within the bounds {limits}, got {given.tolist()}")
        still = about(np.eye(3), middle(a), middle(a))
    if is_blank(a) or is_blank(b):
        return still, 0.0, "blank", None, None
    first = [still] if given is None else [still, np.eye(4)]
    found = register(a, b, model, first, allowed)
    sure = volume_confidence(found.evidence)
    if not np.isfinite(found.T).all() or abs(np.linalg.det(found.T[:3, :3])) < 1e-3:
        return still, 0.0, "unrelated", None, None
    if allowed is not None and not allowed(found.T):
        return still, 0.0, "out of range" if sure >= 0.5 else "unrelated", None, None
    reason: Reason = "found" if sure >= 0.5 else "unrelated"
    return found.T, sure, reason, found.covariance, min(max(found.evidence["explained"], 0.0), 1.0)


def _nearest(model: MotionModel, T: Matrix, a: Level) -> Matrix:
    """The transform of the motion model that is nearest to T at the corners of a."""
    corners = geometry.apply(a.to_mm, geometry.corners(a.size, like=a.to_mm))
    return model.fit(corners, geometry.apply(T, corners), np.ones(len(corners)))


def _allowed(bounds: Bounds, center: Matrix) -> Callable[[Matrix], bool]:
    """Whether T (4, 4), in millimeters, is within the bounds."""

    def within(T: Matrix) -> bool:
        p = decompose_space(T, center)
        shift = float(np.sqrt(sum(p[f"shift_{axis}"] ** 2 for axis in "xyz")))
        if bounds.shift is not None and shift > bounds.shift + _SHIFT_SLACK:
            return False
        if bounds.angle is not None and p["angle"] > bounds.angle[1] + _TURN_SLACK:
            return False
        if bounds.scale is None:
            return True
        low, high = bounds.scale
        return low * (1 - _SCALE_SLACK) <= p["scale"] <= high * (1 + _SCALE_SLACK)

    return within


def _initial(value: Any, a: Volume, b: Volume) -> Matrix | None:
    """(4, 4) in millimeters (LPS), checked; ``value`` is in voxels."""
    if value is None:
        return None
    try:
        matrix = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"initial must be a matrix (4, 4), got {value!r}") from error
    if matrix.shape != (4, 4):
        raise ValueError(f"initial must be a matrix (4, 4), got shape {matrix.shape}")
    geometry.check(matrix, "initial")
    if np.abs(matrix[3, :3]).max() > 1e-9 * abs(matrix[3, 3]):
        raise ValueError("initial must have no perspective (a last row 0 0 0 1), got one that has")
    T: Matrix = b.to_mm @ (matrix / matrix[3, 3]) @ geometry.invert(a.to_mm)
    return T
