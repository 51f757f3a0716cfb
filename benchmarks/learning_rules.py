"""Which learning rule suits contrast association: every rule on every task, at equal updates.

    python -m benchmarks.learning_rules [--updates 3000] [--out runs/rules] [--workers 2]

CAN with Table I's layers, relative contrast and a learned temperature, pairs always fresh, the rates falling along a
cosine. Trained on nine tenths of CIFAR-10's training images and measured on the other tenth (the test images are never
seen). Rates are chosen first, for each rule, on rotation and integer translation; then the rule runs on the other tasks
with the rate whose two errors have the smallest product.

The runs are kept in --out: an interrupted benchmark goes on where it was, a finished one is read again.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from caunet.data import PairSource, load_images
from caunet.models import load_weights
from caunet.reproduction.grid import run_grid
from caunet.reproduction.recipes import Cell
from caunet.reproduction.results import finished, read
from caunet.tables import Table, bold
from caunet.training.config import BEST, TrainConfig
from caunet.training.metrics_log import read_metrics

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import RESULTS, save

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "learning-rules.png"

# name -> (model, settings of the rule, rates to choose from)
RULES: dict[str, tuple[str, dict[str, Any], tuple[float, ...]]] = {
    "multiplicative": ("can", {"rule": "multiplicative"}, (0.0025, 0.005, 0.01)),
    "Adam on log W": ("can", {"rule": "multiplicative-adam"}, (0.02, 0.05, 0.1)),
    "both in one exponent": (
        "can",
        {"rule": "multiplicative-adam", "rule_options": BEST["can"]["rule_options"]},
        (0.025, 0.05, 0.1),
    ),
    "softplus, Adam": ("can-softplus", {}, (0.002, 0.005, 0.02)),
    "projection": ("can-projection", {}, (0.0005, 0.002, 0.005)),
}
ROWS = [
    ("translation", "release"),
    ("rotation", "text"),
    ("translation", "text"),
    ("scaling", "text"),
    ("affine", "text"),
    ("projective", "text"),
]
CHOOSING = ROWS[:2]
OPTIONS = BEST["can"]["model_options"]


def cell(rule: str, rate: float, task: str, protocol: str, updates: int) -> Cell:
    model, settings, _ = RULES[rule]
    # softplus(theta) is trained by the one Adam that trains the decoder, too: the rate is that Adam's.
    rates = {"rate": rate} if model == "can-softplus" else {"rate": 0.005, "rate_multiplicative": rate}
    config = TrainConfig(
        task=task,
        model=model,
        model_options=OPTIONS,
        data="cifar10",
        split="train-fit",
        test_split="validation",
        protocol=protocol,
        pairs="fresh",
        schedule="cosine",
        updates=updates,
        test_every=max(1, updates // 10),
        test_pairs=5_000,
        checkpoint_every=0,
        **rates,
        **settings,
    )
    return Cell("rules", f"{model}-{rule.split()[0]}", config)


def error(run: Cell, out: Path) -> float:
    """The validation error of a finished run; infinite when it diverged or failed."""
    result = read(out / run.name / "result.json") if finished(run, out / run.name) else None
    return math.inf if result is None else float(result["parameter_error"])


def run_all(rules: Sequence[str], updates: int, out: Path, workers: int) -> dict[str, Any]:
    def go(cells: Sequence[Cell]) -> None:
        def show_progress(state: Any) -> None:
            if state.latest is not None:
                done = f"{len(state.outcomes)}/{len(cells)}"
                print(
                    f"{done}  {state.latest.name}: {error(state.latest, out):.5g}",
                    file=sys.stderr,
                    flush=True,
                )

        run_grid(cells, out, workers=workers, listener=show_progress)

    go([cell(r, rate, *row, updates) for row in CHOOSING for r in rules for rate in RULES[r][2]])
    tried = {
        rule: {
            rate: [error(cell(rule, rate, *row, updates), out) for row in CHOOSING] for rate in RULES[rule][2]
        }
        for rule in rules
    }
    chosen = {rule: min(rates, key=lambda rate: math.prod(rates[rate])) for rule, rates in tried.items()}
    go([cell(rule, chosen[rule], *row, updates) for row in ROWS for rule in rules])
    return {
        "updates": updates,
        "rates_tried": {rule: {str(k): v for k, v in rates.items()} for rule, rates in tried.items()},
        "rules": {rule: describe(rule, chosen[rule], updates, out) for rule in rules},
    }


def describe(rule: str, rate: float, updates: int, out: Path) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for task, protocol in ROWS:
        run = cell(rule, rate, task, protocol, updates)
        row: dict[str, Any] = {"parameter_error": error(run, out)}
        if math.isfinite(row["parameter_error"]):
            lines = read_metrics(out / run.name / "metrics.jsonl")
            row["curve"] = [[x["step"], x["test"]["parameter_error"]] for x in lines if "test" in x]
            row |= inside(out / run.name / "weights.safetensors", task, protocol)
        rows["integer translation" if protocol == "release" else task] = row
    return {"rate": rate, "rows": rows}


def inside(weights: Path, task: str, protocol: str) -> dict[str, float]:
    """The share of units that win at least one of 10,000 validation pairs, and of weights that are as good as zero."""
    model = load_weights(weights)
    source = PairSource(
        load_images("cifar10", split="validation"), task, protocol, pairs="fresh", per_image=2
    )
    pairs = source.batch(0, torch.arange(10_000))
    with torch.no_grad():
        winners = model.relate(pairs.x, pairs.y).argmin(1).unique()
    factors = [model.relation.u, model.relation.v]
    small = [float((w < 0.01 * w.amax(1, keepdim=True)).float().mean()) for w in factors]
    return {"winning_units": len(winners) / int(model.relation.units), "sparsity": sum(small) / 2}


def draw(results: dict[str, Any]) -> Any:
    from caunet.reproduction.figures import new_figure

    rows = list(next(iter(results["rules"].values()))["rows"])
    figure = new_figure(9.6, 5.4)
    for axis, row in zip(figure.subplots(2, 3).flat, rows, strict=True):
        for number, (rule, found) in enumerate(results["rules"].items()):
            curve = found["rows"][row].get("curve")
            if curve:
                axis.plot(*zip(*curve, strict=True), label=rule, color=f"C{number}", lw=1.8)
        axis.set(title=row.capitalize(), yscale="log", xlabel="updates")
    figure.axes[0].set_ylabel("validation error")
    figure.axes[3].set_ylabel("validation error")
    handles, labels = figure.axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    return figure


def markdown(results: dict[str, Any]) -> str:
    """Errors of every rule on every task, and what became of the units, for docs/learning-rule.md."""
    from caunet.reproduction.tables import show

    rows = list(next(iter(results["rules"].values()))["rows"])
    heads = ["Rule (rate)", *(row.capitalize() for row in rows), "Units that win", "Weights near 0"]
    body = []
    lowest = {
        row: min(found["rows"][row]["parameter_error"] for found in results["rules"].values()) for row in rows
    }
    for rule, found in results["rules"].items():
        fields = [f"{rule} ({found['rate']:g})"]
        for row in rows:
            value = found["rows"][row]["parameter_error"]
            text = show(value) if math.isfinite(value) else "diverged"
            fields.append(bold(text, value == lowest[row]))
        rotation = found["rows"]["rotation"]
        fields += [
            f"{100 * rotation[key]:.0f} %" if key in rotation else "–"
            for key in ("winning_units", "sparsity")
        ]
        body.append(fields)
    return Table(heads, "l" + "r" * (len(rows) + 2), body).markdown() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rules", nargs="+", choices=RULES, default=list(RULES), metavar="RULE", help="some of them"
    )
    parser.add_argument("--updates", type=int, default=3_000)
    parser.add_argument("--out", type=Path, default=Path("runs/rules"))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    results = run_all(options.rules, options.updates, options.out, options.workers)
    print(markdown(results))
    draw(results).savefig(FIGURE, dpi=110)
    print(f"saved to {save('learning_rules', results)} and {FIGURE.relative_to(RESULTS.parents[1])}")


if __name__ == "__main__":
    main()
