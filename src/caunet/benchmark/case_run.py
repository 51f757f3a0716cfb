"""Measure methods on sets of cases, the stress set and the Oxford set, as :mod:`caunet.benchmark.run` does on pairs.

A line of the file is one case: its row and name, and for each method the corner error in pixels of b (null: no answer),
``relative``, the same as a share of the diagonal (what counts as found), ``corners``, where the answer puts a's corners
in b, milliseconds, and ours its confidence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from caunet import geometry
from caunet.benchmark.cases import OXFORD, STRESS, Case, oxford_cases, relative_error, stress_cases
from caunet.benchmark.journal import Journal, Rows
from caunet.benchmark.methods import Method, one_thread
from caunet.benchmark.photographs import Group
from caunet.benchmark.run import measure_answer, report
from caunet.progress import track
from caunet.provenance import commit

__all__ = ["CaseSet", "Kind", "run_cases"]

Kind = Literal["stress", "oxford"]


@dataclass(frozen=True)
class CaseSet:
    """Which cases.

    Args:
        kind: ``stress`` (made from the embedded photographs) or ``oxford`` (read from ``folder``).
        folder: of the Oxford set.
        rows: some of its rows; all if not given.
        group: photographs of the stress set.
        seed: of the stress set.
    """

    kind: Kind
    folder: Path | None = None
    rows: tuple[str, ...] = ()
    group: Group = "bench"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        if self.kind == "oxford" and self.folder is None:
            raise ValueError(
                "folder must be that of the Oxford set, with graf/img1.png and graf/H1to2p.xml, got None"
            )
        known = STRESS if self.kind == "stress" else OXFORD
        if unknown := [row for row in self.rows if row not in known]:
            raise ValueError(f"rows must be names out of {', '.join(known)}, got {unknown[0]!r}")

    def cases(self) -> Iterator[Case]:
        """All of them, in order."""
        if self.kind == "stress":
            yield from stress_cases(self.group, self.rows or None, seed=self.seed)
        elif self.folder is not None:
            yield from (case for case in oxford_cases(self.folder) if not self.rows or case.row in self.rows)

    def header(self) -> dict[str, Any]:
        """What makes a case the case that it is."""
        return {"kind": self.kind} | (
            {"group": self.group, "seed": self.seed} if self.kind == "stress" else {}
        )


def run_cases(chosen: CaseSet, methods: Sequence[Method], path: Path) -> Rows:
    """Measure what ``path`` lacks of the set, one thread, and return the set's rows by (row, case)."""
    journal = Journal(path, "set", chosen.header(), ("row", "case"))
    rows = journal.read()
    wanted = []
    ready: set[str] = set()
    with one_thread(), track(None, "registering", "cases") as bar, journal.open() as file:
        for number, case in enumerate(chosen.cases()):
            key = (case.row, case.name)
            wanted.append(key)
            there = rows.get(key, {}).get("methods", {})
            missing = [method for method in methods if method.name not in there]
            if not missing:
                continue
            first = number % len(missing)  # nobody always goes first, into a cold cache
            results = {}
            for method in [*missing[first:], *missing[:first]]:
                if method.name not in ready:  # once untimed: imports, weights and buffers
                    measure_case(method, case)
                    ready.add(method.name)
                results[method.name] = measure_case(method, case)
            row = {
                "row": case.row,
                "case": case.name,
                "commit": commit(),
                "methods": {method.name: results[method.name] for method in missing},
            }
            journal.append(file, row)
            journal.merge(rows, row)
            report(bar, row)
    return {key: rows[key] for key in wanted if key in rows}


def measure_case(method: Method, case: Case) -> dict[str, Any]:
    """:func:`~caunet.benchmark.run.measure` on a case, with the error relative to the diagonal and the corners."""
    result, found = measure_answer(method, case.a, case.b, case.truth)
    relative = corners = None
    if result["error"] is not None and found is not None:
        H = torch.from_numpy(found).double()
        relative = round(relative_error(H, case), 6)
        height, width = case.a.shape[:2]
        carried = geometry.apply(H, geometry.corners((height, width), like=H))
        corners = [[round(float(x), 2) for x in point] for point in carried]
    return {"error": result.pop("error"), "relative": relative, "corners": corners, **result}
