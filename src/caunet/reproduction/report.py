"""The report: one HTML file that carries everything, and the same figures as PNG and SVG beside it.

``caunet reproduce --report`` writes it of its runs; ``python -m caunet.reproduction.report --out DIR`` of what is
committed in results/, with figures of networks where ``--runs`` has them.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from caunet.extras import require
from caunet.files import write_text
from caunet.reproduction import figures
from caunet.reproduction.claims import OFFSET, judge
from caunet.reproduction.recipes import CLAIM_TASKS, MODELS, Cell
from caunet.reproduction.results import finished
from caunet.reproduction.tables import (
    HEADINGS,
    LONG,
    MEASURES,
    Result,
    caption,
    make_table,
    seeds_of,
    show,
    show_ratio,
)
from caunet.training import TrainConfig

__all__ = ["write_report"]

_SEEDS = 10  # of which runs are looked for


@dataclass
class _Picture:
    """A figure ready for the page."""

    markup: str
    title: str
    text: str


@dataclass
class _Inside:
    """Pictures of the networks of one task, and the seed that they were trained with."""

    task: str
    seed: int
    pictures: list[_Picture]


@dataclass
class _Section:
    """What the page shows of one recipe."""

    name: str
    heading: str
    caption: str
    tables: list[Any]
    parameters: list[list[str]] = field(default_factory=list)
    overview: list[_Picture] = field(default_factory=list)
    inside: list[_Inside] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """Tasks whose trained networks are not at hand."""


def write_report(
    cells: Sequence[Cell],
    results: Sequence[Result],
    out: Path,
    folder: Path | None = None,
    more: Sequence[Path] = (),
) -> Path:
    """Write index.html and its figures, from finished cells, into ``out``/report; returns the page's path.

    Args:
        cells: the grid (their runs under ``out`` hold the trained networks).
        results: what :func:`caunet.reproduction.results.collect` gave for them.
        out: the folder of the runs.
        folder: where to write instead.
        more: other folders in which runs may be.
    """
    folder, places = folder or out / "report", (out, *more)
    with figures.drawing():
        sections = [_section(recipe, cells, results, places, folder) for recipe in _recipes(results)]
    page = _render(
        title="three networks compared"
        if _recipes(results) == ["demo"]
        else "the paper's tables, trained again",
        sections=sections,
        findings=judge(results),
        claim_caption=caption([r for r in results if r["recipe"] == "claims"] or results),
        claim_tasks=CLAIM_TASKS,
        offset=OFFSET,
        controls=[r for r in results if r["recipe"] == "control"],
        highlights=_highlights(results),
        provenance=_provenance(results),
        models=MODELS,
    )
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _recipes(results: Sequence[Result]) -> list[str]:
    found = {result["recipe"] for result in results}
    return [recipe for recipe in HEADINGS if recipe in found]


def _section(
    recipe: str, cells: Sequence[Cell], results: Sequence[Result], places: Sequence[Path], folder: Path
) -> _Section:
    chosen = [result for result in results if result["recipe"] == recipe]
    tables = [make_table(chosen, measure) for measure in MEASURES]
    section = _Section(recipe, HEADINGS[recipe], caption(chosen), tables)
    section.parameters = _parameters(chosen)
    section.overview = [
        _picture(
            figures.curves(chosen),
            folder,
            f"{recipe}-curves",
            "Learning curves",
            "Parameter error on test pairs while training"
            + ("; dashed: where the paper ended." if tables[0].comparable else "."),
        ),
        _picture(
            figures.histograms(chosen),
            folder,
            f"{recipe}-histograms",
            "Errors, pair by pair",
            "How far the patch's corners land from where they should, over all test pairs.",
        ),
    ]
    mine = [cell for cell in cells if cell.recipe == recipe]
    for task in figures.tasks_of(chosen):
        found = _at_hand([cell for cell in mine if cell.config.task == task], places)
        if found is None:
            section.absent.append(task)
        else:
            section.inside.append(_Inside(task, found.seed, _inside(recipe, found, folder)))
    return section


class _Networks(NamedTuple):
    """Networks of one task and one seed that are at hand."""

    seed: int
    config: TrainConfig
    weights: dict[str, Path]


def _at_hand(cells: Sequence[Cell], places: Sequence[Path]) -> _Networks | None:
    """The seed of which most is at hand, CAN before all: units are its. None if nothing is."""
    best: _Networks | None = None
    for seed in sorted({cell.config.seed for cell in cells}):
        same = [cell for cell in cells if cell.config.seed == seed]
        found = {cell.label: path for cell in same if (path := _weights(cell, places)) is not None}
        if found and (best is None or _worth(found) > _worth(best.weights)):
            best = _Networks(seed, same[0].config, found)
    return best


def _worth(weights: dict[str, Path]) -> tuple[bool, int]:
    return "can" in weights, len(weights)


def _weights(cell: Cell, places: Sequence[Path]) -> Path | None:
    """The weights of a finished run of exactly this cell."""
    for place in places:
        path = place / cell.name / "weights.safetensors"
        if path.exists() and finished(cell, path.parent):
            return path
    return None


def _parameters(results: Sequence[Result]) -> list[list[str]]:
    """Task, parameter, and for each network its error and R², of the first seed that has them; tasks of one parameter
    are in the tables."""
    rows = []
    for task in figures.tasks_of(results):
        mine: dict[str, Any] = {}
        for r in sorted(results, key=lambda r: int(r["seed"])):
            if r["task"] == task and r.get("per_parameter"):
                mine.setdefault(r["model"], r["per_parameter"])
        names = list(next((each for each in mine.values() if each), {}))
        for name in names if len(names) > 1 else ():
            found = [mine.get(model, {}).get(name) for model in MODELS]
            rows.append([task.capitalize(), name, *(_with_r2(one) for one in found)])
    return rows


def _with_r2(one: Any) -> str:
    if not one:
        return "–"
    return show(one["error"]) + ("" if one["r2"] is None else f" ({one['r2']:.3f})")


def _picture(figure: Any, folder: Path, name: str, title: str, text: str) -> _Picture:
    drawn = figures.draw(figure, name)
    drawn.save(folder / "figures")
    return _Picture(drawn.element(f"{title}: {text}"), title, text)


def _inside(recipe: str, found: _Networks, folder: Path) -> list[_Picture]:
    """Pairs with predictions for all networks, and for CAN its units and what they prefer."""
    from caunet.data import PairSource, load_images
    from caunet.models import load_weights
    from caunet.reproduction import unit_figures

    models = {name: load_weights(path).eval() for name, path in found.weights.items()}
    config, task = found.config, found.config.task
    images = load_images(config.data, split=config.test_split, skip_bad=config.skip_bad)
    source = PairSource(
        images, task, config.protocol, patch=config.patch, pairs="fresh", per_image=config.per_image
    )
    name = f"{recipe}-{task}"
    pictures = [
        _picture(
            unit_figures.samples(models, source),
            folder,
            f"{name}-pairs",
            "Test pairs and what the networks make of them",
            "A square of x, carried into y by the true transformation and by each network's. Below: z.",
        )
    ]
    can = models.get("can")
    if can is None or not can.model_spec.rank:
        return pictures
    tuning = unit_figures.tuning_of(can, source)
    selective = tuning.selectivity.topk(min(8, len(tuning.response))).indices.tolist()
    strongest = selective[:4]
    over = " and ".join(tuning.names)
    texts = {
        "preferences": f"CAN's most selective units over {over}: each stands for one transformation.",
        "matches": "An arrow a rank-one term, from the pixels of x that it weighs to the pixels of y.",
        "filters": "The non-negative factors of the four most selective units: each u weighs pixels of x, "
        "each v pixels of y.",
        "associations": "The same units' W: bright entries are pixels of x and y that a unit compares.",
    }
    return [
        *pictures,
        _picture(
            unit_figures.preferences(tuning),
            folder,
            f"{name}-preferences",
            "What units prefer",
            texts["preferences"],
        ),
        _picture(
            unit_figures.matches(can, selective),
            folder,
            f"{name}-matches",
            "What units compare",
            texts["matches"],
        ),
        _picture(
            unit_figures.filters(can, strongest), folder, f"{name}-filters", "u and v", texts["filters"]
        ),
        _picture(
            unit_figures.associations(can, strongest),
            folder,
            f"{name}-associations",
            "W = Σ u vᵀ",
            texts["associations"],
        ),
    ]


_TITLES = {"demo": "At their best"}


def _highlights(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The page's first lines: for each recipe, how often CAN is best and how far it is from the paper."""
    lines = []
    for recipe in _recipes(results):
        table = make_table([r for r in results if r["recipe"] == recipe], "parameter_error")
        whole = {
            task: row for task, row in table.rows.items() if all(e.ours is not None for e in row.values())
        }
        if not whole:
            continue
        won = sum(row["can"].best for row in whole.values())
        text = f"CAN is best on {won} of {len(whole)} task{'s' if len(whole) > 1 else ''}"
        ratios = [row["can"].ratio for row in whole.values() if row["can"].ratio is not None]
        if ratios:
            text += f"; its error is {show_ratio(statistics.median(ratios))} the paper's (median)"
        else:
            means = [
                {model: entry.ours or math.nan for model, entry in row.items()} for row in whole.values()
            ]
            rivals = [min(row[m] for m in MODELS if m != "can") / row["can"] for row in means]
            text += f"; the best rival's error is {show_ratio(statistics.median(rivals))} its own"
        lines.append((_TITLES.get(recipe, f"As {recipe}"), f"{text}."))
    return lines


def _provenance(results: Sequence[Result]) -> dict[str, str]:
    seconds = sum(result.get("seconds") or 0.0 for result in results)
    commits = sorted({str(result["commit"]) for result in results if result.get("commit")})
    machines = [result["environment"] for result in results if result.get("environment")]
    about = {
        "Runs": str(len(results)),
        "Training time, summed": f"{seconds / 60:.0f} min",
        "Code": ", ".join(commits),
    }
    if machines:
        about["Software"] = ", ".join(f"{name} {machines[0][name]}" for name in ("caunet", "torch", "python"))
    return about


def _render(**context: Any) -> str:
    jinja2 = require("jinja2", "report", "The report")
    template = files("caunet.reproduction").joinpath("report.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"show": show, "ratio": show_ratio, "seeds": seeds_of}
    return str(environment.from_string(template).render(**context))


def main(arguments: Sequence[str]) -> int:
    """Write the report of committed results."""
    from caunet.reproduction.recipes import cells
    from caunet.reproduction.results import load

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument(
        "--runs", type=Path, nargs="+", default=[Path("runs")], help="folders of the runs, if they are here"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write index.html and figures into")
    options = parser.parse_args(arguments)
    recipes = (*HEADINGS, "claims", "control")
    results = [result for result in load(options.results) if result["recipe"] in recipes]
    grid = cells(("released", "written"), seeds=_SEEDS, updates=LONG)
    first, *more = options.runs
    sys.stdout.write(f"{write_report(grid, results, first, options.out, more)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
