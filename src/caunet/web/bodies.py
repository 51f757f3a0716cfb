"""Request bodies for the OpenAPI document: ranges of every task, and examples that work."""

from collections.abc import Sequence
from typing import Any

from caunet import tasks

__all__ = ["estimate_body", "infer_body"]

_PLACE = {"task": "rotation", "z": [20.0], "photograph": "astronaut", "x": 230, "y": 110}
_RAMP = [[round((i + j) / 20, 2) for j in range(11)] for i in range(11)]
_PATCHES = {"task": "rotation", "first": _RAMP, "second": _RAMP[::-1]}
_DESCRIPTIONS = {
    "task": "What relates the patches.",
    "z": "The parameters to transform by, in the order of /api/models and within their ranges.",
    "photograph": "An embedded photograph.",
    "x": "The patch's center: column, in pixels of the photograph as shown.",
    "y": "The patch's center: row.",
    "zoom": "How many pixels of the photograph make one pixel of the patch, per side.",
    "first": "11 rows of 11 gray levels.",
    "second": "Likewise.",
}


def infer_body(known: Sequence[tasks.Task], photographs: Sequence[str]) -> dict[str, Any]:
    """The request body of ``POST /api/infer`` for the OpenAPI document."""
    fields = _infer_fields(known, photographs)
    place = {name: fields[name] for name in ("task", "z", "photograph", "x", "y", "zoom")}
    patches = {name: fields[name] for name in ("task", "first", "second")}
    form = {"picture": _file("An image to take the patch from."), **place, "z": _text("20, or 1.5,0.8.")}
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
        "a": _file("The first image: PNG, JPEG, TIFF, BMP, GIF, WebP or PPM."),
        "b": _file("The second image; it may have another size."),
        "model": {
            "type": "string",
            "enum": list(models),
            "default": "projective",
            "description": "The motion model.",
        },
    }
    content = {"multipart/form-data": {"schema": _object(form, optional=("model",))}}
    return {"requestBody": {"required": True, "content": content}}


def _file(description: str) -> dict[str, str]:
    return {"type": "string", "format": "binary", "description": description}


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}
