"""The grid: cells distributed to worker processes, each trained once, whatever happens in between.

A cell is finished when its folder holds a result of exactly its settings; such a cell is never run again.
An unfinished one continues at its last checkpoint. Two grids may work in the same folder: a cell that one of
them has locked is left to it. A cell that fails is reported and the others go on.
"""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from caunet.cores import usable_cores
from caunet.reproduction.recipes import Cell
from caunet.reproduction.results import finished
from caunet.reproduction.worker import TRAINER, Outcome, work

__all__ = ["GridState", "run_grid"]

# Cells that another grid has locked are looked at again after this many seconds.
_RETRY = 3.0
# How long workers may take to save their runs after Ctrl-C: a checkpoint is written in well under a second,
# but one may be building its pairs or compiling.
_PATIENCE = 60.0

Listener = Callable[["GridState"], None]


@dataclass
class GridState:
    """What is known of a grid under way: shown by the display, returned at the end."""

    cells: Sequence[Cell]
    out: Path
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """How the cells ended, by name; a busy one may still change."""
    running: dict[str, float] = field(default_factory=dict)
    """Cells being trained, and when each was begun (``time.monotonic``)."""
    latest: Cell | None = None
    """The cell that ended last."""
    interrupted: bool = False

    @property
    def complete(self) -> bool:
        """Whether every cell is done."""
        return all(cell.name in self.outcomes and self.outcomes[cell.name].done for cell in self.cells)

    def waiting(self, now: float, retry: dict[str, float]) -> list[Cell]:
        """Cells that may be begun now: not running, not ended, and not left to others for the moment."""
        return [
            cell
            for cell in unique(self.cells)
            if cell.name not in self.running
            and (cell.name not in self.outcomes or self.outcomes[cell.name].state == "busy")
            and retry.get(cell.name, 0.0) <= now
        ]


def unique(cells: Sequence[Cell]) -> list[Cell]:
    """``cells`` without repetitions: two recipes may ask for the same run."""
    return list({cell.name: cell for cell in cells}.values())


def run_grid(
    cells: Sequence[Cell],
    out: Path,
    *,
    workers: int | None = None,
    listener: Listener | None = None,
    trainer: str = TRAINER,
) -> GridState:
    """Train what is not finished among ``cells`` in folders under ``out``.

    Args:
        cells: from :func:`caunet.reproduction.recipes.cells`.
        out: folder of the runs.
        workers: processes; by default one per core. The cores are divided evenly among them
            (the networks are small: more processes beat more threads per process).
        listener: called when a cell begins or ends, and about once a second in between.
        trainer: ``module:function`` that returns the training function (tests put theirs here).

    Ctrl-C (or SIGTERM) lets the runs under way save their state and returns with ``interrupted`` set.

    Raises:
        OSError: ``out`` cannot be made.
    """
    cores = usable_cores()
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be a whole number of at least 1, got {workers}")
    state = GridState(cells, out)
    for cell in unique(cells):
        if finished(cell, out / cell.name):
            state.outcomes[cell.name] = Outcome("finished")
    out.mkdir(parents=True, exist_ok=True)  # an error here is reported once, not by every cell
    needed = min(workers or cores, len(unique(cells)) - len(state.outcomes))
    notify = listener or (lambda state: None)
    notify(state)
    if needed:
        with _terminable():
            _Pool(state, needed, max(1, cores // needed), notify, trainer).run()
    return state


@dataclass
class _Worker:
    process: SpawnProcess
    pipe: Connection
    cell: Cell | None = None
    last: Cell | None = None


class _Pool:
    """The parent's side: hand out cells, gather outcomes."""

    def __init__(self, state: GridState, count: int, threads: int, notify: Listener, trainer: str) -> None:
        self.state, self.notify, self.threads, self.trainer = state, notify, threads, trainer
        self.retry: dict[str, float] = {}
        self.count = count
        self.workers: list[_Worker] = []

    def run(self) -> None:
        try:
            self.workers = [self._start(number) for number in range(self.count)]
            while self._hand_out() or self.state.running or self.retry:
                self._gather()
        except KeyboardInterrupt:
            self.state.interrupted = True
            self._interrupt()
        finally:
            self._close()

    def _start(self, number: int) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, self.state.out, self.trainer))
        with _environment(self.threads, number):
            process.start()
        theirs.close()
        return _Worker(process, ours)

    def _hand_out(self) -> bool:
        """Give each idle worker a cell; whether any was given."""
        given = False
        for worker in self.workers:
            waiting = self.state.waiting(time.monotonic(), self.retry)
            if worker.cell is None and waiting:
                cell = choose(
                    waiting, worker.last, [w.cell or w.last for w in self.workers if w is not worker]
                )
                self.retry.pop(cell.name, None)
                worker.cell = worker.last = cell
                self.state.running[cell.name] = time.monotonic()
                with contextlib.suppress(BrokenPipeError):  # it has died: gathering will notice
                    worker.pipe.send(cell)
                given = True
        return given

    def _gather(self) -> None:
        ready = wait([w.pipe for w in self.workers if w.cell is not None], timeout=1.0)
        if not any(w.cell is not None for w in self.workers):
            time.sleep(0.2)  # everything left is with another grid
        for worker in [w for w in self.workers if w.pipe in ready]:
            try:
                self._ended(worker, worker.pipe.recv())
            except (EOFError, ConnectionResetError):
                worker.process.join()
                self._ended(
                    worker, Outcome("failed", f"its process died (exit code {worker.process.exitcode})")
                )
                number = self.workers.index(worker)
                self.workers[number] = self._start(number)
        self.notify(self.state)

    def _ended(self, worker: _Worker, outcome: Outcome) -> None:
        cell, worker.cell = worker.cell, None
        if cell is None:
            return
        self.state.running.pop(cell.name, None)
        self.state.outcomes[cell.name] = outcome
        if outcome.state == "busy":
            self.retry[cell.name] = time.monotonic() + _RETRY
        elif outcome.state == "interrupted":
            raise KeyboardInterrupt  # someone stopped the worker itself
        else:
            self.state.latest = cell
            self.notify(self.state)
            self.state.latest = None

    def _interrupt(self) -> None:
        """Let the runs under way save; a second Ctrl-C does not wait for them."""
        for worker in self.workers:
            if worker.process.is_alive() and worker.process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGINT)
        deadline = time.monotonic() + _PATIENCE
        with contextlib.suppress(KeyboardInterrupt):
            for worker in self.workers:
                worker.process.join(max(0.0, deadline - time.monotonic()))
        self.state.running.clear()

    def _close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(BrokenPipeError, OSError):
                worker.pipe.send(None)
            worker.pipe.close()
        for worker in self.workers:
            worker.process.join(5.0)
            if worker.process.is_alive():
                worker.process.kill()  # what is lost is at most the updates since the last checkpoint
                worker.process.join()


def choose(waiting: Sequence[Cell], last: Cell | None, others: Sequence[Cell | None]) -> Cell:
    """The next cell of a worker: on the pairs it has, else on pairs nobody has, else the first.

    Building a set of pairs takes seconds and memory; two workers on different pairs each build one.
    """
    held = {cell.pairs for cell in others if cell is not None}
    same = [cell for cell in waiting if last is not None and cell.pairs == last.pairs]
    free = [cell for cell in waiting if cell.pairs not in held]
    return (same or free or list(waiting))[0]


@contextlib.contextmanager
def _environment(threads: int, number: int) -> Iterator[None]:
    """Environment of a new worker: its threads must be known before torch is loaded.

    Each worker compiles into a folder of its own: two that compile the same network at the same time have been
    seen to load each other's half-written libraries.
    """
    compiled = (
        os.environ.get("TORCHINDUCTOR_CACHE_DIR") or Path(tempfile.gettempdir()) / f"caunet-{os.getuid()}"
    )
    wanted = {"OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    wanted["TORCHINDUCTOR_CACHE_DIR"] = str(Path(compiled) / f"worker-{number}")
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


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
