"""Relate two uploaded pictures, and lay one upon the other, within bounds of time and memory."""

import base64
import dataclasses
import functools
import io
import math
import time
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from caunet import geometry
from caunet.estimation.describe import confidence_word
from caunet.estimation.estimator import Estimator
from caunet.estimation.result import MODELS, Estimate, Field
from caunet.images import MIN_SIDE
from caunet.web.uploads import FieldError, Form, read_upload, upload_size

__all__ = ["LONGEST", "relate"]

LONGEST = 1600
"""Longer sides are reduced to so many pixels before anything is computed; the answer is told in the original's."""


def relate(form: Form) -> dict[str, Any]:
    """The answer of ``POST /api/estimate`` for the files ``a`` and ``b`` and the text ``model``."""
    started = time.perf_counter()
    model = form.get("model", "projective")
    if not isinstance(model, str) or model not in MODELS:
        raise FieldError(f"model must be one of {', '.join(MODELS)}.")
    factor = math.ceil(max(1, *upload_size(form, "a"), *upload_size(form, "b")) / LONGEST)
    # One after the other: the large ones are never both in memory.
    a, b = _read(form, "a", factor), _read(form, "b", factor)
    with torch.inference_mode():
        found = _estimator(model)(a.gray, b.gray)
        aligned = _aligned(found, b.pixels)
        found = _in_original_pixels(found, factor, (a.size, b.size))
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


class _Reduced(NamedTuple):
    gray: Tensor
    pixels: Tensor
    size: tuple[int, int]
    """(height, width) before."""


def _read(form: Form, name: str, factor: int) -> _Reduced:
    """The picture with sides ``factor`` times shorter: the same for both, so that a shift remains a shift."""
    picture = read_upload(form, name)
    if min(picture.size) // factor < MIN_SIDE:
        raise FieldError(
            f"{name}: too small beside the other picture, which has to be reduced {factor} times."
        )
    return _Reduced(_reduce(picture.gray, factor), _reduce(picture.pixels, factor), picture.size)


def _reduce(values: Tensor, factor: int) -> Tensor:
    """(H, W) or (H, W, C): means of factor x factor pixels; what is left at the right and below is dropped."""
    if factor == 1:
        return values
    planes = values[None] if values.ndim == 2 else values.permute(2, 0, 1)
    made = torch.nn.functional.avg_pool2d(planes[None], factor)[0]
    return made[0] if values.ndim == 2 else made.permute(1, 2, 0).contiguous()


def _in_original_pixels(
    found: Estimate, factor: int, sizes: tuple[tuple[int, int], tuple[int, int]]
) -> Estimate:
    """The estimate between reduced pictures, rewritten for the pictures themselves."""
    if factor == 1:
        return found
    return dataclasses.replace(
        found,
        matrix=geometry.rescale(found.matrix, factor),
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
    laid = found.warp((b * 255).round().to(torch.uint8).numpy())
    file = io.BytesIO()
    Image.fromarray(laid).save(file, "PNG", compress_level=3)
    return base64.b64encode(file.getvalue()).decode("ascii")
