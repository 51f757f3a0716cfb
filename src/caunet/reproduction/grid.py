"""The grid: cells shared out to the workers of an engine, each trained once, whatever happens in between.

A cell is finished when its folder holds a result of exactly its settings; such a cell is never run again.
An unfinished one continues at its last checkpoint. Two grids may work in the same folder: a cell that one of
them has locked is left to it. A cell that fails is reported and the others go on.
"""

import contextlib
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from caunet.cores import usable_cores
from caunet.execution import Engine, Outcome, create_engine
from caunet.reproduction.recipes import Cell
from caunet.reproduction.results import finished
from caunet.reproduction.worker import TRAINER, CellOutcome, make_worker

__all__ = ["GridState", "run_grid"]

# Cells that another grid has locked are looked at again after this many seconds.
_RETRY = 3.0
# Between two calls of the listener while nothing ends.
_TICK = 1.0

Listener = Callable[["GridState"], None]


@dataclass
class GridState:
    """What is known of a grid under way: shown by the display, returned at the end."""

    cells: Sequence[Cell]
    out: Path
    outcomes: dict[str, CellOutcome] = field(default_factory=dict)
    """How the cells ended, by name; a busy one may still change."""
    running: dict[str, float] = field(default_factory=dict)
    """Cells being trained, and when each was begun (``time.monotonic``)."""
    latest: Cell | None = None
    """The cell that ended last, while the listener is told of it."""
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether every cell is done."""
        return all(cell.name in self.outcomes and self.outcomes[cell.name].done for cell in self.cells)

    @property
    def waiting(self) -> list[Cell]:
        """Cells that have neither begun nor ended, or were left to another grid."""
        return [
            cell
            for cell in unique(self.cells)
            if cell.name not in self.running
            and (cell.name not in self.outcomes or self.outcomes[cell.name].state == "busy")
        ]


def unique(cells: Sequence[Cell]) -> list[Cell]:
    """``cells`` without repetitions: two recipes may ask for the same run."""
    return list({cell.name: cell for cell in cells}.values())


def run_grid(
    cells: Sequence[Cell],
    out: Path,
    *,
    workers: int | None = None,
    engine: str = "processes",
    address: str | None = None,
    listener: Listener | None = None,
    trainer: str = TRAINER,
) -> GridState:
    """Train what is not finished among ``cells`` in folders under ``out``.

    Args:
        cells: from :func:`caunet.reproduction.recipes.cells`.
        out: folder of the runs; on a cluster, one that all nodes share.
        workers: cells at once; by default one per core (the networks are small: more processes beat more threads).
        engine: ``processes``, ``serial`` or ``ray``; see :func:`caunet.execution.create_engine`.
        address: of a Ray cluster.
        listener: called when a cell begins or ends, and about once a second in between.
        trainer: ``module:function`` that returns the training function (tests put theirs here).

    Ctrl-C (or SIGTERM) lets the runs under way save their state and returns with ``interrupted`` set.

    Raises:
        OSError: ``out`` cannot be made.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be a whole number of at least 1, got {workers}")
    state = GridState(cells, out)
    for cell in unique(cells):
        if finished(cell, out / cell.name):
            state.outcomes[cell.name] = CellOutcome("finished")
    out.mkdir(parents=True, exist_ok=True)  # said once and here if it cannot be, not by every cell
    notify = listener or (lambda state: None)
    notify(state)
    if state.waiting:
        most = (
            None
            if engine == "ray" and workers is None
            else min(workers or usable_cores(), len(state.waiting))
        )
        made = create_engine(engine, None if engine == "serial" else most, address)
        with _terminable(), made, _ticking(state, notify) as lock:
            _Grid(state, made, lock, notify, trainer).run()
    return state


class _Grid:
    """One call of :func:`run_grid`: hands out cells in an order that spares pairs, takes in outcomes."""

    def __init__(
        self, state: GridState, engine: Engine, lock: threading.Lock, notify: Listener, trainer: str
    ) -> None:
        self.state, self.engine, self.lock, self.notify = state, engine, lock, notify
        self.factory = functools.partial(make_worker, state.out, trainer)
        self.given: list[Cell] = []  # in the order of the engine's indices
        self.ended: Cell | None = None

    def run(self) -> None:
        try:
            while self.state.waiting:
                self.given = []
                for outcome in self.engine.run(self.factory, self._cells(), ordered=False, ahead=0):
                    self._take(outcome)
                if self.state.waiting:
                    time.sleep(_RETRY)  # everything left is with another grid
        except KeyboardInterrupt:
            self.state.interrupted = True
            self.state.running.clear()

    def _cells(self) -> Iterator[Cell]:
        """One cell whenever a worker is free: the worker that ended last, which still has its pairs."""
        left = self.state.waiting
        while left:
            with self.lock:
                running = [cell for cell in self.given if cell.name in self.state.running]
                cell = choose(left, self.ended, running)
                left.remove(cell)
                self.given.append(cell)
                self.state.running[cell.name] = time.monotonic()
            self.notify(self.state)
            yield cell

    def _take(self, outcome: Outcome[CellOutcome]) -> None:
        cell = self.given[outcome.index]
        failure = outcome.error
        ended = outcome.result() if failure is None else CellOutcome("failed", failure.message)
        with self.lock:
            self.state.running.pop(cell.name, None)
            self.state.outcomes[cell.name] = ended
            self.ended = cell
            self.state.latest = None if ended.state in ("busy", "interrupted") else cell
            self.notify(self.state)
            self.state.latest = None
        if ended.state == "interrupted":
            raise KeyboardInterrupt  # someone stopped the worker itself


def choose(waiting: Sequence[Cell], last: Cell | None, running: Sequence[Cell]) -> Cell:
    """The next cell of a worker: on the pairs it has, else on pairs nobody has, else the first.

    Building a set of pairs takes seconds and memory; two workers on different pairs each build one.
    """
    held = {cell.pairs for cell in running}
    same = [cell for cell in waiting if last is not None and cell.pairs == last.pairs]
    free = [cell for cell in waiting if cell.pairs not in held]
    return (same or free or list(waiting))[0]


@contextlib.contextmanager
def _ticking(state: GridState, notify: Listener) -> Iterator[threading.Lock]:
    """Call the listener about once a second, from a thread; yields the lock that its state is changed under."""
    lock, stop = threading.Lock(), threading.Event()

    def tick() -> None:
        while not stop.wait(_TICK):
            with lock:
                notify(state)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield lock
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM stop the grid as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
