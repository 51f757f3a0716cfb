"""``POST /api/picture``: any image that the server reads, as a PNG that any browser shows."""

import base64
import io
import time
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from caunet.web.decoding import read_upload, reduction, upload_size
from caunet.web.refusals import FieldError
from caunet.web.uploads import Form, read_form

__all__ = ["MOST", "answer", "png", "whole_number"]

MOST = 64
"""The largest factor by which images may be said to be reduced."""


def answer(kind: str, body: bytes) -> dict[str, Any]:
    """The answer to a form with the file ``picture``, and ``factor``, by which its sides are to be made shorter."""
    started = time.perf_counter()
    form = read_form(kind, body, files=("picture",), fields=("factor",))
    size = upload_size(form, "picture")
    factor = whole_number(form, "factor") if "factor" in form else reduction(size)
    upload = read_upload(form, "picture", factor)
    return {
        "png": png(upload.pixels),
        "size": list(upload.size),
        "factor": factor,
        "milliseconds": (time.perf_counter() - started) * 1000,
    }


def whole_number(form: Form, name: str) -> int:
    """The field ``name``, a whole number from 1 to :data:`MOST`; 1 if it is not given."""
    text = form.get(name, "1")
    if not (isinstance(text, str) and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= MOST):
        raise FieldError(f"{name} must be a whole number from 1 to {MOST}.")
    return int(text)


def png(pixels: Tensor) -> str:
    """(H, W) or (H, W, 3), 0..1, as a PNG in base64."""
    file = io.BytesIO()
    Image.fromarray((pixels * 255).round().to(torch.uint8).numpy()).save(file, "PNG", compress_level=3)
    return base64.b64encode(file.getvalue()).decode("ascii")
