"""Processes on this machine, through loky: fresh interpreters, replaced when they die."""

import os
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from caunet.cores import usable_cores
from caunet.execution.engine import Engine, Factory, Item, Result
from caunet.execution.outcome import Failure, Outcome
from caunet.execution.worker import INTERRUPTED, THREADS, prepare, run_item

__all__ = ["Processes"]

_TRIES = 3  # how often an item may end its worker before it counts as the cause
_PATIENCE = 60.0  # seconds that items have to save their state after Ctrl-C


class Processes(Engine):
    """``workers`` processes with one thread each.

    Workers are started when they are first needed and kept for the next run. When one dies, loky gives up all of
    them; the items that were under way are then run again one at a time, so that the one that ends its worker is
    found, and the others are not blamed for it.

    >>> with Processes(workers=1) as engine:
    ...     [outcome.value for outcome in engine.map(len, ["a", "bc"])]
    [1, 2]
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or usable_cores()
        self._executor: Any = None
        self._stop: Any = None

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = self._stop = None  # its semaphores go with the event

    def _run(
        self, factory: Factory[Item, Result], items: Iterable[Item], ahead: int, lead: int | None
    ) -> Iterator[Outcome[Result]]:
        import cloudpickle

        limit = self.workers * (1 + ahead)
        run = _Run(self, cloudpickle.dumps(factory), iter(enumerate(items)), limit, lead)
        try:
            while run.fill():
                yield from run.gather()
        except KeyboardInterrupt:
            yield from run.interrupt()
            raise
        finally:
            for _ in run.interrupt():  # only if there is something under way: the caller has gone
                pass

    def _submit(self, *arguments: Any) -> "Future[Outcome[Any]]":
        if self._executor is None:
            from loky import ProcessPoolExecutor
            from loky.backend import get_context

            context = get_context("loky")
            self._stop = context.Event()
            self._executor = ProcessPoolExecutor(
                self.workers,
                context=context,
                initializer=prepare,
                initargs=(os.getpid(), self._stop),
                env=THREADS,
            )
        future: Future[Outcome[Any]] = self._executor.submit(run_item, *arguments)
        return future


class _Run:
    """One call of :meth:`Processes._run`: what is under way and what is to be done again."""

    def __init__(
        self,
        engine: Processes,
        factory: bytes,
        items: Iterator[tuple[int, Any]],
        limit: int,
        lead: int | None,
    ) -> None:
        self.engine, self.factory, self.items, self.limit, self.lead = engine, factory, items, limit, lead
        self.taken = 0  # from the items
        self.key = uuid.uuid4().hex
        self.pending: dict[Future[Outcome[Any]], tuple[int, Any]] = {}
        self.suspects: deque[tuple[int, Any]] = deque()
        self.deaths: dict[int, int] = {}

    def fill(self) -> bool:
        """Keep the workers busy; whether anything is under way."""
        limit = 1 if self.suspects else self.limit
        while len(self.pending) < limit:
            item = self.suspects.popleft() if self.suspects else self._take()
            if item is None:
                break
            self.pending[self.engine._submit(self.key, self.factory, *item)] = item
        return bool(self.pending)

    def _take(self) -> tuple[int, Any] | None:
        """The next item, if there is one and it would not lead by too much."""
        first = min((index for index, _ in self.pending.values()), default=self.taken)
        if self.lead is not None and self.taken - first >= self.lead:
            return None
        item = next(self.items, None)
        self.taken += item is not None
        return item

    def gather(self) -> Iterator[Outcome[Any]]:
        """Wait for something to end; what ended well is yielded."""
        done, _ = wait(self.pending, return_when=FIRST_COMPLETED)
        broken: list[tuple[int, Any]] = []
        for future in done:
            index, item = self.pending.pop(future)
            try:
                outcome = future.result()
            except BrokenProcessPool:
                broken.append((index, item))
            except Exception as error:  # the item or its value cannot be sent from process to process
                yield Outcome(index, error=Failure.of(error))
            else:
                yield outcome
        if broken:
            yield from self._replace(broken)

    def _replace(self, broken: list[tuple[int, Any]]) -> Iterator[Outcome[Any]]:
        """New workers. An item that was alone is what ended its worker; several are suspects."""
        broken += self.pending.values()
        self.pending.clear()
        self.engine.close()
        if len(broken) == 1:
            index = broken[0][0]
            self.deaths[index] = self.deaths.get(index, 0) + 1
            if self.deaths[index] >= _TRIES:
                message = f"its worker process ended without an answer, {_TRIES} times"
                yield Outcome(index, error=Failure("WorkerDied", message))
                return
        self.suspects.extend(sorted(broken, key=lambda pair: pair[0]))

    def interrupt(self) -> Iterator[Outcome[Any]]:
        """Ask what is under way to end, yield what it answers within the time for that, and end the workers."""
        if not self.pending:
            return
        futures, self.pending = list(self.pending), {}
        self.engine._stop.set()
        try:
            done, _ = wait(futures, timeout=_PATIENCE)
        finally:  # a second Ctrl-C does not wait
            self.engine.close()
        for future in done:
            outcome = future.result() if future.exception() is None else None
            if outcome is not None and (outcome.error is None or outcome.error.kind != INTERRUPTED):
                yield outcome
