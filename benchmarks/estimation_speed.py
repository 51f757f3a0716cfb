"""How long an estimate takes: easy pairs beside OpenCV's ECC, 40 megapixels, and the Oxford pairs beside ORB.

    python benchmarks/estimation_speed.py                     # easy pairs and large images, a minute on one core
    python benchmarks/estimation_speed.py --oxford FOLDER     # the Oxford pairs, too

One thread. Methods take turns in one process, pair by pair, so that whatever else the machine does slows all of them;
what counts are the ratios. Milliseconds are processor time. Large images are estimated each in a process of its own,
whose largest memory is reported, that of the two images included. Writes benchmarks/results/estimation_speed.json.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from caunet.benchmark import adapters
from caunet.benchmark.cases import oxford_cases
from caunet.benchmark.methods import one_thread
from caunet.benchmark.pairs import draw_pair
from caunet.estimation import Estimator
from caunet.images.gray import to_gray
from caunet.tables import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import environment, save

MOTION = 0.03
PAIRS = 30
ROUNDS = 3
LARGE = (5000, 8000)

Bytes = npt.NDArray[np.uint8]
Pair = tuple[Bytes, Bytes]
Method = Callable[[Any, Any], Any]


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--oxford", type=Path, help="folder of the Oxford affine set")
    parser.add_argument("--large", choices=("gray", "rgb"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large:
        print(json.dumps(estimate_large(options.large)))
        return
    result: dict[str, Any] = {"environment": environment()}
    with one_thread():
        caunet = Estimator("projective")
        result["easy"] = in_turns(caunet, adapters.ecc_pyramid(), easy_pairs(), ROUNDS)
        if options.oxford:
            result["oxford"] = in_turns(caunet, adapters.orb(), oxford_pairs(options.oxford), 1)
    result["large"] = {kind: large(kind) for kind in ("gray", "rgb")}
    names = {"easy": "256 x 256, 3 %, beside ECC pyramid", "oxford": "Oxford, beside ORB + MAGSAC"}
    rows = [
        [
            names[key],
            *(f"{r[k]['median']:.1f} ({r[k]['mean']:.1f})" for k in ("caunet", "other")),
            f"{r['ratio']:.2f}",
        ]
        for key, r in result.items()
        if key in names
    ]
    print(Table(("pairs", "caunet: median (mean) ms", "other", "ratio of means"), "lrrr", rows).markdown())
    for kind, r in result["large"].items():
        print(f"8000 x 5000, {kind}: {r['seconds']:.2f} s of processor time, {r['gigabytes']:.2f} GB")
    save("estimation_speed", result)


def easy_pairs() -> list[Pair]:
    """Pairs of the registration benchmark that hardly move."""
    drawn = (draw_pair("bench", "clean", MOTION, index) for index in range(PAIRS))
    return [((pair.a * 255).round().byte().numpy(), (pair.b * 255).round().byte().numpy()) for pair in drawn]


def oxford_pairs(folder: Path) -> list[Pair]:
    """All pairs of the set, gray."""
    return [(_gray(case.a), _gray(case.b)) for case in oxford_cases(folder)]


def _gray(image: Bytes) -> Bytes:
    return image if image.ndim == 2 else to_gray(np.ascontiguousarray(image[..., :3]))


def in_turns(caunet: Method, other: Method, pairs: Iterable[Pair], rounds: int) -> dict[str, Any]:
    """Milliseconds of both methods, one after the other on each pair; both are called once before."""
    pairs = list(pairs)
    times: dict[str, list[float]] = {"caunet": [], "other": []}
    for method in (caunet, other):
        method(*pairs[0])
    for _ in range(rounds):
        for pair in pairs:
            for name, method in (("caunet", caunet), ("other", other)):
                start = time.process_time()
                method(*pair)
                times[name].append(1e3 * (time.process_time() - start))
    ratios = np.divide(times["caunet"], times["other"])
    return {
        "pairs": len(pairs),
        "ratio": float(np.mean(times["caunet"]) / np.mean(times["other"])),
        "ratio_quartiles": np.quantile(ratios, [0.25, 0.5, 0.75]).tolist(),
        **{name: _summary(values) for name, values in times.items()},
    }


def _summary(values: list[float]) -> dict[str, Any]:
    return {
        "median": float(np.median(values)),
        "mean": float(np.mean(values)),
        "quartiles": np.quantile(values, [0.25, 0.75]).tolist(),
    }


def large(kind: str) -> dict[str, float]:
    """One estimate of large images in a process of its own."""
    command = [sys.executable, __file__, "--large", kind]
    measured: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return measured


def estimate_large(kind: str) -> dict[str, float]:
    """Two parts of one random scene of many scales, 8000 x 5000 pixels each, as bytes."""
    from PIL import Image

    height, width = LARGE
    draw = np.random.default_rng(0)
    scene = np.zeros((height + 200, width + 200), np.uint8)
    for cell in (64, 8):
        cells = draw.integers(0, 128, (scene.shape[0] // cell, scene.shape[1] // cell), np.uint8)
        scene += np.asarray(Image.fromarray(cells).resize(scene.shape[::-1], Image.Resampling.BICUBIC)) // 2
    a, b = scene[100:][:height, 100 : 100 + width], scene[130:][:height, 60 : 60 + width]
    if kind == "rgb":
        a, b = (np.repeat(part[..., None], 3, 2) for part in (a, b))
    with one_thread():
        estimator = Estimator("projective")
        start, clock = time.process_time(), time.perf_counter()
        found = estimator(a, b)
        seconds, elapsed = time.process_time() - start, time.perf_counter() - clock
    matrix = np.asarray(found.matrix)
    return {
        "seconds": seconds,
        "elapsed": elapsed,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "error": float(np.abs(matrix[:2, 2] - [40.0, -30.0]).max()),
    }


if __name__ == "__main__":
    main()
