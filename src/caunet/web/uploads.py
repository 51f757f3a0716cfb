"""Forms (multipart/form-data): files and plain fields, in memory, only those that are expected."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from caunet.web.limits import MAX_BODY
from caunet.web.refusals import FieldError

__all__ = ["Form", "file_content", "read_form"]


class _InMemory(MultiPartParser):
    spool_max_size = 8 * MAX_BODY  # never reached: nothing is written to disk


Form = Mapping[str, str | bytes]


def read_form(kind: str, body: bytes, *, files: tuple[str, ...], fields: tuple[str, ...]) -> Form:
    """Files (bytes) and plain fields (text) of a body of content type ``kind``; each name at most once.

    >>> body = b'--x\\r\\nContent-Disposition: form-data; name="model"\\r\\n\\r\\naffine\\r\\n--x--\\r\\n'
    >>> read_form("multipart/form-data; boundary=x", body, files=("a",), fields=("model",))
    {'model': 'affine'}
    """
    if not kind.lower().startswith("multipart/form-data"):
        raise FieldError(f"The body must be a form (multipart/form-data) with {_names(files + fields)}.")
    return asyncio.run(_read(kind, body, files, fields))


def file_content(form: Form, name: str, what: str) -> bytes:
    """The bytes of a file that was sent, which must be ``what``; refused if there are none.

    >>> file_content({"a": b"GIF89a"}, "a", "an image")
    b'GIF89a'
    """
    content = form.get(name)
    if not isinstance(content, bytes):
        raise FieldError(f"{name} is missing; it must be {what}.")
    if not content:
        raise FieldError(f"{name} is an empty file; it must be {what}.")
    return content


async def _read(kind: str, body: bytes, files: tuple[str, ...], fields: tuple[str, ...]) -> Form:
    parser = _InMemory(
        Headers({"content-type": kind}), _whole(body), max_files=len(files), max_fields=len(fields) + 4
    )
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


async def _whole(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


def _check_field(name: str, value: Any, files: tuple[str, ...], fields: tuple[str, ...], found: Form) -> None:
    if name not in files + fields:
        raise FieldError(f"{_short(name)} is not a field of this form; it has {_names(files + fields)}.")
    if name in found:
        raise FieldError(f"{name} is given twice; it can be given once.")
    if (name in files) != isinstance(value, UploadFile):
        raise FieldError(f"{name} must be {'a file' if name in files else 'text, not a file'}.")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _short(name: str) -> str:
    return repr(name if len(name) <= 30 else f"{name[:30]}...")
