"""How much two 11 x 11 patches tell of what relates them: networks, least squares on the patches, and a bound.

    python -m benchmarks.perspective run [--data cifar10] [--pairs 2000]
    python -m benchmarks.perspective near [--data cifar10] [--updates 20000] [--out runs/near]
    python -m benchmarks.perspective tables

z5 and z6 of a projective map (p1, p2) bend a patch by a fraction of a pixel. Four answers to whether that can be seen:
R² of every parameter on the same test pairs, without noise and with some in both patches, of

- the networks that come with the package;
- the same, each answer refined by least squares on the patches (caunet.refinement);
- least squares begun in the middle of the ranges, where no network has been, and at the truth;
- always the mean, and exhaustive search where a task has a grid;
- a bound: what the best estimator near the truth would know (the Fisher information of the patches).

Then the other tasks, without noise. ``near`` trains CAN where the other four parameters have smaller ranges, and
continues a run that was stopped. ``tables`` writes what was measured into docs/reproduction.md.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from caunet import tasks
from caunet.baselines import baselines_for, predict_mean
from caunet.data import PairSource, load_images
from caunet.data.photometric import Photometric
from caunet.evaluation import evaluate
from caunet.models import load_pretrained
from caunet.progress import track
from caunet.refinement import information, refine, refined
from caunet.reproduction.results import load
from caunet.reproduction.tables import fill, show
from caunet.tables import Table
from caunet.tasks import Task
from caunet.training import TrainConfig, train
from caunet.training.config import profile_settings

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import RESULTS, save, threads

NETWORKS = ("can", "ctn", "bln")
NOISE = (0.0, 1.0, 4.0, 16.0)  # standard deviation in each pixel, gray levels of 255
OTHER_TASKS = ("translation", "rotation", "scaling", "affine")
RANGES = (0.1, 0.25)  # of the four parameters that are not perspective; the task's own is 0.5
ROOT = Path(__file__).parents[1]
_LEARNED_NOTHING = {"mean": "always the mean", "exhaustive search": "exhaustive search"}
_KEPT = ("per_parameter", "parameter_error", "corner_error", "count")

Predictor = Callable[[Tensor, Tensor], Tensor]


def estimators(source: PairSource, truth: Tensor) -> dict[str, Predictor]:
    """Predictors of a task, by the names they have in the tables. ``truth``: z of all pairs, one batch."""
    task, name = source.task, source.task.name
    found: dict[str, Predictor] = {}
    for network in NETWORKS:
        model = load_pretrained(f"{network}-{name}").eval()
        found[network.upper()] = model
        found[f"{network.upper()}, refined"] = refined(model, task)
    found["least squares from the middle"] = refined(predict_mean(task), task)
    found["least squares from the truth"] = lambda x, y: refine(x, y, truth, task)
    others = baselines_for(source)
    return found | {told: others[key] for key, told in _LEARNED_NOTHING.items() if key in others}


def measure(name: str, images: Any, pairs: int, noise: float) -> dict[str, Any]:
    """Errors of all estimators on the first ``pairs`` test pairs, and the bound."""
    light = Photometric(noise=(noise / 255, noise / 255)) if noise else None
    source = PairSource(images, name, "text", photometric=light)
    batch = source.batch(0, torch.arange(pairs))
    found: dict[str, Any] = {}
    for estimator, predictor in estimators(source, batch.z).items():
        errors = evaluate(predictor, source, limit=pairs, batch=pairs, progress=False)
        found[estimator] = {key: errors[key] for key in _KEPT}
    if noise:
        clean = PairSource(images, name, "text").batch(0, torch.arange(pairs))
        known = information(clean.x, clean.y, clean.z, source.task, noise / 255).mean(0).tolist()
        found["bound"] = dict(zip(source.task.names, (round(value, 4) for value in known), strict=True))
    return found


def nearer(half: float) -> Task:
    """The projective task with a11 to a22 within ±half; perspective keeps its range."""
    task = tasks.get("projective")
    ends = (half,) * 4
    return dataclasses.replace(
        task,
        name=f"projective-{half:g}",
        low=(*(-end for end in ends), *task.low[4:]),
        high=(*ends, *task.high[4:]),
    )


def near(half: float, data: str, updates: int, folder: Path) -> dict[str, Any]:
    """Errors of CAN that has learned :func:`nearer`, at its best, under the loss in ranges."""
    name = tasks.register(nearer(half), replace=True).name
    settings = {**profile_settings("best", "can"), "loss": "range", "data": data, "updates": updates}
    found = train(TrainConfig(task=name, model="can", **settings), folder / name, resume="auto").result
    if found is None:
        raise SystemExit(f"{name} was stopped; the same command continues it")
    kept = ("per_parameter", "parameter_error", "corner_error", "count", "updates", "seed", "commit")
    return {key: found[key] for key in kept}


def perspective_table(found: dict[str, Any]) -> str:
    """R² of z5 and z6 together by noise, and corner errors without noise."""
    rows = []
    for name in found["0.0"]:
        cells = []
        for level in found.values():
            each = level[name]["per_parameter"]
            cells.append(f"{round((each['p1']['r2'] + each['p2']['r2']) / 2, 2) + 0.0:.2f}")  # no -0.00
        one = found["0.0"][name]
        rows.append([name, *cells, show(one["parameter_error"]), f"{one['corner_error']['mean']:.3f}"])
    bounds = [
        f"{(level['bound']['p1'] + level['bound']['p2']) / 2:.2f}" if "bound" in level else "1"
        for level in found.values()
    ]
    rows.append(["bound", *bounds, "", ""])
    noisy = [f"noise {float(level):g}" for level in found if float(level)]
    heads = ["R² of p1, p2", "no noise", *noisy, "parameter error", "corner error (px)"]
    return Table(heads, "l" + "r" * (len(heads) - 1), rows).markdown()


def tasks_table(found: dict[str, Any]) -> str:
    """Mean corner errors of the networks and of their refined answers, by task."""
    hidden = ("bound", "least squares from the truth")
    names = list(dict.fromkeys(n for errors in found.values() for n in errors if n not in hidden))
    rows = [
        [
            task.capitalize(),
            *(f"{errors[name]['corner_error']['mean']:.3f}" if name in errors else "–" for name in names),
        ]
        for task, errors in found.items()
    ]
    return Table(
        ["Corner error (px)", *names],
        "l" + "r" * len(names),
        rows,
    ).markdown()


def near_table(found: dict[str, Any]) -> str:
    """R² of every parameter by the range of the first four; the task's own range is the recipe ``range``'s."""
    known = {(r["recipe"], r["model"], r["seed"]): r for r in load(ROOT / "results")}
    every = found | {"0.5": known["range", "can", 0]}
    names = tasks.get("projective").names
    rows = [
        [
            f"±{half}",
            *(f"{round(one['per_parameter'][name]['r2'], 2) + 0.0:.2f}" for name in names),
            f"{one['corner_error']:.3f}",
        ]
        for half, one in every.items()
    ]
    heads = ["R²; range of the first four", *names, "corner error (px)"]
    return Table(heads, "l" + "r" * (len(heads) - 1), rows).markdown()


def pages() -> dict[tuple[str, str], str]:
    """What the committed results say, by page and section."""
    measured, nearby = (
        json.loads((RESULTS / f"{name}.json").read_text()) for name in ("perspective", "perspective-near")
    )
    about = f"{measured['data']}, text protocol, {measured['pairs']:,} test pairs"
    tables = (perspective_table(measured["projective_by_noise"]), tasks_table(measured["tasks"]))
    return {
        ("docs/reproduction.md", "perspective"): "\n\n".join(
            (f"{about}; noise in gray levels, in both patches.", *tables)
        ),
        ("docs/reproduction.md", "near"): near_table(nearby["ranges"]),
    }


def run(data: str, pairs: int) -> None:
    """Measure all but ``near``."""
    images = load_images(data, split="test")
    with threads(1), torch.no_grad(), track(len(NOISE) + len(OTHER_TASKS), "tasks and noise") as bar:
        projective, every = {}, {}
        for noise in NOISE:
            projective[str(noise)] = measure("projective", images, pairs, noise)
            bar.advance()
        for name in OTHER_TASKS:
            every[name] = measure(name, images, pairs, 0.0)
            bar.advance()
    every["projective"] = projective["0.0"]
    about = {"data": data, "pairs": pairs, "protocol": "text"}
    save("perspective", {**about, "projective_by_noise": projective, "tasks": every})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "near", "tables"), help="see above")
    parser.add_argument("--data", default="cifar10", help="images: cifar10 or photos")
    parser.add_argument("--pairs", type=int, default=2000, help="run: test pairs")
    parser.add_argument("--updates", type=int, default=20_000, help="near: updates of each network")
    parser.add_argument("--out", type=Path, default=Path("runs/near"), help="near: where its runs are kept")
    options = parser.parse_args()
    if options.what == "run":
        run(options.data, options.pairs)
    if options.what == "near":
        found = {str(half): near(half, options.data, options.updates, options.out) for half in RANGES}
        save("perspective-near", {"data": options.data, "protocol": "text", "model": "can", "ranges": found})
    for (name, section), text in pages().items() if options.what == "tables" else ():
        fill(ROOT / name, text, section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
