"""Fit the confidence of caunet.estimate, and see on other photographs whether it keeps its word.

    python benchmarks/calibrate_confidence.py            # about ten minutes on one core

Fitted on pairs of the photographs set apart for it (group "calibration"): all conditions at small, large and very
large motions, and pairs that nobody can answer. Measured on the photographs of the groups "bench" and "test", with
pairs that the registration benchmark does not use. Right means: mean corner error below 1 % of the diagonal. Writes
the coefficients (src/caunet/weights/confidence.json), benchmarks/results/confidence.json and
docs/figures/confidence.png.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from caunet.benchmark.pairs import CONDITIONS, Pair, draw_pair
from caunet.benchmark.unanswerable import blank, out_of_range, repetitive, unrelated_pair
from caunet.estimation.confidence import FEATURES, features
from caunet.estimation.estimator import Estimator
from caunet.estimation.register import register
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
RIDGE = 1.0

MOTIONS = (0.03, 0.1, 0.2, 0.27, 0.34)

# How many pairs: of each condition at each motion, of small pictures, and of those that nobody can answer.
FIT = {"cell": 7, "small": 30, "unrelated": 120, "blank": 24, "repetitive": 40, "far": 36}
HELD = {"cell": 4, "small": 20, "unrelated": 500, "blank": 16, "repetitive": 24, "far": 24}
FEW = {"cell": 2, "small": 10, "unrelated": 0, "blank": 8, "repetitive": 0, "far": 8}

Make = Callable[[], Pair]


def pairs(group: Any, plan: dict[str, int]) -> Iterator[tuple[str, Make]]:
    """(kind, function that makes the pair) after ``plan``."""
    for motion in MOTIONS:
        for condition in CONDITIONS:
            for index in range(plan["cell"]):
                yield f"{condition} {motion}", partial(draw_pair, group, condition, motion, index, seed=SEED)
    for index in range(plan["small"]):
        condition, side = CONDITIONS[index % len(CONDITIONS)], (64, 32)[index % 2]
        yield "small", partial(draw_pair, group, condition, 0.1, index, seed=SEED + 2, side=side)
    for index in range(plan["unrelated"]):
        yield "unrelated", partial(unrelated_pair, group, index, seed=SEED)
    for index in range(plan["blank"]):
        yield "blank", partial(blank, group, index, seed=SEED)
    for index in range(plan["repetitive"]):
        yield "repetitive", partial(repetitive, index, seed=SEED + (group != "calibration"))
    for index in range(plan["far"]):
        yield "out of range", partial(out_of_range, group, index, seed=SEED)


def collect(group: Any, plan: dict[str, int], keep: Path | None) -> list[dict[str, Any]]:
    """What each pair of ``plan`` gave: kind, corner error as a share of the diagonal, evidence."""
    rows = [json.loads(line) for line in keep.read_text().splitlines()] if keep and keep.exists() else []
    estimator, done = Estimator(), len(rows)
    for number, (kind, make) in enumerate(pairs(group, plan)):
        if number < done:
            continue
        rows.append({"kind": kind, **_tried(make, estimator)})
        if keep is not None:
            with keep.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    return [row for row in rows if row["error"] is not None]


def _tried(make: Make, estimator: Estimator) -> dict[str, Any]:
    try:
        pair = make()
    except ValueError:  # the photograph is too small for such a motion: there is no such pair
        return {"error": None, "evidence": {}}
    with torch.inference_mode():
        found = register(pair.a, pair.b, estimator.network)
    return {"error": _error(found.H, pair), "evidence": found.evidence}


def _error(H: Any, pair: Pair) -> float:
    """Mean corner error over the diagonal; 1 where nothing relates the pictures."""
    if pair.H is None:
        return 1.0
    size = (pair.a.shape[0], pair.a.shape[1])
    error = float(corner_error(torch.from_numpy(H), pair.H, size, centered=False))
    return min(error / math.hypot(*size), 1.0) if math.isfinite(error) else 1.0


def fit(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Logistic regression with a ridge, by Newton's method, on rows that have evidence."""
    seen = [row for row in rows if row["evidence"]]
    x = np.array([features(row["evidence"]) for row in seen])
    y = np.array([row["error"] < RIGHT for row in seen], dtype=float)
    means, scales = x.mean(0), x.std(0) + 1e-6
    design = np.hstack([(x - means) / scales, np.ones((len(x), 1))])
    hold = RIDGE * np.append(np.ones(x.shape[1]), 0.0)
    theta = np.zeros(design.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ theta))
        gradient = design.T @ (p - y) + hold * theta
        curvature = (design * (p * (1 - p) + 1e-9)[:, None]).T @ design + np.diag(hold + 1e-9)
        theta = theta - np.linalg.solve(curvature, gradient)
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
        "without_hopeless": measure(confidence[_related(kind)], right[_related(kind)]),
        "unrelated": {"pairs": int(apart.sum()), "above_half": float((confidence[apart] > 0.5).mean())},
        "kinds": kinds,
    }


def _related(kind: np.ndarray) -> np.ndarray:
    return ~np.isin(kind, ["unrelated", "blank", "repetitive", "out of range"])


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
    parser.add_argument(
        "--keep", type=Path, help="folder that keeps what pairs gave, to fit again without them"
    )
    parser.add_argument(
        "--only", choices=("fit", "bench", "test"), help="collect one part into --keep, and stop"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    parts = {"fit": ("calibration", FIT), "bench": ("bench", HELD), "test": ("test", FEW)}
    rows = {
        name: collect(group, plan, None if options.keep is None else options.keep / f"{name}.jsonl")
        for name, (group, plan) in parts.items()
        if options.only in (None, name)
    }
    if options.only:
        return
    fitted = fit(rows["fit"])
    result = report(fitted, rows["bench"] + rows["test"])
    write_json(COEFFICIENTS, fitted)
    save("confidence", {**result, "fitted": fitted})
    draw(result)
    print(json.dumps({k: v for k, v in result.items() if k != "kinds"}, indent=1))
    for name, line in result["kinds"].items():
        print(f"{name:18s}", *(f"{k} {v:.3f}" for k, v in line.items()))


if __name__ == "__main__":
    main()
