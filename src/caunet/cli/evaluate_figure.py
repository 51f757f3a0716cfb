"""The picture of an evaluation: how corner errors are distributed, and what was predicted for which truth."""

from pathlib import Path
from typing import Any

from caunet.files import atomic_write

__all__ = ["draw"]

_FORMATS = ("png", "svg", "pdf")


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw ``results`` (name -> what ``evaluate(..., predictions=True)`` returned) into ``path``.

    Corner errors of all; predictions against truth of the first, one panel a parameter.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kind = path.suffix.lstrip(".").lower()
    if kind not in _FORMATS:
        raise ValueError(f"figure takes a file ending in {', '.join(_FORMATS)}, got {path.name!r}")
    name, first = next(iter(results.items()))
    predictions = first["predictions"]
    panels = 1 + len(predictions["names"])
    figure = Figure(figsize=(3.4 * min(panels, 4) + 0.6, 3.2 * -(-panels // 4) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(-(-panels // 4), min(panels, 4), squeeze=False).flatten()
    for spare in axes[panels:]:
        spare.set_visible(False)
    _corners(axes[0], results)
    for dim, axis in enumerate(axes[1:panels]):
        _against_truth(axis, predictions, dim, name)
    figure.suptitle(f"{first['task']}, {first['protocol']} protocol, {first['count']:,} pairs")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=150)


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
    from matplotlib.colors import LogNorm

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
