"""Results as files: what a finished cell leaves in its run, and the small JSON object that is kept of it.

>>> thin([1, 2, 3, 4, 5, 6, 7], 3)
[1, 4, 7]
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from caunet.errors import DataError, DivergenceError
from caunet.files import write_json
from caunet.reproduction.recipes import Cell, same_run
from caunet.training.metrics_log import read_metrics

__all__ = [
    "collect",
    "finished",
    "load",
    "read",
    "result_name",
    "store_divergence",
    "summarize",
    "thin",
]

REQUIRED = (
    "protocol",
    "task",
    "model",
    "recipe",
    "seed",
    "updates",
    "parameter_error",
    "transformation_error",
)
_POINTS = 100
_BINS = 60

T = TypeVar("T")


def finished(cell: Cell, folder: Path) -> bool:
    """Whether ``folder`` has a whole result of exactly this cell's settings."""
    stored = read(folder / "result.json") or (read(folder / "diverged.json") if cell.may_diverge else None)
    return stored is not None and same_run(cell.config, stored.get("config", {}))


def store_divergence(cell: Cell, folder: Path, error: DivergenceError) -> None:
    """Record that a run diverged; its errors are null, because there is no trained network to measure."""
    value = {name: getattr(cell.config, name) for name in ("protocol", "task", "seed", "data", "pairs")}
    value |= {
        "updates": cell.config.updates,
        "diverged_at": error.update,
        "message": str(error).partition("; the last good checkpoint")[0],  # which others do not have
    }
    value |= {"parameter_error": None, "transformation_error": None, "corner_error": None}
    write_json(folder / "diverged.json", value | {"config": cell.config.to_json()})


def read(path: Path) -> dict[str, Any] | None:
    """The JSON object at ``path``; ``None`` when it is missing, torn or something else."""
    try:
        value = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return value if isinstance(value, dict) else None


def thin(values: Sequence[T], most: int = _POINTS) -> list[T]:
    """At most ``most`` of ``values``, evenly spread, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    last = len(values) - 1
    return [values[round(i * last / (most - 1))] for i in range(most)]


def summarize(cell: Cell, folder: Path) -> dict[str, Any]:
    """The small object that is kept of a finished cell: its result, a thinned curve, a coarse histogram."""
    result = read(folder / "result.json") or read(folder / "diverged.json")
    if result is None:
        raise DataError(f"{folder} has no result")
    lines = read_metrics(folder / "metrics.jsonl")
    loss = [[line["step"], _short(line["loss"])] for line in lines if "loss" in line]
    test = [[line["step"], _short(line["test"]["parameter_error"])] for line in lines if "test" in line]
    result |= {"recipe": cell.recipe, "model": cell.label, "curve": {"loss": thin(loss), "test": thin(test)}}
    if cell.recipe == "claims" and (offset := read(folder / "offset.json")):
        result["offset"] = offset
    if isinstance(result.get("histogram"), Mapping):
        result["histogram"] = coarse(result["histogram"])
    return result


def coarse(histogram: Mapping[str, Any]) -> dict[str, Any]:
    """A histogram with neighboring bins joined until at most 60 are left; the empty tail is cut off.

    >>> coarse({"edges": [0, 1, 2, 3], "counts": [5, 2, 0]})
    {'edges': [0, 1, 2], 'counts': [5, 2]}
    """
    edges, counts = list(histogram["edges"]), list(histogram["counts"])
    while len(counts) > 1 and counts[-1] == 0:
        counts.pop()
        edges.pop()
    step = -(-len(counts) // _BINS)
    joined = [sum(counts[i : i + step]) for i in range(0, len(counts), step)]
    return {"edges": [*edges[:-1:step], edges[-1]], "counts": joined}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def result_name(cell: Cell) -> str:
    """The file name of a cell's result: one for each task, network and seed."""
    task = cell.config.task
    if cell.recipe in ("best", "sparse") and cell.config.protocol == "release":
        task = f"integer-{task}"  # the recipes that have a task in both protocols
    return f"{task}-{cell.label}-seed{cell.config.seed}.json"


def collect(cells: Iterable[Cell], out: Path, results: Path | None = None) -> list[dict[str, Any]]:
    """The results of the finished ones among ``cells``; copied to ``results``/recipe/ when that is given."""
    found = []
    for cell in cells:
        folder = out / cell.name
        if not finished(cell, folder):
            continue
        value = summarize(cell, folder)
        if results is not None:
            write_json(results / cell.recipe / result_name(cell), value)
        found.append(value)
    return found


def load(folder: Path) -> list[dict[str, Any]]:
    """Every result under ``folder`` (``results/written/*.json`` and so on), in a fixed order."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; `caunet reproduce --results {folder}` makes it")
    found = []
    for path in sorted(folder.glob("*/*.json")):
        value = read(path)
        if value is None:
            raise DataError(f"{path} is not a JSON object; run its cell again or restore the file")
        missing = [name for name in REQUIRED if name not in value]
        if missing:
            raise DataError(f"{path} lacks {', '.join(missing)}; run its cell again or restore the file")
        found.append(value)
    return found
