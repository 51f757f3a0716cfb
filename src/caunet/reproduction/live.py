"""The display of a grid: a live table on a terminal; elsewhere a line when a cell ends, and one every ten seconds."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from caunet.reproduction.grid import GridState, unique
from caunet.reproduction.recipes import Cell
from caunet.reproduction.results import read
from caunet.reproduction.tables import show
from caunet.training.metrics_log import read_metrics

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["watch"]

# Seconds between two lines about what is running, in a log file.
_EVERY = 10.0

_STYLES = {
    "finished": "green",
    "diverged": "yellow",
    "failed": "red",
    "busy": "magenta",
    "interrupted": "yellow",
}
_WORDS = {"busy": "elsewhere"}


@contextlib.contextmanager
def watch(console: "Console") -> Iterator[Callable[[GridState], None]]:
    """Yield a listener for :func:`caunet.reproduction.grid.run_grid` that draws on ``console``."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    from rich.live import Live

    with Live(console=console, refresh_per_second=2) as live:
        yield lambda state: live.update(_picture(state))


class _Lines:
    """In a file or a pipe: a line when a cell ends, and every ten seconds one about those that run."""

    def __init__(self, console: "Console") -> None:
        self._console, self._next = console, time.monotonic()

    def __call__(self, state: GridState) -> None:
        if state.latest is not None:
            _ended(self._console, state)
        elif state.running and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            running = [cell for cell in unique(state.cells) if cell.name in state.running]
            said = "; ".join(f"{cell.config.task} {cell.label}: {_stage(state, cell)}" for cell in running)
            self._console.print(said, markup=False, soft_wrap=True)


def _stage(state: GridState, cell: Cell) -> str:
    """How far a running cell is, in words."""
    updates, loss, _, left = _progress(state, cell)
    if updates == f"{cell.config.updates:,}/{cell.config.updates:,}":
        return "measuring on all test pairs"
    if updates:
        return ", ".join(filter(None, [f"{updates} updates", f"loss {loss}", left and f"{left} left"]))
    # config.json is written when the pairs are there; the first line of metrics when the update is compiled.
    begun = (state.out / cell.name / "config.json").exists()
    return "compiling the update" if begun else "making pairs"


def _ended(console: "Console", state: GridState) -> None:
    assert state.latest is not None
    cell, outcome = state.latest, state.outcomes[state.latest.name]
    total = len(unique(state.cells))
    ended = sum(1 for known in state.outcomes.values() if known.state not in ("busy", "interrupted"))
    said = f": {outcome.message}" if outcome.message else f", parameter error {_error(state, cell)}"
    console.print(f"[{ended}/{total}] {_title(cell)} {outcome.state}{said}", markup=False, soft_wrap=True)


def _title(cell: Cell) -> str:
    return f"{cell.config.task} {cell.label} ({cell.config.protocol}, seed {cell.config.seed})"


def _error(state: GridState, cell: Cell) -> str:
    result = read(state.out / cell.name / "result.json")
    if result is not None and cell.name not in state.running:
        return show(result["parameter_error"])
    last = next(
        (line for line in reversed(read_metrics(state.out / cell.name / "metrics.jsonl")) if "test" in line),
        None,
    )
    return show(last["test"]["parameter_error"]) if last else "–"


def _picture(state: GridState) -> Any:
    """The table of all cells: progress, loss and test error are read from the runs' own metrics."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in ("task", "network", "protocol", "seed", "state", "updates", "loss", "test error", "left"):
        table.add_column(
            head, justify="left" if head in ("task", "network", "protocol", "state") else "right"
        )
    for cell in unique(state.cells):
        known = state.outcomes.get(cell.name)
        word = "running" if cell.name in state.running else known.state if known else "waiting"
        c = cell.config
        about = [c.task, cell.label, c.protocol, str(c.seed)]
        style = "bold" if word == "running" else _STYLES.get(word, "dim")
        fields = _progress(state, cell) if word != "waiting" else [""] * 4
        done = fields[0] == f"{c.updates:,}/{c.updates:,}"
        shown = (
            _stage(state, cell) if word == "running" and (done or not fields[0]) else _WORDS.get(word, word)
        )
        table.add_row(*about, f"[{style}]{shown}[/]", *fields)
    return table


def _progress(state: GridState, cell: Cell) -> list[str]:
    lines = read_metrics(state.out / cell.name / "metrics.jsonl")
    losses = [line for line in lines if "loss" in line]
    if not losses:
        return [""] * 4
    last, total = losses[-1], cell.config.updates
    left = ""
    if cell.name in state.running and len(losses) > 1 and "seconds" in last:
        left = _duration((total - last["step"]) * last["seconds"] / last["step"])
    return [f"{last['step']:,}/{total:,}", show(last["loss"]), _error(state, cell), left]


def _duration(seconds: float) -> str:
    return time.strftime("%H:%M:%S" if seconds >= 3600 else "%M:%S", time.gmtime(max(0.0, seconds)))
