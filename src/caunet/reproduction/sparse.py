"""Table of the recipe ``sparse``, and the figure of error against non-zero weights."""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from caunet.drawing import new_figure, save_figure
from caunet.reproduction.baseline_results import BASELINES, matching
from caunet.reproduction.best import ROWS, errors_of, figure_of
from caunet.reproduction.figures import COLORS
from caunet.reproduction.tables import Result, caption, seeds_of, show
from caunet.tables import Cell, Table, bold

__all__ = ["draw", "sparse_markdown"]

_WHOLE = {"ctn": "ctn", "bln": "bln", "can": "can"}
_COLUMNS = ("can, pruned", "can", "ctn, pruned", "bln, pruned", "ctn", "bln")


def sparse_markdown(results: Sequence[Result]) -> str:
    """Pruned networks beside whole ones of Table I's layers, the lowest error of a row in bold."""
    pruned = [result for result in results if result["recipe"] == "sparse"]
    whole = [result for result in results if result["recipe"] == "best"]
    if not pruned:
        return ""
    heads = [
        "Task",
        "CAN, pruned",
        "CAN",
        "CTN, pruned",
        "BLN, pruned",
        "CTN",
        "BLN",
        "seeds",
        "weights",
        "multiply-adds",
        *BASELINES,
    ]
    rows: list[list[str | Cell]] = []
    for (task, protocol), name in ROWS.items():
        mine = [r for r in pruned if (r["task"], r["protocol"]) == (task, protocol)]
        found = {
            **{f"{base}, pruned": _of(mine, base) for base in _WHOLE},
            **{base: errors_of(whole, task, protocol, label) for base, label in _WHOLE.items()},
        }
        if not found["can, pruned"]:
            continue
        lowest = min(statistics.fmean(values) for values in found.values() if values)
        shown = {
            key: bold(figure_of(values), bool(values) and show(statistics.fmean(values)) == show(lowest))
            for key, values in found.items()
        }
        cans = [r for r in mine if r["model"].startswith("can")]
        known = matching(mine, "parameter_error")
        rows.append(
            [
                name,
                *(shown[key] for key in _COLUMNS),
                seeds_of([len(found[key]) for key in _COLUMNS]),
                f"{max(r['nonzero'] for r in cans):,}",
                f"{max(r['multiply_adds'] for r in cans):,}",
                *(show(known.get(one)) for one in BASELINES),
            ]
        )
    return f"{caption(pruned)}.\n\n" + Table(heads, "l" + "r" * (len(heads) - 1), rows).markdown() + "\n"


def _of(results: Sequence[Result], base: str) -> list[float]:
    """Errors of a network's runs; of those that began as different networks, the ones with the most seeds, then the
    best: one lucky seed shall not count."""
    begun: dict[str, list[float]] = {}
    for result in results:
        if result["model"].partition("-")[0] == base:
            begun.setdefault(result["model"], []).append(result["parameter_error"])
    return min(begun.values(), key=lambda errors: (-len(errors), statistics.fmean(errors)), default=[])


def draw(measured: dict[str, Any], results: Sequence[Result], path: Path) -> None:
    """Error against non-zero weights, a panel per task: cut without retraining, and pruned while learning.

    Args:
        measured: benchmarks/results/sparse.json.
        results: those of the recipe ``sparse``.
        path: of the figure.
    """
    tasks = ("translation", "rotation", "scaling", "affine", "projective")
    figure = new_figure(13, 3)
    for axis, task in zip(figure.subplots(1, len(tasks)), tasks, strict=True):
        for base, color in COLORS.items():
            cut = measured["networks"][f"{base}-{task}"]["errors"]
            points = [(one["nonzero"] / 1000, one["parameter_error"]) for one in cut]
            axis.plot(*zip(*points, strict=True), color=color, marker=".", linewidth=1.2, label=base.upper())
            learned = [
                (r["nonzero"] / 1000, r["parameter_error"])
                for r in results
                if r["recipe"] == "sparse"
                and r["task"] == task
                and r["protocol"] == "text"
                and r["model"].partition("-")[0] == base
            ]
            if learned:
                axis.plot(
                    *zip(*learned, strict=True), color=color, marker="*", markersize=10, linestyle="none"
                )
        axis.set(title=task, xscale="log", yscale="log", xlabel="non-zero weights (thousands)")
        ticks = (50, 100, 200, 400, 700)
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("parameter error")
    figure.axes[0].legend(frameon=False)
    save_figure(figure, path, dpi=130)


def main(arguments: Sequence[str]) -> int:
    """``python -m caunet.reproduction.sparse``: draw the figure from what is committed."""
    from caunet.reproduction.results import load

    parser = argparse.ArgumentParser(
        description="Draw error against non-zero weights from committed results."
    )
    parser.add_argument("--measured", type=Path, default=Path("benchmarks/results/sparse.json"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures/sparse.png"))
    options = parser.parse_args(arguments)
    draw(json.loads(options.measured.read_text()), load(options.results), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
