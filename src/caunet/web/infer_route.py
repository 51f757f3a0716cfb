"""``POST /api/infer``: from a request to two patches, and to the answer."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from starlette.exceptions import HTTPException
from starlette.requests import Request
from torch import Tensor

from caunet import tasks
from caunet.web.inference import infer
from caunet.web.networks import Networks
from caunet.web.patches import PHOTOGRAPHS, cut_pair, gray_photograph, shown
from caunet.web.schemas import InferRequest
from caunet.web.uploads import FieldError, Form, read_form, read_upload

__all__ = ["ABOUT", "Question", "answer", "read"]

ABOUT = """Either a place (x, y) in an embedded photograph, or in a picture that is sent along, and the z to
transform it by; or two patches of 11 x 11 grey levels 0..1.

Places are told in pixels of the photograph as shown, that is with its longer side reduced to 512 pixels where it is
longer. The patch is taken from the photograph made zoom times smaller, 11 x 11 of its pixels about that place."""

MAX_JSON = 64 * 1024
"""Bytes; two patches with all their digits are 6 KB. Read by the thread that serves everyone, so it is kept short."""
_NUMBERS = re.compile(r"[\s,;\[\]]+")
_FIELDS = ("task", "z", "x", "y", "zoom")


@dataclass(frozen=True)
class Question:
    """A request that was read, but no picture decoded yet."""

    request: InferRequest
    form: Form | None = None


async def read(request: Request) -> Question:
    """JSON, or a form with a picture."""
    kind = request.headers.get("content-type", "").lower()
    if not kind.startswith("multipart/"):
        body = await request.body()
        if len(body) > MAX_JSON:
            raise HTTPException(413, f"The JSON is larger than {MAX_JSON // 1024} KB; two patches need less.")
        return Question(InferRequest.model_validate_json(body, strict=True))
    form = await read_form(request, files=("picture",), fields=_FIELDS)
    fields: dict[str, Any] = {name: form[name] for name in _FIELDS if name in form}
    if "z" in fields:
        fields["z"] = [number for number in _NUMBERS.split(fields["z"]) if number]
    return Question(InferRequest.model_validate(fields), form)


def answer(question: Question, networks: Networks) -> dict[str, Any]:
    """What the networks say."""
    request = question.request
    task = tasks.get(request.task)
    if request.first is not None or request.second is not None:
        return infer(networks, task, *_patches(request))
    gray = _picture(question)
    z = _parameters(task, request.z)
    centre = _place(request, gray.shape)
    first, second = cut_pair(gray, task, z, centre, request.zoom)
    return infer(networks, task, first / 255, second / 255, z)


def _patches(request: InferRequest) -> tuple[Tensor, Tensor]:
    for name in ("first", "second"):
        if getattr(request, name) is None:
            raise FieldError(f"{name} is missing: two patches belong together.")
    for name in ("z", "photograph", "x", "y"):
        if getattr(request, name) is not None:
            raise FieldError(f"{name} does not go with first and second.")
    return torch.tensor(request.first), torch.tensor(request.second)


def _picture(question: Question) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if question.form is not None:
        gray = read_upload(question.form, "picture").gray
        return shown((gray * 255).round().to(torch.uint8).numpy())
    name = question.request.photograph
    if name is None:
        raise FieldError("photograph is missing; or give first and second, or send a picture.")
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
            raise FieldError(f"{name} is missing: the place in the picture.")
        if value > length - 1:
            raise FieldError(f"{name} must be within 0 and {length - 1} here, not {value:g}.")
    assert request.x is not None
    assert request.y is not None
    return round(request.x), round(request.y)
