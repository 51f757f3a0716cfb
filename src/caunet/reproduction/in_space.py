"""The table of the paper's next step: the networks at their best on tasks of volumes, recipe ``space``.

Beside the networks stand predictors that have learned nothing, which ``python -m benchmarks.space`` measures on the
same test pairs.
"""

import statistics
from collections.abc import Mapping, Sequence

from caunet.reproduction.best import against_rivals, errors_of, figure_of, lowest, size_of
from caunet.reproduction.recipes import SPACE_SIZES, SPACE_TASKS
from caunet.reproduction.tables import Result, caption, show
from caunet.tables import Cell, Table, bold

__all__ = ["NAMES", "space_markdown"]

NAMES = {
    "translation3": "Translation, ±3 voxels",
    "rotation3": "Rotation, three angles of ±30°",
    "scaling3": "Scaling, three factors of 0.5 to 2",
    "affine3": "Affine, nine entries of ±0.3",
}
_HEADS = {"ctn": "CTN", "bln": "BLN", "can": "CAN", "can-wide3": "CAN-wide"}
Baselines = Mapping[str, Mapping[str, float | None]]


def space_markdown(results: Sequence[Result], baselines: Baselines | None = None) -> str:
    """The table in Markdown, the lowest error of a row in bold; empty when nothing was run.

    ``baselines``: parameter errors by name and task, shown behind the networks, never in bold.
    """
    chosen = [result for result in results if result["recipe"] == "space"]
    if not chosen:
        return ""
    labels = [label for labels in SPACE_SIZES.values() for label in labels]
    others = baselines or {}
    heads = [
        "Parameter error",
        *(f"{_HEADS[label]}{size_of(chosen, label)}" for label in labels),
        "CAN / best rival",
        *others,
    ]
    rows: list[list[str | Cell]] = []
    for task in SPACE_TASKS:
        errors = {label: errors_of(chosen, task, "text", label) for label in labels}
        means = {label: statistics.fmean(values) for label, values in errors.items() if values}
        if not means:
            continue
        cells = [bold(figure_of(errors[label]), label in lowest(means)) for label in labels]
        beside = [show(values.get(task)) for values in others.values()]
        rows.append([NAMES[task], *cells, against_rivals(means), *beside])
    note = f"{caption(chosen)}; mean ± standard deviation where there are several seeds."
    return f"{note}\n\n{Table(heads, 'l' + 'r' * (len(heads) - 1), rows).markdown()}\n"
