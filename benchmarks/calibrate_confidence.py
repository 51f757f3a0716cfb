"""Fit the confidence of caunet.estimate, and see on other photographs whether it keeps its word.

    python benchmarks/calibrate_confidence.py            # about 25 minutes on one core

Fitted on pairs of the photographs set apart for it (group "calibration"): all conditions at small, large and very
large motions, all five motion models of the plane in all conditions, the stress set, patterns, watermarks, scenes at
two depths, models that cannot express the motion, and pairs that nobody can answer. Measured on the photographs of
the groups "bench" and "test", with pairs that nothing else uses; with --oxford also on real pairs. Right means: mean
corner error below 1 % of the diagonal. Writes the coefficients (src/caunet/weights/confidence.json),
benchmarks/results/confidence.json and docs/figures/confidence.png.

What is kept with --keep is taken up again. Several processes can share the work: --keep FOLDER --only bench
--share 0/2 and 1/2, then once with --collected and without --only.
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
from scipy.optimize import minimize

import caunet.estimation.confidence
from caunet.benchmark.cases import STRESS, oxford_cases, relative_error, stress_cases
from caunet.benchmark.misleading import PLANE_MODELS, PlaneModel, facade, layered, moved_by, watermarked
from caunet.benchmark.pairs import CONDITIONS, NOISE, Pair, draw_pair
from caunet.benchmark.photographs import colored
from caunet.benchmark.unanswerable import blank, out_of_range, repetitive, unrelated_pair
from caunet.estimation import estimator as estimation
from caunet.estimation.confidence import FACTORS, features
from caunet.estimation.estimator import Estimator
from caunet.estimation.register import Registration, register
from caunet.files import write_json
from caunet.metrics import corner_error

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import save

ROOT = Path(__file__).parents[1]
COEFFICIENTS = ROOT / "src" / "caunet" / "weights" / "confidence.json"
FIGURE = ROOT / "docs" / "figures" / "confidence.png"
SEED = 40_315  # the benchmark's pairs have other seeds
RIGHT = 0.01  # of the diagonal
BINS = 10
DRAWS = 2000  # of the pairs with replacement, for the interval of the calibration error
RIDGE = 0.3
LEAST = 0.05  # that a feature counts at least, in its own direction: worse evidence is never trusted more
START, MOST, HOLD = (
    3.0,
    8.0,
    0.02,
)  # of a factor's bias: first guess, largest, and how firmly it is held to the first

MOTIONS = (0.03, 0.1, 0.2, 0.27, 0.34)
UNANSWERABLE = ("unrelated", "blank", "repetitive", "facade")
TWO_DEPTHS = "two depths {}"  # parallax as a share of the side
COUNTED = 100  # unrelated pairs in the calibration error: all of them would drown the rest

# How many pairs: of each condition at each motion, of small images, of each motion model, of each model that is too
# small, and so on; of the stress set every photograph once.
FIT = {
    "cell": 10,
    "small": 40,
    "model": 50,
    "wrong": 36,
    "stress": 1,
    "unrelated": 120,
    "blank": 16,
    "repetitive": 24,
    "facade": 40,
    "watermark": 84,
    "layered": 42,
    "far": 42,
}
HELD = {
    "cell": 11,
    "small": 60,
    "model": 60,
    "wrong": 45,
    "stress": 1,
    "unrelated": 200,
    "blank": 20,
    "repetitive": 27,
    "facade": 45,
    "watermark": 72,
    "layered": 45,
    "far": 45,
}
FEW = {
    "cell": 3,
    "small": 20,
    "model": 12,
    "wrong": 12,
    "stress": 1,
    "unrelated": 0,
    "blank": 8,
    "repetitive": 0,
    "facade": 0,
    "watermark": 24,
    "layered": 12,
    "far": 12,
}


class Task(NamedTuple):
    """A pair to be estimated."""

    kind: str
    make: Callable[[], tuple[Any, Any, Callable[[torch.Tensor], float]]]
    """The images, and the error of an answer as a share of the diagonal."""
    model: PlaneModel = "projective"


def tasks(group: Any, plan: dict[str, int]) -> list[Task]:
    """All pairs of ``plan``, shuffled: what is collected of them first stands for all."""
    found = [Task(kind, partial(_prepared, make), model) for kind, make, model in _pairs(group, plan)]
    if plan["stress"]:
        for row in STRESS:
            for index in range(len(colored(group))):
                found.append(Task(row, partial(_case, group, row, index)))
    random.Random(SEED).shuffle(found)
    return found


def _pairs(group: Any, plan: dict[str, int]) -> Iterator[tuple[str, partial[Pair], PlaneModel]]:
    """(kind, function that makes the pair, motion model that is asked for)."""
    full: PlaneModel = "projective"
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
            condition = CONDITIONS[index % len(CONDITIONS)]
            change = {"noise": noise} if condition == "clean" else {"condition": condition}
            made = partial(moved_by, group, model, index, motion=motion, seed=SEED + 3, **change)
            yield f"model {model}", made, model
    for number, model in enumerate(PLANE_MODELS[:-1]):
        for index in range(plan["wrong"]):
            # From any larger model; small motions are within the tolerance of the smaller one.
            larger = PLANE_MODELS[number + 1 + index % (len(PLANE_MODELS) - 1 - number)]
            motion = (0.02, 0.05, 0.1, 0.15)[index % 4]
            made = partial(moved_by, group, larger, index, motion=motion, seed=SEED + 4 + number)
            yield "wrong model", made, model
    for index in range(plan["unrelated"]):
        model = full if index % 3 == 0 else PLANE_MODELS[index // 2 % 5]
        side = (256, 128, 64, 48)[index % 4]
        yield "unrelated", partial(unrelated_pair, group, index, seed=SEED, side=side), model
    for index in range(plan["blank"]):
        yield "blank", partial(blank, group, index, seed=SEED), full
    for index in range(plan["repetitive"]):
        yield "repetitive", partial(repetitive, index, seed=other), full
    for index in range(plan["facade"]):
        model = full if index % 2 else PLANE_MODELS[2 + index // 2 % 2]
        yield "facade", partial(facade, index, seed=other), model
        yield "facade with details", partial(facade, index, details=True, seed=other), full
    for index in range(plan["watermark"]):
        motion, strength = (0.03, 0.1, 0.06, 0.18)[index % 4], (0.2, 0.4, 0.6)[index % 3]
        made = partial(watermarked, group, index, motion=motion, strength=strength, seed=SEED + 9)
        yield "watermark", made, full
    for index in range(plan["layered"]):
        share, parallax = (0.2, 0.3, 0.4)[index % 3], (0.02, 0.04, 0.08, 0.15)[index % 4]
        made = partial(layered, group, index, share=share, parallax=parallax, seed=SEED + 10)
        yield TWO_DEPTHS.format(parallax), made, full if index % 2 else PLANE_MODELS[index // 2 % 4]
    for index in range(plan["far"]):
        yield "out of range", partial(out_of_range, group, index, seed=SEED), full


def _prepared(make: partial[Pair]) -> tuple[Any, Any, Callable[[torch.Tensor], float]]:
    pair = make()
    others = [_nearer(pair, make.keywords["parallax"])] if "parallax" in make.keywords else []
    return pair.a, pair.b, lambda found: min(_error(each, found) for each in (pair, *others))


def _nearer(pair: Pair, parallax: float) -> Pair:
    """Of a scene at two depths, the motion of what is nearer: that is an answer, too (how much follows it is said)."""
    assert pair.H is not None
    H = pair.H.clone()
    H[0, 2] += parallax * len(pair.a)
    H[:2, 2] = H[:2, 2].round()
    return pair._replace(H=H)


def _case(group: Any, row: str, index: int) -> tuple[Any, Any, Callable[[torch.Tensor], float]]:
    """The stress case of a row and a photograph; ValueError if that photograph has none."""
    for case in stress_cases(group, (row,), (index,), seed=SEED):
        return case.a, case.b, partial(relative_error, case=case)
    raise ValueError(f"photograph {index} of {group} has no case of {row}")


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
    return {
        "error": min(error(matrix), 1.0),
        "evidence": seen[-1].evidence,
        "seconds": round(found.seconds, 3),
    }


def _error(pair: Pair, found: torch.Tensor) -> float:
    """Mean corner error over the diagonal; 1 where nothing relates the images."""
    if pair.H is None:
        return 1.0
    size = (pair.a.shape[0], pair.a.shape[1])
    error = float(corner_error(found, pair.H, size, centered=False))
    return error / math.hypot(*size) if math.isfinite(error) else 1.0


def fit(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The coefficients of all factors at once, the likelihood of the rows with evidence being largest under them.

    A ridge holds the weights, and each keeps its known sign: evidence that correlates with other evidence could come
    out against its meaning.
    """
    seen = [row for row in rows if row["evidence"]]
    values = [features(row["evidence"]) for row in seen]
    right = np.array([row["error"] < RIGHT for row in seen])
    columns = {name: np.array([value[name] for value in values]) for name in values[0]}
    means = {name: round(float(x.mean()), 6) for name, x in columns.items()}
    scales = {name: round(max(float(x.std()), 1e-3), 6) for name, x in columns.items()}
    designs, start, bounds = [], [], []
    for names in FACTORS.values():
        parts = [(columns[name] - means[name]) / scales[name] for name in names]
        designs.append(np.stack([*parts, np.ones(len(seen))], 1))
        start += [*map(float, names.values()), START]
        bounds += [(LEAST, None) if sign > 0 else (None, -LEAST) for sign in names.values()] + [(None, MOST)]
    ends = np.cumsum([design.shape[1] for design in designs])[:-1]

    def cost(theta: np.ndarray) -> tuple[float, np.ndarray]:
        logits = [design @ part for design, part in zip(designs, np.split(theta, ends), strict=True)]
        log_p = -sum(np.logaddexp(0, -logit) for logit in logits)
        wrong = np.maximum(-np.expm1(log_p), 1e-9)
        loss = -np.where(right, log_p, np.log(wrong)).sum()
        slope = -np.where(right, 1.0, -np.exp(log_p) / wrong)  # of the loss, with log_p
        parts = []
        for design, part, logit in zip(designs, np.split(theta, ends), logits, strict=True):
            hold = np.append(RIDGE * part[:-1], HOLD * (part[-1] - START))
            loss += 0.5 * float(hold @ np.append(part[:-1], part[-1] - START))
            parts.append(design.T @ (slope / (1 + np.exp(np.clip(logit, -50, 50)))) + hold)
        return float(loss), np.concatenate(parts)

    found = minimize(cost, np.array(start), jac=True, method="L-BFGS-B", bounds=bounds)
    return {
        "means": means,
        "scales": scales,
        "factors": {
            name: {"weights": part[:-1].round(6).tolist(), "bias": round(float(part[-1]), 6)}
            for name, part in zip(FACTORS, np.split(found.x, ends), strict=True)
        },
        "pairs": len(rows),
        "right": int(right.sum()),
        "seed": SEED,
    }


def predicted(fitted: dict[str, Any], rows: list[dict[str, Any]]) -> np.ndarray:
    """The confidence of each row."""
    with mock.patch.object(caunet.estimation.confidence, "_fitted", return_value=fitted):
        return np.array([caunet.estimation.confidence.confidence(row["evidence"]) for row in rows])


def measure(confidence: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Reliability bins, the expected calibration error with its 95 % interval, and what is wrong above 0.9."""
    bins = []
    for k in range(BINS):
        here = _bin(confidence) == k
        if here.any():
            mean, share = float(confidence[here].mean()), float(right[here].mean())
            bins.append({"low": k / BINS, "count": int(here.sum()), "confidence": mean, "right": share})
    rng = np.random.default_rng(SEED)
    drawn = rng.integers(len(right), size=(DRAWS, len(right)))
    again = [_calibration_error(confidence[some], right[some]) for some in drawn]
    sure = confidence > 0.9
    return {
        "pairs": len(right),
        "right": float(right.mean()),
        "expected_calibration_error": _calibration_error(confidence, right),
        "interval": [float(value) for value in np.quantile(again, (0.025, 0.975))],
        "brier": float(np.square(confidence - right).mean()),
        "above_0.9": {"answers": int(sure.sum()), "wrong": int((sure & ~right).sum())},
        "bins": bins,
    }


def _bin(confidence: np.ndarray) -> np.ndarray:
    place: np.ndarray = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return place


def _calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Mean distance of confidence and share of right answers over the bins, weighted by their pairs."""
    gaps = np.bincount(_bin(confidence), weights=confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(right))


def report(fitted: dict[str, Any], held: list[dict[str, Any]]) -> dict[str, Any]:
    """All that is said of the held-out pairs."""
    confidence, right = predicted(fitted, held), np.array([row["error"] < RIGHT for row in held])
    kind = np.array([row["kind"] for row in held])
    model = np.array([row["model"] for row in held])
    apart = kind == "unrelated"
    counted = ~apart | (np.cumsum(apart) <= COUNTED)

    def line(here: np.ndarray) -> dict[str, Any]:
        sure, c, r = (confidence > 0.9)[here], confidence[here], right[here]
        return {
            "pairs": int(here.sum()),
            "right": float(r.mean()),
            "mean_confidence": float(c.mean()),
            "above_half_but_wrong": int(((c > 0.5) & ~r).sum()),
            "above_0.9": int(sure.sum()),
            "above_0.9_but_wrong": int((sure & ~r).sum()),
        }

    related = _related(kind)
    return {
        "held_out": measure(confidence[counted], right[counted]),
        "answerable": measure(confidence[related], right[related]) if related.any() else {},
        "unrelated": line(apart) if apart.any() else {},
        "models": {
            name: {
                **line(model == name),
                "expected_calibration_error": _calibration_error(
                    confidence[counted & (model == name)], right[counted & (model == name)]
                ),
            }
            for name in PLANE_MODELS
            if (counted & (model == name)).any()
        },
        "kinds": {name: line(kind == name) for name in dict.fromkeys(sorted(kind.tolist()))},
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
        result["oxford"] = report(fitted, rows["oxford"])["held_out"]
    write_json(COEFFICIENTS, fitted)
    save("confidence", {**result, "fitted": fitted})
    draw(result)
    for name in ("held_out", "answerable", "oxford"):
        if name in result:
            print(name, json.dumps({k: v for k, v in result[name].items() if k != "bins"}))
    for table in ("models", "kinds"):
        for name, line in result[table].items():
            print(f"{name:22s}", *(f"{k} {round(v, 3)}" for k, v in line.items()))


def _oxford(folder: Path | None) -> list[Task]:
    """Real pairs, as they lie on the disk; none without a folder."""
    if folder is None:
        return []

    def made(case: Any) -> tuple[Any, Any, Callable[[torch.Tensor], float]]:
        return case.a, case.b, partial(relative_error, case=case)

    return [Task(case.row, partial(made, case)) for case in oxford_cases(folder)]


if __name__ == "__main__":
    main()
