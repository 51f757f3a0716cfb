"""Do the 95 % ellipses of the corners hold the true corners in 95 % of pairs?

    python benchmarks/covariance.py                  # 2,000 pairs, about six minutes on one core
    python benchmarks/covariance.py --count 200

Photographs of the groups "bench" and "test" in turn (the constants of polish.py were chosen on "calibration"), moved by
members of all five motion models of the plane, with noise of 0 to 4 % of the range on both, in pictures of 96 to 400
pixels a side (of the largest only blocks are aligned). Counted are answers that are right (1 % of the diagonal): of
others no covariance can know. Writes benchmarks/results/covariance.json.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from caunet import geometry
from caunet.benchmark.misleading import PLANE_MODELS, moved_by
from caunet.estimation.estimator import Estimator
from caunet.estimation.register import register

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import save

SEED = 40_316
SIDES = (96, 128, 192, 128, 256, 96, 128, 400)
NOISES = (0.0, 0.005, 0.01, 0.02, 0.04)
MOTIONS = (0.02, 0.06, 0.12)
ELLIPSE = 5.991  # squared distance within which 95 % of a normal distribution of two variables lie
RIGHT = 0.01  # of the diagonal


def pairs(count: int, groups: tuple[Any, ...], calibration: bool = False) -> Iterator[dict[str, Any]]:
    """Model, noise, side, and whether each corner lies in its ellipse, of every pair that was answered rightly."""
    estimators = {model: Estimator(model) for model in PLANE_MODELS}
    for index in range(count):
        model, noise = PLANE_MODELS[index % 5], NOISES[index // 5 % 5]
        group = groups[index % 3 // 2 % len(groups)]
        try:
            pair = moved_by(
                group,
                model,
                index,
                motion=MOTIONS[index // 25 % 3],
                noise=noise,
                seed=SEED + calibration,
                side=SIDES[index // 75 % len(SIDES)],
            )
        except ValueError:  # the photograph is too small for such a motion
            continue
        estimator = estimators[model]
        with torch.inference_mode():
            found = register(pair.a, pair.b, estimator.network, estimator.motion_model)
        inside = _inside(found.H, found.covariance, pair)
        if inside is not None:
            yield {"model": model, "noise": noise, "side": len(pair.a), "inside": inside}


def _inside(H: Any, covariance: Any, pair: Any) -> list[bool] | None:
    """Which corners' true places lie in the ellipse; None for a wrong answer."""
    size = (pair.a.shape[0], pair.a.shape[1])
    corners = geometry.corners(size, like=H)
    gap = geometry.apply(H, corners) - geometry.apply(pair.H.numpy(), corners)
    if covariance is None or not np.linalg.norm(gap, axis=1).mean() < RIGHT * math.hypot(*size):
        return None
    blocks = [covariance[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] for k in range(4)]
    return [bool(d @ np.linalg.solve(block, d) < ELLIPSE) for d, block in zip(gap, blocks, strict=True)]


def coverage(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Share of the corners inside, of all and apart by model, by noise and by side."""

    def share(some: list[dict[str, Any]]) -> float | None:
        return float(np.mean([row["inside"] for row in some])) if some else None

    return {
        "pairs": len(rows),
        "coverage": share(rows),
        "models": {model: share([row for row in rows if row["model"] == model]) for model in PLANE_MODELS},
        "noise": {str(noise): share([row for row in rows if row["noise"] == noise]) for noise in NOISES},
        "side": {
            str(side): share([row for row in rows if row["side"] == side]) for side in sorted(set(SIDES))
        },
    }


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000, help="pairs")
    parser.add_argument(
        "--calibration", action="store_true", help="on calibration photographs; writes nothing"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    groups = ("calibration",) if options.calibration else ("bench", "test")
    result = coverage(list(pairs(options.count, groups, options.calibration)))
    if not options.calibration:
        save("covariance", result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
