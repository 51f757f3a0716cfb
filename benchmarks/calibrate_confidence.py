"""Fit the confidence of caunet.estimate, and see on other photographs whether it keeps its word.

    python benchmarks/calibrate_confidence.py            # about half an hour on one core

Fitted on pairs of the photographs set apart for it (group "calibration"): all conditions at small, large and very
large motions, all five motion models of the plane, the stress set, patterns, watermarks, models that cannot express the
motion, and pairs that nobody can answer. Measured on the photographs of the groups "bench" and "test", with pairs that
the registration benchmark does not use; with --oxford also on real pairs. Right means: mean corner error below 1 % of
the diagonal. Writes the coefficients (src/caunet/weights/confidence.json), benchmarks/results/confidence.json and
docs/figures/confidence.png.

Several processes can share the work: --keep FOLDER --only bench --share 0/2 and 1/2, then once without --only.
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from caunet.benchmark.cases import STRESS, oxford_cases, relative_error, stress_cases
from caunet.benchmark.misleading import PLANE_MODELS, facade, moved_by, watermarked
from caunet.benchmark.pairs import CONDITIONS, NOISE, Pair, draw_pair
from caunet.benchmark.photographs import colored
from caunet.benchmark.unanswerable import blank, out_of_range, repetitive, unrelated_pair
from caunet.estimation import estimator as estimation
from caunet.estimation.confidence import FEATURES, SIGNS, features
from caunet.estimation.estimator import Estimator
from caunet.estimation.register import Registration, register
from caunet.files import write_json
from caunet.metrics import corner_error

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import save

ROOT = Path(__file__).parents[1]
COEFFICIENTS = ROOT / "src" / "caunet" / "weights" / "confidence.json"
FIGURE = ROOT / "docs" / "figures" / "confidence.png"
SEED = 2026  # the benchmark's pairs have other seeds
RIGHT = 0.01  # of the diagonal
BINS = 10
RIDGE = 0.3
LEAST = 0.05  # that a feature counts at least, in its own direction: worse evidence is never trusted more

MOTIONS = (0.03, 0.1, 0.2, 0.27, 0.34)
UNANSWERABLE = ("unrelated", "blank", "repetitive", "out of range", "facade")

# How many pairs: of each condition at each motion, of small images, of each motion model, of each model that is too
# small, and so on; of the stress set every photograph once.
FIT = {
    "cell": 7,
    "small": 30,
    "model": 28,
    "wrong": 35,
    "stress": 1,
    "unrelated": 120,
    "blank": 24,
    "repetitive": 40,
    "facade": 40,
    "watermark": 42,
    "far": 36,
}
HELD = {
    "cell": 11,
    "small": 60,
    "model": 48,
    "wrong": 45,
    "stress": 1,
    "unrelated": 500,
    "blank": 24,
    "repetitive": 48,
    "facade": 60,
    "watermark": 63,
    "far": 36,
}
FEW = {
    "cell": 4,
    "small": 20,
    "model": 10,
    "wrong": 10,
    "stress": 1,
    "unrelated": 0,
    "blank": 8,
    "repetitive": 0,
    "facade": 0,
    "watermark": 20,
    "far": 8,
}


class Task(NamedTuple):
    """A pair to be estimated."""

    kind: str
    make: Callable[[], tuple[Any, Any, Callable[[torch.Tensor], float]]]
    """The images, and the error of an answer as a share of the diagonal."""
    model: str = "projective"


def tasks(group: Any, plan: dict[str, int]) -> list[Task]:
    """All pairs of ``plan``, shuffled: what is collected of them first stands for all."""
    found = [Task(kind, partial(_prepared, make), model) for kind, make, model in _pairs(group, plan)]
    if plan["stress"]:
        for row in STRESS:
            for index in range(len(colored(group))):
                found.append(Task(row, partial(_case, group, row, index)))
    random.Random(SEED).shuffle(found)
    return found


def _pairs(group: Any, plan: dict[str, int]) -> Iterator[tuple[str, Callable[[], Pair], str]]:
    """(kind, function that makes the pair, motion model that is asked for)."""
    full = "projective"
    other = SEED + (group != "calibration") + 2 * (group == "test")
    for motion in MOTIONS:
        for condition in CONDITIONS:
            for index in range(plan["cell"]):
                yield (
                    f"{condition} {motion}",
                    partial(draw_pair, group, condition, motion, index, seed=SEED),
                    full,
                )
    for index in range(plan["small"]):
        condition, side = CONDITIONS[index % len(CONDITIONS)], (64, 32)[index % 2]
        yield "small", partial(draw_pair, group, condition, 0.1, index, seed=SEED + 2, side=side), full
    for model in PLANE_MODELS:
        for index in range(plan["model"]):
            motion, noise = (0.03, 0.08, 0.15, 0.25)[index % 4], (0.0, 0.5, 1.0, 2.0)[index // 4 % 4] * NOISE
            made = partial(moved_by, group, model, index, motion=motion, noise=noise, seed=SEED + 3)
            yield f"model {model}", made, model
    for number, model in enumerate(PLANE_MODELS[:-1]):
        for index in range(plan["wrong"]):
            # From any larger model; small motions are within the tolerance of the smaller one.
            larger = PLANE_MODELS[number + 1 + index % (len(PLANE_MODELS) - 1 - number)]
            motion = (0.02, 0.05, 0.1, 0.15)[index % 4]
            made = partial(moved_by, group, larger, index, motion=motion, seed=SEED + 4 + number)
            yield "wrong model", made, model
    for index in range(plan["unrelated"]):
        model = full if index % 2 else PLANE_MODELS[index // 2 % 5]
        yield "unrelated", partial(unrelated_pair, group, index, seed=SEED), model
    for index in range(plan["blank"]):
        yield "blank", partial(blank, group, index, seed=SEED), full
    for index in range(plan["repetitive"]):
        yield "repetitive", partial(repetitive, index, seed=other), full
    for index in range(plan["facade"]):
        model = full if index % 2 else PLANE_MODELS[2 + index // 2 % 2]
        yield "facade", partial(facade, index, seed=other), model
        yield "facade with details", partial(facade, index, details=True, seed=other), full
    for index in range(plan["watermark"]):
        motion, strength = (0.03, 0.1)[index % 2], (0.2, 0.4, 0.6)[index % 3]
        made = partial(watermarked, group, index, motion=motion, strength=strength, seed=SEED + 9)
        yield "watermark", made, full
    for index in range(plan["far"]):
        yield "out of range", partial(out_of_range, group, index, seed=SEED), full


def _prepared(make: Callable[[], Pair]) -> tuple[Any, Any, Callable[[torch.Tensor], float]]:
    pair = make()
    return pair.a, pair.b, partial(_error, pair)


def _case(group: Any, row: str, index: int) -> tuple[Any, Any, Callable[[torch.Tensor], float]]:
    """The stress case of a row and a photograph; ValueError if that photograph has none."""
    name = list(colored(group))[index]
    for case in stress_cases(group, (row,), seed=SEED):
        if case.name == name:
            return case.a, case.b, partial(relative_error, case=case)
    raise ValueError(f"{name} has no case of {row}")


def collect(todo: list[Task], keep: Path | None) -> list[dict[str, Any]]:
    """What each pair gave: kind, corner error as a share of the diagonal, evidence."""
    rows = _kept(keep) if keep is not None else []
    estimators = {model: Estimator(model) for model in PLANE_MODELS}
    for task in todo[len(rows) :]:
        rows.append({"kind": task.kind, "model": task.model, **_tried(task, estimators[task.model])})
        if keep is not None:
            with keep.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    return rows


def _kept(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _tried(task: Task, estimator: Estimator) -> dict[str, Any]:
    try:
        a, b, error = task.make()
    except ValueError:  # the photograph is too small for such a motion: there is no such pair
        return {"error": None, "evidence": {}}
    seen: list[Registration] = []

    def recorded(*arguments: Any, **options: Any) -> Registration:
        seen.append(register(*arguments, **options))
        return seen[-1]

    # Nothing here may depend on the coefficients that are about to be replaced.
    with (
        mock.patch.object(estimation, "register", recorded),
        mock.patch.object(estimation, "confidence", return_value=0.0),
    ):
        found = estimator(a, b)
    matrix = torch.as_tensor(found.matrix).double()
    return {"error": min(error(matrix), 1.0), "evidence": seen[-1].evidence}


def _error(pair: Pair, found: torch.Tensor) -> float:
    """Mean corner error over the diagonal; 1 where nothing relates the images."""
    if pair.H is None:
        return 1.0
    size = (pair.a.shape[0], pair.a.shape[1])
    error = float(corner_error(found, pair.H, size, centered=False))
    return error / math.hypot(*size) if math.isfinite(error) else 1.0


def fit(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Logistic regression with a ridge, by Newton's method, each weight of its known sign, on rows with evidence."""
    seen = [row for row in rows if row["evidence"]]
    x = np.array([features(row["evidence"]) for row in seen])
    y = np.array([row["error"] < RIGHT for row in seen], dtype=float)
    means, scales = x.mean(0), x.std(0) + 1e-6
    design = np.hstack([(x - means) / scales, np.ones((len(x), 1))])
    hold = RIDGE * np.append(np.ones(x.shape[1]), 0.0)
    theta, least = np.zeros(design.shape[1]), LEAST * np.array(SIGNS)
    free = np.ones(len(theta), dtype=bool)
    while True:
        for _ in range(50):
            p = 1 / (1 + np.exp(-design @ theta))
            gradient = design.T @ (p - y) + hold * theta
            curvature = (design * (p * (1 - p) + 1e-9)[:, None]).T @ design + np.diag(hold + 1e-9)
            theta[free] -= np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        # Evidence that correlates with other evidence may come out against its meaning: such weights are held.
        ahead = np.where(free[:-1], theta[:-1] * SIGNS - LEAST, np.inf)
        worst = int(ahead.argmin())
        if ahead[worst] >= 0:
            break
        free[worst], theta[worst] = False, least[worst]
    return {
        "features": list(FEATURES),
        "means": means.round(6).tolist(),
        "scales": scales.round(6).tolist(),
        "weights": theta[:-1].round(6).tolist(),
        "bias": round(float(theta[-1]), 6),
        "pairs": len(rows),
        "right": int(y.sum()),
        "seed": SEED,
    }


def predicted(fitted: dict[str, Any], rows: list[dict[str, Any]]) -> np.ndarray:
    """The confidence of each row."""
    out = []
    for row in rows:
        if not row["evidence"]:
            out.append(0.0)
            continue
        value = (np.array(features(row["evidence"])) - fitted["means"]) / fitted["scales"]
        out.append(float(1 / (1 + np.exp(-np.clip(value @ fitted["weights"] + fitted["bias"], -30, 30)))))
    return np.array(out)


def measure(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Reliability bins and the expected calibration error."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins, error = [], 0.0
    for k in range(BINS):
        here = place == k
        if not here.any():
            continue
        mean, share = float(confidence[here].mean()), float(right[here].mean())
        bins.append({"low": k / BINS, "count": int(here.sum()), "confidence": mean, "right": share})
        error += here.mean() * abs(mean - share)
    return {
        "pairs": len(right),
        "right": float(right.mean()),
        "expected_calibration_error": float(error),
        "brier": float(np.square(confidence - right).mean()),
        "bins": bins,
    }


def report(fitted: dict[str, Any], held: list[dict[str, Any]]) -> dict[str, Any]:
    """All that is said of the held-out pairs."""
    confidence, right = predicted(fitted, held), np.array([row["error"] < RIGHT for row in held])
    kind = np.array([row["kind"] for row in held])
    apart = kind == "unrelated"
    # Five hundred unrelated pairs would drown the rest: as many of them count here as of other unanswerable ones.
    counted = ~apart | (np.cumsum(apart) <= 60)
    kinds = {}
    for name in dict.fromkeys(kind.tolist()):
        here = kind == name
        kinds[name] = {
            "pairs": int(here.sum()),
            "right": float(right[here].mean()),
            "mean_confidence": float(confidence[here].mean()),
            "above_half_but_wrong": float(((confidence > 0.5) & ~right)[here].mean()),
        }
    return {
        "held_out": measure(confidence[counted], right[counted]),
        "answerable": measure(confidence[_related(kind)], right[_related(kind)]),
        "wrong_above_0.9": {
            "answers": int((confidence[counted] > 0.9).sum()),
            "wrong": int(((confidence > 0.9) & ~right)[counted].sum()),
        },
        "unrelated": {"pairs": int(apart.sum()), "above_half": float((confidence[apart] > 0.5).mean())},
        "kinds": kinds,
    }


def _related(kind: np.ndarray) -> np.ndarray:
    return ~np.isin(kind, UNANSWERABLE)


def draw(result: dict[str, Any]) -> None:
    """The reliability diagram."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    bins = result["held_out"]["bins"]
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(4.2, 5.0), height_ratios=(3, 1), sharex=True, layout="constrained"
    )
    above.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    above.plot([b["confidence"] for b in bins], [b["right"] for b in bins], "o-", color="tab:blue")
    above.set(ylabel="share that was right", xlim=(0, 1), ylim=(-0.02, 1.02))
    error = result["held_out"]["expected_calibration_error"]
    above.set_title(f"{result['held_out']['pairs']} pairs of other photographs, ECE {error:.3f}", fontsize=10)
    below.bar(
        [b["low"] + 0.5 / BINS for b in bins], [b["count"] for b in bins], width=0.9 / BINS, color="0.6"
    )
    below.set(xlabel="confidence", ylabel="pairs", yscale="log")
    figure.savefig(FIGURE, dpi=130)
    plt.close(figure)


def main() -> None:
    """Collect, fit, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="folder that keeps what pairs gave, to go on or fit again")
    parser.add_argument(
        "--only", choices=("fit", "bench", "test", "oxford"), help="collect one part, and stop"
    )
    parser.add_argument(
        "--share", default="0/1", help="which share of the part: 0/2 and 1/2 for two processes"
    )
    parser.add_argument("--collected", action="store_true", help="collect no more than --keep holds")
    parser.add_argument("--oxford", type=Path, help="folder of the Oxford set, to report on it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    part, parts = (int(word) for word in options.share.split("/"))
    groups = {"fit": ("calibration", FIT), "bench": ("bench", HELD), "test": ("test", FEW)}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in ("fit", "bench", "test", "oxford"):
        if options.only not in (None, name):
            continue
        if options.collected:
            files = sorted(options.keep.glob(f"{name}-*.jsonl"))
            found = [row for file in files for row in _kept(file)]
        else:
            todo = tasks(*groups[name]) if name in groups else _oxford(options.oxford)
            keep = None if options.keep is None else options.keep / f"{name}-{part}.jsonl"
            found = collect(todo[part::parts], keep)
        rows[name] = [row for row in found if row["error"] is not None]
    if options.only:
        return
    fitted = fit(rows["fit"])
    result = report(fitted, rows["bench"] + rows["test"])
    if rows["oxford"]:
        result["oxford"] = report(fitted, rows["oxford"])["answerable"]
    write_json(COEFFICIENTS, fitted)
    save("confidence", {**result, "fitted": fitted})
    draw(result)
    print(json.dumps({k: v for k, v in result.items() if k != "kinds"}, indent=1))
    for name, line in result["kinds"].items():
        print(f"{name:22s}", *(f"{k} {v:.3f}" for k, v in line.items()))


def _oxford(folder: Path | None) -> list[Task]:
    """Real pairs, as they lie on the disk; none without a folder."""
    if folder is None:
        return []

    def made(case: Any) -> tuple[Any, Any, Callable[[torch.Tensor], float]]:
        return case.a, case.b, partial(relative_error, case=case)

    return [Task(case.row, partial(made, case)) for case in oxford_cases(folder)]


if __name__ == "__main__":
    main()
