"""Tasks of volumes: what predictors without learning reach, the table, and a drawing of what units compare.

    caunet reproduce --profile best --recipe space --updates 5000 --results results     # the networks
    python -m benchmarks.space baselines                                               # what they are held against
    python -m benchmarks.space causes RUNS                                             # CAN on translation, changed
    python -m benchmarks.space tables                                                  # README.md, docs/space.md
    python -m benchmarks.space figure RUN                                              # docs/figures/space-units.png
    python -m benchmarks.space shapes                                                  # docs/figures/shapes3.png

Baselines are measured on the networks' own test pairs: the mean and the search over shifts on all of them, the searches
over grids of rotations and of scalings on 2,000, because they take long.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from benchmarks.harness import RESULTS, environment

from caunet.baselines import baselines_for
from caunet.data import PairSource, load_images, shapes3
from caunet.drawing import new_figure, save_figure
from caunet.evaluation import evaluate
from caunet.files import write_json
from caunet.models import RelationNetwork, load_weights
from caunet.provenance import commit
from caunet.reproduction.in_space import space_markdown
from caunet.reproduction.recipes import SPACE_TASKS, Cell, space
from caunet.reproduction.results import load
from caunet.reproduction.tables import fill, show
from caunet.reproduction.worker import make_trainer, run_cell
from caunet.tables import Table

ROOT = Path(__file__).parents[1]
STORED = RESULTS / "space.json"
CAUSES = RESULTS / "space_causes.json"
FIGURE = ROOT / "docs" / "figures" / "space-units.png"
SHAPES = ROOT / "docs" / "figures" / "shapes3.png"
FEW = 2_000
GRIDS = ("rotation3", "scaling3")
# What may keep CAN behind CTN on translation: units of another rank, as many weights in all; or CTN's last layers.
VARIANTS: dict[str, dict[str, Any]] = {
    "can-rank1-units1200": {"rank": 1, "units": 1200},
    "can": {},
    "can-rank16-units75": {"rank": 16, "units": 75},
    "can-deep": {"hidden": (300, 100, 100)},
}
COLORS = ("#0072b2", "#d55e00")  # of a voxel of x, of a voxel of y


def measure() -> dict[str, Any]:
    """Errors of the baselines on the test pairs of every task; what is stored of the same volumes is kept."""
    volumes = load_images("shapes3", split="test", dimensions=3)
    before = json.loads(STORED.read_text()) if STORED.exists() else {}
    found: dict[str, Any] = before["errors"] if before.get("fingerprint") == volumes.fingerprint else {}
    for task in SPACE_TASKS:
        source = PairSource(volumes, task)
        for name, predictor in baselines_for(source).items():
            if task in found.get(name, {}):
                continue
            limit = FEW if name != "mean" and task in GRIDS else None
            errors = evaluate(predictor, source, limit=limit)
            kept = {key: errors[key] for key in ("count", "parameter_error", "per_parameter", "corner_error")}
            found.setdefault(name, {})[task] = kept
            print(f"{task:<14}{name:<20}{kept['parameter_error']:.4g}  ({kept['count']:,} pairs)", flush=True)
    return {
        "about": "parameter and corner errors of predictors that have learned nothing, shapes3, test pairs",
        "fingerprint": volumes.fingerprint,
        "commit": commit(),
        "environment": environment(),
        "errors": found,
    }


def table() -> str:
    """The table of the recipe space, with the baselines behind the networks."""
    measured = json.loads(STORED.read_text())["errors"]
    names = {"mean": "always the mean", "exhaustive search": "exhaustive search"}
    return space_markdown(load(ROOT / "results"), {names[name]: tasks for name, tasks in measured.items()})


def train_variants(runs: Path) -> dict[str, Any]:
    """CAN on translation3 with one thing changed, each trained in a folder under ``runs`` unless it is there."""
    base, found, trainer = space("translation3", "can", 0, updates=5_000), {}, make_trainer()
    for label, changes in VARIANTS.items():
        options = {**dict(base.model_options), **changes}
        cell = Cell("space", label, base.replace(model_options=options) if changes else base)
        outcome = run_cell(cell, runs, trainer)
        if outcome.state != "finished":
            raise SystemExit(f"{cell.name}: {outcome.state}: {outcome.message}")
        result = json.loads((runs / cell.name / "result.json").read_text())
        found[label] = {
            key: result[key] for key in ("parameter_error", "parameters", "updates", "seed", "commit")
        } | {"changes": changes}
        print(
            f"{label:<22}{result['parameter_error']:.4g}  ({result['parameters']:,} parameters)", flush=True
        )
    return {"about": "CAN on translation3, shapes3, with one thing changed", "environment": environment(),
            "errors": found}  # fmt: skip


def causes_table() -> str:
    """Parameter errors of the variants of CAN on translation3."""
    kept = json.loads(CAUSES.read_text())["errors"]
    names = {
        "can-rank1-units1200": "1200 units of rank 1",
        "can": "300 units of rank 4 (the table's)",
        "can-rank16-units75": "75 units of rank 16",
        "can-deep": "300 units of rank 4, CTN's last layers",
    }
    rows = [
        [text, f"{kept[label]['parameters'] / 1000:.0f}k", show(kept[label]["parameter_error"])]
        for label, text in names.items()
    ]
    return Table(["CAN on translation, one seed", "parameters", "parameter error"], "lrr", rows).markdown()


def pages() -> dict[tuple[str, str], str]:
    """What stands where: a page and its section, and the text."""
    whole = table()
    return {
        ("docs/space.md", "space"): whole,
        ("docs/space.md", "causes"): causes_table(),
        ("README.md", "space"): whole,
    }


def strongest_pairs(
    model: RelationNetwork, unit: int, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The ``count`` largest entries of a unit's W: voxels of x and of y, (count, 3) as (x, y, z), and their share."""
    view = model.relation.view(unit)
    assert view is not None
    largest = view.matrix.flatten().topk(count)
    shape = model.model_spec.patch_shape
    first, second = largest.indices // view.matrix.shape[1], largest.indices % view.matrix.shape[1]
    places = [torch.stack(torch.unravel_index(i, shape)[::-1], -1).float() for i in (first, second)]
    return places[0], places[1], largest.values / view.matrix.sum()


def displacement(model: RelationNetwork, unit: int) -> torch.Tensor:
    """From the voxels of x that a unit sees to those of y, (3,) as (x, y, z): the mean over its W."""
    view = model.relation.view(unit)
    assert view is not None
    shape = model.model_spec.patch_shape
    voxels = torch.stack(torch.unravel_index(torch.arange(view.matrix.shape[0]), shape)[::-1], -1).float()
    return (view.b @ voxels - view.a @ voxels) / view.matrix.sum()


def agreement(model: RelationNetwork, source: PairSource) -> tuple[float, int]:
    """The correlation, over units, of the shift they are made for with the mean shift at which they win; how many."""
    pairs = source.batch(0, torch.arange(min(10_000, len(source))))
    with torch.no_grad():
        winner = model.units(pairs.x, pairs.y).argmax(1)
    units = [unit for unit in range(model.model_spec.units) if int((winner == unit).sum()) >= 20]
    made = torch.stack([displacement(model, unit) for unit in units]).flatten()
    won = torch.stack([pairs.z[winner == unit].mean(0) for unit in units]).flatten()
    return float(torch.corrcoef(torch.stack([made, won]))[0, 1]), len(units)


def heard(model: RelationNetwork, source: PairSource, count: int) -> tuple[list[int], torch.Tensor]:
    """Units that win often and at different z: each the one that most often wins in a cluster of z, and its mean z."""
    pairs = source.batch(0, torch.arange(min(10_000, len(source))))
    with torch.no_grad():
        winner = model.units(pairs.x, pairs.y).argmax(1)
    wins = torch.bincount(winner, minlength=model.model_spec.units)
    common = wins.topk(min(60, int((wins > 0).sum()))).indices.tolist()
    means = torch.stack([pairs.z[winner == unit].mean(0) for unit in common])
    # Far from each other: the first is the one that is most certain of a large z, then the farthest from those taken.
    taken = [int(means.norm(dim=1).argmax())]
    while len(taken) < count:
        taken.append(int(torch.cdist(means, means[taken]).amin(1).argmax()))
    return [common[i] for i in taken], means[taken]


def draw(model: RelationNetwork, source: PairSource, columns: int = 4, pairs: int = 40) -> Any:
    """Some units as cubes: lines join the voxel of x to the voxel of y with which a unit compares it."""
    units, means = heard(model, source, columns)
    figure = new_figure(2.6 * columns, 3.3, layout="none")
    figure.subplots_adjust(left=0.0, right=0.97, top=0.86, bottom=0.12, wspace=0.05)
    last = model.model_spec.patch - 1
    for place, (unit, z) in enumerate(zip(units, means, strict=True)):
        axis = figure.add_subplot(1, columns, place + 1, projection="3d")
        first, second, share = strongest_pairs(model, unit, pairs)
        strength = (share / share.max()).sqrt().tolist()
        for a, b, weight in zip(first.tolist(), second.tolist(), strength, strict=True):
            axis.plot(*zip(a, b, strict=True), color="#555555", linewidth=1.2, alpha=0.15 + 0.6 * weight)
        for points, color, label in zip((first, second), COLORS, ("voxel of x", "voxel of y"), strict=True):
            axis.scatter(*points.T.tolist(), c=color, s=14, depthshade=False, label=label)
        shift = ", ".join(f"{value:+.1f}" for value in z.tolist()).replace("-", "−")
        axis.set_title(f"unit {unit}: wins at\n({shift})", fontsize=8)
        axis.set(xlim=(0, last), ylim=(last, 0), zlim=(0, last), box_aspect=(1, 1, 1))
        axis.set_xlabel("x", fontsize=7, labelpad=-12)
        axis.set_ylabel("y", fontsize=7, labelpad=-12)
        axis.set_zlabel("z", fontsize=7, labelpad=-12)
        for line in (axis.xaxis, axis.yaxis, axis.zaxis):
            line.set_ticks([0, last // 2, last], ["", "", ""])
        if place == 0:
            figure.legend(*axis.get_legend_handles_labels(), loc="lower center", ncols=2, fontsize=8)
    return figure


def draw_shapes(rows: int = 2, columns: int = 6) -> Any:
    """The middle slices of the first volumes of shapes3."""
    figure = new_figure(1.5 * columns, 1.5 * rows)
    for number, axis in enumerate(figure.subplots(rows, columns).flat):
        axis.imshow(
            shapes3.make(number)[shapes3.SIDE // 2], cmap="gray", vmin=0, vmax=255, interpolation="nearest"
        )
        axis.set_axis_off()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("baselines", help="measure predictors that have learned nothing")
    commands.add_parser("tables", help="fill README.md and docs/space.md from what is committed")
    causes = commands.add_parser("causes", help="train CAN on translation with one thing changed")
    causes.add_argument("runs", type=Path, help="directory of the runs")
    commands.add_parser("shapes", help="draw slices of shapes3")
    figure = commands.add_parser("figure", help="draw what the units of a trained network compare")
    figure.add_argument("run", type=Path, help="directory of a run of translation3, or a weights file")
    options = parser.parse_args()
    if options.command == "baselines":
        write_json(STORED, measure())
    elif options.command == "causes":
        write_json(CAUSES, train_variants(options.runs))
    elif options.command == "tables":
        for (name, section), text in pages().items():
            print(name, "updated" if fill(ROOT / name, text, section=section) else "was up to date")
    elif options.command == "shapes":
        save_figure(draw_shapes(), SHAPES, dpi=120)
        print(SHAPES)
    else:
        weights = options.run / "weights.safetensors" if options.run.is_dir() else options.run
        model = load_weights(weights)
        source = PairSource(load_images("shapes3", split="test", dimensions=3), model.model_spec.task)
        save_figure(draw(model, source), FIGURE, dpi=150)
        correlation, units = agreement(model, source)
        print(
            f"{FIGURE}\ndisplacement of W and mean shift at which a unit wins: r = {correlation:.3f} over {units} units"
        )


if __name__ == "__main__":
    main()
