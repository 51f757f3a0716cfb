"""The HTTP server of ``caunet serve``: uvicorn, with limits for connections.

An application sees whole requests only. What happens before (connections that say nothing, or send a letter of their
head per minute, or a body in a million chunks) is bounded here.
"""

import asyncio
import errno
import functools
import json
import logging
import math
import socket
import time
from collections.abc import Callable
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from caunet.errors import CaunetError
from caunet.web.limits import HEADERS

try:
    import resource
except ImportError:  # Windows has no limit of descriptors to look at
    resource = None  # type: ignore[assignment]

__all__ = ["CONNECTIONS", "HEAD_SECONDS", "Crowd", "Server", "listen"]

CONNECTIONS = 256
"""At once; fewer where the system allows few descriptors."""
HEAD_SECONDS = 15.0
"""Until the whole head of a request has come."""
SEND_SECONDS = 120.0
"""Until a client has taken its answer."""
KEEP_SECONDS = 75
"""How long an unused connection is kept: longer than clients do, for reusing one that is being closed fails."""
BACKLOG = 32
"""Connections that are accepted at one go."""
CHUNKS = 1024
"""Chunks of a body before their mean size matters."""
MEAN_CHUNK = 256
"""Bytes; parsing costs as much per chunk as per kilobyte."""

_logger = logging.getLogger("uvicorn.error")


class Crowd:
    """The open connections of a server, oldest first; at most ``limit``."""

    def __init__(self, limit: int | None = None, head_seconds: float = HEAD_SECONDS) -> None:
        self.limit = _affordable() if limit is None else limit
        self.head_seconds = head_seconds
        self.open: dict[Connection, None] = {}

    def admit(self, connection: "Connection") -> bool:
        """Add a connection. Where there are too many, the oldest that asks for nothing is closed for it."""
        if len(self.open) >= self.limit:
            idle = next((one for one in self.open if one.idle), None)
            if idle is None:
                return False
            idle.drop()
        self.open[connection] = None
        return True

    def leave(self, connection: "Connection") -> None:
        """Forget a connection, whether or not it was admitted."""
        self.open.pop(connection, None)


class Connection(H11Protocol):
    """One connection: uvicorn's, with time limits for the head of a request and for taking the answer."""

    def __init__(self, *arguments: Any, crowd: Crowd, **options: Any) -> None:
        super().__init__(*arguments, **options)
        size = self.config.h11_max_incomplete_event_size
        self.conn = _Parser(h11.SERVER, 64 * 1024 if size is None else size)
        self.crowd = crowd
        self._head: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is being read or answered; half a head does not count."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.crowd.admit(self):
            self._expect_head()
        else:
            self._refuse(503, "Too many connections; try again in a moment.")

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # nonsense after the answer has begun: there is no way left to say so
            self.drop()
        if self.idle:
            self._expect_head()
        else:
            self._stop_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.idle and self.conn.trailing_data[0]:  # half of the next head is here already
            self._expect_head()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_head()
        self._stop_sending()
        self._unset_keepalive_if_required()
        self.crowd.leave(self)
        super().connection_lost(error)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._sending is None:
            self._sending = self.loop.call_later(SEND_SECONDS, self.drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_sending()

    def send_400_response(self, msg: str) -> None:
        """In the form of all refusals."""
        self._refuse(400, f"{msg.rstrip('.')}.")

    def drop(self) -> None:
        """Close now, whatever was still to be sent."""
        self.crowd.leave(self)
        self.transport.abort()

    def _expect_head(self) -> None:
        if self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(self.crowd.head_seconds, self._late)

    def _late(self) -> None:
        seconds = self.crowd.head_seconds
        self._refuse(408, f"The request took longer than {seconds:g} s to arrive; send it again.")

    def _stop_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _refuse(self, status: int, detail: str) -> None:
        """Answer without the application, and close. A request that is being answered is cut off instead."""
        if not self.idle and self.cycle.response_started:
            self.drop()
            return
        content = json.dumps({"detail": detail}).encode()
        headers = {
            **HEADERS,
            "content-type": "application/json",
            "content-length": str(len(content)),
            "connection": "close",
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(f"HTTP/1.1 {status} Refused\r\n{lines}\r\n".encode() + content)
        self.transport.close()


class _Parser(h11.Connection):
    """h11, without patience for bodies in tiny chunks: each costs as much as a kilobyte."""

    def __init__(self, role: type[h11.SERVER], size: int) -> None:
        super().__init__(role, size)
        self._chunks = self._bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._bytes += len(event.data)
            if self._chunks > CHUNKS and self._bytes < MEAN_CHUNK * self._chunks:
                raise h11.RemoteProtocolError("chunks are too small")
        return event


class Server(uvicorn.Server):
    """uvicorn's server with the limits of a :class:`Crowd`.

    Args:
        app: an ASGI application.
        crowd: the limits.
        before_end: called as soon as the server has to stop, before it waits for requests to end.
    """

    def __init__(
        self, app: Any, *, crowd: Crowd | None = None, before_end: Callable[[], None] = lambda: None
    ) -> None:
        self.crowd, self._before_end = Crowd() if crowd is None else crowd, before_end
        protocol = functools.partial(Connection, crowd=self.crowd)
        super().__init__(
            uvicorn.Config(
                app,
                http=cast(Any, protocol),
                ws="none",  # an upgraded connection would have no limits
                log_level="error",  # a client's mistakes are answered, not logged
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_SECONDS,
                timeout_graceful_shutdown=3,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_Quiet())
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._before_end()
        await super().shutdown(sockets)


class _Quiet:
    """Without descriptors asyncio reports every connection that it cannot accept; once a minute is enough."""

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        scarce = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
        if not isinstance(error, OSError) or error.errno not in scarce:
            loop.default_exception_handler(context)
        elif time.monotonic() - self._last > 60:
            self._last = time.monotonic()
            _logger.error("no connection can be accepted: %s", error.strerror)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Bound before the server runs: a port in use is a message, and the address is known.

    It is made with its protocol (TCP): asyncio switches Nagle's algorithm off for sockets that say so only, and
    with it every answer on a kept connection would wait 40 ms for the client's acknowledgment.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise CaunetError(
            f"cannot listen at {host} port {port}: {error.strerror or error}; try another --port"
        ) from error
    return listening


def _affordable() -> int:
    """As many connections as there are descriptors for, beside those that are just being accepted and our own."""
    if resource is None or resource.getrlimit(resource.RLIMIT_NOFILE)[0] == resource.RLIM_INFINITY:
        return CONNECTIONS
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(CONNECTIONS, descriptors - 2 * BACKLOG - 64))
