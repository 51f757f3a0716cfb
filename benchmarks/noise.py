"""How exact answers are under noise, beside pystackreg: euclidean and affine pairs of 256 x 256 pixels.

    python benchmarks/noise.py                       # 63 pairs of each kind, about four minutes on one core
    python benchmarks/noise.py --calibration         # on the photographs that settings are chosen on

Corners move by up to 3 %; both images get independent noise of 0, 5, 10 and 20 gray levels of 255. pystackreg gets the
same bytes and the same model, and looks for the whole of it by itself, as caunet does. Errors are the mean distances of
the four corners from where they should be, in pixels; the ratio is the geometric mean of caunet's error over
pystackreg's, pair by pair. Reported are photographs of the group "bench". One thread.
Writes benchmarks/results/noise.json.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from caunet import geometry
from caunet.benchmark.methods import one_thread
from caunet.benchmark.misleading import moved_by
from caunet.benchmark.photographs import Group
from caunet.estimation import Estimator
from caunet.extras import require
from caunet.tables import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import save

SEED, SIDE, MOTION, PAIRS = 52_009, 256, 0.03, 63
NOISES = (0, 5, 10, 20)  # gray levels of 255
MODELS = {"euclidean": "RIGID_BODY", "affine": "AFFINE"}


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=PAIRS, help="pairs of each kind")
    parser.add_argument(
        "--calibration", action="store_true", help="on calibration photographs; nothing is written"
    )
    options = parser.parse_args()
    group: Group = "calibration" if options.calibration else "bench"
    result: dict[str, Any] = {"pairs": options.count, "side": SIDE, "motion": MOTION}
    rows = []
    with one_thread():
        for model in MODELS:
            for noise in NOISES:
                found = compare(model, noise, options.count, group)
                result[f"{model} {noise}"] = found
                ours, other = found["caunet"], found["pystackreg"]
                rows.append(
                    [
                        f"{model}, {noise}",
                        *(f"{r['median']:.4f} ({r['worst']:.3f})" for r in (ours, other)),
                        f"{found['ratio']:.2f}",
                    ]
                )
                print(", ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ("model, noise", "caunet: median (90 %) px", "pystackreg", "ratio")
    print(Table(header, "lrrr", rows).markdown())
    if not options.calibration:
        save("noise", result)


def compare(model: str, noise: int, count: int, group: Group) -> dict[str, Any]:
    """Corner errors of both methods on the same pairs."""
    StackReg = require("pystackreg", "bench", "TurboReg's registration").StackReg
    estimator, other = Estimator(model), StackReg(getattr(StackReg, MODELS[model]))
    errors: dict[str, list[float]] = {"caunet": [], "pystackreg": []}
    for index in range(count):
        pair = moved_by(group, model, index, motion=MOTION, noise=noise / 255, seed=SEED, side=SIDE)
        a, b = ((image * 255).round().byte().numpy() for image in (pair.a, pair.b))
        truth = pair.H.numpy()
        errors["caunet"].append(corner_error(np.asarray(estimator(a, b).matrix), truth))
        errors["pystackreg"].append(corner_error(other.register(a.astype(float), b.astype(float)), truth))
    ratios = np.log(errors["caunet"]) - np.log(errors["pystackreg"])
    spread = float(ratios.std() / np.sqrt(count))  # standard error of the logarithm
    ratio = float(ratios.mean())
    return {
        "ratio": float(np.exp(ratio)),
        "ratio_interval": [float(np.exp(ratio - 1.96 * spread)), float(np.exp(ratio + 1.96 * spread))],
        **{name: _summary(values) for name, values in errors.items()},
    }


def corner_error(H: Any, truth: Any) -> float:
    """Mean distance of the corners, in pixels."""
    corners = geometry.corners((SIDE, SIDE), like=truth)
    gap = geometry.apply(H, corners, far=1e6) - geometry.apply(truth, corners)
    return max(float(np.linalg.norm(gap, axis=1).mean()), 1e-6)


def _summary(values: list[float]) -> dict[str, float]:
    return {
        "median": float(np.median(values)),
        "worst": float(np.quantile(values, 0.9)),
        "rms": float(np.sqrt(np.mean(np.square(values)))),
    }


if __name__ == "__main__":
    main()
