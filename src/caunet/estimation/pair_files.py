"""Files of pairs, and files of results that grow by whole lines and can be taken up again.

JSON lines and CSV grow in place. A Parquet file cannot grow: its results are kept as JSON lines in a *journal* beside
it (``results.parquet.journal``) and become the file, whole, when the run ends, also by Ctrl-C. The journal of a run
that was killed is taken up by the next one.
"""

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from caunet.errors import DataError
from caunet.estimation.result import Estimate
from caunet.estimation.tables import COLUMNS, cells, line_of, parquet_rows, write_parquet
from caunet.execution import Outcome
from caunet.extras import require
from caunet.files import printable_path
from caunet.images import SUFFIXES

__all__ = ["Results", "read_pairs"]

Pair = tuple[str, str]

_MORE = {".avif", ".jp2", ".j2k", ".heic", ".heif"}
_ENDINGS = (".jsonl", ".csv", ".parquet")


def read_pairs(sources: Sequence[str | os.PathLike[str]]) -> tuple[list[Pair], list[str]]:
    """The pairs in a file, or in two folders, and the images of the folders that have no partner.

    Pairs that are named twice are taken once.
    """
    paths = [Path(source) for source in sources]
    if len(paths) == 2:
        return _of_folders(*paths)
    if len(paths) != 1:
        raise ValueError(f"PAIRS must be one file or two folders, got {len(paths)} paths")
    (path,) = paths
    if path.suffix.lower() not in (".csv", ".jsonl"):
        raise ValueError(
            f"PAIRS must be a .csv or a .jsonl file, or two folders, got {printable_path(path)!r}"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{printable_path(path)}: cannot be read: {reason}") from error
    found = _of_csv(text, path) if path.suffix.lower() == ".csv" else _of_lines(text, path)
    if not found:
        raise DataError(f"{printable_path(path)}: has no pairs")
    whole = [(str(path.parent / a), str(path.parent / b)) for a, b in found]
    return list(dict.fromkeys(whole)), []


def _of_csv(text: str, path: Path) -> list[Pair]:
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if any(cell.strip() for cell in row)]
    columns = [0, 1]
    if rows and {"a", "b"} <= {cell.strip() for cell in rows[0]}:
        header = [cell.strip() for cell in rows.pop(0)]
        columns = [header.index("a"), header.index("b")]
    for number, row in enumerate(rows, 1):
        if len(row) <= max(columns) or not all(row[column].strip() for column in columns):
            raise DataError(f"{printable_path(path)}: row {number} must have two paths, got {row}")
    return [(row[columns[0]].strip(), row[columns[1]].strip()) for row in rows]


def _of_lines(text: str, path: Path) -> list[Pair]:
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            a, b = (data["a"], data["b"]) if isinstance(data, dict) else data
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f'{printable_path(path)}: line {number} must be JSON with "a" and "b"') from error
        if not (isinstance(a, str) and isinstance(b, str) and a and b):
            raise DataError(f"{printable_path(path)}: line {number} must have two paths, got {a!r} and {b!r}")
        pairs.append((a, b))
    return pairs


def _of_folders(first: Path, second: Path) -> tuple[list[Pair], list[str]]:
    images: list[dict[str, Path]] = []
    for folder in (first, second):
        if not folder.is_dir():
            raise DataError(f"{printable_path(folder)}: must be a folder of images, got no folder")
        named: dict[str, Path] = {}
        for file in sorted(folder.iterdir()):
            if file.suffix.lower() not in SUFFIXES | _MORE or file.name.startswith(".") or not file.is_file():
                continue
            if file.stem in named:
                raise DataError(
                    f"{printable_path(folder)}: {named[file.stem].name} and {file.name} have the same name; "
                    "list the pairs in a file instead"
                )
            named[file.stem] = file
        images.append(named)
    a, b = images
    alone = [str(named[stem]) for named, other in ((a, b), (b, a)) for stem in named if stem not in other]
    pairs = [(str(a[stem]), str(b[stem])) for stem in a if stem in b]
    if not pairs:
        raise DataError(
            f"{printable_path(first)} and {printable_path(second)} have no images of the same name"
        )
    return pairs, alone


class Results:
    """A file of results, one line or row for each pair; what a killed run left of its last line is cut off.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Results(Path(folder) / "r.jsonl", "affine") as results:
    ...     results.done
    set()
    """

    def __init__(self, path: str | os.PathLike[str], model: str) -> None:
        self.path, self.model = Path(path), model
        kind = self.path.suffix.lower()
        if kind not in _ENDINGS:
            raise ValueError(
                f"RESULTS must end in one of {', '.join(_ENDINGS)}, got {printable_path(path)!r}"
            )
        if self.path.is_dir():
            raise ValueError(f"RESULTS must be a file, {printable_path(path)} is a folder")
        self.done: set[Pair] = set()
        self.failed = 0
        self._file: io.FileIO | None = None
        self._csv = kind == ".csv"
        self._table = self.path if kind == ".parquet" else None
        self._stored: set[Pair] = set()  # in the table already
        self._lines = self.path
        if self._table is not None:
            require("pyarrow", "parquet", "Writing .parquet files")
            self._lines = self.path.with_name(f"{self.path.name}.journal")
            self._stored = self._take_table(self._table)
        self._whole = self._take_lines()

    def __enter__(self) -> "Results":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Not buffered: what is written is written, and a line that does not fit is known as such at once.
        self._file = open(self._lines, "r+b" if self._lines.exists() else "w+b", buffering=0)  # noqa: PTH123
        self._file.truncate(self._whole)
        self._file.seek(self._whole)
        if self._csv and self._whole == 0:
            self._append(_row(COLUMNS))
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._file is None:
            return
        self._file.close()
        self._file = None
        if self._table is not None and (kind is None or kind is KeyboardInterrupt):
            self._write_table(self._table)

    def add(self, pair: Pair, outcome: Outcome[Estimate]) -> None:
        """Write how a pair ended, as one line.

        Raises:
            DataError: it cannot be written (the disk is full, say); the lines before it are whole.
        """
        line = line_of(*pair, self.model, outcome)
        self._append(_row(cells(line)) if self._csv else json.dumps(line, allow_nan=False) + "\n")

    def _append(self, line: str) -> None:
        assert self._file is not None
        left = memoryview(line.encode())
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(self._whole)
            raise DataError(self._unwritten(error)) from error
        self._whole = self._file.tell()

    def _unwritten(self, error: OSError) -> str:
        where, why = printable_path(self.path), error.strerror or error
        return (
            f"{where}: cannot be written: {why}. What was done is kept: run the same command again to go on"
        )

    def _take_lines(self) -> int:
        """Take up the lines that are there; the number of bytes of whole ones."""
        try:
            content = self._lines.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise DataError(f"{printable_path(self._lines)}: cannot be read: {error.strerror}") from error
        whole = content.rfind(b"\n") + 1
        try:
            text = content[:whole].decode("utf-8")
            if self._csv:
                lines: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text, newline="")))
            else:
                lines = [json.loads(line) for line in text.splitlines()]
            for line in lines:
                self._take(line)
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            name = printable_path(self._lines)
            raise DataError(f"{name}: is no file of results; name another") from error
        return whole

    def _take_table(self, table: Path) -> set[Pair]:
        """Take up the rows that are there."""
        if not table.exists():
            return set()
        try:
            for line in parquet_rows(table):
                self._take(line)
        except (
            KeyError,
            OSError,
            require("pyarrow", "parquet", "Reading .parquet files").ArrowInvalid,
        ) as error:
            raise DataError(f"{printable_path(table)}: is no file of results; name another") from error
        return set(self.done)

    def _take(self, line: dict[str, Any]) -> None:
        if line["model"] != self.model:
            raise ValueError(f"RESULTS must be of the model {self.model!r}, got a file of {line['model']!r}")
        pair = (line["a"], line["b"])
        if (
            pair not in self._stored
        ):  # in both when a run was killed after the table and before the journal went
            self.failed += bool(line.get("error"))
        self.done.add(pair)

    def _write_table(self, table: Path) -> None:
        """The journal becomes part of the table; then it can go."""
        try:
            if self._whole or not table.exists():
                write_parquet(table, self._journal(), after=table if table.exists() else None)
            self._lines.unlink()
        except OSError as error:
            raise DataError(self._unwritten(error)) from error

    def _journal(self) -> Iterator[dict[str, Any]]:
        with self._lines.open(encoding="utf-8") as file:
            for line in map(json.loads, file):
                if (line["a"], line["b"]) not in self._stored:
                    yield line


def _row(cells: Sequence[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue()
