"""metrics.jsonl: a line of JSON every so many updates, readable whatever has happened to the file.

>>> parse_line(b'{"step": 100, "loss": 0.25}')
{'step': 100, 'loss': 0.25}
>>> parse_line(b'{"step": 100, "lo') is None
True
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["parse_line", "read_metrics", "scalars"]


def read_metrics(path: Path, damaged: list[int] | None = None) -> list[dict[str, Any]]:
    """The good lines of the file; none when it is missing.

    Args:
        path: the file.
        damaged: gets the numbers (from 1) of lines that are not metrics. A last line without an end is not counted:
            that is what a run leaves that was killed while it wrote.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = []
    texts = content.split(b"\n")
    for number, text in enumerate(texts, start=1):
        line = parse_line(text)
        if line is not None:
            lines.append(line)
        elif number < len(texts) and damaged is not None:
            damaged.append(number)
    return lines


def parse_line(text: bytes) -> dict[str, Any] | None:
    """One line of metrics, or None when it is not one."""
    try:
        line = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and _sound(line) else None


def _sound(line: Mapping[str, Any]) -> bool:
    """Whether what readers of metrics look at is there and is of the right kind."""
    step, rates, test = line.get("step"), line.get("rates", []), line.get("test", {"parameter_error": None})
    return (
        type(step) is int
        and step >= 0
        and _is_number(line.get("loss", 0.0))
        and isinstance(rates, list)
        and all(map(_is_number, rates))
        and isinstance(test, dict)
        and "parameter_error" in test
        and all(value is None or _is_number(value) for value in test.values())
    )


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def scalars(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a line of metrics, by the names TensorBoard shows."""
    if "loss" in line:
        yield "train/loss", line["loss"]
        yield from ((f"rate/{number}", rate) for number, rate in enumerate(line["rates"]))
    yield from (
        (f"test/{name}", value) for name, value in line.get("test", {}).items() if isinstance(value, float)
    )
