"""Would another network serve caunet.estimate better? First guesses from each, on calibration pairs.

    caunet train --task wide-motion ... --out RUN            # docs/estimation.md has the whole command
    python -m benchmarks.motion_networks RUN/weights.safetensors

Each network alone brings two images together: up to three passes at the smallest images, one at the next larger ones,
and the polish there, from no motion. No places are matched and nothing is searched. Right: corners off by less than 1 %
of the diagonal. Also what the passes at the smallest images leave, before any polish. Photographs of the group
calibration, never those that are reported on. Writes benchmarks/results/motion_networks.json.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.harness import save

from caunet.benchmark.cases import Case, relative_error, stress_cases
from caunet.benchmark.methods import one_thread
from caunet.benchmark.pairs import draw_pair
from caunet.estimation.hypotheses import by_network
from caunet.estimation.motion_models import Projective
from caunet.estimation.pair import Pair, change_level
from caunet.estimation.views import whole_view
from caunet.images import read_image
from caunet.models import RelationNetwork, load_pretrained, load_weights

CONDITIONS = ("clean", "photometric", "occlusion", "low-texture")
MOTIONS = (0.1, 0.2, 0.3)
ROWS = ("foreground 30 %", "lighting ramp 60 %", "red to blue", "scale 1/2")


def cases(count: int, seed: int) -> Iterator[Case]:
    """``count`` synthetic pairs of each condition and motion, then rows of the stress set."""
    for condition in CONDITIONS:
        for motion in MOTIONS:
            for index in range(count):
                pair = draw_pair("calibration", condition, motion, index, seed=seed)
                a, b = ((image * 255).round().to(torch.uint8).numpy() for image in (pair.a, pair.b))
                yield Case(f"{condition}, ±{motion:.0%}", str(index), a, b, pair.H)
    yield from stress_cases("calibration", ROWS, seed=seed)


def first_guess(network: RelationNetwork, case: Case) -> dict[str, float]:
    """What a network makes of a case: errors as shares of the diagonal, and seconds."""
    a, b = (read_image(image).gray for image in (case.a, case.b))
    start = time.thread_time()
    pair = Pair(whole_view(a, b), network, Projective())
    found = by_network(pair, pair.start())
    seconds = time.thread_time() - start
    H = pair.start()
    for _ in range(3):
        H, _, _ = pair.refine_with_network(H, pair.top)
    errors = {
        "error": change_level(found.H, pair.next, 0),
        "left": change_level(H, pair.top, 0),
    }
    return {name: relative_error(torch.from_numpy(M), case) for name, M in errors.items()} | {
        "seconds": seconds
    }


def main() -> None:
    """Measure, save, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path, help="weights.safetensors of a run of caunet train")
    parser.add_argument("--pairs", type=int, default=10, help="of each condition and motion")
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    networks = {"motion": load_pretrained("motion"), "other": load_weights(options.weights)}
    rows: dict[str, dict[str, list[dict[str, float]]]] = {}
    with one_thread(), torch.inference_mode():
        for case in cases(options.pairs, options.seed):
            row = rows.setdefault(case.row, {name: [] for name in networks})
            for name, network in networks.items():
                row[name].append(first_guess(network, case))
        results: dict[str, Any] = {"pairs": options.pairs, "seed": options.seed, "rows": {}}
        for label, row in rows.items():
            results["rows"][label] = {name: summary(found) for name, found in row.items()}
        results["all"] = {
            name: summary([one for row in rows.values() for one in row[name]]) for name in networks
        }
        config = options.weights.with_name("config.json")
        if config.exists():
            results["config"] = json.loads(config.read_text())
        print(save("motion_networks", results))
    print(json.dumps(results["all"], indent=1))


def summary(found: list[dict[str, float]]) -> dict[str, float]:
    """How many were right, what the passes left (median), and the mean time."""
    return {
        "right": sum(one["error"] < 0.01 for one in found),
        "of": len(found),
        "left": round(statistics.median(one["left"] for one in found), 5),
        "ms": round(1000 * statistics.fmean(one["seconds"] for one in found), 1),
    }


if __name__ == "__main__":
    main()
