"""How well and how fast two pictures are registered: caunet and eight other methods on the same pairs.

    python -m benchmarks.registration [--pairs 100] [--rows FILE]     measure (or go on), save, draw, fill the tables
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
from pathlib import Path
from typing import Any

import torch

from caunet.benchmark import make_pair, photographs
from caunet.benchmark.figure import draw
from caunet.benchmark.methods import METHODS, find, one_thread
from caunet.benchmark.run import Plan, forget, measure, run
from caunet.benchmark.table import compact, full, summarize, verdict
from caunet.reproduction.tables import fill
from caunet.tables import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import RESULTS, save

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "figures" / "registration.png"
SIDES = (256, 512, 1024, 2048)


def measured(pairs: int, rows_file: Path) -> dict[str, Any]:
    """All methods on all conditions; what is already in ``rows_file`` is not measured again."""
    plan = Plan(pairs=pairs)
    wanted = set(plan.every())
    rows = {key: row for key, row in run(plan, find(), rows_file).items() if key in wanted}
    summary = summarize(rows)
    return {
        "pairs": pairs,
        "photographs": list(photographs(plan.group)),
        "versions": {method.name: f"{method.package} {method.version}" for method in METHODS},
        "commits": sorted({row["commits"]["caunet"] for row in rows.values()}),
        "ms_over_conditions": {
            method.name: round(statistics.fmean(c["ms"] for c in summary if c["method"] == method.name), 1)
            for method in METHODS
        },
        "behind": verdict(summary),
        "summary": summary,
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
    """Figure and tables from the saved results, into the documents that have markers for them."""
    results = json.loads((RESULTS / "registration.json").read_text())
    draw(results["summary"], FIGURE)
    machine = results["environment"]
    below = (
        f"Median corner error in pixels and share of pairs below one pixel; {results['pairs']} pairs of 256 x 256 per "
        f"cell unless stated otherwise; ms: processor time of one thread, mean over the conditions "
        f"({machine['cpu']}, torch {machine['torch']}, {results['versions']['ecc']}). In bold the best of a column."
    )
    blocks = {
        "registration": f"{compact(results['summary'])}\n\n{below}\n\n{_behind(results['behind'])}",
        "registration-full": full(results["summary"]).markdown(),
    }
    speeds = RESULTS / "registration_scaling.json"
    if speeds.exists():
        blocks["registration-scaling"] = scaling_table(json.loads(speeds.read_text()))
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = document.read_text(encoding="utf-8") if document.exists() else ""
        for section, block in blocks.items():
            if f"<!-- {section}:begin -->" in text:
                state = "updated" if fill(document, block, section=section) else "was up to date"
                print(document.name, section, state)


def _behind(lost: list[str]) -> str:
    if not lost:
        return "caunet is the best, or within 5 % of it, everywhere."
    return "Where caunet is more than 5 % behind the best:\n\n" + "\n".join(f"- {line}" for line in lost)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--rows", type=Path, default=ROOT / "runs" / "registration.jsonl")
    parser.add_argument("--again", nargs="*", default=[], help="methods to forget and measure anew")
    parser.add_argument("--look", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--rounds", type=int, default=5, help="of --scaling")
    options = parser.parse_args()
    if options.scaling:
        with one_thread():
            print(save("registration_scaling", scaling(options.rounds)))
    elif not options.render:
        forget(options.rows, options.again)
        results = measured(options.pairs, options.rows)
        if options.look:
            print(compact(results["summary"]), _behind(results["behind"]), sep="\n\n")
            return
        with one_thread():  # so that the description of the machine says one thread
            print(save("registration", results))
    if (RESULTS / "registration.json").exists():
        render()


if __name__ == "__main__":
    main()
