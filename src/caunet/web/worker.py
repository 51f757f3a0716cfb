"""A worker: the process in which requests are parsed, images decoded and estimates computed.

It has limits of CPU time and memory, and :mod:`caunet.web.jobs` can kill it at any moment. It reads requests from
its standard input and writes answers to its standard output, both as length-prefixed frames:

- request: ``REQUEST`` (length of the header, length of the body), a header in JSON (``name``, ``kind``,
  ``seconds``) and the body;
- answer: ``ANSWER`` (status of HTTP, whether the worker ends now, length), then JSON for the client.

Answers are JSON and not pickles: a hostile image that takes over this process gains nothing in the server's.

This module imports nothing beyond the standard library, so that a worker without torch starts in milliseconds.
"""

import contextlib
import json
import math
import os
import pkgutil
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from caunet.errors import CaunetError
from caunet.web.refusals import MISTAKE, UNAVAILABLE, Refused, TooLargeError

try:
    import resource
except ImportError:  # Windows: the server's watchdog is the only limit
    resource = None  # type: ignore[assignment]

__all__ = ["ANSWER", "READY", "REQUEST", "Handler", "cpu_limit", "main", "read_exactly"]

REQUEST = struct.Struct(">IQ")
ANSWER = struct.Struct(">H?Q")
READY = 100
"""The status of the frame that says that the worker has started."""
MARGIN = 2.0
"""Seconds of CPU time beyond the time limit: the limit only ends workers whose server has died."""

Handler = Callable[[str, str, bytes], Any]
"""(name of the route, content type, body) -> JSON data; raises :class:`~caunet.web.refusals.Refused`."""

_in_worker = False


def main() -> None:
    """Answer requests until the standard input ends. ``sys.argv[1]`` holds setup, options and memory in JSON."""
    global _in_worker
    _in_worker = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's business
    settings = json.loads(sys.argv[1])
    requests, answers = _private_pipes()
    handler: Handler = pkgutil.resolve_name(settings["setup"])(**settings["options"])
    _limit_memory(settings["memory"])
    _send(answers, READY, b"")
    while (request := _receive(requests)) is not None:
        header, body = request
        with cpu_limit(header["seconds"] + MARGIN):
            status, content, last = _answer(handler, header["name"], header["kind"], body, settings["memory"])
        _send(answers, status, content, last=last)
        if last:
            return


@contextlib.contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Kill this worker if the block needs more CPU time; does nothing in other processes, and on Windows.

    Decoders cannot be interrupted otherwise: they run in C, where no signal handler of Python is called.
    """
    if not _in_worker or resource is None:
        yield
        return
    before, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = math.ceil(time.process_time() + seconds)
    if before != resource.RLIM_INFINITY:
        limit = min(limit, before)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (before, hard))


def read_exactly(file: BinaryIO, count: int) -> bytes:
    """``count`` bytes; EOFError if there are fewer."""
    content = file.read(count)
    if len(content) < count:
        raise EOFError
    return content


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The frames' pipes under other numbers, so that nothing a library prints gets between them."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return requests, answers


def _limit_memory(allowance: int | None) -> None:
    """Let this process use ``allowance`` bytes more than it does now (Linux; elsewhere there is no such limit)."""
    statm = Path("/proc/self/statm")
    if resource is None or allowance is None or not statm.exists():
        return
    now = int(statm.read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = now + allowance if hard == resource.RLIM_INFINITY else min(now + allowance, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _receive(file: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    try:
        header, body = REQUEST.unpack(read_exactly(file, REQUEST.size))
        return json.loads(read_exactly(file, header)), read_exactly(file, body)
    except EOFError:  # the server has ended, or needs this worker no longer
        return None


def _send(file: BinaryIO, status: int, content: bytes, *, last: bool = False) -> None:
    try:
        file.write(ANSWER.pack(status, last, len(content)) + content)
        file.flush()
    except BrokenPipeError:  # the server was killed; nobody is left to complain to
        os._exit(0)


def _answer(
    handler: Handler, name: str, kind: str, body: bytes, memory: int | None
) -> tuple[int, bytes, bool]:
    """Status, JSON, and whether to end: what failed for want of memory may have left anything behind."""
    try:
        return 200, _json(handler(name, kind, body)), False
    except Refused as error:
        return error.status, _detail(error.detail), False
    except Exception as error:
        if _out_of_memory(error):
            allowed = "" if memory is None else f" than the {memory // 2**20} MB a request may use"
            return (
                TooLargeError.status,
                _detail(f"This needs more memory{allowed}; send smaller images."),
                True,
            )
        traceback.print_exc()
        if isinstance(error, CaunetError):
            return 503, _detail(UNAVAILABLE), False
        return 500, _detail(MISTAKE), False


def _json(data: Any) -> bytes:
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def _detail(text: str) -> bytes:
    return _json({"detail": text})


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether memory was refused, here or in what this error was raised from."""
    while error is not None:
        # torch has no class for it: its allocator raises RuntimeError under its own name.
        if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
