"""What a person sees of a finished run: a few lines, and its learning curve as a figure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caunet.drawing import new_figure, save_figure
from caunet.training.metrics_log import read_metrics

__all__ = ["summary", "write_curves"]


def summary(result: Mapping[str, Any], run_dir: Path, curve: Path | str) -> str:
    """A finished run in a few lines; ``curve`` is the file of its learning curve, or why there is none."""
    rate = result["updates"] / max(result["seconds"], 1e-9)
    how = f"{result['protocol']} protocol, {result['data']}, seed {result['seed']}"
    return "\n".join(
        [
            f"{result['model']} on {result['task']} ({how})",
            f"  parameter error       {_number(result['parameter_error'])}{_reference(result)}",
            f"  transformation error  {_number(result['transformation_error'])}",
            f"  corner error          {_number(result['corner_error'])} px (mean over {result['count']:,} test pairs)",
            *_pruned(result),
            f"  {result['updates']:,} updates in {result['seconds']:.0f} s"
            + (f" ({rate:.0f} per second)" if rate >= 1 else ""),
            f"  weights   {run_dir / 'weights.safetensors'}",
            f"  curve     {curve}",
        ]
    )


def _pruned(result: Mapping[str, Any]) -> list[str]:
    if result.get("nonzero", result.get("parameters")) == result.get("parameters"):
        return []
    weights = f"{result['nonzero']:,} of {result['parameters']:,} are not zero"
    return [f"  weights               {weights}; {result['multiply_adds']:,} multiply-adds a pair"]


def _reference(result: Mapping[str, Any]) -> str:
    # Results of earlier versions do not have it.
    error = result.get("parameter_error_of_mean")
    return "" if error is None else f" (always predicting the mean of z: {error:.4g})"


def _number(value: float | None) -> str:
    # A network that answers with infinities has no mean error.
    return "not finite" if value is None else f"{value:.4g}"


def write_curves(run_dir: Path) -> Path:
    """Draw the training loss and the test error of ``run_dir`` into its ``curve.png``."""
    lines = read_metrics(run_dir / "metrics.jsonl")
    figure = new_figure(7, 4)
    axes = figure.add_subplot()
    trained = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    tested = [(line["step"], line["test"]["parameter_error"]) for line in lines if "test" in line]
    if trained:
        axes.plot(*zip(*trained, strict=True), color="0.65", linewidth=1, label="training loss")
    if tested:
        axes.plot(
            *zip(*tested, strict=True), color="C0", marker="o", markersize=3, label="test parameter error"
        )
    if trained or tested:  # a run shorter than its first line of metrics has nothing to draw
        axes.set_yscale("log")
        axes.legend(frameon=False)
    axes.set(xlabel="updates", ylabel="mean squared error of z", title=run_dir.name)
    axes.grid(alpha=0.3, which="both")
    path = run_dir / "curve.png"
    save_figure(figure, path, dpi=120)
    return path
