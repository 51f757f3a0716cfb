"""A worker of the grid: a process that trains one cell after the other.

It keeps the pairs of the last cell, because the next one is often another network on the same pairs.
Training functions are given by name (``module:function``), so that they survive the way to a new process.
"""

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from caunet.errors import CaunetError, DivergenceError
from caunet.locks import hold, owner
from caunet.reproduction.recipes import Cell
from caunet.reproduction.results import finished, store_divergence

__all__ = ["TRAINER", "Outcome", "Trainer", "make_trainer", "run_cell", "work"]

State = Literal["finished", "diverged", "failed", "busy", "interrupted"]
Trainer = Callable[[Cell, Path], bool]

TRAINER = "caunet.reproduction.worker:make_trainer"


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: ``finished`` and ``diverged`` are results, ``busy`` means another process has it."""

    state: State
    message: str = ""

    @property
    def done(self) -> bool:
        """Whether the cell needs no more work."""
        return self.state in ("finished", "diverged")


def make_trainer() -> Trainer:
    """The trainer of real grids: :func:`caunet.training.train`, resuming, with the last pairs remembered."""
    from caunet.training.loop import load_sources, train

    remembered: dict[tuple[object, ...], Any] = {}

    def run(cell: Cell, folder: Path) -> bool:
        def sources(config: Any) -> Any:
            if cell.pairs not in remembered:
                remembered.clear()  # one set of pairs is over 100 MB: keep one
                remembered[cell.pairs] = load_sources(config)
            return remembered[cell.pairs]

        return train(cell.config, folder, resume="auto", progress=False, sources=sources).finished

    return run


def run_cell(cell: Cell, out: Path, trainer: Trainer) -> Outcome:
    """Train ``cell`` in its folder unless that is done, or being done by another process."""
    folder = out / cell.name
    try:
        return _run_held(cell, folder, trainer)
    except OSError as error:  # the folder or its lock; what a trainer raises has become an outcome
        return Outcome("failed", f"cannot write in {folder}: {error.strerror or error}")


def _run_held(cell: Cell, folder: Path, trainer: Trainer) -> Outcome:
    with hold(folder) as mine:
        if finished(cell, folder):
            return Outcome("finished")
        if not mine:
            return Outcome("busy", f"process {owner(folder)} is training it")
        try:
            return Outcome("finished") if trainer(cell, folder) else Outcome("interrupted")
        except KeyboardInterrupt:
            return Outcome("interrupted")
        except DivergenceError as error:
            return _diverged(cell, folder, error)
        except (CaunetError, ValueError) as error:
            return Outcome("failed", str(error))
        except Exception as error:  # one broken cell must not take the others with it
            return Outcome("failed", f"{type(error).__name__}: {error}")


def _diverged(cell: Cell, folder: Path, error: DivergenceError) -> Outcome:
    """A run whose loss diverged is a finding where a claim predicts it, and a failure elsewhere."""
    if cell.may_diverge:
        store_divergence(cell, folder, error)
        return Outcome("diverged", str(error))
    return Outcome("failed", str(error))


def work(pipe: Connection, out: Path, factory: str) -> None:
    """What a worker does: receive a cell, answer with its outcome, until ``None`` comes."""
    # The terminal's Ctrl-C goes to the parent alone, which passes it on: one signal, one owner.
    os.setpgrp()
    _end_with_parent()
    module, _, name = factory.partition(":")
    try:
        trainer: Trainer = getattr(importlib.import_module(module), name)()
        while (cell := pipe.recv()) is not None:
            outcome = run_cell(cell, out, trainer)
            pipe.send(outcome)
            if outcome.state == "interrupted":
                return
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        return


def _end_with_parent() -> None:
    """When the parent is killed, stop as if by Ctrl-C: the run under way saves its state."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()
