"""Summaries of the measurements: numbers for each condition, and tables of them.

Failures count as infinitely far: a median or a nine-tenth that is not finite is null in JSON and "lost" in a table.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from caunet.benchmark.methods import METHODS
from caunet.tables import Table, bold

__all__ = ["LIMITS", "compact", "full", "summarize", "verdict"]

Cell = dict[str, Any]
Summary = list[Cell]

# Where the curves of errors are kept: 0.003 to 32 pixels, ten steps a decade.
LIMITS = tuple(round(10 ** (k / 10), 4) for k in range(-25, 16))
TOLERANCE = 1.05  # as good as the best: within 5 %


def summarize(rows: Mapping[Any, Mapping[str, Any]], ours: str = "caunet") -> Summary:
    """One entry for each condition, motion and method, in the order of the plan.

    ``median`` and ``p90`` corner error in pixels, ``below_1`` and ``below_3`` shares of pairs, ``ms`` the median
    milliseconds of one thread, ``pairs``, ``failures`` (no answer at all), ``curve``, shares below :data:`LIMITS`,
    and ``against``: median and ``below_1`` of ``ours`` on the very pairs of this method, which may have had fewer.
    """
    groups: dict[tuple[float, str, str], list[Mapping[str, Any]]] = {}
    for row in rows.values():
        for name in row["methods"]:
            groups.setdefault((row["motion"], row["condition"], name), []).append(row["methods"])
    order = list(dict.fromkeys(row["condition"] for row in rows.values()))
    names = [method.name for method in METHODS]
    summary = []
    for key in sorted(groups, key=lambda key: (key[0], order.index(key[1]), names.index(key[2]))):
        motion, condition, name = key
        cell = {"motion": motion, "condition": condition, "method": name}
        cell |= _cell([results[name] for results in groups[key]])
        same = [results[ours] for results in groups[key] if ours in results]
        if name != ours and len(same) == len(groups[key]):
            cell["against"] = {k: v for k, v in _cell(same).items() if k in ("median", "below_1")}
        summary.append(cell)
    return summary


def _cell(results: Sequence[Mapping[str, Any]]) -> Cell:
    errors = sorted(math.inf if r["error"] is None else r["error"] for r in results)
    count = len(errors)
    # The values that half, and nine tenths, of the pairs do not exceed.
    middle = errors[(count - 1) // 2 : count // 2 + 1]
    p90 = errors[math.ceil(0.9 * count) - 1]
    return {
        "pairs": count,
        "failures": sum(r["error"] is None for r in results),
        "median": _finite(sum(middle) / len(middle)),
        "p90": _finite(p90),
        "below_1": round(sum(e < 1 for e in errors) / count, 4),
        "below_3": round(sum(e < 3 for e in errors) / count, 4),
        "ms": round(statistics.median(r["ms"] for r in results), 2),
        "curve": [round(sum(e < limit for e in errors) / count, 4) for limit in LIMITS],
    }


def _finite(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def full(summary: Summary) -> Table:
    """Every number; the best of each condition in bold, a section for each condition."""
    heads = "corners", "condition", "method", "median", "90 %", "< 1 px", "< 3 px", "ms", "no answer", "pairs"
    rows = []
    for cell in summary:
        rivals = _rivals(summary, cell)
        best = {
            "median": cell["median"] is not None and cell["median"] == _least(rivals, "median"),
            "p90": cell["p90"] is not None and cell["p90"] == _least(rivals, "p90"),
            "below_1": cell["below_1"] == max(r["below_1"] for r in rivals),
            "below_3": cell["below_3"] == max(r["below_3"] for r in rivals),
        }
        shown = [bold(_pixels(cell[key]), best[key]) for key in ("median", "p90")]
        shown += [bold(f"{100 * cell[key]:.0f} %", best[key]) for key in ("below_1", "below_3")]
        label = next(method.label for method in METHODS if method.name == cell["method"])
        about = [f"±{100 * cell['motion']:.0f} %", cell["condition"], label]
        rows.append([*about, *shown, f"{cell['ms']:.0f}", str(cell["failures"]), str(cell["pairs"])])
    groups = [(cell["motion"], cell["condition"]) for cell in summary]
    starts = [n for n in range(1, len(groups)) if groups[n] != groups[n - 1]]
    return Table(heads, "rllrrrrrrr", rows, sections=starts)


def compact(summary: Summary) -> str:
    """A table in Markdown for each motion: methods down, conditions across; median pixels, share below one pixel.

    Bold: the lowest median and the highest share of a column.
    """
    conditions = list(dict.fromkeys(cell["condition"] for cell in summary))
    parts = []
    for motion in dict.fromkeys(cell["motion"] for cell in summary):
        heads = [f"corners moved by up to ±{100 * motion:.0f} %", *conditions, "ms"]
        rows = []
        for method in METHODS:
            same = (c for c in summary if (c["motion"], c["method"]) == (motion, method.name))
            if cells := {cell["condition"]: cell for cell in same}:
                shown = [_compact_cell(summary, cells.get(condition)) for condition in conditions]
                ms = statistics.fmean(cell["ms"] for cell in cells.values())
                rows.append([f"{method.label}{_remark(method.name, cells)}", *shown, f"{ms:.0f}"])
        parts.append(Table(heads, "l" + "r" * (len(conditions) + 1), rows).markdown())
    return "\n\n".join(parts)


def verdict(summary: Summary) -> list[str]:
    """Where ours is more than 5 % behind a method on that method's pairs: a line for the worst of each condition."""
    lost: dict[tuple[str, str], tuple[float, str]] = {}
    for cell in summary:
        if "against" not in cell:
            continue
        ours, where = cell["against"], f"±{100 * cell['motion']:.0f} % {cell['condition']}"
        times = _median(ours) / _median(cell) if math.isfinite(_median(cell)) else 0.0
        line = f"{where}: median {_pixels(ours['median'])}, {cell['method']} {_pixels(cell['median'])}"
        _keep_worst(lost, (where, "median"), times, line)
        times = cell["below_1"] / ours["below_1"] if ours["below_1"] else math.inf * cell["below_1"]
        line = f"{where}: below 1 px {ours['below_1']:.0%}, {cell['method']} {cell['below_1']:.0%}"
        _keep_worst(lost, (where, "below 1 px"), times, line)
    return [line for _, line in lost.values()]


def _keep_worst(
    lost: dict[tuple[str, str], tuple[float, str]], key: tuple[str, str], times: float, line: str
) -> None:
    if times > TOLERANCE and times > lost.get(key, (0.0, ""))[0]:
        lost[key] = (times, line)


def _median(cell: Cell) -> float:
    return math.inf if cell["median"] is None else float(cell["median"])


def _rivals(summary: Summary, cell: Cell) -> Summary:
    return [c for c in summary if (c["motion"], c["condition"]) == (cell["motion"], cell["condition"])]


def _least(cells: Summary, key: str) -> float:
    return min(math.inf if cell[key] is None else cell[key] for cell in cells)


def _compact_cell(summary: Summary, cell: Cell | None) -> str:
    if cell is None:
        return ""
    rivals = _rivals(summary, cell)
    median = _bold(_pixels(cell["median"]), cell["median"] == _least(rivals, "median"))
    share = _bold(f"{100 * cell['below_1']:.0f} %", cell["below_1"] == max(r["below_1"] for r in rivals))
    return f"{median}, {share}"


def _remark(name: str, cells: Mapping[str, Cell]) -> str:
    """What the motion it knows is, when that is less than a homography, and its pairs when they are fewer."""
    (method,) = (method for method in METHODS if method.name == name)
    notes = [] if method.family == "homography" else [f"{method.family} only"]
    if method.share < 1:
        notes.append(f"{min(cell['pairs'] for cell in cells.values())} pairs")
    return f" ({', '.join(notes)})" if notes else ""


def _pixels(value: float | None) -> str:
    """A thousandth of a pixel where that is meaningful, fewer digits beyond one; beyond a thousand, that."""
    if value is None:
        return "lost"
    if value > 1000:
        return "> 1000"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _bold(text: str, best: bool) -> str:
    """Bold within a cell that holds two numbers."""
    return f"**{text}**" if best else text
