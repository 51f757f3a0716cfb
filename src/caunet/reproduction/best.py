"""The table "at their best": three networks, two sizes, six rows; made from results of the recipe ``best``."""

import statistics
from collections.abc import Mapping, Sequence

from caunet.reproduction.baseline_results import BASELINES, matching
from caunet.reproduction.recipes import HIGHER_RANK, SIZES
from caunet.reproduction.tables import Result, caption, seeds_of, show, show_ratio
from caunet.tables import Cell, Table, bold

__all__ = ["ROWS", "against_rivals", "best_markdown", "errors_of", "figure_of", "lowest", "size_of"]

# (task, protocol) -> what the row is called
ROWS = {
    ("translation", "release"): "Translation, integers",
    ("translation", "text"): "Translation",
    ("rotation", "text"): "Rotation",
    ("scaling", "text"): "Scaling",
    ("affine", "text"): "Affine",
    ("projective", "text"): "Projective",
}
CLASSES = {
    "Table I's layers": ("ctn", "bln", "can"),
    "Equal parameters": tuple(labels[-1] for labels in SIZES.values()),
}


def best_markdown(results: Sequence[Result]) -> str:
    """Both tables in Markdown, the lowest error of a row in bold; empty when nothing was run."""
    chosen = [result for result in results if result["recipe"] == "best"]
    if not chosen:
        return ""
    parts = [f"{caption(chosen)}. Parameter error; mean ± standard deviation where there are several seeds."]
    run = {result["model"] for result in chosen}  # a class without its CAN compares nothing
    parts += [
        f"*{title}*\n\n{_table(chosen, labels)}" for title, labels in CLASSES.items() if labels[-1] in run
    ]
    higher = _higher_rank(chosen)
    return "\n\n".join([*parts, higher] if higher else parts) + "\n"


def _table(results: Sequence[Result], labels: Sequence[str]) -> str:
    sizes = {label: size_of(results, label) for label in labels}
    heads = [
        "Task",
        *(f"{label.partition('-')[0].upper()}{sizes[label]}" for label in labels),
        "seeds",
        "CAN / best rival",
        *BASELINES,
    ]
    rows: list[list[str | Cell]] = []
    for (task, protocol), name in ROWS.items():
        errors = {label: errors_of(results, task, protocol, label) for label in labels}
        if not any(errors.values()):
            continue
        means = {label: statistics.fmean(values) for label, values in errors.items() if values}
        best = lowest(means)
        cells: list[str | Cell] = [bold(figure_of(errors[label]), label in best) for label in labels]
        same = [r for r in results if (r["task"], r["protocol"]) == (task, protocol)]
        known = matching(same, "parameter_error")
        cells += [seeds_of([len(values) for values in errors.values()]), against_rivals(means)]
        rows.append([name, *cells, *(show(known.get(one)) for one in BASELINES)])
    return Table(heads, "l" + "r" * (len(heads) - 1), rows).markdown()


def lowest(means: Mapping[str, float]) -> list[str]:
    """Who has the lowest error in the digits shown; nobody where one is alone.

    >>> lowest({"ctn": 0.5, "can": 0.1001, "can-wide": 0.1})
    ['can', 'can-wide']
    """
    least = show(min(means.values()))
    return [label for label in means if len(means) > 1 and show(means[label]) == least]


def against_rivals(means: Mapping[str, float]) -> str:
    """The error of CAN over that of the best network that is none.

    >>> against_rivals({"ctn": 0.5, "bln": 0.8, "can": 0.1})
    '0.20×'
    """
    can = [mean for label, mean in means.items() if label.startswith("can")]
    rivals = [mean for label, mean in means.items() if not label.startswith("can")]
    return show_ratio(can[0] / min(rivals)) if can and rivals else "–"


def _higher_rank(results: Sequence[Result]) -> str:
    """What a larger rank brings on translation, and what it costs."""
    found = []
    for (task, protocol), name in ROWS.items():
        if values := errors_of(results, task, protocol, HIGHER_RANK):
            found.append(f"{name.lower()} {figure_of(values)}")
    if not found:
        return ""
    size = size_of(results, HIGHER_RANK).strip(" ()")
    return f"CAN with rank 16 instead of 4 ({size} parameters): {'; '.join(found)}."


def errors_of(results: Sequence[Result], task: str, protocol: str, label: str) -> list[float]:
    """The parameter errors of a network on a task, one for each seed."""
    same = [r for r in results if (r["task"], r["protocol"], r["model"]) == (task, protocol, label)]
    return [r["parameter_error"] for r in same]


def size_of(results: Sequence[Result], label: str) -> str:
    """The size of a network in thousands, over its tasks: " (331k)"."""
    found = sorted({round(r["parameters"] / 1000) for r in results if r["model"] == label})
    return f" ({found[0]}k)" if found else ""


def figure_of(values: Sequence[float]) -> str:
    """The mean, and the standard deviation where there are several.

    >>> figure_of([0.5]), figure_of([0.5, 0.7]), figure_of([])
    ('0.500', '0.600 ± 0.141', '–')
    """
    if not values:
        return "–"
    text = show(statistics.fmean(values))
    return f"{text} ± {show(statistics.stdev(values))}" if len(values) > 1 else text
