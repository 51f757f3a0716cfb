"""What rank, number of units and temperature buy: validation error against multiply-adds per pair.

    python -m benchmarks.unit_size [--updates 4000] [--out runs/rules] [--workers 2]

CAN as in the profile best, on nine tenths of CIFAR-10's training images, measured on the other tenth. Runs are kept in
--out and never made twice.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from caunet.models import create_model
from caunet.reproduction.grid import run_grid
from caunet.reproduction.recipes import Cell, best

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import RESULTS, save
from benchmarks.learning_rules import CHOOSING, error

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "unit-size.png"

# series -> changes of the network, one run each; rank 4 with 300 units and a learned temperature is in all of them
SERIES: dict[str, list[dict[str, Any]]] = {
    "rank 1, 2, 4, 8, 16 (300 units)": [{"rank": r} for r in (1, 2, 4, 8, 16)],
    "75, 150, 300, 600 units (rank 4)": [{"units": u} for u in (75, 150, 300, 600)],
    "temperature 1, 0.1, 0.01, learned (300 units, rank 4)": [
        *({"temperature": t, "learn_temperature": 0.0} for t in (1.0, 0.1, 0.01)),
        {"rank": 4},
    ],
}


def cell(changes: dict[str, Any], task: str, protocol: str, updates: int) -> Cell:
    config = best(task, "can", protocol=protocol, updates=updates, split="train-fit", test_split="validation")
    # What equals the paper's value is left out, so that the three series share that run.
    paper = {"rank": 4, "units": 300}
    options = dict(config.model_options) | {k: v for k, v in changes.items() if paper.get(k) != v}
    return Cell("size", "can", config.replace(model_options=options, checkpoint_every=0, test_pairs=5_000))


def run_all(updates: int, out: Path, workers: int) -> dict[str, Any]:
    every = [change for changes in SERIES.values() for change in changes]
    cells = [cell(change, *row, updates) for row in CHOOSING for change in every]
    run_grid(cells, out, workers=workers, listener=lambda state: _tell(state, out))
    found: dict[str, Any] = {}
    for series, changes in SERIES.items():
        found[series] = []
        for change in changes:
            runs = [cell(change, *row, updates) for row in CHOOSING]
            model = create_model("can", "rotation", **runs[1].config.model_options)
            errors = dict(
                zip(("integer translation", "rotation"), (error(run, out) for run in runs), strict=True)
            )
            size = {"multiply_adds": model.multiply_adds(), "parameters": model.parameter_count()}
            found[series].append(change | size | errors)
    return {"updates": updates, "series": found}


def _tell(state: Any, out: Path) -> None:
    if state.latest is not None:
        print(f"{state.latest.name}: {error(state.latest, out):.5g}", file=sys.stderr, flush=True)


def draw(results: dict[str, Any]) -> Any:
    from caunet.reproduction.figures import new_figure

    figure = new_figure(9.4, 3.6)
    for axis, row in zip(figure.subplots(1, 2), ("integer translation", "rotation"), strict=True):
        for (series, points), marker in zip(results["series"].items(), "osv", strict=True):
            shown = [p for p in points if math.isfinite(p[row])]
            axis.plot(
                [p["multiply_adds"] for p in shown], [p[row] for p in shown], f"{marker}-", label=series
            )
        axis.set(title=row.capitalize(), xscale="log", yscale="log", xlabel="multiply-adds per pair")
    figure.axes[0].set_ylabel("validation error")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=4_000)
    parser.add_argument("--out", type=Path, default=Path("runs/rules"))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    results = run_all(options.updates, options.out, options.workers)
    for series, points in results["series"].items():
        print(series)
        for point in points:
            values = "  ".join(f"{point[row]:.4g}" for row in ("integer translation", "rotation"))
            print(f"  {point['multiply_adds']:>9,} multiply-adds: {values}")
    draw(results).savefig(FIGURE, dpi=110)
    print(f"saved to {save('unit_size', results)} and {FIGURE.relative_to(RESULTS.parents[1])}")


if __name__ == "__main__":
    main()
