"""How fast are pairs made, next to a loop over OpenCV and to kornia's batched warp, and next to training?

All make the same `text` pairs, rounded to bytes, on one thread, in turns in one run. `caunet` also draws z from its
keys; the others are handed z and the numbers of the images. The loop builds each H with NumPy and calls OpenCV's warp
for an 11 x 11 output; `opencv_maps_given` is the same loop with every matrix made beforehand, its lower bound.

Two sizes: batches of 100 as training takes them (`caunet` streams them, which makes many batches at once; kornia
warps a batch at a time), and all 4,000 pairs in one call. `update` is an update of the contrast association network
at batch 100.

    python -m benchmarks.pairs [--data cifar10] [--rounds 15]
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import kornia.geometry.transform as kornia_transform
import numpy as np
import torch
from benchmarks import harness

from caunet import geometry, tasks
from caunet.data import ImageSet, PairSource, load_images
from caunet.models import create_model
from caunet.optim import HybridOptimizer
from caunet.training.update import Update

TASKS = ("translation", "rotation", "scaling", "affine", "projective")
PAIRS, BATCH = 4000, 100
CORNER, HALF, PATCH = 11, 5, 11


def numpy_homography(task: str, z: Any) -> Any:
    """What a person would write in the loop."""
    H = np.eye(3)
    if task == "translation":
        H[:2, 2] = z
    elif task == "rotation":
        c, s = np.cos(np.radians(z[0])), np.sin(np.radians(z[0]))
        H[:2, :2] = [[c, -s], [s, c]]
    elif task == "scaling":
        H[0, 0], H[1, 1] = z
    else:
        H[:2, :2] += z[:4].reshape(2, 2)
        if task == "projective":
            H[2, :2] = z[4:]
    return H


def opencv(task: str, images: Any, number: list[int], maps: list[Any] | None, z: Any) -> tuple[Any, Any]:
    """One pair after another."""
    x, y = (np.empty((len(number), PATCH, PATCH), np.uint8) for _ in range(2))
    to_patch, to_center = np.eye(3), np.eye(3)
    to_patch[:2, 2], to_center[:2, 2] = HALF, -(CORNER + HALF)
    for k, i in enumerate(number):
        image = images[i]
        x[k] = image[CORNER : CORNER + PATCH, CORNER : CORNER + PATCH]
        M = maps[k] if maps is not None else to_patch @ numpy_homography(task, z[k]) @ to_center
        if task == "projective":
            y[k] = cv2.warpPerspective(image, M, (PATCH, PATCH), flags=cv2.INTER_LINEAR)
        else:
            y[k] = cv2.warpAffine(image, M[:2], (PATCH, PATCH), flags=cv2.INTER_LINEAR)
    return x, y


def kornia(task: str, images: torch.Tensor, number: torch.Tensor, z: torch.Tensor) -> tuple[Any, Any]:
    """The whole batch at once."""
    chosen = images.index_select(0, number)
    to_patch, to_center = geometry.translate(HALF, HALF), geometry.translate(-CORNER - HALF, -CORNER - HALF)
    M = to_patch @ tasks.get(task).homography(z) @ to_center
    picture = chosen[:, None].float()
    if task == "projective":
        warped = kornia_transform.warp_perspective(picture, M, (PATCH, PATCH))
    else:
        warped = kornia_transform.warp_affine(picture, M[:, :2], (PATCH, PATCH))
    y = (warped[:, 0] + 0.5).clamp_(0, 255).to(torch.uint8)
    return chosen[:, CORNER : CORNER + PATCH, CORNER : CORNER + PATCH], y


def contest(images: ImageSet, task: str, rounds: int) -> dict[str, Any]:
    """Pairs a second of the three on the same pairs, and how far their pixels are apart."""
    source = PairSource(images, task, pairs="fresh")
    index = torch.cat([source.schedule(step, BATCH)[1] for step in range(PAIRS // BATCH)])
    _, expected, z = source.bytes(0, index)
    pixels, number, z_array = images.pixels.contiguous(), index // 10, z.double().numpy()
    array, numbers = pixels.numpy(), number.tolist()
    to_patch, to_center = geometry.translate(HALF, HALF), geometry.translate(-CORNER - HALF, -CORNER - HALF)
    maps = list((to_patch.double() @ tasks.get(task).homography(z.double()) @ to_center.double()).numpy())

    def kornia_batches() -> None:
        for start in range(0, PAIRS, BATCH):
            part = slice(start, start + BATCH)
            for patch in kornia(task, pixels, number[part], z[part]):
                patch.to(torch.float32).div_(255).sub_(0.5)

    ways: dict[str, Callable[[], Any]] = {
        "caunet": lambda: source.bytes(0, index),
        "caunet_stream": lambda: list(source.stream(0, PAIRS // BATCH, BATCH)),
        "opencv": lambda: opencv(task, array, numbers, None, z_array),
        "opencv_maps_given": lambda: opencv(task, array, numbers, maps, z_array),
        "kornia": lambda: kornia(task, pixels, number, z),
        "kornia_batches": kornia_batches,
    }
    times = harness.interleaved(ways, rounds=rounds, warmup=2)
    apart = {
        name: float((torch.as_tensor(ways[name]()[1]).int() - expected.int()).abs().float().mean())
        for name in ("opencv", "kornia")
    }
    return {
        "pairs_per_second": {name: PAIRS / t["median"] for name, t in times.items()},
        "times_as_fast": {
            "all_at_once": {peer: harness.ratio(times, peer, "caunet") for peer in ("opencv", "kornia")},
            "batches_of_100": {
                peer: harness.ratio(times, peer, "caunet_stream") for peer in ("opencv", "kornia_batches")
            },
        },
        "mean_difference_in_gray_levels": apart,
        "seconds": {name: {k: t[k] for k in ("median", "p10", "p90", "best")} for name, t in times.items()},
    }


def against_training(images: ImageSet, protocol: str, rounds: int) -> dict[str, Any]:
    """Making a batch of 100 fresh pairs in a stream against an update with it, 40 at a time."""
    result = {}
    for task in TASKS:
        source = PairSource(images, task, protocol, pairs="fresh")
        model = create_model("can", task)
        update = Update(model, HybridOptimizer.for_model(model, lr=0.005, free_lr=0.005))
        batch = next(source.stream(0, 1, 100))

        def train(update: Update = update, batch: Any = batch) -> None:
            for _ in range(40):
                update(*batch)

        def make(source: PairSource = source) -> None:
            for _ in source.stream(0, 40, 100):
                pass

        times = harness.interleaved({"pairs": make, "update": train}, rounds=rounds, warmup=1)
        share = harness.ratio(times, "pairs", "update")
        result[task] = {"pairs_over_update": share, "compiled_update": update.compiled}
        result[task] |= {f"{name}_seconds_a_batch": t["median"] / 40 for name, t in times.items()}
        print(f"{task} {protocol}: pairs cost {share['median']:.1%} of an update", flush=True)
    return result


def memory(images: ImageSet) -> dict[str, Any]:
    """Bytes at rest of the fixed set, and how much making it raised the process's peak."""
    images.pixels.sum()  # brought into memory before the measurement
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    before = _status("VmRSS")
    source = PairSource(images, "projective")
    kept = source.bytes(0, torch.tensor([0]))
    each = sum(part.element_size() * part[0].numel() for part in kept)
    peak = _status("VmHWM") - before
    return {"pairs": len(source), "bytes_at_rest": each * len(source), "peak_above_images_bytes": peak}


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    images = load_images(options.data)
    results: dict[str, Any] = {"environment": harness.environment(), "data": images.name}
    results["fixed_set"] = memory(images)  # first: a peak only grows
    print(results["fixed_set"], flush=True)
    results["against_opencv_and_kornia"] = {}
    for task in TASKS:
        results["against_opencv_and_kornia"][task] = found = contest(images, task, options.rounds)
        speeds = ", ".join(f"{name} {speed:,.0f}" for name, speed in found["pairs_per_second"].items())
        faster = {
            size: min(peers, key=lambda name, peers=peers: peers[name]["median"])
            for size, peers in found["times_as_fast"].items()
        }
        times = ", ".join(
            f"{size}: {found['times_as_fast'][size][peer]['median']:.2f} x {peer}"
            for size, peer in faster.items()
        )
        print(f"{task}: {speeds} pairs/s; {times}", flush=True)
    results["against_training"] = {
        p: against_training(images, p, options.rounds) for p in ("text", "release")
    }
    harness.save("pairs", results)


if __name__ == "__main__":
    main()
