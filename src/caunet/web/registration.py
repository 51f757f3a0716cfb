"""``POST /api/estimate``: relate two uploaded images, and resample the second onto the first."""

import base64
import dataclasses
import functools
import io
import time
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from caunet import geometry
from caunet.estimation.describe import confidence_word
from caunet.estimation.estimator import Estimator
from caunet.estimation.motion_models import motion_model_names
from caunet.estimation.result import Estimate, Field
from caunet.web.decoding import read_upload, reduction, upload_size
from caunet.web.pictures import whole_number
from caunet.web.refusals import FieldError
from caunet.web.uploads import read_form

__all__ = ["answer"]


def answer(kind: str, body: bytes) -> dict[str, Any]:
    """The answer to a form with the files ``a`` and ``b`` and the texts ``model`` and ``reduced``.

    ``reduced`` says that the files are already so many times smaller than the pictures they show, by means of squares
    of pixels: the answer is in pixels of those pictures.
    """
    started = time.perf_counter()
    form = read_form(kind, body, files=("a", "b"), fields=("model", "reduced"))
    model = form.get("model", "projective")
    known = motion_model_names(without_options=True)
    if not isinstance(model, str) or model not in known:
        raise FieldError(f"model must be one of {', '.join(known)}.")
    reduced = whole_number(form, "reduced")
    factor = reduction(upload_size(form, "a"), upload_size(form, "b"))
    # One after the other: the large ones are never both in memory.
    a, b = (read_upload(form, name, factor) for name in ("a", "b"))
    with torch.inference_mode():
        found = _estimator(model)(a.compared, b.compared)
        aligned = _aligned(found, b.pixels)
        height_a, width_a, height_b, width_b = (reduced * side for side in (*a.size, *b.size))
        found = _in_original_pixels(found, factor * reduced, ((height_a, width_a), (height_b, width_b)))
    found = dataclasses.replace(found, seconds=time.perf_counter() - started)
    return {
        **found.to_json(),
        "words": found.summary(),
        "confidence_words": confidence_word(found.confidence),
        "aligned_png": aligned,
        "milliseconds": (time.perf_counter() - started) * 1000,
    }


@functools.cache
def _estimator(model: str) -> Estimator:
    return Estimator(model)


def _in_original_pixels(
    found: Estimate, factor: int, sizes: tuple[tuple[int, int], tuple[int, int]]
) -> Estimate:
    """The estimate between reduced images, rewritten for the images themselves."""
    if factor == 1:
        return found
    return dataclasses.replace(
        found,
        matrix=geometry.rescale(np.asarray(found), factor),
        covariance=None if found.covariance is None else np.asarray(found.covariance) * factor**2,
        size_a=sizes[0],
        size_b=sizes[1],
        field=Field(
            geometry.rescale_points(found.field.points, factor),
            found.field.motion * factor,
            found.field.weight,
        ),
    )


def _aligned(found: Estimate, b: Tensor) -> str:
    """b (H, W) or (H, W, C), as it was compared, on a's grid: a PNG in base64."""
    resampled = found.warp((b * 255).round().to(torch.uint8).numpy())
    file = io.BytesIO()
    Image.fromarray(resampled).save(file, "PNG", compress_level=3)
    return base64.b64encode(file.getvalue()).decode("ascii")
