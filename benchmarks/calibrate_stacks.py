"""From which agreement on does a relation between two frames of a stack count? Chosen on synthetic stacks.

    python -m benchmarks.calibrate_stacks            # about two minutes on one core

Stacks of 128 x 128 pixels are drawn from the photographs set apart for calibration (none of them is measured on
elsewhere): a random walk of shift and angle, flickering gain, three levels of noise, and patches that move by
themselves, as cells do. Each frame is related to the one before, as ``caunet.align`` does it, and some also
to what has nothing to do with it: a frame of another photograph, or the same frame torn (its rows shifted at random). A
relation is right if its corners are off by less than a pixel on average, wrong if by more than three or if there is
nothing to find. The threshold has the smallest sum of the share of right relations that it refuses and the share of
wrong ones that it accepts; of several equally good ones the middle is taken. Results go to
benchmarks/results/calibrate_stacks.json.
"""

from typing import Any

import numpy as np
import torch
from benchmarks.harness import save

from caunet import Estimator, geometry
from caunet.benchmark.frames import take
from caunet.benchmark.photographs import photographs
from caunet.stacks.relate import Relater
from caunet.stacks.views import View

SIDE = 128
FRAMES = 9
NOISE = (0.01, 0.05, 0.12)
MOVERS = (0, 6, 14)  # patches that move by themselves
SEED = 11


def stack(
    photo: torch.Tensor, noise: float, movers: int, rng: np.random.Generator
) -> tuple[list[View], np.ndarray]:
    """Frames and their poses (T, 3, 3) in the photograph."""
    walk = rng.normal(0, [1.5, 1.5, 0.4], (FRAMES, 3)).cumsum(0)
    corner = [(n - SIDE) / 2 for n in reversed(photo.shape)]
    patches = rng.integers(0, SIDE - 24, (movers, 2)).astype(float)
    speed = rng.normal(0, 2.0, (movers, 2))
    texture = rng.random((movers, 24, 24)).astype(np.float32)
    views, poses = [], []
    for x, y, angle in walk:
        turn = geometry.center(geometry.rotate(torch.tensor(angle, dtype=torch.float64)), (SIDE, SIDE))
        there = torch.tensor([corner[0] + x, corner[1] + y], dtype=torch.float64)
        pose = geometry.compose(geometry.translate(*there), turn)
        view = take(photo, pose, (SIDE, SIDE), fine=2).float()
        for place, drawn in zip(patches.round().astype(int).clip(0, SIDE - 24), texture, strict=True):
            view[place[1] : place[1] + 24, place[0] : place[0] + 24] = torch.from_numpy(drawn)
        patches += speed
        view = (
            view * rng.uniform(0.8, 1.2) + noise * torch.from_numpy(rng.standard_normal((SIDE, SIDE))).float()
        )
        views.append(View((view.clamp(0, 1) * 255).round() / 255))
        poses.append(pose.numpy())
    return views, np.stack(poses)


def torn(view: View, rng: np.random.Generator) -> View:
    """The same frame with its rows shifted at random."""
    rows = [torch.roll(row, int(rng.integers(0, SIDE))) for row in view.gray]
    return View(torch.stack(rows))


def relations() -> list[dict[str, Any]]:
    """Confidence and corner error of each relation; the error of one that has nothing to find is infinite."""
    rng = np.random.default_rng(SEED)
    relater = Relater(Estimator("euclidean", threads=1), (SIDE, SIDE))
    photos = photographs("calibration")
    usable = {name: photo for name, photo in photos.items() if min(photo.shape) >= SIDE + 40}
    made = {
        (name, noise): stack(photo, noise, movers, rng)
        for name, photo in usable.items()
        for noise, movers in zip(NOISE, MOVERS, strict=True)
    }
    found: list[dict[str, Any]] = []
    for (name, noise), (views, poses) in made.items():
        strangers = [other for other in made if other[0].split("_")[0] != name.split("_")[0]]
        for k in range(1, FRAMES):
            truth = np.linalg.inv(poses[k - 1]) @ poses[k]
            related = relater(views[k], views[k - 1], np.eye(3))
            gap = geometry.apply(related.matrix, relater.corners) - geometry.apply(truth, relater.corners)
            error = float(np.linalg.norm(gap, axis=1).mean())
            found.append(
                {
                    "stack": name,
                    "noise": noise,
                    "kind": "next",
                    "error": error,
                    "agreement": related.agreement,
                }
            )
            if k not in (2, 6):
                continue
            stranger = (
                made[strangers[int(rng.integers(len(strangers)))]][0][k] if k == 2 else torn(views[k], rng)
            )
            related = relater(stranger, views[k - 1], np.eye(3))
            kind = "stranger" if k == 2 else "torn"
            found.append(
                {"stack": name, "noise": noise, "kind": kind, "error": None, "agreement": related.agreement}
            )
        print(name, noise, len(found), flush=True)
    return found


def choose(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The threshold, and what it and others cost."""
    right = np.array([r["agreement"] for r in found if r["error"] is not None and r["error"] < 1])
    wrong = np.array([r["agreement"] for r in found if r["error"] is None or r["error"] > 3])
    thresholds = np.arange(1, 100) / 100
    refused = np.array([(right < t).mean() for t in thresholds])
    accepted = np.array([(wrong >= t).mean() for t in thresholds])
    cost = refused + accepted
    best = thresholds[cost <= cost.min() + 1e-12]
    chosen = float(best[len(best) // 2])
    shown = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, chosen)
    return {
        "chosen": chosen,
        "equally_good": [float(best[0]), float(best[-1])],
        "right": len(right),
        "wrong": len(wrong),
        "thresholds": {
            f"{t:g}": {
                "right_refused": float((right < t).mean()),
                "wrong_accepted": float((wrong >= t).mean()),
            }
            for t in sorted(set(shown))
        },
    }


def main() -> None:
    """Relate, choose, save."""
    torch.set_num_threads(1)
    found = relations()
    result = {"side": SIDE, "frames": FRAMES, "noise": NOISE, "movers": MOVERS, "seed": SEED, **choose(found)}
    print(result)
    save("calibrate_stacks", result)


if __name__ == "__main__":
    main()
