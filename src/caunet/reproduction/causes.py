"""What makes the paper's ranking: tables of the recipes ``ablation`` and ``initialization``.

A run of ``written`` or ``released`` that is longer passes through the same updates, and its curve says what it had
learned by then: nothing is trained twice. All errors are therefore of the same 10,000 test pairs.
"""

import statistics
from collections.abc import Sequence

from caunet.reproduction.baseline_results import BASELINES, matching
from caunet.reproduction.best import figure_of
from caunet.reproduction.recipes import CLAIM_TASKS, INITIALIZATIONS, INITIALIZED_TASKS, MODELS
from caunet.reproduction.tables import Result, seeds_of, show, show_ratio
from caunet.tables import Cell, Table, bold

_WITHOUT = {"mean": "always the mean", "search": "exhaustive search"}

__all__ = ["ablation_markdown", "error_after", "initialization_markdown"]

CHANGES = {
    "pairs": "the authors' pairs",
    "order": "contiguous batches",
    "bias": "no biases in BLN and CAN",
    "reset": "Adam reset at each update",
}


def error_after(result: Result, updates: int) -> float | None:
    """The parameter error on test pairs after ``updates`` updates; None where the run was not tested then.

    >>> error_after({"curve": {"test": [[2000, 0.9], [4000, 0.5]]}}, 4000)
    0.5
    """
    for step, error in result["curve"]["test"]:
        if step == updates:
            return float(error)
    return None


def ablation_markdown(results: Sequence[Result]) -> str:
    """One row for each change, between what is written and what was released; empty when nothing was run."""
    chosen = [result for result in results if result["recipe"] == "ablation"]
    if not chosen:
        return ""
    updates = max(result["updates"] for result in chosen)
    rows: list[list[str | Cell]] = [_row("as written", results, "written", "", updates)]
    rows += [_row(text, results, "ablation", f"-{name}", updates) for name, text in CHANGES.items()]
    rows += [_row("all four: as released", results, "released", "", updates)]
    heads = ["Changed"]
    for task in CLAIM_TASKS:
        heads += [f"{task.capitalize()}, {name}" for name in (*(m.upper() for m in MODELS), *BASELINES)]
    heads.append("seeds")
    table = Table(heads, "l" + "r" * (len(heads) - 1), rows).markdown()
    return f"{_about(chosen, updates)} The best network of a row and task in bold.\n\n{table}\n"


def _row(text: str, results: Sequence[Result], recipe: str, suffix: str, updates: int) -> list[str | Cell]:
    cells: list[str | Cell] = [text]
    counts = []
    for task in CLAIM_TASKS:
        found = {}
        for model in MODELS:
            # CTN has its biases in both recipes: there it is the network as written.
            kept = (model, suffix) == ("ctn", "-bias")
            wanted = ("written", task, model) if kept else (recipe, task, model + suffix)
            found[model] = [r for r in results if _is(r, *wanted)]
        errors = {model: _errors(runs, updates) for model, runs in found.items()}
        means = {model: statistics.fmean(values) for model, values in errors.items() if values}
        least = min(means.values(), default=0.0)
        for model in MODELS:
            best = len(means) > 1 and means.get(model) == least
            cells.append(bold(_figure(errors[model], found[model], updates), best))
        counts += [len(values) for values in errors.values()]
        known = matching([run for runs in found.values() for run in runs], "parameter_error")
        cells += [show(known.get(name)) for name in BASELINES]
    return [*cells, seeds_of(counts)]


def initialization_markdown(results: Sequence[Result]) -> str:
    """CTN as released from other first weights: errors, and how many times those of the default."""
    chosen = [result for result in results if result["recipe"] == "initialization"]
    if not chosen:
        return ""
    updates = max(result["updates"] for result in chosen)
    rows: list[list[str | Cell]] = []
    learned_nothing: dict[str, list[str | Cell]] = {name: [told] for name, told in _WITHOUT.items()}
    plain = {task: [r for r in results if _is(r, "released", task, "ctn")] for task in INITIALIZED_TASKS}
    for name in ("fan-in", *INITIALIZATIONS):
        row: list[str | Cell] = [name]
        counts = []
        for task in INITIALIZED_TASKS:
            runs = (
                plain[task]
                if name == "fan-in"
                else [r for r in chosen if _is(r, "initialization", task, f"ctn-{name}")]
            )
            errors, reference = _errors(runs, updates), _errors(plain[task], updates)
            ratio = statistics.fmean(errors) / statistics.fmean(reference) if errors and reference else None
            row += [_figure(errors, runs, updates), show_ratio(ratio)]
            counts.append(len(errors))
        rows.append([*row, seeds_of(counts)])
    for task in INITIALIZED_TASKS:
        known = matching(plain[task], "parameter_error")
        for name, told in learned_nothing.items():
            told += [show(known.get(name)), ""]
    rows += [[*told, ""] for told in learned_nothing.values()]
    heads = ["First weights", *(head for task in INITIALIZED_TASKS for head in (task.capitalize(), "ratio"))]
    heads.append("seeds")
    table = Table(heads, "l" + "r" * (len(heads) - 1), rows).markdown()
    return f"{_about(chosen, updates)}\n\n{table}\n"


def _is(result: Result, recipe: str, task: str, model: str) -> bool:
    return (result["recipe"], result["task"], result["model"]) == (recipe, task, model)


def _errors(results: Sequence[Result], updates: int) -> list[float]:
    return [error for r in results if (error := error_after(r, updates)) is not None]


def _figure(errors: Sequence[float], runs: Sequence[Result], updates: int) -> str:
    diverged = sum(run.get("diverged_at", updates + 1) <= updates for run in runs)
    told = [figure_of(errors)] if errors or not diverged else []
    return " and ".join([*told, *([f"{diverged} diverged"] if diverged else [])])


def _about(chosen: Sequence[Result], updates: int) -> str:
    data = ", ".join(sorted({result["data"] for result in chosen}))
    seeds = len({result["seed"] for result in chosen})
    return (
        f"{data}, {updates:,} updates, {seeds} seed{'s' if seeds > 1 else ''}. "
        "Parameter error on 10,000 test pairs; mean ± standard deviation where there are several seeds."
    )
