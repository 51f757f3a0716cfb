"""The table of the paper's next step: the networks at their best on tasks of volumes, recipe ``space``.

Beside the networks stand predictors that have learned nothing, which ``python -m benchmarks.space`` measures on the
same test pairs.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from caunet.reproduction.best import against_rivals, figure_of, lowest, size_of
from caunet.reproduction.recipes import SPACE_SIZES
from caunet.reproduction.tables import Result, caption, seeds_of, show
from caunet.tables import Cell, Table, bold

__all__ = ["ROWS", "error_in", "space_markdown"]

# A task, and which of its parameters a row is about: those whose names begin so. Degrees and voxels are not averaged.
ROWS = {
    ("translation3", ""): "Translation, ±3 voxels",
    ("rotation3", ""): "Rotation, three angles of ±30°",
    ("scaling3", ""): "Scaling, three factors of 0.5 to 2",
    ("affine3", ""): "Affine, nine entries of ±0.3",
    ("rigid3", "angle"): "Rigid: its three angles of ±30°",
    ("rigid3", "shift"): "Rigid: its three shifts of ±3 voxels",
}
_HEADS = {"ctn": "CTN", "bln": "BLN", "can": "CAN", "can-wide3": "CAN-wide"}
Baselines = Mapping[str, Mapping[str, Mapping[str, Any]]]


def error_in(result: Mapping[str, Any], start: str) -> float:
    """The mean squared error of the parameters whose names begin with ``start``.

    >>> found = {"per_parameter": {"angle_x": {"error": 4.0}, "angle_y": {"error": 2.0}, "shift_x": {"error": 0.5}}}
    >>> error_in(found, "angle"), error_in(found, "shift")
    (3.0, 0.5)
    """
    if not start:
        return float(result["parameter_error"])
    own = [p["error"] for name, p in result["per_parameter"].items() if name.startswith(start)]
    return statistics.fmean(own)


def space_markdown(results: Sequence[Result], baselines: Baselines | None = None) -> str:
    """The table in Markdown, the lowest error of a row in bold; empty when nothing was run.

    ``baselines``: what others measure, by name and task, shown behind the networks, never in bold.
    """
    chosen = [result for result in results if result["recipe"] == "space"]
    if not chosen:
        return ""
    labels = [label for labels in SPACE_SIZES.values() for label in labels]
    others = baselines or {}
    heads = [
        "Parameter error",
        *(f"{_HEADS[label]}{size_of(chosen, label)}" for label in labels),
        "seeds",
        "CAN / best rival",
        *others,
    ]
    rows: list[list[str | Cell]] = []
    for (task, start), name in ROWS.items():
        same = [result for result in chosen if (result["task"], result["protocol"]) == (task, "text")]
        errors = {label: [error_in(r, start) for r in same if r["model"] == label] for label in labels}
        means = {label: statistics.fmean(values) for label, values in errors.items() if values}
        if not means:
            continue
        cells = [bold(figure_of(errors[label]), label in lowest(means)) for label in labels]
        known = [values.get(task) for values in others.values()]
        beside = [show(None if value is None else error_in(value, start)) for value in known]
        counts = seeds_of([len(values) for values in errors.values()])
        rows.append([name, *cells, counts, against_rivals(means), *beside])
    note = f"{caption(chosen)}; mean ± standard deviation where there are several seeds."
    return f"{note}\n\n{Table(heads, 'l' + 'r' * (len(heads) - 1), rows).markdown()}\n"
