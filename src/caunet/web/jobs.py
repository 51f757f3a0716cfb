"""Computations: a few worker processes, a short queue before them, limits of time and memory.

Processes and not threads, because a process can be stopped: decoding and estimating run in C, and what does not end
by itself (a JPEG of ten thousand scans) ends with its process. A worker that exceeds its time is killed and another
one takes its place; the other workers and the server go on. Networks are loaded once per worker.

The base is a watchdog: a timer that kills the process, which works on every system. Where the system has limits of
its own (RLIMIT_CPU, RLIMIT_AS), :mod:`caunet.web.worker` sets them too.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple

from caunet.cores import usable_cores
from caunet.web import worker
from caunet.web.refusals import BusyError, StoppingError, TooLongError, WorkerError

__all__ = ["MEMORY", "Answer", "Computations"]

MEMORY = 1024 * 2**20
"""Bytes a worker may use beyond what it has after its start."""
MAX_ANSWER = 64 * 2**20
START_SECONDS = 120.0
"""Importing torch and loading the networks takes seconds, and on a busy machine many of them."""
_RUN = "from caunet.web.worker import main; main()"


class Answer(NamedTuple):
    """What a worker says: a status of HTTP, and JSON."""

    status: int
    content: bytes


class Computations:
    """A pool of workers.

    Args:
        setup: ``module:function`` that a worker calls with ``options``; returns its :data:`~caunet.web.worker.Handler`.
        options: JSON data.
        workers: how many computations at once; as many as cores if not given.
        queue: how many may wait; four times as many if not given.
        seconds: the time limit of a computation, and of waiting for it to begin.
        memory: bytes a worker may use beyond what it has after its start; None for no limit.
    """

    def __init__(
        self,
        setup: str,
        options: Mapping[str, Any] | None = None,
        *,
        workers: int | None = None,
        queue: int | None = None,
        seconds: float = 30.0,
        memory: int | None = MEMORY,
    ) -> None:
        self.workers = usable_cores() if workers is None else workers
        self.queue = 4 * self.workers if queue is None else queue
        self.seconds = seconds
        self._settings = json.dumps({"setup": setup, "options": dict(options or {}), "memory": memory})
        self._taken = 0
        self._lock = threading.Lock()
        self._closed = self._eager = False
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._pool = ThreadPoolExecutor(self.workers, "caunet-compute")

    @property
    def taken(self) -> int:
        """Computations under way or waiting."""
        return self._taken

    def start(self) -> None:
        """Start all workers now, and replace those that are killed at once; else they start when they are needed."""
        self._eager = True
        for _ in range(self.workers):
            self._give_back(self._begin())

    async def run(self, name: str, kind: str, body: bytes, times: int = 1) -> Answer:
        """The answer of a worker to ``body`` of content type ``kind``; raises :mod:`~caunet.web.refusals`.

        It may take ``times`` as long as others.
        """
        future = self._submit(name, kind, body, times * self.seconds)
        waiting = asyncio.wrap_future(future)
        waiting.add_done_callback(_forget)
        try:
            done, _ = await asyncio.wait({waiting}, timeout=self.seconds)
            if not done:
                if future.cancel():  # it had not even begun
                    raise BusyError
                await asyncio.wait({waiting})  # its own time limit is running
        finally:
            future.cancel()  # where this was cancelled itself, it need not begin any more
        if waiting.cancelled():
            raise StoppingError
        return waiting.result()

    def _submit(self, name: str, kind: str, body: bytes, seconds: float) -> "Future[Answer]":
        with self._lock:
            if self._closed:
                raise StoppingError
            if self._taken >= self.workers + self.queue:
                raise BusyError
            self._taken += 1
        try:
            future = self._pool.submit(self._compute, name, kind, body, seconds)
        except BaseException:
            self._release()
            raise
        # Called when it has really ended (or was cancelled in the queue), whether or not anyone still waits.
        future.add_done_callback(self._release)
        return future

    def _release(self, _: Any = None) -> None:
        with self._lock:
            self._taken -= 1

    def _compute(self, name: str, kind: str, body: bytes, seconds: float) -> Answer:
        with self._lock:
            one = self._idle.pop() if self._idle else None
        one = one or self._begin()
        try:
            return one.call(name, kind, body, seconds)
        finally:
            if one.alive:
                self._give_back(one)
            else:
                with self._lock:
                    self._all.discard(one)
                if self._eager:
                    with contextlib.suppress(StoppingError):
                        self._give_back(self._begin())

    def _begin(self) -> "_Worker":
        with self._lock:
            if self._closed:
                raise StoppingError
            one = _Worker(self._settings)
            self._all.add(one)
            return one

    def _give_back(self, one: "_Worker") -> None:
        with self._lock:
            self._idle.append(one)

    def close(self) -> None:
        """Take no more, and kill what runs: a server that has to stop stops at once."""
        with self._lock:
            self._closed = True
            ending, self._all = self._all, set()
        for one in ending:
            one.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)


class _Worker:
    """One process; :meth:`call` may be called by one thread at a time, :meth:`stop` by any."""

    def __init__(self, settings: str) -> None:
        # What a request lays down in files goes with the worker, however that ends.
        self._folder = tempfile.TemporaryDirectory(prefix="caunet-", ignore_cleanup_errors=True)
        # The same modules as here: the path of this process, and none of the current directory (-P).
        path = os.pathsep.join(part for part in sys.path if part)
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TMPDIR": self._folder.name}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _RUN, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C in the terminal reaches the server only, which then stops this
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: BinaryIO = self._process.stdin  # type: ignore[assignment]
        self._answers: BinaryIO = self._process.stdout  # type: ignore[assignment]
        self._lock = threading.Lock()
        self._ready = self._expired = self._stopped = False
        self.alive = True

    def call(self, name: str, kind: str, body: bytes, seconds: float) -> Answer:
        """Send a request and wait for its answer, which is late after ``seconds``."""
        try:
            if not self._ready:
                with self._watched(START_SECONDS):
                    self._read()
                self._ready = True
            header = json.dumps({"name": name, "kind": kind, "seconds": seconds}).encode()
            with self._watched(seconds):
                self._requests.write(worker.REQUEST.pack(len(header), len(body)) + header)
                self._requests.write(body)
                self._requests.flush()
                answer, last = self._read()
        except (OSError, EOFError, ValueError):
            raise self._reason(seconds) from None
        if last:
            self._end()
        return answer

    def _read(self) -> tuple[Answer, bool]:
        status, last, length = worker.ANSWER.unpack(worker.read_exactly(self._answers, worker.ANSWER.size))
        if length > MAX_ANSWER:
            raise EOFError
        return Answer(status, worker.read_exactly(self._answers, length)), last

    @contextlib.contextmanager
    def _watched(self, seconds: float) -> Iterator[None]:
        """Kill the process unless the block ends within ``seconds``."""
        ended = False

        def expire() -> None:
            with self._lock:
                if not ended:
                    self._expired = True
                    self._process.kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                ended = True

    def _reason(self, seconds: float) -> Exception:
        """Why there is no answer."""
        self._end()
        code = self._process.returncode
        if self._stopped:
            return StoppingError()
        if not self._ready:
            return WorkerError("The server cannot start a worker; its log says why.")
        if code == -getattr(signal, "SIGXCPU", 0) and code != 0 and not self._expired:
            return TooLongError("Decoding took too long; send the image in a simpler format.")
        if self._expired:
            return TooLongError(f"This took longer than {seconds:g} s; try smaller images.")
        return WorkerError("The computation ended unexpectedly; other images may work.")

    def stop(self) -> None:
        """Kill the process; whoever waits for an answer gets :class:`StoppingError`."""
        self._stopped = True
        self._end()

    def _end(self) -> None:
        self.alive = False
        self._process.kill()
        self._process.wait()
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                pipe.close()
        self._folder.cleanup()


def _forget(future: "asyncio.Future[Any]") -> None:
    """Look at what nobody waits for any more, so that asyncio does not complain about it."""
    if not future.cancelled():
        future.exception()
