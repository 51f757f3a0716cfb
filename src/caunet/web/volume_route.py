"""``POST /api/volumes``: relate two uploaded volumes, and show both in one frame."""

import functools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from caunet import geometry
from caunet.data.shapes3 import make
from caunet.errors import CaunetError, MissingExtraError
from caunet.estimation.describe import confidence_word
from caunet.estimation.motion_models import SPACE
from caunet.files import printable_path
from caunet.geometry import Matrix
from caunet.sizes import size_text
from caunet.volumes import Volume, VolumeEstimate, estimate_volume, read_volume
from caunet.web.refusals import FieldError
from caunet.web.uploads import Form, file_content, read_form
from caunet.web.volume_views import grid_of, mosaic, on_grid
from caunet.web.worker import cpu_limit

__all__ = ["MAX_VOXELS", "MODELS", "answer", "example"]

MODELS = SPACE
MAX_VOXELS = 1 << 24
"""Of an uploaded volume: 256 x 256 x 256."""
DECODE_SECONDS = 8.0
"""CPU time to read one volume; the largest take less than two."""
_SIDE, _MARGIN = 64, 20
_HEADER = 1 << 16  # bytes in which a MetaImage names where its numbers are


def answer(kind: str, body: bytes) -> dict[str, Any]:
    """The answer to a form with the files ``a`` and ``b`` and the text ``model``."""
    started = time.perf_counter()
    form = read_form(kind, body, files=("a", "b"), fields=("model",))
    model = _model(form)
    a, b = (_read(form, name) for name in ("a", "b"))
    return _related(a, b, model, started)


def example(kind: str, body: bytes) -> dict[str, Any]:
    """The same for two volumes made here, whose motion is known; the form has the text ``model``."""
    started = time.perf_counter()
    form = read_form(kind, body, files=(), fields=("model",))
    if "model" not in form:
        raise FieldError("model is missing.")
    model = _model(form)
    a, b, truth = example_pair()
    return _related(a, b, model, started, truth)


@functools.cache
def example_pair() -> tuple[Volume, Volume, Matrix]:
    """Two volumes cut out of one of ``shapes3``, the second turned and moved; and the matrix (4, 4) between them."""
    side, scene = _SIDE, torch.from_numpy(make(5, side=_SIDE + 2 * _MARGIN).astype(np.float32))
    cut = geometry.translate(*[-float(_MARGIN)] * 3)
    turn = geometry.center(geometry.rotate(18.0, axis=(1, 2, 2)), (side,) * 3)
    motion = geometry.compose(geometry.translate(5.0, -3.0, 4.0), turn)
    seen = geometry.warp(scene[None], geometry.compose(motion, cut), (side,) * 3, mode="cubic")[0]
    inside = slice(_MARGIN, _MARGIN + side)
    a, b = scene[inside, inside, inside], 0.8 * seen + 20
    first, second = (
        Volume(values.round().clamp(0, 255).to(torch.uint8).numpy(), np.eye(4)) for values in (a, b)
    )
    return first, second, motion.double().numpy()


def _related(a: Volume, b: Volume, model: str, started: float, truth: Matrix | None = None) -> dict[str, Any]:
    with torch.inference_mode():
        found = estimate_volume(a, b, model, threads=1)
        grid = grid_of(a)
        stay, T = np.eye(4), found.in_space("LPS")
        pictures = [mosaic(on_grid(one, grid, way), grid) for one, way in ((a, stay), (b, stay), (b, T))]
    return {
        **found.to_json(),
        "words": found.summary(),
        "confidence_words": confidence_word(found.confidence),
        "shown": {"size": list(grid.size), "spacing": grid.spacing, "columns": grid.columns},
        **dict(zip(("first_png", "before_png", "after_png"), pictures, strict=True)),
        "error": None if truth is None else _error(found, truth),
        "milliseconds": (time.perf_counter() - started) * 1000,
    }


def _error(found: VolumeEstimate, truth: Matrix) -> float:
    """Mean distance of the corners to the true ones, in voxels."""
    corners = geometry.corners(found.size_a, like=truth)
    off = geometry.apply(np.asarray(found), corners) - geometry.apply(truth, corners)
    return float(np.sqrt(np.square(off).sum(1)).mean())


def _model(form: Form) -> str:
    model = form.get("model", "rigid")
    if not isinstance(model, str) or model not in MODELS:
        raise FieldError(f"model must be one of {', '.join(MODELS)}.")
    return model


def _read(form: Form, name: str) -> Volume:
    """The volume in the field ``name``. Readers want a file: it lies in a folder of this request, and goes with it."""
    content = file_content(form, name, "a volume")
    suffix = volume_suffix(content)
    if suffix is None:
        raise FieldError(f"{name}: not a volume; NIfTI, MetaImage (.mha) and NRRD are read.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"volume{suffix}"
        path.write_bytes(content)
        try:
            with cpu_limit(DECODE_SECONDS):
                volume = read_volume(path, name)
        except MissingExtraError as error:
            raise FieldError(f"{error}.") from error
        except (CaunetError, ValueError, TypeError) as error:
            if isinstance(error.__cause__, MemoryError):  # the worker answers, and ends
                raise error.__cause__ from None
            said = " ".join(str(error).replace(f"{printable_path(path)}: ", "").split())
            raise FieldError(f"{said[:300].rstrip('.')}.") from error
    if volume.values.size > MAX_VOXELS:
        raise FieldError(f"{name}: too large, {size_text(volume.size)}; at most {MAX_VOXELS:,} voxels.")
    return volume


def volume_suffix(content: bytes) -> str | None:
    """What kind of volume a file is, by how it begins; names are not asked.

    >>> volume_suffix(b"NRRD0004\\n"), volume_suffix(b"\\x89PNG")
    ('.nrrd', None)
    """
    if content.startswith(b"NRRD"):
        return ".nrrd"
    if content.startswith(b"\x1f\x8b"):
        return ".nii.gz"
    if content[344:348] in (b"n+1\0", b"ni1\0") or content[4:7] in (b"n+2", b"ni2"):
        return ".nii"
    return ".mha" if b"ElementDataFile" in content[:_HEADER] else None
