"""Table of the recipes ``range`` and ``corners``: projective networks under other losses than the paper's."""

import itertools
import statistics
from collections.abc import Sequence

from caunet.reproduction.baseline_results import matching
from caunet.reproduction.best import figure_of
from caunet.reproduction.recipes import MODELS
from caunet.reproduction.tables import Result, caption, show
from caunet.tables import Table

__all__ = ["losses_markdown"]

_LOSSES = {"best": "of z", "range": "in ranges", "corners": "of corners"}


def losses_markdown(results: Sequence[Result]) -> str:
    """Projective networks under the paper's loss and others: error and R² of each parameter."""
    chosen = [
        result
        for result in results
        if result["recipe"] in _LOSSES and result["task"] == "projective" and result["model"] in MODELS
    ]
    told = next((result for result in chosen if result["recipe"] != "best"), None)
    if told is None:
        return ""
    each, known = told["per_parameter"], matching(chosen, "parameter_error")
    rows = []
    for (recipe, loss), model in itertools.product(_LOSSES.items(), MODELS):
        same = [result for result in chosen if (result["recipe"], result["model"]) == (recipe, model)]
        if not same:
            continue
        rows.append(
            [
                loss,
                model.upper(),
                *(_with_r2(same, name) for name in each),
                figure_of([result["parameter_error"] for result in same]),
                f"{statistics.fmean(result['corner_error'] for result in same):.3f}",
                str(len(same)),
            ]
        )
    means = [f"{show(one.get('error_of_mean'))} (0)" for one in each.values()]
    rows.append(["", "always the mean", *means, show(known.get("mean")), "–", ""])
    rows.append(["", "exhaustive search", *("–" for _ in each), show(known.get("search")), "–", ""])
    heads = ["Loss", "", *each, "parameter error", "corner error (px)", "seeds"]
    table = Table(heads, "ll" + "r" * (len(heads) - 2), rows).markdown()
    return f"{caption(chosen)}.\n\n{table}\n"


def _with_r2(results: Sequence[Result], parameter: str) -> str:
    """Means over seeds of a parameter's error and of R² (no negative zero); – where a run has not kept them."""
    if any("per_parameter" not in result for result in results):
        return "–"
    each = [result["per_parameter"][parameter] for result in results]
    error, r2 = (statistics.fmean(one[key] for one in each) for key in ("error", "r2"))
    return f"{show(error)} ({round(r2, 3) + 0.0:.3f})"
