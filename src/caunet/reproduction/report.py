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
from typing import Any

from caunet.extras import require
from caunet.files import write_text
from caunet.reproduction import figures
from caunet.reproduction.claims import OFFSET, judge
from caunet.reproduction.recipes import CLAIM_TASKS, MODELS, Cell
from caunet.reproduction.tables import HEADINGS, LONG, MEASURES, Result, caption, make_table, show, show_ratio

__all__ = ["write_report"]


@dataclass
class _Picture:
    """A figure ready for the page."""

    markup: str
    title: str
    text: str


@dataclass
class _Section:
    """What the page shows of one recipe."""

    name: str
    heading: str
    caption: str
    tables: list[Any]
    parameters: list[list[str]] = field(default_factory=list)
    overview: list[_Picture] = field(default_factory=list)
    inside: list[tuple[str, list[_Picture]]] = field(default_factory=list)


def write_report(
    cells: Sequence[Cell], results: Sequence[Result], out: Path, folder: Path | None = None
) -> Path:
    """Write index.html and its figures, from finished cells, into ``out``/report; returns the page's path.

    Args:
        cells: the grid (their runs under ``out`` hold the trained networks).
        results: what :func:`caunet.reproduction.results.collect` gave for them.
        out: the folder of the runs.
        folder: where to write instead.
    """
    folder = folder or out / "report"
    with figures.drawing():
        sections = [_section(recipe, cells, results, out, folder) for recipe in _recipes(results)]
    page = _render(
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
    recipe: str, cells: Sequence[Cell], results: Sequence[Result], out: Path, folder: Path
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
        for seed in sorted({cell.config.seed for cell in mine}):  # of the first seed whose networks are here
            same = {c.label: c for c in mine if (c.config.task, c.config.seed) == (task, seed)}
            if pictures := _inside(recipe, task, same, out, folder):
                section.inside.append((task, pictures))
                break
    return section


def _parameters(results: Sequence[Result]) -> list[list[str]]:
    """Task, parameter, and for each network its error and R², of seed 0; tasks of one parameter are in the tables."""
    rows = []
    for task in figures.tasks_of(results):
        mine = {
            r["model"]: r.get("per_parameter", {}) for r in results if r["task"] == task and r["seed"] == 0
        }
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


def _inside(recipe: str, task: str, cells: dict[str, Cell], out: Path, folder: Path) -> list[_Picture]:
    """Pairs with predictions for all networks, and for CAN its units and what they prefer."""
    from caunet.data import PairSource, load_images
    from caunet.models import load_weights
    from caunet.reproduction import unit_figures

    weights = {name: out / cell.name / "weights.safetensors" for name, cell in cells.items()}
    models = {name: load_weights(path).eval() for name, path in weights.items() if path.exists()}
    if not models:
        return []
    config = next(iter(cells.values())).config
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
    environment.filters |= {"show": show, "ratio": show_ratio}
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
        "--runs", type=Path, default=Path("runs"), help="folder of the runs, if they are here"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write index.html and figures into")
    options = parser.parse_args(arguments)
    recipes = (*HEADINGS, "claims", "control")
    results = [result for result in load(options.results) if result["recipe"] in recipes]
    most = max((result["seed"] for result in results), default=0) + 1
    grid = cells(("released", "written"), seeds=most, updates=LONG)
    sys.stdout.write(f"{write_report(grid, results, options.runs, options.out)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
