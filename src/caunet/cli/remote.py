"""Ask a running ``caunet serve`` instead of computing here. Only the standard library is needed for it."""

import http.client
import json
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caunet.errors import CaunetError
from caunet.estimation.result import Estimate
from caunet.files import open_regular, printable_path
from caunet.images import ImageError

__all__ = ["ServerError", "estimate_remotely", "multipart"]

LARGEST_ANSWER = 64 * 2**20


class ServerError(CaunetError):
    """The server cannot be reached, refuses, or answers what it should not."""


def estimate_remotely(server: str, a: Path, b: Path, model: str, *, timeout: float = 60.0) -> Estimate:
    """Post the two files to ``server``/api/estimate and read the estimate that comes back."""
    url = _address(server)
    if not 0 < timeout < float("inf"):
        raise ValueError(f"--timeout must be a positive number of seconds, got {timeout}")
    files = {"a": (f"a{a.suffix}", _content(a, "a")), "b": (f"b{b.suffix}", _content(b, "b"))}
    body, kind = multipart({"model": model}, files)
    request = urllib.request.Request(url, body, {"Content-Type": kind, "Accept": "application/json"})
    data = _json(_post(request, server, timeout), server)
    try:
        return Estimate.from_json(data)
    except ValueError as error:
        raise ServerError(
            f"{server} answered something that is no estimate ({error}); is it caunet?"
        ) from error


def multipart(fields: Mapping[str, str], files: Mapping[str, tuple[str, bytes]]) -> tuple[bytes, str]:
    """A form with plain fields and files (name of the file, content), and its content type (RFC 7578)."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    for name, (filename, content) in files.items():
        safe = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in filename)
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{safe}"\r\n'
        parts.append(f"{head}Content-Type: application/octet-stream\r\n\r\n".encode() + content + b"\r\n")
    return b"".join([*parts, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"


def _address(server: str) -> str:
    parts = urllib.parse.urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"--server must be an address such as http://localhost:8000, got {server!r}")
    return f"{server.rstrip('/')}/api/estimate"


def _content(path: Path, argument: str) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except (OSError, ValueError) as error:  # ValueError: a path that cannot exist
        why = getattr(error, "strerror", None) or error
        raise ImageError(f"{argument}: {printable_path(path)}", f"cannot be read: {why}") from error


def _post(request: urllib.request.Request, server: str, timeout: float) -> bytes:
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            content: bytes = response.read(LARGEST_ANSWER + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise ServerError(_refusal(server, error.code, _reason(error))) from error
    except (OSError, http.client.HTTPException) as error:  # urllib's own errors are OSErrors
        why = getattr(error, "reason", None) or error
        if isinstance(why, TimeoutError):
            raise ServerError(
                f"{server} did not answer within {timeout:g} s; try a larger --timeout"
            ) from error
        why = getattr(why, "strerror", None) or why or type(error).__name__
        raise ServerError(
            f"{server} cannot be reached ({why}); is `caunet serve` running there? "
            "Without --server the images are compared here"
        ) from error
    if len(content) > LARGEST_ANSWER:
        raise ServerError(f"{server} answered more than {LARGEST_ANSWER // 2**20} MB; is it caunet?")
    return content


def _refusal(server: str, code: int, reason: str) -> str:
    if code == 413:
        return f"{server} takes smaller files only{_colon(reason)}; reduce the images, or leave out --server"
    if code in (400, 422):
        return f"{server} cannot use these images{_colon(reason)}"
    if code in (403, 421):
        return f"{server} refuses this{_colon(reason)}"
    if code == 504:
        return f"{server} stopped the computation{_colon(reason)}"
    if code in (429, 503):
        return f"{server} is busy{_colon(reason)}; try again in a moment"
    return f"{server} answered {code} {http.client.responses.get(code, '')}{_colon(reason)}; is it caunet?"


def _colon(reason: str) -> str:
    return f": {reason}" if reason else ""


def _reason(error: urllib.error.HTTPError) -> str:
    """What the server says about it: ``detail``, ``error``, ``reason`` or ``message`` of its JSON, on one line."""
    try:
        data = json.loads(error.read(100_000))
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    for name in ("detail", "error", "reason", "message"):
        value: Any = data.get(name) if isinstance(data, dict) else None
        if isinstance(value, dict):
            value = value.get("message") or value.get("reason")
        if isinstance(value, list):  # a list of what is wrong with the form, as FastAPI has it
            value = "; ".join(
                str(item.get("msg", item)) if isinstance(item, dict) else str(item) for item in value
            )
        if isinstance(value, str) and value:
            return " ".join(value.split())[:500].rstrip(".")
    return ""


def _json(content: bytes, server: str) -> dict[str, Any]:
    try:
        data = json.loads(content)
    except ValueError as error:
        raise ServerError(f"{server} answered something that is not JSON; is it caunet?") from error
    if not isinstance(data, dict):
        raise ServerError(f"{server} answered something that is no estimate; is it caunet?")
    return data
