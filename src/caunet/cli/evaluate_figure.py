"""The figure of an evaluation: how corner errors are distributed, and what was predicted for which truth."""

from pathlib import Path
from typing import Any

from caunet.drawing import new_figure, save_figure
from caunet.extras import require

__all__ = ["draw"]


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw ``results`` (name -> what ``evaluate(..., predictions=True)`` returned) into ``path``.

    Corner errors of all; predictions against truth of the first, one panel per parameter.
    """
    name, first = next(iter(results.items()))
    predictions = first["predictions"]
    panels = 1 + len(predictions["names"])
    figure = new_figure(3.4 * min(panels, 4) + 0.6, 3.2 * -(-panels // 4) + 0.4)
    axes = figure.subplots(-(-panels // 4), min(panels, 4), squeeze=False).flatten()
    for spare in axes[panels:]:
        spare.set_visible(False)
    _corners(axes[0], results)
    for dim, axis in enumerate(axes[1:panels]):
        _against_truth(axis, predictions, dim, name)
    figure.suptitle(f"{first['task']}, {first['protocol']} protocol, {first['count']:,} pairs")
    save_figure(figure, path, "figure", dpi=150)


def _corners(axis: Any, results: dict[str, dict[str, Any]]) -> None:
    for name, errors in results.items():
        histogram = errors["histogram"]
        share = [count / errors["count"] for count in histogram["counts"]]
        # At zero on both sides, so that a distribution in a single bin is a bar and not nothing.
        axis.stairs(share, histogram["edges"], label=_label(name, histogram, errors["count"]), linewidth=1.4)
    axis.set(xscale="log", xlabel="corner error (pixels)", ylabel="share of pairs", title="corner error")
    axis.legend(frameon=False, fontsize=7)


def _label(name: str, histogram: dict[str, Any], count: int) -> str:
    exact = histogram["below"] / count
    return f"{name} ({exact:.1%} exact)" if exact > 0.001 else name


def _against_truth(axis: Any, predictions: dict[str, Any], dim: int, name: str) -> None:
    import numpy as np

    LogNorm = require("matplotlib.colors", "report", "Drawing").LogNorm

    low, high = predictions["low"][dim], predictions["high"][dim]
    counts = np.array(predictions["counts"][dim], dtype=float).T  # rows: predictions
    extent = (low, high, low, high)
    shown = np.ma.masked_equal(counts, 0)
    axis.imshow(
        shown,
        origin="lower",
        extent=extent,
        aspect="equal",
        cmap="viridis",
        norm=LogNorm(1, counts.max() + 1),
    )
    axis.plot([low, high], [low, high], color="0.4", linewidth=0.7, linestyle=":")
    axis.set(xlabel="truth", ylabel=f"{name} says", title=predictions["names"][dim])
