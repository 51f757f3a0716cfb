"""Pictures and fields out of a form, in memory; pictures bounded before they are decoded."""

import io
import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from PIL import Image
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from caunet.images import FORMATS, ImageError, LoadedImage, read_image
from caunet.web.limits import MAX_BODY

__all__ = ["MAX_PIXELS", "FieldError", "Form", "read_form", "read_upload", "upload_size"]

MAX_PIXELS = 24_000_000
"""Of an uploaded picture. Fewer than the package takes: several may be computed at once, in one memory."""


class FieldError(Exception):
    """A field that cannot be used; the message is a sentence that names it."""


class _InMemory(MultiPartParser):
    spool_max_size = 2 * MAX_BODY  # never reached: nothing is written to disk


Form = Mapping[str, str | bytes]


async def read_form(request: Request, *, files: tuple[str, ...], fields: tuple[str, ...]) -> Form:
    """Files (bytes) and plain fields (text) of a multipart body; only names that are expected, each at most once."""
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        raise FieldError(f"The body must be a form (multipart/form-data) with {_names(files + fields)}.")
    parser = _InMemory(request.headers, request.stream(), max_files=len(files), max_fields=len(fields) + 4)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError, UnicodeError) as error:
        reason = getattr(error, "message", None) or "it is damaged"
        raise FieldError(f"The form cannot be read: {reason.rstrip('.')}.") from error
    found: dict[str, str | bytes] = {}
    try:
        for name, value in form.multi_items():
            _check_field(name, value, files, fields, found)
            found[name] = await value.read() if isinstance(value, UploadFile) else value
    finally:
        await form.close()
    return found


def _check_field(name: str, value: Any, files: tuple[str, ...], fields: tuple[str, ...], found: Form) -> None:
    if name not in files + fields:
        raise FieldError(f"{_short(name)} is not a field of this form; it has {_names(files + fields)}.")
    if name in found:
        raise FieldError(f"{name} is given twice; it can be given once.")
    if (name in files) != isinstance(value, UploadFile):
        raise FieldError(f"{name} must be {'a file' if name in files else 'text, not a file'}.")


def read_upload(form: Form, name: str) -> LoadedImage:
    """The picture in the field ``name``."""
    upload_size(form, name)
    try:
        with torch.inference_mode():
            return read_image(form[name], name)
    except (ImageError, ValueError) as error:
        # The reader names what it got, "bytes"; whoever sent a file knows only the field.
        text = re.sub(rf"^{name}: (the )?bytes: ", f"{name}: ", str(error))
        raise FieldError(_sentence(text)) from error


def upload_size(form: Form, name: str) -> tuple[int, int]:
    """(height, width) of the picture in the field ``name`` by its header alone; refuses what is too large.

    What cannot be opened is (0, 0) and left to the reader, which says why.
    """
    content = form.get(name)
    if not isinstance(content, bytes):
        raise FieldError(f"{name} is missing; it must be a picture.")
    if not content:
        raise FieldError(f"{name} is an empty file; it must be a picture.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of sizes that are refused here anyway
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                width, height = image.size
    except Image.DecompressionBombError as error:
        raise FieldError(f"{name}: too large; at most {MAX_PIXELS // 10**6} megapixels.") from error
    except Exception:
        return 0, 0
    if width * height > MAX_PIXELS:
        raise FieldError(
            f"{name}: too large, {width} x {height} pixels; at most {MAX_PIXELS // 10**6} megapixels."
        )
    return height, width


def _sentence(text: str) -> str:
    text = " ".join(text.split())[:300].rstrip(".")
    return f"{text}."


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _short(name: str) -> str:
    return repr(name if len(name) <= 30 else f"{name[:30]}...")
