"""How well stacks are aligned, beside pystackreg: a drift with known truth, and a microscope's stack.

    python -m benchmarks.stacks                      # 500 frames of 256 x 256 from one photograph
    python -m benchmarks.stacks --frames 60          # a shorter look
    python -m benchmarks.stacks --stack FILE.tif     # also a stack of your own: residuals before and after
    python -m benchmarks.stacks --video FILE.avi     # also the first 500 frames of a video whose camera stands still
    python -m benchmarks.stacks --memory             # also what a process needs, of 100 and of 400 frames

The drift is a random walk of shift and angle on a photograph, with noise, flickering gain and three blank frames.
Errors are those of the corners, in pixels, against the truth. The documentation has the numbers of pystackreg's own
example (pc12-unreg.tif) and of vtest.avi, people on a square, from OpenCV's samples (in Debian: opencv-doc). Memory is
the largest of a process of its own that aligns frames as they are made. Results go to benchmarks/results/stacks.json.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.harness import RESULTS, environment, save

import caunet
from caunet import geometry
from caunet.benchmark.frames import take
from caunet.benchmark.photographs import photographs
from caunet.images.frames import open_frames

SIDE = 256


def drift(count: int, seed: int = 0, photo: str = "gravel") -> tuple[np.ndarray, np.ndarray]:
    """Frames (T, 256, 256) uint8 and their true matrices (T, 3, 3), each from its frame to the first."""
    rng = np.random.default_rng(seed)
    image = photographs("bench")[photo]
    steps = rng.normal(0, [0.8, 0.8, 0.12], (count, 3))  # pixels, pixels, degrees
    walk = np.zeros((count, 3))
    for k in range(1, count):  # held to the photograph by a spring
        walk[k] = 0.99 * walk[k - 1] + steps[k]
    frames, poses = [], []
    middle = geometry.center_of((SIDE, SIDE))
    for x, y, angle in walk:
        turn = geometry.center(geometry.rotate(torch.tensor(angle, dtype=torch.float64)), (SIDE, SIDE))
        pose = geometry.compose(geometry.translate(*torch.tensor([x, y], dtype=torch.float64)), turn)
        offset = [(n - 1) / 2 - m for n, m in zip(reversed(image.shape), middle, strict=True)]
        there = geometry.translate(*torch.tensor(offset, dtype=torch.float64))
        view = take(image, geometry.compose(there, pose), (SIDE, SIDE), fine=2)
        view = (
            view * rng.uniform(0.8, 1.2) + 0.02 * torch.from_numpy(rng.standard_normal((SIDE, SIDE))).float()
        )
        frames.append((view.clamp(0, 1) * 255).round().byte().numpy())
        poses.append(pose.numpy())
    for k in rng.choice(np.arange(1, count - 1), 3, replace=False):
        frames[k] = np.full((SIDE, SIDE), 128, np.uint8)
    return np.stack(frames), np.linalg.inv(poses[0]) @ np.stack(poses)


def errors(matrices: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Mean corner error of each frame: of all that have an answer, and of the last ten."""
    corners = geometry.corners((SIDE, SIDE), like=truth)
    known = np.isfinite(matrices).all((1, 2))
    gap = geometry.apply(matrices[known], corners) - geometry.apply(truth[known], corners)
    error = np.linalg.norm(gap, axis=-1).mean(-1)
    return {
        "frames": len(matrices),
        "answered": int(known.sum()),
        "median": float(np.median(error)),
        "worst": float(error.max()),
        "end": float(error[-10:].mean()),
    }


def ours(frames: np.ndarray) -> tuple[np.ndarray, float]:
    start = time.process_time()
    found = caunet.align(frames, model="euclidean", threads=1)
    return found.matrices, (time.process_time() - start) / len(frames)


def pystackreg(frames: np.ndarray, reference: str) -> tuple[np.ndarray, float]:
    from pystackreg import StackReg

    start = time.process_time()
    with np.errstate(all="ignore"):
        found = StackReg(StackReg.RIGID_BODY).register_stack(frames.astype(np.float32), reference=reference)
    # Its matrices read a frame at the reference's places: the other way.
    with np.errstate(all="ignore"):
        return np.linalg.inv(found), (time.process_time() - start) / len(frames)


def residual(frames: np.ndarray, matrices: np.ndarray) -> float:
    """Mean correlation of the aligned frames with their mean, over what all of them show."""
    size = frames.shape[1:3]
    made = caunet.Alignment(
        matrices, np.ones(len(frames)), size, "euclidean", tuple(map(str, range(len(frames))))
    )
    warped = np.stack(list(made.warp(frames.astype(np.float32), crop="common", mode="bicubic")))
    mean = warped.mean(0)
    return float(np.mean([np.corrcoef(frame.ravel(), mean.ravel())[0, 1] for frame in warped]))


def standing(path: Path, count: int) -> dict[str, Any]:
    """How far the frames of a camera that does not move are moved: the mean of the corners, in pixels."""
    frames = (frame.pixels for frame in itertools.islice(open_frames(path), count))
    start = time.process_time()
    found = caunet.align(frames, model="euclidean", threads=1)
    corners = geometry.corners(found.size, like=found.matrices)
    moved = np.linalg.norm(geometry.apply(found.matrices[found.found], corners) - corners, axis=-1)
    return {
        "frames": len(found),
        "answered": int(found.found.sum()),
        "size": found.size,
        "median": float(np.median(moved.mean(1))),
        "worst": float(moved.mean(1).max()),
        "worst_corner": float(moved.max()),
        "ms_per_frame": 1e3 * (time.process_time() - start) / len(found),
    }


def memory(count: int) -> float:
    """Megabytes that a process needs at most to align ``count`` frames of 512 x 512 and to write them."""
    code = f"""
import resource, tempfile, numpy as np, caunet
from caunet.stacks.writing import write_frames
scene = np.random.default_rng(0).random((80, 80)).repeat(8, 0).repeat(8, 1)
def frames():
    for k in range({count}):
        yield (scene[k % 60 : k % 60 + 512, k % 90 : k % 90 + 512] * 255).astype(np.uint8)
found = caunet.align(frames(), model="translation", threads=1, progress=False)
with tempfile.TemporaryDirectory() as folder:
    write_frames(found.warp(frames()), folder + "/out.tif")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def drifting(count: int) -> dict[str, Any]:
    """Errors and time of all methods on one drift."""
    frames, truth = drift(count)
    methods = {
        "caunet": lambda: ours(frames),
        "pystackreg, previous": lambda: pystackreg(frames, "previous"),
        "pystackreg, first": lambda: pystackreg(frames, "first"),
    }
    result: dict[str, Any] = {}
    for name, method in methods.items():
        matrices, seconds = method()
        result[name] = {**errors(matrices, truth), "ms_per_frame": 1e3 * seconds}
        print(f"{name:22s}", " ".join(f"{k} {v:.4g}" for k, v in result[name].items()), flush=True)
    return result


def main() -> None:
    """Measure, print, save; what is not measured now stays in the file as it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=500)
    parser.add_argument("--stack", type=Path, help="a TIFF stack to align as well")
    parser.add_argument("--video", type=Path, help="a video of a camera that stands still, to align as well")
    parser.add_argument("--memory", action="store_true", help="also measure memory, of 100 and of 400 frames")
    parser.add_argument("--no-drift", action="store_true", help="leave the drift out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {} if options.no_drift else {"drift": drifting(options.frames)}
    if options.stack is not None:
        own = np.stack([frame.pixels for frame in open_frames(options.stack) if frame.pixels is not None])
        still = np.tile(np.eye(3), (len(own), 1, 1))
        result["stack"] = {
            "before": residual(own, still),
            "caunet": residual(own, caunet.align(own, model="euclidean", threads=1).matrices),
            "pystackreg, previous": residual(own, pystackreg(own, "previous")[0]),
        }
        print("stack, correlation with the mean:", result["stack"], flush=True)
    if options.video is not None:
        result["video"] = standing(options.video, options.frames)
        print("video of a camera that stands still:", result["video"], flush=True)
    if options.memory:
        few, many = options.frames // 5, options.frames * 4 // 5
        result["memory_mb"] = {str(count): memory(count) for count in (few, many)}
        print("memory:", result["memory_mb"], flush=True)
    if options.frames >= 100:
        path = RESULTS / "stacks.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        commit = environment()["commit"]
        made = {name: {"commit": commit, **value} for name, value in result.items()}
        save("stacks", {name: value for name, value in {**before, **made}.items() if name != "environment"})


if __name__ == "__main__":
    main()
