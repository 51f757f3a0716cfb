"""The report's figures, drawn from results alone: learning curves and error histograms.

Figures are made with matplotlib's object interface: no window, no global state. Text and axes are drawn in
one marker color, ``INK``, which the page replaces by its own text color: figures follow light and dark.
"""

import contextlib
import html
import io
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caunet.drawing import new_figure
from caunet.extras import require
from caunet.files import atomic_write
from caunet.reproduction.recipes import MODELS, TASKS
from caunet.reproduction.tables import Result, is_the_papers, paper

__all__ = ["COLORS", "INK", "Drawn", "curves", "density", "draw", "drawing", "histograms", "tasks_of"]

INK = "#1b2430"
# Distinct for color-blind readers, and readable on white and on near-black.
COLORS = {"ctn": "#d9772b", "bln": "#2a9d8f", "can": "#6c63d9"}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "grid.color": "#8a94a0",
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    **{f"{name}.color": INK for name in ("text", "xtick", "ytick")},
    **{f"axes.{name}": INK for name in ("edgecolor", "labelcolor", "titlecolor")},
}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draw in the report's style, whatever matplotlib is set to."""
    with require("matplotlib", "report", "Drawing").rc_context(_STYLE):
        yield


def tasks_of(results: Sequence[Result]) -> list[str]:
    """The tasks that occur, in the paper's order."""
    found = {result["task"] for result in results}
    return [task for task in TASKS if task in found] + sorted(found - set(TASKS))


def _panels(count: int) -> tuple[Any, list[Any]]:
    columns = 2 if count == 4 else min(3, count)
    rows = -(-count // columns)
    figure = new_figure(max(4.2, 3.1 * columns), 2.5 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in axes[count:]:
        spare.set_visible(False)
    return figure, list(axes[:count])


def _legend(axis: Any) -> None:
    if axis.get_legend_handles_labels()[1]:
        axis.legend(loc="best")


def _plain_numbers(axis: Any) -> None:
    ticker = require("matplotlib.ticker", "report", "Drawing")
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def curves(results: Sequence[Result]) -> Any:
    """Parameter error on test pairs while training, one panel per task; the paper's final figures are dashed."""
    tasks = tasks_of(results)
    figure, axes = _panels(len(tasks))
    for axis, task in zip(axes, tasks, strict=True):
        for model in MODELS:
            _curve(axis, [r for r in results if r["task"] == task and r["model"] == model], model)
            mine = [r for r in results if r["task"] == task]
            printed = paper()["parameter_error"].get(task, {}).get(model)
            if printed and all(is_the_papers(r) for r in mine):
                axis.axhline(printed, color=COLORS[model], linewidth=0.9, linestyle=(0, (4, 3)), alpha=0.8)
        axis.set(title=task.capitalize(), yscale="log", xlabel="updates (thousands)")
        _plain_numbers(axis.yaxis)
    axes[0].set_ylabel("parameter error")
    _legend(axes[0])
    return figure


def _curve(axis: Any, results: Sequence[Result], model: str) -> None:
    for number, result in enumerate(results):
        points = [point for point in result.get("curve", {}).get("test", []) if point[1] is not None]
        if points:
            label = model.upper() if number == 0 else None
            steps, errors = [step / 1000 for step, _ in points], [error for _, error in points]
            marker = "o" if len(points) == 1 else None  # of which no line could be drawn
            axis.plot(steps, errors, color=COLORS[model], linewidth=1.4, marker=marker, label=label)


def density(histogram: Mapping[str, Any]) -> list[float]:
    """Per cent of the pairs in each bin, for a tenth of a decade of its width: bins of one result may be wider.

    >>> density({"edges": [0.1, 1.0, 10.0], "counts": [30, 10]})
    [7.5, 2.5]
    """
    edges, counts = histogram["edges"], histogram["counts"]
    widths = [10 * math.log10(high / low) for low, high in itertools.pairwise(edges)]
    return [100 * count / max(1, sum(counts)) / width for count, width in zip(counts, widths, strict=True)]


def histograms(results: Sequence[Result]) -> Any:
    """How the corner error is spread over the test pairs, one panel per task; logarithmic in pixels."""
    tasks = tasks_of(results)
    figure, axes = _panels(len(tasks))
    for axis, task in zip(axes, tasks, strict=True):
        for result in results:
            histogram = result.get("histogram")
            if result["task"] == task and result["model"] in MODELS and result["seed"] == 0 and histogram:
                shares = density(histogram)
                color = COLORS[result["model"]]
                axis.stairs(
                    shares, histogram["edges"], color=color, linewidth=1.4, label=result["model"].upper()
                )
                axis.stairs(shares, histogram["edges"], color=color, fill=True, alpha=0.12)
        axis.set(title=task.capitalize(), xscale="log", xlabel="corner error (pixels)", ylim=(0, None))
        _plain_numbers(axis.xaxis)
    axes[0].set_ylabel("% of test pairs per tenth of a decade")
    _legend(axes[0])
    return figure


@dataclass(frozen=True)
class Drawn:
    """A figure drawn once: for files and for a page."""

    name: str
    svg: str
    png: bytes
    width: float

    def save(self, folder: Path) -> None:
        """Write ``name``.svg and ``name``.png into ``folder``."""
        with atomic_write(folder / f"{self.name}.svg") as path:
            path.write_text(self.svg)
        with atomic_write(folder / f"{self.name}.png") as path:
            path.write_bytes(self.png)

    def element(self, label: str) -> str:
        """An <svg> element for a page: text in the page's color, no address of any kind in it."""
        text = self.svg[self.svg.index("<svg") :].replace(INK, "currentColor")
        text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
        text = re.sub(r'(<svg[^>]*?) width="[^"]*pt" height="[^"]*pt"', r"\1", text, count=1)
        # As wide as the page allows, but never so wide that a small figure's text shouts.
        size = f'style="max-width: {110 * self.width:.0f}px"'
        return text.replace(
            "<svg", f'<svg role="img" aria-label="{html.escape(label)}" class="figure" {size}', 1
        )


def draw(figure: Any, name: str) -> Drawn:
    """Draw ``figure`` as SVG (transparent) and PNG (on white)."""
    matplotlib = require("matplotlib", "report", "Drawing")
    text, pixels = io.StringIO(), io.BytesIO()
    # Names of clip paths derive from the salt: two figures on one page must not share them.
    with matplotlib.rc_context({"svg.hashsalt": name}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    # The layout is found: the second drawing need not search for it again.
    figure.set_layout_engine("none")
    figure.savefig(pixels, format="png", dpi=150, facecolor="white")
    return Drawn(name, text.getvalue(), pixels.getvalue(), figure.get_figwidth())
