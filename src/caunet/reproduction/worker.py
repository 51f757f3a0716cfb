"""What a worker of the grid does: it trains one cell after the other.

It keeps the pairs of the last cell, because the next one is often another network on the same pairs.
Training functions are given by name (``module:function``), so that they survive the way to a new process.
"""

import contextlib
import importlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from caunet.errors import CaunetError, DivergenceError
from caunet.locks import hold, owner
from caunet.reproduction.recipes import Cell
from caunet.reproduction.results import finished, store_divergence

__all__ = ["TRAINER", "CellOutcome", "Trainer", "make_trainer", "make_worker", "run_cell"]

State = Literal["finished", "diverged", "failed", "busy", "interrupted"]
Trainer = Callable[[Cell, Path], bool]

TRAINER = "caunet.reproduction.worker:make_trainer"


@dataclass(frozen=True)
class CellOutcome:
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


def run_cell(cell: Cell, out: Path, trainer: Trainer) -> CellOutcome:
    """Train ``cell`` in its folder unless that is done, or being done by another process."""
    folder = out / cell.name
    try:
        return _run_held(cell, folder, trainer)
    except OSError as error:  # the folder or its lock; what a trainer raises has become an outcome
        return CellOutcome("failed", f"cannot write in {folder}: {error.strerror or error}")


def _run_held(cell: Cell, folder: Path, trainer: Trainer) -> CellOutcome:
    with hold(folder) as mine:
        if finished(cell, folder):
            return CellOutcome("finished")
        if not mine:
            return CellOutcome("busy", f"process {owner(folder)} is training it")
        try:
            return CellOutcome("finished") if trainer(cell, folder) else CellOutcome("interrupted")
        except KeyboardInterrupt:
            return CellOutcome("interrupted")
        except DivergenceError as error:
            return _diverged(cell, folder, error)
        except (CaunetError, ValueError) as error:
            return CellOutcome("failed", str(error))
        except Exception as error:  # one broken cell must not take the others with it
            return CellOutcome("failed", f"{type(error).__name__}: {error}")


def _diverged(cell: Cell, folder: Path, error: DivergenceError) -> CellOutcome:
    """A run whose loss diverged is a finding where a claim predicts it, and a failure elsewhere."""
    if cell.may_diverge:
        store_divergence(cell, folder, error)
        return CellOutcome("diverged", str(error))
    return CellOutcome("failed", str(error))


# Locks that this process holds as long as it lives.
_held = contextlib.ExitStack()


def make_worker(out: Path, factory: str) -> Callable[[Cell], CellOutcome]:
    """The function that trains cells in folders under ``out``; ``factory`` (``module:function``) makes its trainer."""
    _compile_apart()
    module, _, name = factory.partition(":")
    trainer: Trainer = getattr(importlib.import_module(module), name)()

    def work(cell: Cell) -> CellOutcome:
        return run_cell(cell, out, trainer)

    return work


def _compile_apart() -> None:
    """Give this process a folder of its own to compile in, which the next grid finds again.

    Two processes that compile the same network at the same time have been seen to load each other's half-written
    libraries.
    """
    user = str(os.getuid()) if hasattr(os, "getuid") else "user"
    base = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or Path(tempfile.gettempdir()) / f"caunet-{user}"
    for number in count():
        folder = Path(base) / f"worker-{number}"
        if _held.enter_context(hold(folder)):
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
            os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
            return
