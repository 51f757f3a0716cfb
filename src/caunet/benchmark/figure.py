"""The curves behind the table: which share of pairs each method registers to within x pixels."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caunet.benchmark.case_run import Kind
from caunet.benchmark.case_table import GROUPS
from caunet.benchmark.methods import METHODS
from caunet.benchmark.table import LIMITS, Summary
from caunet.drawing import new_figure, save_figure

__all__ = ["draw", "draw_cases"]

# Distinct without colors, too: ours is thick, the others are thin, with different dashes.
_COLORS = (
    *("#c1121f", "#1d3557", "#457b9d", "#2a9d8f", "#8ab17d", "#b5b5b5", "#e9a03b", "#9d6b9d", "#6b705c"),
    *("#4c9f70", "#f4845f", "#7b2cbf", "#3a86ff", "#5c4033"),
)
_DASHES = ("-", "-", "--", "-", "--", ":", "-.", "-.", ":", ":", "-", "-", "-")


def draw(summary: Summary, path: Path) -> None:
    """Corner error against share of pairs below it: conditions across, motions down; written to ``path``."""
    conditions = list(dict.fromkeys(cell["condition"] for cell in summary))
    motions = list(dict.fromkeys(cell["motion"] for cell in summary))
    figure = new_figure(2.6 * len(conditions) + 0.6, 2.3 * len(motions) + 0.9)
    grid = figure.subplots(len(motions), len(conditions), sharex=True, sharey=True, squeeze=False)
    for axes, motion in zip(grid, motions, strict=True):
        for place, condition in zip(axes, conditions, strict=True):
            _curves(place, [c for c in summary if (c["motion"], c["condition"]) == (motion, condition)])
            place.set_title(f"{condition}, ±{100 * motion:.0f} %", fontsize=9)
        axes[0].set_ylabel("share of pairs below")
    for place in grid[-1]:
        place.set_xlabel("corner error, pixels")
    _legend(figure, grid)
    save_figure(figure, path, "figure")


def draw_cases(sets: Mapping[Kind, Mapping[Any, Mapping[str, Any]]], path: Path) -> None:
    """The same for sets of cases, by their rows (see :func:`~caunet.benchmark.case_run.run_cases`): groups across."""
    widest = max(len(GROUPS[kind]) for kind in sets)
    figure = new_figure(2.6 * widest + 0.6, 2.3 * len(sets) + 0.9)
    grid = figure.subplots(len(sets), widest, sharex=True, sharey=True, squeeze=False)
    for axes, (kind, rows) in zip(grid, sets.items(), strict=True):
        for place, (title, members) in zip(axes, GROUPS[kind].items(), strict=False):
            _curves(place, _case_curves([r["methods"] for r in rows.values() if r["row"] in members]))
            place.set_title(f"{kind}: {title}", fontsize=9)
            place.set_xlabel("corner error, pixels")
            place.xaxis.set_tick_params(labelbottom=True)
        for place in axes[len(GROUPS[kind]) :]:
            place.set_axis_off()
        axes[0].set_ylabel("share of cases below")
    _legend(figure, grid)
    save_figure(figure, path, "figure")


def _case_curves(results: list[Mapping[str, Any]]) -> Summary:
    cells = []
    for method in METHODS:
        errors = [r[method.name]["error"] for r in results if method.name in r]
        if errors:
            far = [math.inf if e is None else e for e in errors]
            curve = [sum(e < limit for e in far) / len(far) for limit in LIMITS]
            cells.append({"method": method.name, "curve": curve})
    return cells


def _legend(figure: Any, grid: Any) -> None:
    lines = {line.get_label(): line for row in grid for place in row for line in place.get_lines()}
    labels = [method.label for method in METHODS if method.label in lines]
    figure.legend(
        [lines[label] for label in labels],
        labels,
        loc="outside lower center",
        ncols=min(5, max(2, grid.shape[1])),  # as many as fit below the plots
        fontsize=8,
        frameon=False,
    )


def _curves(place: Any, cells: Summary) -> None:
    for number, method in reversed(list(enumerate(METHODS))):
        for cell in cells:
            if cell["method"] == method.name:
                place.plot(
                    LIMITS,
                    cell["curve"],
                    color=_COLORS[number % len(_COLORS)],
                    linestyle=_DASHES[number % len(_DASHES)],
                    linewidth=2.2 if number == 0 else 1.1,
                    label=method.label,
                )
    place.axvline(1.0, color="#dddddd", linewidth=0.8, zorder=0, label="_one pixel")
    place.set_xscale("log")
    place.set_xlim(LIMITS[0], LIMITS[-1])
    place.set_ylim(-0.02, 1.02)
    place.tick_params(labelsize=7)
