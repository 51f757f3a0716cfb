"""Request bodies for the OpenAPI document: ranges of every task, and examples that work.

FastAPI would describe a body by itself if it also parsed it, in the process that serves everyone. Bodies are parsed
in workers here, and one route takes JSON or a form; so the description is put together from the model that checks it.
"""

from collections.abc import Sequence
from typing import Any

from caunet import tasks
from caunet.web.pictures import MOST
from caunet.web.schemas import InferRequest
from caunet.web.stack_route import FRAMES, MODELS
from caunet.web.volume_route import MODELS as VOLUME_MODELS

__all__ = ["estimate_body", "infer_body", "picture_body", "stack_body", "volumes_body"]

_PLACE = {"task": "rotation", "z": [20.0], "photograph": "astronaut", "x": 230, "y": 110}
_RAMP = [[round((i + j) / 20, 2) for j in range(11)] for i in range(11)]
_OPTIONAL = ("zoom", "refine")
_PATCHES = {"task": "rotation", "first": _RAMP, "second": _RAMP[::-1]}


def infer_body(known: Sequence[tasks.Task], photographs: Sequence[str]) -> dict[str, Any]:
    """The request body of ``POST /api/infer`` for the OpenAPI document."""
    fields = _infer_fields(photographs)
    place = {name: fields[name] for name in ("task", "z", "photograph", "x", "y", "zoom", "refine")}
    patches = {name: fields[name] for name in ("task", "first", "second", "refine")}
    form = {"picture": _file("An image to take the patch from."), **place, "z": _text("20, or 1.5,0.8.")}
    del form["photograph"]
    either = [
        *(_object({**place, **_for_task(task, fields)}, optional=_OPTIONAL) for task in known),
        _object(patches, optional=_OPTIONAL),
    ]
    examples = {
        "place": {"summary": "A place in an embedded photograph", "value": _PLACE},
        "patches": {"summary": "Two patches", "value": _PATCHES},
    }
    content = {
        "application/json": {"schema": {"oneOf": either}, "examples": examples},
        "multipart/form-data": {"schema": _object(form, optional=_OPTIONAL)},
    }
    return {"requestBody": {"required": True, "content": content}}


def _infer_fields(photographs: Sequence[str]) -> dict[str, Any]:
    """The JSON schema of each field of the model that checks them; null, which means absent, is not offered."""
    fields: dict[str, dict[str, Any]] = {}
    for name, field in InferRequest.model_json_schema()["properties"].items():
        kept = field["anyOf"][0] if "anyOf" in field else field
        fields[name] = {key: value for key, value in kept.items() if key != "title"}
    fields["photograph"]["enum"] = list(photographs)
    return fields


def _for_task(task: tasks.Task, fields: dict[str, Any]) -> dict[str, Any]:
    """``task`` and ``z`` as they are for one task: its name and its ranges."""
    ranges = [
        {"type": "number", "minimum": low, "maximum": high, "description": " ".join((name, unit)).strip()}
        for name, low, high, unit in zip(task.names, task.low, task.high, task.units, strict=True)
    ]
    z = {"type": "array", "prefixItems": ranges, "minItems": task.dim, "maxItems": task.dim}
    return {
        "task": {"type": "string", "const": task.name, "description": fields["task"]["description"]},
        "z": {**z, "description": task.describe()},
    }


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def estimate_body(models: tuple[str, ...]) -> dict[str, Any]:
    """The request body of ``POST /api/estimate``."""
    form = {
        "a": _file(
            "The first image: PNG, JPEG, TIFF, BMP, GIF, WebP, PPM, AVIF, JPEG 2000, or HEIC with the extra heif."
        ),
        "b": _file("The second image; it may have another size."),
        "model": _model(models, "projective"),
    }
    form["reduced"] = _count(
        "How many times smaller the files are than the pictures, in whose pixels the answer is."
    )
    content = {"multipart/form-data": {"schema": _object(form, optional=("model", "reduced"))}}
    return {"requestBody": {"required": True, "content": content}}


def stack_body() -> dict[str, Any]:
    """The request body of ``POST /api/stack``."""
    form: dict[str, Any] = {name: _file("A frame.") for name in FRAMES}
    form["model"] = _model(MODELS, "euclidean")
    content = {"multipart/form-data": {"schema": _object(form, optional=(*FRAMES[2:], "model"))}}
    return {"requestBody": {"required": True, "content": content}}


def volumes_body(files: bool = True) -> dict[str, Any]:
    """The request body of ``POST /api/volumes``, and of its example, which has no files."""
    form: dict[str, Any] = {
        "a": _file("The first volume: NIfTI, MetaImage (.mha) or NRRD, told by its content."),
        "b": _file("The second volume; it may have another size and other voxels."),
    }
    form = {**(form if files else {}), "model": _model(VOLUME_MODELS, "rigid")}
    content = {"multipart/form-data": {"schema": _object(form, optional=("model",) if files else ())}}
    return {"requestBody": {"required": True, "content": content}}


def picture_body() -> dict[str, Any]:
    """The request body of ``POST /api/picture``."""
    form = {
        "picture": _file("An image in any format that the server reads."),
        "factor": _count(
            "How many times shorter its sides shall be; by default, as many as bring them to 1,600."
        ),
    }
    content = {"multipart/form-data": {"schema": _object(form, optional=("factor",))}}
    return {"requestBody": {"required": True, "content": content}}


def _model(names: Sequence[str], default: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(names), "default": default, "description": "The motion model."}


def _count(description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": MOST, "default": 1, "description": description}


def _file(description: str) -> dict[str, str]:
    return {"type": "string", "format": "binary", "description": description}


def _text(description: str) -> dict[str, str]:
    return {"type": "string", "description": description}
