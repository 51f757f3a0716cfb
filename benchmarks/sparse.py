"""What pruning costs and brings: error, size and speed of the shipped networks, dense and pruned, on one thread.

    python -m benchmarks.sparse [--data cifar10] [--pairs 10000] [--rounds 9] [--speeds | --motion]

Entries of u and v below a share of their row's largest are set to zero, without any retraining. Dense and pruned take
turns in one process; speeds are of processor time, compared by the median of the ratios within a round. --speeds
measures those again and keeps the errors. --motion measures the network of registration alone: how many of 145
calibration pairs it brings together when it is pruned, and how fast it then compares 200 patches.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from caunet.data import PairSource, load_images
from caunet.evaluation import evaluate
from caunet.images.photographs import photograph
from caunet.models import DenseRelations, RelationNetwork, SparseNetwork, card, load_pretrained, prune
from caunet.progress import track

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import RESULTS, save, threads
from benchmarks.motion_networks import cases, first_guess, summary

TASKS = ("translation", "rotation", "scaling", "affine", "projective")
THRESHOLDS = (0.003, 0.01, 0.03, 0.1)
BATCHES = (1, 100, 10_000)
THRESHOLD = 0.01  # of the speeds
_BLOCK = 512  # pairs of the dense network at a time, its best


def errors(name: str, data: str, pairs: int) -> list[dict[str, Any]]:
    """Parameter error, weights and multiply-adds at each threshold; 0 is the whole network."""
    model, known = load_pretrained(name), card(name)
    source = PairSource(load_images(data, split="test"), known["task"], known["protocol"])
    found = []
    for threshold in (0.0, *THRESHOLDS):
        pruned = prune(model, threshold=threshold)
        relation = list(pruned.relation.parameters())
        kept = sum(int(w.count_nonzero()) for w in relation) / max(1, sum(w.numel() for w in relation))
        found.append(
            {
                "threshold": threshold,
                "parameter_error": evaluate(pruned, source, limit=pairs, progress=False)["parameter_error"],
                "nonzero": pruned.nonzero_count(),
                "share_of_relation_weights": round(kept, 4),
                "multiply_adds": pruned.multiply_adds(sparse=True),
            }
        )
    return found


def compare(dense: Callable[[], Any], sparse: Callable[[], Any], pairs: int, rounds: int) -> dict[str, Any]:
    """Pairs per second of processor time of both, and how many times faster ``sparse`` is.

    Processor time, not the clock's: on one thread they are the same where nothing else runs, and elsewhere the clock
    measures the others.
    """
    samples: dict[str, list[float]] = {"dense": [], "sparse": []}
    for number in range(rounds + 1):  # the first warms up
        for name, call in (("dense", dense), ("sparse", sparse)):
            started = time.process_time()
            for _ in range(max(1, 200 // pairs)):
                call()
            if number:
                samples[name].append((time.process_time() - started) / max(1, 200 // pairs))
    ratios = [d / s for d, s in zip(samples["dense"], samples["sparse"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "pairs_per_second": {
            name: round(pairs / statistics.median(times)) for name, times in samples.items()
        },
        "speedup": {"median": round(middle, 2), "p25": round(low, 2), "p75": round(high, 2)},
    }


def speeds(name: str, rounds: int) -> dict[str, Any]:
    """Batches of pairs, and a field over 512 x 512 pixels."""
    model = load_pretrained(name)
    pruned = prune(model, threshold=THRESHOLD)
    sparse = SparseNetwork(pruned)
    generator = torch.Generator().manual_seed(0)
    found: dict[str, Any] = {}
    for batch in BATCHES:
        x, y = torch.rand(2, batch, 11, 11, generator=generator)
        found[f"batch {batch}"] = compare(
            lambda x=x, y=y: _in_blocks(model, x, y),
            lambda x=x, y=y: sparse(x, y),
            batch,
            rounds * (1 if batch > 100 else 5),
        )
    found["field 512 x 512"] = _field(model, pruned, rounds)
    return found


def _in_blocks(model: RelationNetwork, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The dense network as fast as it is: of 10,000 pairs at once, half of the time would go into moving memory."""
    parts = zip(x.split(_BLOCK), y.split(_BLOCK), strict=True)
    return torch.cat([model(a, b) for a, b in parts]) if len(x) > _BLOCK else model(x, y)


def _field(model: RelationNetwork, pruned: RelationNetwork, rounds: int) -> dict[str, Any]:
    image = torch.from_numpy(photograph("camera.png")).float() / 255
    a, b = image, image.roll((2, -1), (0, 1))
    whole, fast = DenseRelations(model), DenseRelations(pruned)
    return compare(lambda: whole(a, b), lambda: fast(a, b), 502 * 502, rounds)


def registration(rounds: int) -> dict[str, Any]:
    """The network ``motion``, whole and pruned: calibration pairs that it brings together alone, size and speed."""
    model = load_pretrained("motion")
    pruned = {threshold: prune(model, threshold=threshold) for threshold in (0.0, *THRESHOLDS)}
    guesses: dict[float, list[dict[str, float]]] = {threshold: [] for threshold in pruned}
    for case in cases(10, seed=5):
        for threshold, network in pruned.items():
            guesses[threshold].append(first_guess(network, case))
    x, y = torch.rand(2, 200, 11, 11, generator=torch.Generator().manual_seed(0))
    found = {}
    for threshold, network in pruned.items():
        fast = SparseNetwork(network)
        speed = compare(lambda: model(x, y), lambda fast=fast: fast(x, y), 200, 5 * rounds)
        counted = {key: value for key, value in summary(guesses[threshold]).items() if key != "ms"}
        found[str(threshold)] = {**counted, "nonzero": network.nonzero_count(), "speed": speed}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", default="cifar10", help="test images: cifar10 (what the networks learned) or photos"
    )
    parser.add_argument("--pairs", type=int, default=10_000, help="test pairs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--speeds", action="store_true", help="measure speeds alone; the errors stay")
    parser.add_argument(
        "--motion", action="store_true", help="measure the registration's network alone; all else stays"
    )
    options = parser.parse_args()
    path = RESULTS / "sparse.json"
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    known.pop("environment", None)  # of another run
    if options.motion:
        with threads(1), torch.inference_mode():
            save("sparse", known | {"registration": registration(options.rounds)})
        return 0
    found: dict[str, Any] = known["networks"] if options.speeds else {}
    names = [f"{network}-{task}" for task in TASKS for network in ("can", "bln", "ctn")]
    with threads(1), torch.no_grad(), track(len(names), "pruned networks") as bar:
        for name in names:
            if not options.speeds:
                found[name] = {"errors": errors(name, options.data, options.pairs)}
            if name in ("can-translation", "can-rotation", "can-affine"):
                found[name]["speed"] = speeds(name, options.rounds)
            bar.advance()
    about = {"data": options.data, "pairs": options.pairs, "speed_at_threshold": THRESHOLD, "threads": 1}
    save("sparse", {**known, **about, "networks": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
