"""``POST /api/stack``: bring a few small frames into one common frame."""

import time
from typing import Any

import numpy as np
import torch

from caunet.sizes import size_text
from caunet.stacks import align
from caunet.web.decoding import read_upload, upload_size
from caunet.web.refusals import FieldError
from caunet.web.uploads import Form, read_form

__all__ = ["FRAMES", "LONGEST", "MODELS", "answer"]

MODELS = ("translation", "euclidean", "similarity", "affine")
FRAMES = tuple(f"frame_{number}" for number in range(1, 25))
"""The fields of the form, in order; all but the first two may be left out."""
LONGEST = 320
"""The longest side of a frame: the page makes them smaller before it sends them."""


def answer(kind: str, body: bytes) -> dict[str, Any]:
    """The answer to a form with the files ``frame_1``, ``frame_2`` ... and the text ``model``."""
    started = time.perf_counter()
    form = read_form(kind, body, files=FRAMES, fields=("model",))
    model = form.get("model", "euclidean")
    if not isinstance(model, str) or model not in MODELS:
        raise FieldError(f"model must be one of {', '.join(MODELS)}.")
    frames = np.stack(_read(form))
    with torch.inference_mode():
        found = align(frames, model, progress=False, threads=1)
    return {
        "model": model,
        "matrices": [matrix.tolist() if np.isfinite(matrix).all() else None for matrix in found.matrices],
        "confidence": [float(value) for value in found.confidence],
        "size": list(found.size),
        "relations": len(found.links),
        "problems": [{"frame": index, "reason": reason} for index, reason in found.problems],
        "milliseconds": (time.perf_counter() - started) * 1000,
    }


def _read(form: Form) -> list[np.ndarray[Any, Any]]:
    """The frames in gray, 0..1, all of one size."""
    given = [name for name in FRAMES if name in form]
    if given != list(FRAMES[: len(given)]) or len(given) < 2:
        raise FieldError(
            f"The form must have the files frame_1, frame_2, ... without a gap, at most {len(FRAMES)}."
        )
    frames: list[np.ndarray[Any, Any]] = []
    for name in given:
        height, width = upload_size(form, name)
        if max(height, width) > LONGEST:
            raise FieldError(
                f"{name}: too large, {size_text((height, width))}; at most {LONGEST} pixels a side."
            )
        frames.append(read_upload(form, name).gray.numpy())
        if frames[-1].shape != frames[0].shape:
            raise FieldError(f"{name} must have the size of frame_1.")
    return frames
