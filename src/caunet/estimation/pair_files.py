"""Files of pairs, and files of results that grow by whole lines and can be taken up again."""

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from caunet.errors import DataError
from caunet.estimation.result import Estimate
from caunet.execution import Outcome
from caunet.files import printable_path
from caunet.images import SUFFIXES

__all__ = ["Results", "read_pairs"]

Pair = tuple[str, str]

_MORE = {".avif", ".jp2", ".j2k", ".heic", ".heif"}
_MATRIX = tuple(f"h{row}{column}" for row in (1, 2, 3) for column in (1, 2, 3))
_NUMBERS = ("shift_x", "shift_y", "angle", "scale")
_COLUMNS = ("a", "b", "model", "confidence", "reason", *_MATRIX, *_NUMBERS, "seconds", "error")


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
    """A file of results, one line for each pair; what a killed run left of its last line is cut off.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Results(Path(folder) / "r.jsonl", "affine") as results:
    ...     results.done
    set()
    """

    def __init__(self, path: str | os.PathLike[str], model: str) -> None:
        self.path, self.model = Path(path), model
        self.kind = self.path.suffix.lower()
        if self.kind not in (".jsonl", ".csv"):
            raise ValueError(f"RESULTS must be a .jsonl or a .csv file, got {printable_path(path)!r}")
        self.done: set[Pair] = set()
        self.failed = 0
        self._file: BinaryIO | None = None
        self._whole = self._read()

    def __enter__(self) -> "Results":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = open(self.path, "r+b" if self.path.exists() else "w+b")  # noqa: PTH123  (kept open)
        file.truncate(self._whole)
        file.seek(self._whole)
        self._file = file
        if self.kind == ".csv" and self._whole == 0:
            self._append(_row(_COLUMNS))
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, pair: Pair, outcome: Outcome[Estimate]) -> None:
        """Write how a pair ended, as one line."""
        line: dict[str, Any] = {"a": pair[0], "b": pair[1]}
        if outcome.error is not None:
            line |= {"model": self.model, "error": str(outcome.error)}
        else:
            line |= outcome.result().to_json(field=False)
        self._append(
            json.dumps(line, allow_nan=False) + "\n" if self.kind == ".jsonl" else _row(_cells(line))
        )

    def _append(self, line: str) -> None:
        assert self._file is not None
        self._file.write(line.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> int:
        """Take up what is there; the number of bytes of whole lines."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise DataError(f"{printable_path(self.path)}: cannot be read: {error.strerror}") from error
        whole = content.rfind(b"\n") + 1
        try:
            text = content[:whole].decode("utf-8")
            if self.kind == ".csv":
                lines: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text, newline="")))
            else:
                lines = [json.loads(line) for line in text.splitlines()]
            for line in lines:
                if line["model"] != self.model:
                    raise ValueError(
                        f"RESULTS must be of the model {self.model!r}, got a file of {line['model']!r}"
                    )
                self.done.add((line["a"], line["b"]))
                self.failed += bool(line.get("error"))
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DataError(f"{printable_path(self.path)}: is no file of results; name another") from error
        return whole


def _cells(line: dict[str, Any]) -> list[Any]:
    matrix = [value for row in line.get("matrix", []) for value in row]
    numbers = line.get("parameters", {})
    values = {
        **line,
        **dict(zip(_MATRIX, matrix, strict=False)),
        **{name: numbers.get(name) for name in _NUMBERS},
    }
    return [values.get(name) for name in _COLUMNS]


def _row(cells: Sequence[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue()
