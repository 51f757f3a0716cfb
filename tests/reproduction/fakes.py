"""Training functions that take no time, for tests of the grid; each leaves a line in ``<out>/log``."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from caunet.errors import DivergenceError
from caunet.files import write_json
from caunet.reproduction.recipes import Cell

Trainer = Callable[[Cell, Path], bool]


def note(cell: Cell, folder: Path, what: str = "trained") -> None:
    with (folder.parent / "log").open("a") as file:
        file.write(f"{what} {cell.name} {os.getpid()}\n")


def result(cell: Cell, folder: Path, error: float = 0.5) -> None:
    settings = cell.config.to_json()
    value = {
        name: settings[name] for name in ("protocol", "task", "model", "seed", "updates", "data", "pairs")
    }
    value |= {"parameter_error": error, "transformation_error": error / 10, "corner_error": error * 2}
    value |= {"corner_error_median": error, "corner_error_p90": error * 3, "seconds": 1.0, "commit": "0" * 12}
    value |= {"histogram": {"edges": [0.0, 0.5, 1.0], "counts": [3, 1]}, "config": settings}
    lines = [{"step": 100, "loss": 2.0, "seconds": 0.1}, {"step": 100, "test": {"parameter_error": error}}]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n".replace("'", '"') for line in lines))
    write_json(folder / "result.json", value)


def good() -> Trainer:
    def train(cell: Cell, folder: Path) -> bool:
        note(cell, folder)
        result(cell, folder)
        return True

    return train


def bln_fails() -> Trainer:
    def train(cell: Cell, folder: Path) -> bool:
        note(cell, folder)
        if cell.label == "bln":
            raise RuntimeError("no luck")
        result(cell, folder)
        return True

    return train


def can_dies() -> Trainer:
    def train(cell: Cell, folder: Path) -> bool:
        note(cell, folder)
        if cell.label == "can":
            os._exit(9)
        result(cell, folder)
        return True

    return train


def diverges() -> Trainer:
    def train(cell: Cell, folder: Path) -> bool:
        raise DivergenceError(
            f"training stopped at update 321: the loss is nan; the last good checkpoint is {folder}/step-000000300",
            update=321,
        )

    return train


def slow() -> Trainer:
    """Takes a minute unless stopped; then it notes that it has saved."""

    def train(cell: Cell, folder: Path) -> bool:
        note(cell, folder, "begun")
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            note(cell, folder, "saved")
            return False
        return True

    return train
