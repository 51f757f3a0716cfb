"""Estimates as rows of a table: the columns of CSV and Parquet files, and of Ray datasets.

>>> COLUMNS[:5]
('a', 'b', 'model', 'confidence', 'reason')
"""

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from caunet.estimation.result import Estimate
from caunet.execution import Outcome
from caunet.extras import require
from caunet.files import atomic_write

__all__ = ["COLUMNS", "arrow_table", "cells", "line_of", "parquet_rows", "write_parquet"]

_MATRIX = tuple(f"h{row}{column}" for row in (1, 2, 3) for column in (1, 2, 3))
_NUMBERS = ("shift_x", "shift_y", "angle", "scale")
_WORDS = ("a", "b", "model", "reason", "error")
COLUMNS = ("a", "b", "model", "confidence", "reason", *_MATRIX, *_NUMBERS, "seconds", "error")
"""Of a table of estimates: the two images, the answer (h11 to h33 is the matrix), or the error."""

_GROUP = 20_000  # rows of a Parquet row group: as many are in memory at a time


def line_of(a: Any, b: Any, model: str, outcome: Outcome[Estimate]) -> dict[str, Any]:
    """How a pair ended, as plain data: all of the estimate without its motions, or the error."""
    if outcome.error is not None:
        return {"a": a, "b": b, "model": model, "error": str(outcome.error)}
    return {"a": a, "b": b, **outcome.result().to_json(field=False)}


def cells(line: Mapping[str, Any]) -> list[Any]:
    """One row, in the order of :data:`COLUMNS`, from what :func:`line_of` gives; ``None`` where there is nothing."""
    matrix = [value for row in line.get("matrix", []) for value in row]
    numbers = line.get("parameters", {})
    values = {
        **line,
        **dict(zip(_MATRIX, matrix, strict=False)),
        **{name: numbers.get(name) for name in _NUMBERS},
    }
    return [values.get(name) for name in COLUMNS]


def arrow_table(lines: Iterable[Mapping[str, Any]]) -> Any:
    """A :class:`pyarrow.Table` of ``lines``: text and float64, null where there is nothing. Extra ``parquet``."""
    arrow = require("pyarrow", "parquet", "A table of estimates")
    rows = [cells(line) for line in lines]
    columns = zip(*rows, strict=True) if rows else itertools.repeat(())
    return arrow.table(dict(zip(COLUMNS, columns, strict=False)), schema=_schema())


def parquet_rows(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """``a``, ``b``, ``model`` and ``error`` of each row of a file that :func:`write_parquet` wrote.

    Raises:
        KeyError: it is another table.
        ValueError: it is no Parquet file (as pyarrow says it).
        OSError: it cannot be read.
    """
    parquet = require("pyarrow.parquet", "parquet", "Reading .parquet files")
    with parquet.ParquetFile(path) as file:
        if file.schema_arrow != _schema():
            raise KeyError("columns")
        for batch in file.iter_batches(_GROUP, columns=["a", "b", "model", "error"]):
            yield from batch.to_pylist()


def write_parquet(path: Path, lines: Iterable[Mapping[str, Any]], *, after: Path | None = None) -> None:
    """Write ``lines`` as a Parquet file, behind the rows of ``after`` if that is given: whole, or not at all.

    As much as one row group is held in memory.
    """
    parquet = require("pyarrow.parquet", "parquet", "Writing .parquet files")
    with (
        atomic_write(path) as temporary,
        temporary.open("wb") as file,  # an open file: its errors are the system's, with their number
        parquet.ParquetWriter(file, _schema()) as writer,
    ):
        if after is not None:
            with parquet.ParquetFile(after) as old:
                for batch in old.iter_batches(_GROUP):
                    writer.write_batch(batch)
        source = iter(lines)
        while group := list(itertools.islice(source, _GROUP)):
            writer.write_table(arrow_table(group))


def _schema() -> Any:
    arrow = require("pyarrow", "parquet", "A table of estimates")
    return arrow.schema([(name, arrow.string() if name in _WORDS else arrow.float64()) for name in COLUMNS])
