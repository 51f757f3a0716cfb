"""Tables II and III: ours, the paper's, and the ratio; for a terminal, for Markdown, for the report.

``python -m caunet.reproduction.tables results docs/reproduction.md`` rewrites what stands between
``<!-- results:begin -->`` and ``<!-- results:end -->`` in those files.

>>> show(0.0489), show(3.518), show(147.2), show(0.00123)
('0.049', '3.52', '147', '0.0012')
"""

import math
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from caunet.errors import DataError
from caunet.files import write_text
from caunet.reproduction.recipes import MODELS, TASKS
from caunet.tables import Cell, Table, bold

__all__ = [
    "HEADINGS",
    "LONG",
    "MEASURES",
    "Entry",
    "ErrorTable",
    "caption",
    "fill",
    "layout",
    "make_table",
    "markdown",
    "paper",
    "seeds_of",
    "show",
    "summary",
]

MEASURES = ("parameter_error", "transformation_error")

Result = Mapping[str, Any]


@cache
def paper() -> dict[str, Any]:
    """Tables II and III as printed: measure -> task -> network -> error.

    >>> paper()["parameter_error"]["rotation"]["can"]
    3.518
    """
    return tomllib.loads(files("caunet.reproduction").joinpath("paper_tables.toml").read_text())


@dataclass(frozen=True)
class Entry:
    """One network on one task: our mean over seeds, its spread, the paper's figure (or ``None``)."""

    ours: float | None
    spread: float | None
    paper: float | None
    best: bool = False
    seeds: int = 0
    """How many runs are in the mean."""
    diverged: int = 0
    """How many runs diverged: they are in no mean."""

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's: below 1 is better than the paper."""
        return None if self.ours is None or not self.paper else self.ours / self.paper


@dataclass(frozen=True)
class ErrorTable:
    """One of the two tables: ``rows[task][model]``."""

    title: str
    rows: Mapping[str, Mapping[str, Entry]]
    baselines: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """What predictors that have learned nothing make of the same test pairs: ``baselines[task][name]``."""

    @property
    def baseline_names(self) -> list[str]:
        """What stands in the last columns."""
        return list(next(iter(self.baselines.values()), {}))

    @property
    def comparable(self) -> bool:
        """Whether the paper's figures stand beside ours."""
        return any(entry.paper is not None for row in self.rows.values() for entry in row.values())


def make_table(
    results: Sequence[Result], measure: str, baselines: Sequence[Result] | None = None
) -> ErrorTable:
    """The table of ``measure`` from results of one recipe; rows are its tasks in the paper's order.

    The paper's figures are beside them where images and length are the paper's (:func:`is_the_papers`). ``baselines``
    are those that come with the package if not given (:mod:`caunet.reproduction.baseline_results`).
    """
    if measure not in MEASURES:
        raise ValueError(f"measure must be {' or '.join(MEASURES)}, got {measure!r}")
    from caunet.reproduction.baseline_results import BASELINES, matching

    printed = paper()[measure]
    mine = [result for result in results if result["model"] in MODELS]
    found = {result["task"] for result in mine}
    tasks = [task for task in TASKS if task in found] + sorted(found - set(TASKS))
    known = {
        task: printed.get(task, {}) if all(is_the_papers(r) for r in mine if r["task"] == task) else {}
        for task in tasks
    }
    rows = {task: _row(mine, measure, task, known[task]) for task in tasks}
    others = {task: matching([r for r in mine if r["task"] == task], measure, baselines) for task in tasks}
    beside = {task: {name: row.get(name) for name in BASELINES} for task, row in others.items()}
    title = f"Table {printed['table']}. {printed['title']}" if any(known.values()) else printed["title"]
    return ErrorTable(title, rows, beside if any(others.values()) else {})


# The paper's schedule has all but stopped after this many of its 200,000 updates (docs/reproduction.md).
LONG = 60_000


def is_the_papers(result: Result) -> bool:
    """Whether a run has the paper's images and, in effect, its length: only then are its figures beside ours."""
    config = result.get("config", {})
    compressed = config.get("decay_every", 500) != 500 or config.get("schedule", "step") != "step"
    return result.get("data") == "cifar10" and result["updates"] >= LONG and not compressed


def _row(
    results: Sequence[Result], measure: str, task: str, printed: Mapping[str, float]
) -> dict[str, Entry]:
    ours: dict[str, list[float]] = {}
    for model in MODELS:
        same = [r for r in results if r["task"] == task and r["model"] == model]
        ours[model] = [r[measure] for r in same if r[measure] is not None]
    means = {model: statistics.fmean(values) for model, values in ours.items() if values}
    lowest = min(means.values(), default=math.nan)
    return {
        model: Entry(
            ours=means.get(model),
            spread=statistics.stdev(ours[model]) if len(ours[model]) > 1 else None,
            paper=printed.get(model),
            # As the paper does, a tie in the digits shown makes both bold. Alone in its row nobody is best.
            best=len(means) > 1 and model in means and show(means[model]) == show(lowest),
            seeds=len(ours[model]),
            diverged=sum(
                r[measure] is None and "diverged_at" in r
                for r in results
                if r["task"] == task and r["model"] == model
            ),
        )
        for model in MODELS
    }


def show(value: float | None) -> str:
    """Three figures, as in the paper: never more than three decimals unless they would be zeros."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:.0f}"
    if value >= 1:
        return f"{value:.2f}" if value < 10 else f"{value:.1f}"
    if value >= 0.01 or value == 0:
        return f"{value:.3f}"
    return f"{value:.4f}" if value >= 1e-3 else f"{value:.1e}"


def show_ratio(ratio: float | None) -> str:
    """A ratio with its sign of multiplication.

    >>> show_ratio(0.5), show_ratio(12.3)
    ('0.50×', '12×')
    """
    if ratio is None:
        return "–"
    return f"{ratio:.2f}×" if ratio < 9.995 else f"{ratio:.0f}×"


def seeds_of(counts: Sequence[int]) -> str:
    """How many runs are in each mean of a row: one number, or one for each where they differ.

    >>> seeds_of([3, 3, 3]), seeds_of([2, 1, 2]), seeds_of([1, 0])
    ('3', '2, 1, 2', '1, –')
    """
    told = [str(count or "–") for count in counts]
    return told[0] if len(set(told)) == 1 else ", ".join(told)


def _ours(entry: Entry) -> str:
    spread = f" ± {show(entry.spread)}" if entry.spread is not None else ""
    return show(entry.ours) + spread + (f" ({entry.diverged} diverged)" if entry.diverged else "")


def layout(table: ErrorTable, note: str = "", narrow: bool = False) -> Table:
    """The table as it is written: ours, the paper's, the ratio; best of ours in bold; what has learned nothing.

    ``narrow`` puts the latter into the caption, for 80 characters, and leaves out how many seeds there are.
    """
    beside = ("paper", "ratio") if table.comparable else ()
    names = table.baseline_names
    if narrow and names:
        told = [
            f"{task} "
            + ", ".join(f"{name} {show(value)}" for name, value in row.items() if value is not None)
            for task, row in table.baselines.items()
        ]
        note, names = f"{note}. Without learning: {'; '.join(told)}", []
    heads = ["Task", *(head for m in MODELS for head in (m.upper(), *beside))]
    heads += names if narrow else ["seeds", *names]
    rows = []
    for task, row in table.rows.items():
        cells = [Cell(task.capitalize())]
        for entry in row.values():
            printed = "–" if entry.paper is None else f"{entry.paper:.3f}"
            ratio = Cell(show_ratio(entry.ratio), style=_color(entry.ratio))
            cells += [
                bold(_ours(entry), entry.best),
                *((Cell(printed, style="dim"), ratio) if beside else ()),
            ]
        if not narrow:
            cells.append(Cell(seeds_of([entry.seeds for entry in row.values()]), style="dim"))
        cells += [Cell(show(table.baselines[task][name]), style="dim") for name in names]
        rows.append(cells)
    return Table(heads, "l" + "r" * (len(heads) - 1), rows, title=table.title, caption=note)


def markdown(table: ErrorTable) -> str:
    """The table in Markdown, below its title."""
    return f"*{table.title}*\n\n{layout(table).markdown()}\n"


def _color(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return "green" if ratio <= 1.1 else "yellow" if ratio <= 2 else "red"


def caption(results: Sequence[Result]) -> str:
    """What the numbers are of: data, protocol, updates, seeds.

    >>> caption([{"data": "cifar10", "protocol": "text", "updates": 60000, "seed": 0, "pairs": "fixed"}])
    'cifar10, text protocol, fixed pairs, 60,000 updates, 1 seed'

    Where some cells have fewer seeds than others, both numbers are given.
    """

    def values(name: str) -> str:
        return ", ".join(sorted({str(result.get(name, "?")) for result in results}))

    updates = ", ".join(f"{count:,}" for count in sorted({result["updates"] for result in results}))
    cells = Counter(
        tuple(result.get(key) for key in ("recipe", "task", "protocol", "model")) for result in results
    )
    fewest, most = min(cells.values()), max(cells.values())
    seeds = f"{most} seed{'s' if most > 1 else ''}" if fewest == most else f"{fewest} to {most} seeds"
    protocol = f"{values('protocol')} protocol, {values('pairs')} pairs"
    return f"{values('data')}, {protocol}, {updates} updates, {seeds}"


HEADINGS = {
    "released": "As released: the authors' data, Adam reset at each update, no biases in BLN and CAN",
    "written": "As written: the paper's text, true Adam",
    "demo": "At their best: fresh pairs, equal contrast, the combined learning rule for CAN",
}


def document(results: Sequence[Result]) -> str:
    """Everything generated, in Markdown: both tables of both recipes, the claims, the control."""
    from caunet.reproduction.claims import claims_markdown, control_markdown

    parts = []
    for recipe, heading in HEADINGS.items():
        chosen = [result for result in results if result["recipe"] == recipe]
        if chosen:
            tables = [markdown(make_table(chosen, measure)) for measure in MEASURES]
            parts.append(f"#### {heading}\n\n{caption(chosen)}.\n\n" + "\n".join(tables))
    parts += [text for text in (claims_markdown(results), control_markdown(results)) if text]
    return "\n".join(parts)


def summary(results: Sequence[Result]) -> str:
    """Table II as released, in one line a task: ours beside the paper's, for a first look."""
    chosen = [result for result in results if result["recipe"] == "released"]
    if not chosen:
        return ""
    table = make_table(chosen, "parameter_error")
    names = table.baseline_names
    heads = [
        "Parameter error",
        *(m.upper() for m in MODELS),
        "seeds",
        *(f"{m.upper()}, paper" for m in MODELS),
        *names,
    ]
    rows: list[list[str | Cell]] = [
        [
            task.capitalize(),
            *(bold(_ours(entry), entry.best) for entry in row.values()),
            seeds_of([entry.seeds for entry in row.values()]),
            *("–" if entry.paper is None else f"{entry.paper:.3f}" for entry in row.values()),
            *(show(table.baselines[task][name]) for name in names),
        ]
        for task, row in table.rows.items()
    ]
    return f"{caption(chosen)}.\n\n{Table(heads, 'l' + 'r' * (len(heads) - 1), rows).markdown()}"


def fill(path: Path, text: str, section: str = "results") -> bool:
    """Put ``text`` between the markers of ``section`` in ``path``; whether that changed anything."""
    before = path.read_text(encoding="utf-8")
    first, last = _marker(section), f"<!-- {section}:end -->"
    head, begin, rest = before.partition(first)
    _, end, tail = rest.partition(last)
    if not begin or not end:
        raise DataError(f"{path} lacks the markers {first} and {last}; put them where the tables shall stand")
    after = f"{head}{begin}\n\n{text.strip()}\n\n{end}{tail}"
    if after != before:
        write_text(path, after)
    return after != before


def main(arguments: Sequence[str]) -> int:
    """``python -m caunet.reproduction.tables [RESULTS [FILE...]]``; by default what is committed."""
    from caunet.reproduction.best import best_markdown
    from caunet.reproduction.causes import ablation_markdown, initialization_markdown
    from caunet.reproduction.losses import losses_markdown
    from caunet.reproduction.results import load
    from caunet.reproduction.sparse import sparse_markdown

    folder, *names = arguments or ["results"]
    found = load(Path(folder))
    made = {
        "results": document(found),
        "paper": summary(found),
        "best": best_markdown(found),
        "sparse": sparse_markdown(found),
        "losses": losses_markdown(found),
        "ablation": ablation_markdown(found),
        "initialization": initialization_markdown(found),
    }
    for name in names or ["docs/reproduction.md", "docs/learning-rule.md", "README.md"]:
        path = Path(name)
        marked = [section for section in made if _marker(section) in path.read_text("utf-8")]
        changed = [fill(path, made[section], section) for section in marked or ["results"]]
        sys.stdout.write(f"{name} {'updated' if any(changed) else 'was up to date'}\n")
    return 0


def _marker(section: str) -> str:
    return f"<!-- {section}:begin -->"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
