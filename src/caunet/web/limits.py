"""What holds for every request, whichever route answers it: bounded bodies, known hosts, strict headers.

These are plain ASGI middlewares around the whole application, so that they also see what never reaches a route:
unknown addresses, errors inside the application, bodies nobody reads.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

__all__ = ["HEADERS", "MAX_BODY", "BodyLimit", "KnownHostsOnly", "OwnPagesOnly", "StrictHeaders"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 10 * 2**20
"""Bytes of a request's body: 10 MB."""

HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


_FIXED = ("/api/photographs/", "/api/thumbnails/")


class StrictHeaders:
    """Adds :data:`HEADERS` to every response; answers of the API are not cached, but for the embedded photographs."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        # The page itself may be cached, but is validated each time: it changes with the package.
        keep = b"no-store" if scope["path"].startswith("/api") else b"no-cache"
        fixed = scope["path"].startswith(_FIXED)  # embedded photographs never change
        replaced = {name for name, _ in extra} | {b"cache-control"}

        async def strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(n, v) for n, v in message.get("headers", []) if n.lower() not in replaced]
                lasting = b"max-age=86400" if fixed and message["status"] == 200 else keep
                message = {**message, "headers": [*kept, *extra, (b"cache-control", lasting)]}
            await send(message)

        await self.app(scope, receive, strict)


class KnownHostsOnly:
    """Refuses (421) requests whose Host header names another server.

    A page of a foreign site can make its own name resolve to this machine (DNS rebinding); the browser then takes
    this server for that site and lets the page read every answer. It still sends the foreign name as Host. Allowed
    are the names of this machine itself (``localhost`` and the loopback addresses), the address at which the
    request arrived, and those in ``allowed``; ``*`` among them allows every name.
    """

    def __init__(self, app: Application, *, allowed: Iterable[str] = ()) -> None:
        self.app = app
        self.allowed = {"localhost", "127.0.0.1", "::1"} | {name.lower() for name in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._knows(scope):
            await self.app(scope, receive, send)
        else:
            await _refuse(send, 421, "This server does not answer to that host name (see --allowed-host).")

    def _knows(self, scope: Scope) -> bool:
        if "*" in self.allowed:
            return True
        name = _host_name(_header(scope, b"host") or b"")
        server = scope.get("server")
        return name in self.allowed or (server is not None and name == str(server[0]).lower())


class OwnPagesOnly:
    """Refuses (403) what a page of another site makes the browser send: a visited page must not use this machine.

    Browsers say so in ``Sec-Fetch-Site``, and in ``Origin``, which must then name the same server as ``Host``; pages
    cannot change either. (Browsers leave out Sec-Fetch-Site on pages without encryption.) Programs send neither.
    """

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD") and _is_foreign(scope):
            await _refuse(send, 403, "Pages of other sites cannot use this server.")
        else:
            await self.app(scope, receive, send)


def _is_foreign(scope: Scope) -> bool:
    if _header(scope, b"sec-fetch-site") in (b"cross-site", b"same-site"):
        return True
    origin = _header(scope, b"origin")
    if origin is None:
        return False
    scheme, _, place = origin.lower().partition(b"://")
    default = {b"http": b":80", b"https": b":443"}.get(scheme, b"")
    host = (_header(scope, b"host") or b"").lower()
    return not place or place.removesuffix(default) != host.removesuffix(default)


def _host_name(host: bytes) -> str:
    """The name or address in a Host header, without its port.

    >>> _host_name(b"LocalHost:8000"), _host_name(b"[::1]:8000"), _host_name(b"example.org")
    ('localhost', '::1', 'example.org')
    """
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


class BodyLimit:
    """Reads bodies while counting, and passes them on whole; refuses bodies that are too large, too slow or too many.

    A body is refused (413) by its Content-Length, or where it has none (chunked) at the byte that is too many: no
    more than ``limit`` bytes are ever held. The rest is then read and dropped for a moment, because a client that
    is still sending would not see the answer. All bodies together may have as many bytes as ``crowd`` of the largest
    (503): bytes that have come are counted, so that clients that send nothing keep nobody out. A body has
    ``seconds`` to arrive (408). ``larger`` says which paths take how many times ``limit``.
    """

    def __init__(
        self,
        app: Application,
        *,
        limit: int = MAX_BODY,
        crowd: int = 32,
        seconds: float = 30.0,
        larger: Mapping[str, int] | None = None,
    ) -> None:
        self.app, self.limit, self.seconds = app, limit, seconds
        self.budget, self.held = crowd * limit, 0
        self.larger = dict(larger or {})

    def _limit(self, scope: Scope) -> int:
        return self.limit * self.larger.get(scope["path"], 1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self.app(scope, receive, send)
            return
        body = bytearray()  # one buffer: a list of one-byte chunks would take fifty times their size
        try:
            await asyncio.wait_for(self._read(scope, receive, body), self.seconds)
        except TimeoutError:
            await _refuse(
                send, 408, f"The request took longer than {self.seconds:g} s to arrive; send it again."
            )
        except _TooLargeError:
            size = f"{self._limit(scope) / 2**20:g} MB"
            await _refuse(send, 413, f"The request is larger than {size}; send smaller files.")
        except _TooManyError:
            await _refuse(send, 503, "Too many requests are being received; try again in a moment.", 2)
        except _GoneError:
            pass
        else:
            await self.app(scope, _replay(bytes(body), receive), send)
        finally:
            self.held -= len(body)

    async def _read(self, scope: Scope, receive: Receive, body: bytearray) -> None:
        """Append the body to ``body``, whose bytes are counted as held."""
        announced, limit = _content_length(scope), self._limit(scope)
        if announced > limit:
            if not _expects_permission(scope):
                await self._drop(receive, announced)
            raise _TooLargeError
        more = True
        while more:
            if self.held >= self.budget:
                raise _TooManyError
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _GoneError
            chunk, more = message.get("body", b""), message.get("more_body", False)
            if len(body) + len(chunk) > limit:
                self.held -= len(body)
                body.clear()
                if more:
                    await self._drop(receive, 10 * self.limit)
                raise _TooLargeError
            body += chunk
            self.held += len(chunk)

    async def _drop(self, receive: Receive, expected: int) -> None:
        """Read on without keeping anything; not for long, and not much."""
        left = min(expected, 10 * self.limit)
        try:
            async with asyncio.timeout(self.seconds / 2):
                while left > 0:
                    message = await receive()
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
                    left -= len(message.get("body", b""))
        except TimeoutError:
            return


class _TooLargeError(Exception):
    pass


class _TooManyError(Exception):
    pass


class _GoneError(Exception):
    """The client has closed the connection."""


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key.lower() == name), None)


def _has_body(scope: Scope) -> bool:
    return _content_length(scope) > 0 or _header(scope, b"transfer-encoding") is not None


def _content_length(scope: Scope) -> int:
    value = _header(scope, b"content-length") or b"0"
    return int(value) if value.isdigit() else 0


def _expects_permission(scope: Scope) -> bool:
    """The client waits for "100 Continue" before it sends: then nothing is under way that had to be dropped."""
    return (_header(scope, b"expect") or b"").lower() == b"100-continue"


def _replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the body once, then whatever comes (the client's leaving)."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


async def _refuse(send: Send, status: int, detail: str, retry: int | None = None) -> None:
    content = json.dumps({"detail": detail}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    if retry is not None:
        headers.append((b"retry-after", str(retry).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
