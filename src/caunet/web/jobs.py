"""Computations: as many at once as there are cores, a short queue before them, a time limit.

They run in threads of this process, not in processes of their own. Torch computes outside of Python's lock, so two
threads keep two cores busy; the networks are loaded once (a process more is 300 MB more and seconds to start); and
nothing has to be copied. What threads cannot do is be stopped: a computation that exceeds its time is answered with
"too long", but goes on until it ends, and its place is free only then. That it does end is the callers' part: they
bound what goes in (:mod:`caunet.web.uploads`).
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from caunet.cores import usable_cores

__all__ = ["BusyError", "Computations", "TooLongError"]

T = TypeVar("T")


class BusyError(Exception):
    """All places are taken, and so is the queue."""


class TooLongError(Exception):
    """The computation has not ended within its time."""


class Computations:
    """Places for computations.

    Args:
        workers: how many at once; as many as cores if not given.
        queue: how many may wait; four times as many if not given.
        seconds: the time limit, waiting included.

    >>> places = Computations(workers=1)
    >>> asyncio.run(places.run(lambda: 6 * 7))
    42
    >>> places.close()
    """

    def __init__(self, workers: int | None = None, queue: int | None = None, seconds: float = 30.0) -> None:
        self.workers = usable_cores() if workers is None else workers
        self.queue = 4 * self.workers if queue is None else queue
        self.seconds = seconds
        self._taken = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self.workers, "caunet-compute", initializer=_one_core_each)

    @property
    def taken(self) -> int:
        """Computations under way or waiting."""
        return self._taken

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """``work(*arguments)`` in a thread; raises :class:`BusyError` at once, :class:`TooLongError` later."""
        future = self._submit(work, *arguments)
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self.seconds)
        if done:
            return waiting.result()
        if future.cancel():  # it had not even begun
            raise BusyError
        waiting.add_done_callback(_forget)
        raise TooLongError

    def _submit(self, work: Callable[..., T], *arguments: Any) -> "Future[T]":
        with self._lock:
            if self._taken >= self.workers + self.queue:
                raise BusyError
            self._taken += 1
        try:
            future = self._pool.submit(work, *arguments)
        except BaseException:
            self._release()
            raise
        # Called when it has really ended (or was cancelled in the queue), whether or not anyone still waits.
        future.add_done_callback(self._release)
        return future

    def _release(self, _: Any = None) -> None:
        with self._lock:
            self._taken -= 1

    def close(self) -> None:
        """Take no more; what waits is dropped, what runs is left to end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _one_core_each() -> None:
    # Two computations of one thread each are done sooner than two that quarrel about both cores.
    torch.set_num_threads(1)


def _forget(future: "asyncio.Future[Any]") -> None:
    """Look at what nobody waits for any more, so that asyncio does not complain about it."""
    if not future.cancelled():
        future.exception()
