"""``POST /api/infer``: from a request to two patches, and to the answer."""

import re
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from caunet import tasks
from caunet.web.decoding import read_upload, reduction, upload_size
from caunet.web.inference import infer
from caunet.web.networks import Networks
from caunet.web.patches import PHOTOGRAPHS, cut_pair, gray_photograph, shown
from caunet.web.refusals import FieldError, TooLargeError
from caunet.web.schemas import InferRequest, complaint
from caunet.web.uploads import Form, read_form

__all__ = ["ABOUT", "answer"]

ABOUT = """Either a place (x, y) in an embedded photograph, or in an image that is sent along, and the z to
transform it by; or two patches of 11 x 11 gray levels 0..1.

Places are given in pixels of the photograph as shown, that is with its longer side reduced to 512 pixels where it is
longer. The patch is taken from the photograph made zoom times smaller, 11 x 11 of its pixels around that place."""

MAX_JSON = 64 * 1024
"""Bytes; two patches with all their digits are 6 KB."""
_NUMBERS = re.compile(r"[\s,;\[\]]+")
_FIELDS = ("task", "z", "x", "y", "zoom", "refine")


class Question(NamedTuple):
    """A request that was read, but no image decoded yet."""

    request: InferRequest
    form: Form | None = None


def answer(kind: str, body: bytes, networks: Networks) -> dict[str, Any]:
    """What the networks infer, for a body of content type ``kind``: JSON, or a form with an image."""
    question = _read(kind, body)
    request = question.request
    task = tasks.get(request.task)
    if request.first is not None or request.second is not None:
        return infer(networks, task, *_patches(request), refine=request.refine)
    gray = _image(question)
    z = _parameters(task, request.z)
    center = _place(request, gray.shape)
    first, second = cut_pair(gray, task, z, center, request.zoom)
    return infer(networks, task, first / 255, second / 255, z, refine=request.refine)


def _read(kind: str, body: bytes) -> Question:
    try:
        if not kind.lower().startswith("multipart/"):
            if len(body) > MAX_JSON:
                raise TooLargeError(f"The JSON is larger than {MAX_JSON // 1024} KB; two patches need less.")
            return Question(InferRequest.model_validate_json(body, strict=True))
        form = read_form(kind, body, files=("picture",), fields=_FIELDS)
        fields: dict[str, Any] = {name: form[name] for name in _FIELDS if name in form}
        if "z" in fields:
            fields["z"] = [number for number in _NUMBERS.split(fields["z"]) if number]
        return Question(InferRequest.model_validate(fields), form)
    except ValidationError as error:
        raise FieldError(complaint(error)) from error


def _patches(request: InferRequest) -> tuple[Tensor, Tensor]:
    for name in ("first", "second"):
        if getattr(request, name) is None:
            raise FieldError(f"{name} is missing: two patches belong together.")
    for name in ("z", "photograph", "x", "y"):
        if getattr(request, name) is not None:
            raise FieldError(f"{name} does not go with first and second.")
    return torch.tensor(request.first), torch.tensor(request.second)


def _image(question: Question) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if question.form is not None:
        form = question.form
        gray = read_upload(form, "picture", reduction(upload_size(form, "picture"))).gray
        return shown((gray * 255).round().to(torch.uint8).numpy())
    name = question.request.photograph
    if name is None:
        raise FieldError("photograph is missing; or give first and second, or send an image.")
    if name not in PHOTOGRAPHS:
        raise FieldError(f"photograph must be one of {', '.join(PHOTOGRAPHS)}.")
    return gray_photograph(name)


def _parameters(task: tasks.Task, z: list[float] | None) -> Tensor:
    if z is None:
        raise FieldError(f"z is missing; {task.name} has {', '.join(task.names)}.")
    if len(z) != task.dim:
        raise FieldError(
            f"z must have {task.dim} numbers for {task.name} ({', '.join(task.names)}), not {len(z)}."
        )
    for name, value, low, high in zip(task.names, z, task.low, task.high, strict=True):
        if not low <= value <= high:
            raise FieldError(f"z: {name} must be within {low:g} and {high:g}, not {value:g}.")
    return torch.tensor(z, dtype=torch.float64)


def _place(request: InferRequest, shape: tuple[int, ...]) -> tuple[int, int]:
    for name, length in (("x", shape[1]), ("y", shape[0])):
        value = getattr(request, name)
        if value is None:
            raise FieldError(f"{name} is missing: the place in the image.")
        if value > length - 1:
            raise FieldError(f"{name} must be within 0 and {length - 1} here, not {value:g}.")
    assert request.x is not None
    assert request.y is not None
    return round(request.x), round(request.y)
