"""Measure methods on the same pairs, taking turns pair by pair; what is measured is on disk at once.

The file is JSON lines: first what the pairs are, then one line per pair with each method's corner error (null: it
failed, which counts as infinitely far) and milliseconds. An interrupted run continues where it stopped; a method asked
for later is measured on the pairs that are there, and added.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet.benchmark.adapters import Answer
from caunet.benchmark.journal import Journal, Rows, forget
from caunet.benchmark.methods import Method, one_thread
from caunet.benchmark.pairs import CONDITIONS, MOTIONS, Condition, draw_pair
from caunet.benchmark.photographs import Group, photographs
from caunet.metrics import corner_error
from caunet.progress import Track, track
from caunet.provenance import commit

__all__ = ["Plan", "forget", "load", "measure", "measure_answer", "quota", "report", "run"]

Key = tuple[str, float, int]
FEWEST = 20  # pairs a condition that even the slowest method is measured on


@dataclass(frozen=True)
class Plan:
    """Which pairs: every condition with every motion, ``pairs`` of each."""

    pairs: int = 100
    conditions: tuple[Condition, ...] = CONDITIONS
    motions: tuple[float, ...] = MOTIONS
    group: Group = "bench"
    seed: int = 0
    side: int = 256

    def __post_init__(self) -> None:
        if self.pairs < 1:
            raise ValueError(f"pairs must be a number of at least 1, got {self.pairs}")
        unknown = [c for c in self.conditions if c not in CONDITIONS]
        if unknown or not self.conditions:
            raise ValueError(
                f"conditions must be names out of {', '.join(CONDITIONS)}, got {self.conditions}"
            )

    def every(self) -> Iterator[Key]:
        """All pairs, round by round, so that a run that is cut short has some of every condition."""
        for index in range(self.pairs):
            for motion in self.motions:
                for condition in self.conditions:
                    yield condition, motion, index


def run(plan: Plan, methods: Sequence[Method], path: Path) -> Rows:
    """Measure what ``path`` lacks of the plan, one thread, and return all its rows.

    Slow methods are measured on fewer pairs: see :func:`quota`.
    """
    journal = _journal(path, plan)
    rows = journal.read()
    jobs = [(key, _missing(rows.get(key, {}), key, methods, plan)) for key in plan.every()]
    jobs = [(key, missing) for key, missing in jobs if missing]
    names = list(photographs(plan.group))
    with one_thread(), track(len(jobs), "registering", "pairs") as bar, journal.open() as file:
        _warm_up(jobs, plan)
        for (condition, motion, index), missing in jobs:
            row = {
                "condition": condition,
                "motion": motion,
                "index": index,
                "photo": names[index % len(names)],
            }
            row |= {"commit": commit(), "methods": _turns(plan, (condition, motion, index), missing)}
            journal.append(file, row)
            journal.merge(rows, row)
            report(bar, row)
    return rows


def load(path: Path, plan: Plan | None = None) -> Rows:
    """The rows of ``path`` by (condition, motion, index); none if it is not there.

    A last line that was cut off is ignored. A file of other pairs than the plan's is refused.
    """
    return _journal(path, plan).read()


def _journal(path: Path, plan: Plan | None) -> Journal:
    header = None if plan is None else _header(plan)
    return Journal(path, "pairs", header, ("condition", "motion", "index"))


def quota(method: Method, pairs: int) -> int:
    """How many of ``pairs`` a method is measured on.

    >>> from caunet.benchmark.methods import METHODS
    >>> {method.name: quota(method, 100) for method in METHODS if quota(method, 100) < 100}
    {'kornia': 20}
    """
    return min(pairs, max(FEWEST, math.ceil(method.share * pairs)))


def measure(
    method: Method, a: npt.NDArray[np.uint8], b: npt.NDArray[np.uint8], truth: Tensor
) -> dict[str, Any]:
    """Corner error (pixels; null if there is no answer), and milliseconds on the clock and of the processor.

    With the confidence of a method that has one.
    """
    return measure_answer(method, a, b, truth)[0]


def measure_answer(
    method: Method, a: npt.NDArray[np.uint8], b: npt.NDArray[np.uint8], truth: Tensor
) -> tuple[dict[str, Any], npt.NDArray[np.float64] | None]:
    """The same, and the answer H (3, 3) itself, or None."""
    note = None
    clock, processor = time.perf_counter(), time.process_time()
    try:
        answer = method.answer(a, b)
    except Exception as error:  # methods fail in different ways; each counts as a miss and is noted
        answer, note = None, f"{type(error).__name__}: {error}"[:200]
    seconds = time.perf_counter() - clock, time.process_time() - processor
    found = answer.matrix if isinstance(answer, Answer) else answer
    result: dict[str, Any] = {"error": _error(found, truth, (a.shape[0], a.shape[1]))}
    result |= {"ms": round(1e3 * seconds[1], 3), "wall_ms": round(1e3 * seconds[0], 3)}
    if isinstance(answer, Answer):
        result["confidence"] = round(answer.confidence, 4)
    return result | ({"note": note} if note else {}), found


def _error(found: npt.NDArray[np.float64] | None, truth: Tensor, size: tuple[int, int]) -> float | None:
    """The corner error to five digits; None without an answer, or with one that sends a corner to infinity."""
    if found is None:
        return None
    error = float(corner_error(torch.from_numpy(found).double(), truth.double(), size, centered=False))
    return round(error, 5) if math.isfinite(error) else None


def _header(plan: Plan) -> dict[str, Any]:
    """What makes pair ``index`` of a condition the pair that it is."""
    whole = asdict(plan)
    return {name: whole[name] for name in ("group", "seed", "side")}


def _missing(row: dict[str, Any], key: Key, methods: Sequence[Method], plan: Plan) -> list[Method]:
    there = row.get("methods", {})
    return [method for method in methods if method.name not in there and key[2] < quota(method, plan.pairs)]


def _bytes(plan: Plan, key: Key) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], Tensor]:
    condition, motion, index = key
    pair = draw_pair(plan.group, condition, motion, index, seed=plan.seed, side=plan.side)  # type: ignore[arg-type]
    a, b = ((picture * 255).round().to(torch.uint8).numpy() for picture in (pair.a, pair.b))
    assert pair.H is not None
    return a, b, pair.H


def _warm_up(jobs: Sequence[tuple[Key, list[Method]]], plan: Plan) -> None:
    """Everyone once, untimed: imports, weights and buffers are not part of a registration."""
    everyone = {method.name: method for _, missing in jobs for method in missing}
    if everyone:
        pictures = _bytes(plan, jobs[0][0])
        for method in everyone.values():
            measure(method, *pictures)


def _turns(plan: Plan, key: Key, methods: Sequence[Method]) -> dict[str, Any]:
    pictures = _bytes(plan, key)
    first = key[2] % len(methods)  # nobody always goes first, into a cold cache
    found = {method.name: measure(method, *pictures) for method in [*methods[first:], *methods[:first]]}
    return {method.name: found[method.name] for method in methods}


def report(bar: Track, row: dict[str, Any]) -> None:
    """Advance the bar, with what ours reached."""
    ours = row["methods"].get("caunet")
    if ours is None:
        bar.advance()
    else:
        bar.advance(caunet="no answer" if ours["error"] is None else f"{ours['error']:.3f} px")
