"""What the learned relation adds: the same places of the same images, compared in four ways.

    python benchmarks/matching.py --oxford FOLDER            # about two minutes on one core
    python benchmarks/matching.py --group bench              # embedded photographs, the stress set
    python benchmarks/matching.py --oxford FOLDER --trained softmin-0=DIR/match.safetensors triplet-0=...

Places are caunet's. They are compared by: contrast association units with the weights that were learned and the
probability of winning as the weight of a match (what caunet.estimate uses); the same without that probability; the
plain distance of the same features (all weights equal); RootSIFT, OpenCV's descriptor of the same places. Then
OpenCV's own places with SIFT and with ORB. ``--trained``: other networks, such as those of
`caunet train-matcher --loss triplet`, on the same places; their matches all have the same weight, so that only what
was learned differs. A match is right if it is within 3 pixels of the truth (of the image in which places were looked
for); a pair is found if its corners are off by less than 1 % of the diagonal. Writes
benchmarks/results/matching-NAME.json and the table in docs/matching.md.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.benchmark import adapters
from caunet.benchmark.cases import Case, oxford_cases, relative_error, stress_cases
from caunet.benchmark.methods import one_thread
from caunet.extras import require
from caunet.images import read_image
from caunet.matching.consensus import Matches, consensus
from caunet.matching.matcher import Described, Matcher
from caunet.matching.network import MatchNetwork, diagonal_contrast, load_matcher
from caunet.reproduction.tables import fill
from caunet.shipped import read_card
from caunet.tables import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that it runs as a file, too
from benchmarks.harness import save

ROOT = Path(__file__).parents[1]

RIGHT = 3.0  # pixels
FOUND = 0.01  # of the diagonal
TOLERANCE = 2.0  # pixels, of the consensus


@dataclass
class Tally:
    """What one way of comparing reached."""

    matches: int = 0
    right: int = 0
    found: int = 0
    pairs: int = 0
    seconds: float = 0.0
    rows: dict[str, list[int]] = field(default_factory=dict)

    def add(self, case: Case, H: Tensor | None, seconds: float) -> None:
        hit = int(H is not None and relative_error(H, case) < FOUND)
        self.found += hit
        self.pairs += 1
        self.seconds += seconds
        row = self.rows.setdefault(case.row, [0, 0])
        row[0] += hit
        row[1] += 1


def main() -> None:
    """Compare, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--oxford", type=Path, help="folder of the Oxford affine set")
    parser.add_argument(
        "--group", choices=("bench", "calibration", "test"), help="photographs of the stress set"
    )
    parser.add_argument("--trained", nargs="*", default=[], metavar="LABEL=PATH", help="other networks")
    options = parser.parse_args()
    trained = {
        label: load_matcher(Path(path)) for label, _, path in (t.partition("=") for t in options.trained)
    }
    if (options.oxford is None) == (options.group is None):
        parser.error("give one of --oxford and --group")
    name = "oxford" if options.oxford else f"stress-{options.group}"
    require("cv2", "bench", "RootSIFT")
    with one_thread(), torch.inference_mode():
        cases = oxford_cases(options.oxford) if options.oxford else stress_cases(options.group)
        tallies = compare(cases, trained)
    heads = ("compared by", "matches", "right", "found", "ms")
    rows = [
        [
            label,
            f"{t.matches / t.pairs:.0f}" if t.matches else "",
            f"{t.right / t.matches:.1%}" if t.matches else "",
            f"{t.found} of {t.pairs}",
            f"{1e3 * t.seconds / t.pairs:.0f}",
        ]
        for label, t in tallies.items()
    ]
    table = Table(heads, "lrrrr", rows).markdown()
    result = {label: {**vars(t)} for label, t in tallies.items()}
    with one_thread():
        path = save(f"matching-{name}", {"updates": read_card("match")["updates"], "tallies": result})
    commit = json.loads(path.read_text())["environment"]["commit"]
    updates = read_card("match")["updates"]
    below = f"Shipped weights: {updates} updates. ms: processor time of one thread. Commit {commit}."
    fill(ROOT / "docs" / "matching.md", f"{table}\n\n{below}", section=f"matching-{name}")
    print(table, below, path, sep="\n\n")


def compare(cases: Iterator[Case], trained: Mapping[str, MatchNetwork]) -> dict[str, Tally]:
    """All ways of comparing on all cases."""
    matcher = Matcher(patient=False)
    learned = {label: Matcher(network, patient=False) for label, network in trained.items()}
    others: dict[str, Callable[[Any, Any], Any]] = {
        "SIFT + MAGSAC": adapters.sift(),
        "ORB + MAGSAC": adapters.orb(),
    }
    weight = matcher.network.relation.weight
    tallies: dict[str, Tally] = {}
    for case in cases:
        gray_a, gray_b = (read_image(image).gray for image in (case.a, case.b))
        start = time.thread_time()
        a, b = matcher.describe(gray_a), matcher.describe(gray_b)
        shared = time.thread_time() - start
        ways: dict[str, Callable[[], tuple[Matches, Tensor]]] = {
            "learned relation, with its probability": lambda a=a, b=b: matcher.match(a, b),
            "learned relation": lambda a=a, b=b: mutual(a, b, a.features, b.features, weight),
            "plain distance of the features": lambda a=a, b=b: mutual(
                a, b, a.features, b.features, torch.ones_like(weight)
            ),
            "RootSIFT of the same places": lambda a=a, b=b, c=case: _root_sift_matches(a, b, c),
        }
        for label, other in learned.items():
            ways[label] = lambda m=other, x=gray_a, y=gray_b: _own_matches(m, m.describe(x), m.describe(y))
        for label, way in ways.items():
            start = time.thread_time()
            matches, _ = way()
            found = consensus(matches, tolerance=TOLERANCE * b.pixel, count=1)
            seconds = shared + time.thread_time() - start
            tally = tallies.setdefault(label, Tally())
            error = (geometry.apply(case.truth.double(), matches.a.double()) - matches.b).norm(dim=1)
            tally.matches += len(error)
            tally.right += int((error < RIGHT * max(b.pixel, 1.0)).sum())
            tally.add(case, found[0].H if found else None, seconds)
        for label, method in others.items():
            pixels = [_gray_bytes(image) for image in (gray_a, gray_b)]
            start = time.thread_time()
            H = method(*pixels)
            seconds = time.thread_time() - start
            answer = None if H is None else torch.from_numpy(np.asarray(H, np.float64))
            tallies.setdefault(label, Tally()).add(case, answer, seconds)
    return tallies


def _own_matches(matcher: Matcher, a: Described, b: Described) -> tuple[Matches, Tensor]:
    return mutual(a, b, a.features, b.features, matcher.network.relation.weight)


def mutual(
    a: Described, b: Described, first: Tensor, second: Tensor, weight: Tensor
) -> tuple[Matches, Tensor]:
    """Places that are each other's nearest, all with the same weight."""
    h = diagonal_contrast(first, second, weight)
    i = torch.arange(len(h))
    i = i[h.argmin(0)[h.argmin(1)] == i] if h.numel() else i[:0]
    j = h[i].argmin(1) if len(i) else i
    p, q = a.points, b.points
    scale, turn = (q.sigma[j] / p.sigma[i]).log(), q.angle[j] - p.angle[i]
    return Matches(p.xy[i], q.xy[j], scale, turn, q.sigma[j], torch.ones(len(i))), torch.stack([i, j])


def _root_sift_matches(a: Described, b: Described, case: Case) -> tuple[Matches, Tensor]:
    first, second = (
        root_sift(_gray_bytes(read_image(image).gray), d) for image, d in ((case.a, a), (case.b, b))
    )
    return mutual(a, b, first, second, torch.ones(first.shape[1]))


def root_sift(image: np.ndarray, described: Described) -> Tensor:
    """OpenCV's descriptors of the places, square roots of their shares (Arandjelović and Zisserman)."""
    cv2 = require("cv2", "bench", "RootSIFT")
    places = []
    for (x, y), sigma, angle in zip(*(t.tolist() for t in described.points[:3]), strict=True):
        place = cv2.KeyPoint(x, y, 2 * sigma, math.degrees(angle) % 360)
        place.octave = (
            max(0, math.floor(math.log2(sigma / 1.6) + 1e-6)) | 1 << 8
        )  # which image it is read from
        places.append(place)
    if not places:
        return torch.zeros(0, 128)
    _, found = cv2.SIFT_create().compute(image, places)
    return torch.from_numpy(np.sqrt(found / np.maximum(found.sum(1, keepdims=True), 1e-6)))


def _gray_bytes(gray: Tensor) -> np.ndarray:
    return (gray * 255).round().clamp(0, 255).to(torch.uint8).numpy()


if __name__ == "__main__":
    main()
