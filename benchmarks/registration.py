"""How well and how fast two images are registered: caunet and other methods on the same pairs.

    python -m benchmarks.registration [--pairs 100] [--rows FILE]     measure (or go on), save, draw, fill the tables
    python -m benchmarks.registration --methods caunet --again caunet only these; others' saved numbers stay
    python -m benchmarks.registration --set oxford --data FOLDER      the same with pairs that others photographed
    python -m benchmarks.registration --set stress                    and with rows that are hard in one way each
    python -m benchmarks.registration --pairs 2 --look                measure a little, show it, save nothing
    python -m benchmarks.registration --render                        draw and fill again from what is saved
    python -m benchmarks.registration --scaling                       milliseconds against pixels, 256 to 2048 a side

Pairs, conditions and methods are those of `caunet bench registration`. Everyone has one thread; milliseconds are
of the processor, not of the clock, which on a shared machine runs for others, too.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from caunet.benchmark import make_pair, photographs
from caunet.benchmark.case_run import CaseSet, Kind, run_cases
from caunet.benchmark.case_table import behind, by_row, missed_by_all, overview, summarize_cases, together
from caunet.benchmark.figure import draw, draw_cases
from caunet.benchmark.methods import METHODS, Method, find, one_thread
from caunet.benchmark.run import Plan, forget, measure, run
from caunet.benchmark.table import compact, full, summarize, verdict
from caunet.reproduction.tables import fill
from caunet.tables import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import RESULTS, save

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "figures" / "registration.png"
CASES_FIGURE = ROOT / "docs" / "figures" / "registration-real.png"
SIDES = (256, 512, 1024, 2048)


def measured(
    pairs: int, rows_file: Path, methods: Sequence[Method], saved: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """``methods`` on all conditions, but for what ``rows_file`` has; what is ``saved`` of other methods stays."""
    plan = Plan(pairs=pairs)
    wanted = set(plan.every())
    rows = {key: row for key, row in run(plan, methods, rows_file).items() if key in wanted}
    mine = [method.name for method in methods]
    summary, versions, commits = summarize(rows), {}, {}
    if saved is not None and {cell["method"] for cell in saved["summary"]} - {*mine}:
        if saved["pairs"] != pairs:
            raise SystemExit(f"what is saved has {saved['pairs']} pairs of each condition; measure as many")
        versions = saved["versions"]
        commits = saved["commits"] if isinstance(saved["commits"], dict) else {}
        summary = merged_summary(summary, [c for c in saved["summary"] if c["method"] not in mine], rows)
    order = [method for method in METHODS if any(cell["method"] == method.name for cell in summary)]
    return {
        "pairs": pairs,
        "photographs": list(photographs(plan.group)),
        "versions": versions | {method.name: f"{method.package} {method.version}" for method in methods},
        "commits": commits
        | {
            name: sorted({row["commits"][name] for row in rows.values() if name in row["commits"]})
            for name in mine
        },
        "ms_over_conditions": {
            method.name: round(statistics.fmean(c["ms"] for c in summary if c["method"] == method.name), 1)
            for method in order
        },
        "behind": verdict(summary),
        "summary": summary,
    }


def merged_summary(
    new: list[dict[str, Any]], old: list[dict[str, Any]], rows: Mapping[Any, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Cells measured now and cells that were saved, in the order of the table; ``against`` is computed again."""
    for cell in old:
        key = cell["condition"], cell["motion"]
        same = {
            k: {**row, "methods": {"caunet": row["methods"]["caunet"]}}
            for k, row in rows.items()
            if (k[0], k[1]) == key and k[2] < cell["pairs"] and "caunet" in row["methods"]
        }
        if same:
            (ours,) = summarize(same)
            cell["against"] = {name: ours[name] for name in ("median", "below_1")}
    names = [method.name for method in METHODS]
    conditions = list(dict.fromkeys(cell["condition"] for cell in [*old, *new]))
    return sorted(
        [*new, *old],
        key=lambda c: (c["motion"], conditions.index(c["condition"]), names.index(c["method"])),
    )


def measured_cases(chosen: CaseSet, rows_file: Path, methods: Sequence[Method]) -> dict[str, Any]:
    """``methods`` on a set of cases, and what ``rows_file`` has of others: every case's errors, and the summary."""
    rows = run_cases(chosen, methods, rows_file)
    there = [m for m in METHODS if all(m.name in row["methods"] for row in rows.values())]
    commits: dict[str, set[str]] = {}
    cases = []
    for row in rows.values():
        kept = {m.name: {k: v for k, v in row["methods"][m.name].items() if k != "wall_ms"} for m in there}
        cases.append({"row": row["row"], "case": row["case"], "methods": kept})
        for method in there:
            commits.setdefault(method.name, set()).add(row["commits"][method.name])
    complete = {(case["row"], case["case"]): case for case in cases}
    summary = summarize_cases(complete, chosen.kind)
    return {
        "set": chosen.header(),
        "versions": {method.name: f"{method.package} {method.version}" for method in there},
        "commits": {name: sorted(found) for name, found in commits.items()},
        "behind": behind(summary, chosen.kind),
        "summary": summary,
        "cases": cases,
    }


def scaling(rounds: int) -> dict[str, Any]:
    """Median milliseconds for pictures of each of SIDES, corners moving by up to 3 %: caunet and both ECCs."""
    photo = photographs("calibration")["retina"]
    results: dict[str, Any] = {}
    for side in SIDES:
        pair = make_pair(photo, "clean", 0.03, 0, side)
        a, b = ((p * 255).round().to(torch.uint8).numpy() for p in (pair.a, pair.b))
        samples: dict[str, list[dict[str, Any]]] = {}
        for _ in range(rounds + 1):  # the first round warms up
            for method in find(["caunet", "ecc", "ecc-pyramid"]):
                samples.setdefault(method.name, []).append(measure(method, a, b, pair.H))
        results[str(side)] = {
            name: {
                "ms": round(statistics.median(r["ms"] for r in found[1:]), 1),
                "ms_a_megapixel": round(
                    statistics.median(r["ms"] for r in found[1:]) / (side * side / 1e6), 1
                ),
                "error": found[-1]["error"],
            }
            for name, found in samples.items()
        }
        print(side, json.dumps(results[str(side)]))
    return {"rounds": rounds, "sides": results}


def scaling_table(results: dict[str, Any]) -> str:
    """Milliseconds, sides across, as Markdown."""
    sides = results["sides"]
    rows = []
    for method in METHODS:
        if all(method.name in cells for cells in sides.values()):
            rows.append([method.label, *(f"{cells[method.name]['ms']:.0f}" for cells in sides.values())])
    return Table(["ms", *(f"{s} x {s}" for s in sides)], "l" + "r" * len(sides), rows).markdown()


def render() -> None:
    """Figures and tables from the saved results, into the documents that have markers for them."""
    blocks: dict[str, str] = {}
    if (results := _saved("registration")) is not None:
        draw(results["summary"], FIGURE)
        machine = results["environment"]
        below = (
            f"Median corner error in pixels and share of pairs below one pixel; {results['pairs']} pairs of 256 x 256 "
            f"per cell unless stated otherwise; ms: processor time of one thread, mean over the conditions "
            f"({machine['cpu']}, torch {machine['torch']}, {results['versions']['ecc']}). In bold the best of a column."
        )
        commits = results["commits"]  # of older results: those of caunet alone
        ours = ", ".join(commits["caunet"] if isinstance(commits, dict) else commits)
        below += f" caunet at commit {ours}."
        blocks["registration"] = f"{compact(results['summary'])}\n\n{below}\n\n{_behind(results['behind'])}"
        blocks["registration-full"] = full(results["summary"]).markdown()
    if (speeds := _saved("registration_scaling")) is not None:
        blocks["registration-scaling"] = scaling_table(speeds)
    kinds: tuple[Kind, ...] = ("oxford", "stress")
    sets = {kind: results for kind in kinds if (results := _saved(f"registration_{kind}")) is not None}
    for kind, results in sets.items():
        tables = overview(results["summary"], kind).markdown(), by_row(results["summary"], kind).markdown()
        blocks[f"registration-{kind}"] = "\n\n".join([*tables, cases_text(results)])
    if sets:
        blocks["registration-real"] = real_text(sets)
        rows = {kind: {(c["row"], c["case"]): c for c in results["cases"]} for kind, results in sets.items()}
        draw_cases(rows, CASES_FIGURE)
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = document.read_text(encoding="utf-8") if document.exists() else ""
        for section, block in blocks.items():
            if f"<!-- {section}:begin -->" in text:
                state = "updated" if fill(document, block, section=section) else "was up to date"
                print(document.name, section, state)


def cases_text(results: Mapping[str, Any]) -> str:
    """What is below a set's tables: how it was measured, where caunet is behind, and what nobody finds."""
    machine = results["environment"]
    ours = ", ".join(results["commits"].get("caunet", ["none"]))
    text = f"{len(results['cases'])} cases; {machine['cpu']}, one thread, torch {machine['torch']}; "
    text += f"caunet at commit {ours}."
    if lost := results["behind"]:
        text += " Where caunet is behind:\n\n" + "\n".join(f"- {line}" for line in lost)
    else:
        text += " Nothing found more, came closer or was faster than caunet."
    if missed := missed_by_all({(case["row"], case["case"]): case for case in results["cases"]}):
        text += "\n\nFound by nobody (corner errors in pixels):\n\n" + "\n".join(
            f"- {line}" for line in missed
        )
    return text


def real_text(sets: Mapping[Kind, Mapping[str, Any]]) -> str:
    """One small table of the Oxford and the stress set, and a sentence on what it counts."""
    table = together({kind: results["summary"] for kind, results in sets.items()}).markdown()
    counts = " and ".join(
        f"{len(results['cases'])} cases of the {kind} set" for kind, results in sets.items()
    )
    sure = []
    for kind, results in sets.items():
        for entry in results["summary"]:
            if entry["part"] == "all" and entry["method"] == "caunet" and "sure" in entry:
                sure.append(f"{entry['sure_wrong']} of {entry['sure']} ({kind})")
    text = f"{counts}. Found: corners off by less than 1 % of the diagonal. AUC: mean of max(0, 1 - error / 3 px). "
    text += "ms: mean processor time of one thread. In bold the best of a column."
    if sure:
        text += f" Of caunet's answers with a confidence above 0.9, {' and '.join(sure)} are wrong."
    return f"{table}\n\n{text}"


def _saved(name: str) -> Any:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _behind(lost: list[str]) -> str:
    if not lost:
        return "On these pairs caunet is the best, or within 5 % of it, in every column but that of milliseconds."
    return "Where caunet is more than 5 % behind the best:\n\n" + "\n".join(f"- {line}" for line in lost)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", choices=("synthetic", "stress", "oxford"), default="synthetic")
    parser.add_argument("--data", type=Path, help="folder of the Oxford set")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument(
        "--rows", type=Path, help="where measurements are kept; default: runs/registration*.jsonl"
    )
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--again", nargs="*", default=[], help="methods to forget and measure anew")
    parser.add_argument("--look", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--rounds", type=int, default=5, help="of --scaling")
    options = parser.parse_args()
    name = "registration" if options.set == "synthetic" else f"registration_{options.set}"
    rows_file = options.rows or ROOT / "runs" / f"{name.replace('_', '-')}.jsonl"
    methods = find(options.methods or None, options.set)
    if options.scaling:
        with one_thread():
            print(save("registration_scaling", scaling(options.rounds)))
    elif not options.render:
        forget(rows_file, options.again)
        if options.set == "synthetic":
            results = measured(options.pairs, rows_file, methods, _saved(name))
            look = compact(results["summary"])
        else:
            results = measured_cases(CaseSet(options.set, options.data), rows_file, methods)
            look = overview(results["summary"], options.set).markdown()
        if options.look:
            print(look, _behind(results["behind"]), sep="\n\n")
            return
        with one_thread():  # so that the description of the machine says one thread
            print(save(name, results))
    render()


if __name__ == "__main__":
    main()
