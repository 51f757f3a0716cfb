"""What was measured, on disk at once: JSON lines, first what the pairs are, then one line per pair.

A line has fields that say which pair it is, ``commit``, and ``methods``: a result for each. Lines of the same pair are
read as one, so that a method can be added later. A last line that was cut off is ignored.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from caunet.errors import DataError
from caunet.files import write_text

__all__ = ["Journal", "Key", "Rows", "forget"]

Key = tuple[Any, ...]
Rows = dict[Key, dict[str, Any]]


@dataclass(frozen=True)
class Journal:
    """A file of measurements.

    Args:
        path: of the file.
        title: the first line's only field.
        header: its value: what makes a pair the pair that it is.
        fields: of a line, that say which pair it is.
    """

    path: Path
    title: str
    header: Mapping[str, Any] | None
    fields: Sequence[str]

    def key(self, row: Mapping[str, Any]) -> Key:
        """Which pair a line is of."""
        return tuple(row[name] for name in self.fields)

    def read(self) -> Rows:
        """All lines, by pair; none if the file is not there. A file of other pairs is refused."""
        rows: Rows = {}
        if not self.path.exists():
            return rows
        lines = self.path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line) if line else {}
            except json.JSONDecodeError as error:
                if number >= len(lines) - 1:
                    break
                raise DataError(
                    f"{self.path}, line {number}: not JSON; move the file away to start again"
                ) from error
            if number == 1 and row and "methods" not in row:
                self._check(row)
            if "methods" in row:
                self.merge(rows, row)
        return rows

    def open(self) -> IO[str]:
        """The file, to append to; its header is there, and its last line is whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _drop_partial_line(self.path)
        file = self.path.open("a", encoding="utf-8")
        if file.tell() == 0:
            self.append(file, {self.title: self.header})
        return file

    def append(self, file: IO[str], row: Mapping[str, Any]) -> None:
        """Add a line, now."""
        file.write(json.dumps(row, allow_nan=False) + "\n")
        file.flush()

    def merge(self, rows: Rows, row: dict[str, Any]) -> None:
        """Add a line's results to those of its pair."""
        mine = rows.setdefault(self.key(row), {**row, "methods": {}, "commits": {}})
        mine["methods"] |= row["methods"]
        mine["commits"] |= dict.fromkeys(row["methods"], row["commit"])

    def _check(self, row: Mapping[str, Any]) -> None:
        if self.header is not None and row != {self.title: self.header}:
            found = ", ".join(f"{name} {value}" for name, value in row.items())
            raise DataError(f"{self.path} holds other pairs ({found}); choose another file or move it away")


def forget(path: Path, names: Collection[str]) -> None:
    """Take the results of these methods out of ``path``, to be measured again (after a change, say)."""
    if not path.exists():
        return
    _drop_partial_line(path)
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "methods" in row:
            row["methods"] = {name: result for name, result in row["methods"].items() if name not in names}
        kept.append(json.dumps(row, allow_nan=False) + "\n")
    write_text(path, "".join(kept))


def _drop_partial_line(path: Path) -> None:
    """Cut off a last line that was not finished."""
    if path.exists() and not (data := path.read_bytes()).endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
