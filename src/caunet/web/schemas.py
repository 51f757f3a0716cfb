"""What goes in and out of the API: checked by pydantic, told by OpenAPI, with examples."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from caunet import tasks

__all__ = [
    "ERRORS",
    "EstimateAnswer",
    "Health",
    "InferAnswer",
    "InferRequest",
    "ModelsAnswer",
    "Problem",
    "complaint",
    "estimate_body",
    "infer_body",
]

TaskName = Literal["translation", "rotation", "scaling", "affine", "projective"]
Row = Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=11, max_length=11)]
Patch = Annotated[list[Row], Field(min_length=11, max_length=11)]
Point = Annotated[list[float], Field(min_length=2, max_length=2)]
Corners = Annotated[list[Point], Field(min_length=4, max_length=4)]


class InferRequest(BaseModel):
    """A place in a photograph and z, or two patches."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    task: TaskName
    z: Annotated[list[float], Field(min_length=1, max_length=6)] | None = None
    photograph: Annotated[str, Field(max_length=40)] | None = None
    x: Annotated[float, Field(ge=0, le=511)] | None = None
    y: Annotated[float, Field(ge=0, le=511)] | None = None
    zoom: Annotated[int, Field(ge=1, le=16)] = 4
    first: Patch | None = None
    second: Patch | None = None


class Problem(BaseModel):
    """What is wrong, in a sentence."""

    detail: str


class Health(BaseModel):
    """That the server answers."""

    status: Literal["ok"]
    version: str


class Parameter(BaseModel):
    """A number of z."""

    name: str
    low: float
    high: float
    unit: str
    step: float


class TaskAnswer(BaseModel):
    """A task and its parameters, in the order of z."""

    name: str
    parameters: list[Parameter]


class PhotographAnswer(BaseModel):
    """An embedded photograph; places are told in pixels of this size."""

    name: str
    width: int
    height: int
    url: str


class ModelsAnswer(BaseModel):
    """What can be asked for."""

    tasks: list[TaskAnswer]
    networks: list[str]
    photographs: list[PhotographAnswer]
    pretrained: dict[str, list[str]]


class NetworkAnswer(BaseModel):
    """What a network inferred; ``error`` is the mean distance of the corners to the true ones, in pixels."""

    z: list[float]
    corners: Corners | None
    error: float | None


class Term(BaseModel):
    """A rank-one term of a unit: what it weighs in the first and in the second patch, largest 1."""

    u: list[list[float]]
    v: list[list[float]]


class Winner(Term):
    """The unit that won, with u and v summed over its terms."""

    index: int
    terms: list[Term]


class InferAnswer(BaseModel):
    """Patches, answers, and a look inside CAN. Corners are (x, y) in pixels of the second patch."""

    task: TaskName
    truth: list[float] | None
    first: list[list[float]]
    second: list[list[float]]
    networks: dict[str, NetworkAnswer]
    truth_corners: Corners | None
    responses: list[float]
    winner: Winner | None
    confidence: Annotated[float, Field(ge=0, le=1)]
    milliseconds: float


class EstimateAnswer(BaseModel):
    """How b is related to a; ``matrix`` maps points of a to points of b, in pixels."""

    model_config = ConfigDict(extra="allow")

    model: str
    matrix: list[list[float]]
    confidence: Annotated[float, Field(ge=0, le=1)]
    confidence_words: str
    words: str
    parameters: dict[str, float]
    size_a: list[int]
    size_b: list[int]
    matches: int
    inliers: int
    seconds: float
    field: dict[str, Any]
    aligned_png: Annotated[
        str, Field(description="b laid on a, a PNG in base64, sides of at most 1600 pixels")
    ]
    milliseconds: float


_RETRY = {
    "Retry-After": {"schema": {"type": "string"}, "description": "Seconds to wait before asking again."}
}
ERRORS: dict[int | str, dict[str, Any]] = {
    408: {"model": Problem, "description": "The body took too long to arrive."},
    413: {"model": Problem, "description": "The body is larger than 10 MB."},
    422: {"model": Problem, "description": "Not a picture, too many pixels, or a bad value."},
    503: {"model": Problem, "description": "All cores are busy and the queue is full.", "headers": _RETRY},
    504: {"model": Problem, "description": "The computation took longer than its time limit."},
}

_PLACE = {"task": "rotation", "z": [20.0], "photograph": "astronaut", "x": 230, "y": 110}
_RAMP = [[round((i + j) / 20, 2) for j in range(11)] for i in range(11)]
_PATCHES = {"task": "rotation", "first": _RAMP, "second": _RAMP[::-1]}
_DESCRIPTIONS = {
    "task": "What relates the patches.",
    "z": "The parameters to transform by, in the order of /api/models and within their ranges.",
    "photograph": "An embedded photograph.",
    "x": "The patch's centre: column, in pixels of the photograph as shown.",
    "y": "The patch's centre: row.",
    "zoom": "How many pixels of the photograph make one of the patch, a side.",
    "first": "11 rows of 11 grey levels.",
    "second": "Likewise.",
}


def infer_body(known: Sequence[tasks.Task], photographs: Sequence[str]) -> dict[str, Any]:
    """The request body of ``POST /api/infer`` for the OpenAPI document."""
    fields = _infer_fields(known, photographs)
    place = {name: fields[name] for name in ("task", "z", "photograph", "x", "y", "zoom")}
    patches = {name: fields[name] for name in ("task", "first", "second")}
    form = {"picture": _file("A picture to take the patch from."), **place, "z": _text("20, or 1.5,0.8.")}
    del form["photograph"]
    either = [
        *(_object({**place, **_for_task(task)}, optional=("zoom",)) for task in known),
        _object(patches),
    ]
    examples = {
        "place": {"summary": "A place in an embedded photograph", "value": _PLACE},
        "patches": {"summary": "Two patches", "value": _PATCHES},
    }
    content = {
        "application/json": {"schema": {"oneOf": either}, "examples": examples},
        "multipart/form-data": {"schema": _object(form, optional=("zoom",))},
    }
    return {"requestBody": {"required": True, "content": content}}


def _infer_fields(known: Sequence[tasks.Task], photographs: Sequence[str]) -> dict[str, Any]:
    level = {"type": "number", "minimum": 0, "maximum": 1}
    row = {"type": "array", "items": level, "minItems": 11, "maxItems": 11}
    patch = {"type": "array", "items": row, "minItems": 11, "maxItems": 11}
    place = {"type": "number", "minimum": 0, "maximum": 511}
    fields: dict[str, dict[str, Any]] = {
        "task": {"type": "string", "enum": [task.name for task in known]},
        "z": {"type": "array", "items": {"type": "number"}},
        "photograph": {"type": "string", "enum": list(photographs)},
        "x": place,
        "y": place,
        "zoom": {"type": "integer", "minimum": 1, "maximum": 16, "default": 4},
        "first": patch,
        "second": patch,
    }
    return {name: {**field, "description": _DESCRIPTIONS[name]} for name, field in fields.items()}


def _for_task(task: tasks.Task) -> dict[str, Any]:
    """What its name and its ranges say about ``task`` and ``z``."""
    ranges = [
        {"type": "number", "minimum": low, "maximum": high, "description": " ".join((name, unit)).strip()}
        for name, low, high, unit in zip(task.names, task.low, task.high, task.units, strict=True)
    ]
    z = {"type": "array", "prefixItems": ranges, "minItems": task.dim, "maxItems": task.dim}
    about = _DESCRIPTIONS["task"]
    return {
        "task": {"type": "string", "const": task.name, "description": about},
        "z": {**z, "description": task.describe()},
    }


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def estimate_body(models: tuple[str, ...]) -> dict[str, Any]:
    """The request body of ``POST /api/estimate``."""
    form = {
        "a": _file("The first picture: PNG, JPEG, TIFF, BMP, GIF, WebP or PPM."),
        "b": _file("The second picture; it may have another size."),
        "model": {
            "type": "string",
            "enum": list(models),
            "default": "projective",
            "description": "What may relate them.",
        },
    }
    content = {"multipart/form-data": {"schema": _object(form, optional=("model",))}}
    return {"requestBody": {"required": True, "content": content}}


def complaint(error: ValidationError) -> str:
    """The first thing that is wrong, in one sentence that names the field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = str(first["msg"]).rstrip(".")
    message = message[:1].lower() + message[1:]
    place = [str(part) for part in first["loc"]]
    if not place:
        return f"The body cannot be read: {message}."
    name = place[0] + "".join(f"[{part}]" for part in place[1:] if part.isdigit())
    if first["type"] == "extra_forbidden":
        return f"{name[:40]!r} is not a field of this request."
    if first["type"] == "missing":
        return f"{name} is missing."
    return f"{name}: {message}."


def _file(description: str) -> dict[str, str]:
    return {"type": "string", "format": "binary", "description": description}


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}
