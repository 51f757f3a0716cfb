"""Summaries of the sets of cases: shares found, areas under the curve, times; and tables of them.

A case is found if the mean corner error is below 1 % of the diagonal. The area under the curve at a limit of so many
pixels is the mean of max(0, 1 - error / limit): 1 if all is exact, 0 if nothing comes within the limit. Failures count
as infinitely far.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from caunet.benchmark.case_run import Kind
from caunet.benchmark.cases import OXFORD, STRESS
from caunet.benchmark.methods import METHODS
from caunet.tables import Table, bold

__all__ = ["AREAS", "GROUPS", "behind", "by_row", "missed_by_all", "overview", "summarize_cases", "together"]

AREAS = (1, 3, 5, 10)  # pixels
FOUND = 0.01  # of the diagonal
SURE = 0.9  # a confidence above which an answer should be right

GROUPS: dict[Kind, dict[str, tuple[str, ...]]] = {
    "oxford": {
        "viewpoint": ("graf", "wall", "boat", "bark"),
        "light, blur, JPEG": ("leuven", "ubc", "bikes", "trees"),
    },
    "stress": {
        "scale": tuple(row for row in STRESS if row.startswith("scale")),
        "crop, thumbnail": tuple(row for row in STRESS if row.startswith(("crop", "thumbnail"))),
        "light, channel": tuple(
            row for row in STRESS if row.startswith(("lighting", "vignette", "red", "negative"))
        ),
        "foreground": tuple(row for row in STRESS if row.startswith("foreground")),
        "frame, aperture": tuple(row for row in STRESS if row.startswith(("black", "round"))),
    },
}
"""Rows of a set that are shown together."""

Rows = Mapping[Any, Mapping[str, Any]]
Summary = list[dict[str, Any]]


def summarize_cases(rows: Rows, kind: Kind) -> Summary:
    """An entry for each method and each row, group of rows, and ``all``.

    ``found`` (share), ``auc`` (by limit in pixels), ``median`` corner error (null if not finite), ``failures``,
    ``cases``, ``ms`` and ``ms_median`` of one thread; with a confidence also ``sure``, answers above 0.9, and
    ``sure_wrong``, those of them that are not found.
    """
    known = STRESS if kind == "stress" else OXFORD
    parts = {row: (row,) for row in known} | GROUPS[kind] | {"all": tuple(known)}
    summary = []
    for part, members in parts.items():
        of_part = [row["methods"] for row in rows.values() if row["row"] in members]
        for method in METHODS:
            results = [results[method.name] for results in of_part if method.name in results]
            if results:
                summary.append({"part": part, "method": method.name, **_entry(results)})
    return summary


def _entry(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    errors = [math.inf if r["error"] is None else r["error"] for r in results]
    count = len(results)
    middle = statistics.median(errors)
    entry = {
        "cases": count,
        "found": round(sum(map(_found, results)) / count, 4),
        "auc": {str(n): round(sum(max(0.0, 1 - e / n) for e in errors) / count, 4) for n in AREAS},
        "median": round(middle, 5) if math.isfinite(middle) else None,
        "failures": sum(r["error"] is None for r in results),
        "ms": round(statistics.fmean(r["ms"] for r in results), 1),
        "ms_median": round(statistics.median(r["ms"] for r in results), 1),
    }
    if all("confidence" in r or r["error"] is None for r in results) and any(
        "confidence" in r for r in results
    ):
        sure = [r for r in results if r.get("confidence", 0.0) > SURE]
        entry |= {"sure": len(sure), "sure_wrong": sum(not _found(r) for r in sure)}
    return entry


def _found(result: Mapping[str, Any]) -> bool:
    return result["relative"] is not None and result["relative"] < FOUND


def overview(summary: Summary, kind: Kind) -> Table:
    """Methods down; shares found, areas under the curve, wrong answers above 0.9, times. The best in bold."""
    there = {entry["part"] for entry in summary}
    parts = [part for part in (*GROUPS[kind], "all") if part in there]
    heads = ["", *(f"{part}, found" for part in parts), *(f"AUC {n} px" for n in AREAS)]
    heads += ["wrong above 0.9", "no answer", "ms, mean", "ms, median"]
    entries = _by_method(summary)
    best = {part: max(e[part]["found"] for e in entries.values() if part in e) for part in parts}
    top = {n: max(e["all"]["auc"][str(n)] for e in entries.values()) for n in AREAS}
    fast = [min(e["all"][key] for e in entries.values()) for key in ("ms", "ms_median")]
    rows = []
    for name, of in entries.items():
        whole = of["all"]
        shown = [bold(_percent(of[p]["found"]), of[p]["found"] == best[p]) if p in of else "" for p in parts]
        shown += [bold(f"{whole['auc'][str(n)]:.3f}", whole["auc"][str(n)] == top[n]) for n in AREAS]
        sure = f"{whole['sure_wrong']} of {whole['sure']}" if "sure" in whole else ""
        times = [
            bold(f"{whole[k]:.0f}", whole[k] == f) for k, f in zip(("ms", "ms_median"), fast, strict=True)
        ]
        rows.append([_label(name), *shown, sure, str(whole["failures"]), *times])
    return Table(heads, "l" + "r" * (len(heads) - 1), rows)


def by_row(summary: Summary, kind: Kind) -> Table:
    """Rows of the set down, methods across: share found and median corner error in pixels."""
    entries = _by_method(summary)
    rows = []
    for part in [*(STRESS if kind == "stress" else OXFORD), *GROUPS[kind], "all"]:
        of_part = {name: of[part] for name, of in entries.items() if part in of}
        if not of_part:
            continue
        most = max(entry["found"] for entry in of_part.values())
        cells = [
            bold(
                f"{_percent(of_part[n]['found'])}, {_pixels(of_part[n]['median'])}",
                of_part[n]["found"] == most,
            )
            if n in of_part
            else ""
            for n in entries
        ]
        rows.append([part, str(max(entry["cases"] for entry in of_part.values())), *cells])
    return Table(["", "cases", *map(_label, entries)], "lr" + "r" * len(entries), rows)


def together(summaries: Mapping[Kind, Summary]) -> Table:
    """Several sets in one small table: methods down; for each set the groups' shares found, AUC at 3 px, ms."""
    heads, columns = [""], []
    names: list[str] = []
    for kind, summary in summaries.items():
        entries = _by_method(summary)
        names += [name for name in entries if name not in names]
        for part in (*GROUPS[kind], "all") if kind == "oxford" else ("all",):
            heads.append(f"{kind}: {part}" if part != "all" else f"{kind}: found")
            columns.append(_column(entries, part, "found", max, _percent))
        heads += [f"{kind}: AUC 3 px", f"{kind}: ms"]
        areas = {n: {"all": {"area": of["all"]["auc"]["3"]}} for n, of in entries.items()}
        columns.append(_column(areas, "all", "area", max, lambda value: f"{value:.2f}"))
        columns.append(_column(entries, "all", "ms", min, lambda value: f"{value:.0f}"))
    order = [method.name for method in METHODS if method.name in names]
    rows = [[_label(name), *(column.get(name, "") for column in columns)] for name in order]
    return Table(heads, "l" + "r" * len(columns), rows)


def _column(entries: Mapping[str, Any], part: str, key: str, pick: Any, show: Any) -> dict[str, Any]:
    values = {name: of[part][key] for name, of in entries.items() if part in of}
    best = pick(values.values()) if values else None
    return {name: bold(show(value), value == best) for name, value in values.items()}


def behind(summary: Summary, kind: Kind, ours: str = "caunet") -> list[str]:
    """Where a rival finds more of a row than ours, comes closer (AUC), or is faster on average: a line for each."""
    entries = _by_method(summary)
    if ours not in entries:
        return []
    lines = []
    for part in [*(STRESS if kind == "stress" else OXFORD), "all"]:
        rivals = {name: of[part]["found"] for name, of in entries.items() if name != ours and part in of}
        if part in entries[ours] and (better := _better(rivals, entries[ours][part]["found"])):
            lines.append(f"{part}: found {_percent(entries[ours][part]['found'])}, {better}")
    for n in AREAS:
        rivals = {name: of["all"]["auc"][str(n)] for name, of in entries.items() if name != ours}
        mine = entries[ours]["all"]["auc"][str(n)]
        if better := _better(rivals, mine, lambda value: f"{value:.3f}"):
            lines.append(f"AUC at {n} px: {mine:.3f}, {better}")
    rivals = {name: -of["all"]["ms"] for name, of in entries.items() if name != ours}
    mine = entries[ours]["all"]["ms"]
    if better := _better(rivals, -mine, lambda value: f"{-value:.0f}"):
        lines.append(f"mean milliseconds: {mine:.0f}, {better}")
    return lines


def missed_by_all(rows: Rows, ours: str = "caunet") -> list[str]:
    """A line for each case that nobody finds: how far from the truth each is, and how far from our answer.

    Where several methods that share nothing agree with each other and not with the truth, the truth may be what is off.
    """
    lines = []
    for row in rows.values():
        results = row["methods"]
        if ours not in results or any(map(_found, results.values())):
            continue
        mine = results[ours].get("corners")
        told = []
        for name, result in results.items():
            if result["error"] is not None:
                text = f"{_label(name)} {_pixels(result['error'])}"
                if name != ours and mine is not None and result.get("corners") is not None:
                    gaps = [math.dist(p, q) for p, q in zip(mine, result["corners"], strict=True)]
                    text += f" ({_pixels(statistics.fmean(gaps))} from {_label(ours)}'s answer)"
                told.append(text)
        lines.append(f"{row['row']} {row['case']}: {', '.join(told) or 'no answers'}")
    return lines


def _better(rivals: Mapping[str, float], mine: float, show: Any = None) -> str:
    show = show or _percent
    return ", ".join(f"{_label(name)} {show(value)}" for name, value in rivals.items() if value > mine)


def _by_method(summary: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for entry in summary:
        found.setdefault(entry["method"], {})[entry["part"]] = entry
    return {method.name: found[method.name] for method in METHODS if method.name in found}


def _label(name: str) -> str:
    return next(method.label for method in METHODS if method.name == name)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _pixels(value: float | None) -> str:
    return "lost" if value is None else "> 999" if value >= 1000 else f"{value:.2f}"
