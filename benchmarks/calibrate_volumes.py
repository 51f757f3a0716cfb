"""Fit the confidence of volumes: registrations whose answer is known, right and wrong, on volumes set apart.

    python -m benchmarks.calibrate_volumes [VOLUME] --out src/caunet/weights/confidence3.json

Volumes are made on the spot (textured bodies; other seeds are other organs) and, if VOLUME is given (BrainWeb's T1,
say, which no result is given for), that one at a third of its resolution. Pairs are related by random motions of up to
180 degrees, with noise, light and crops, or not related at all. An answer is right if the corners are off by less than
1 % of the diagonal. Half of the pairs fit the regression, the other half measure it; rows are saved as they come.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import scipy.ndimage as ndi
import torch

import caunet
import caunet.volumes
from caunet.estimation.confidence import logistic
from caunet.estimation.motion_models import create_motion_model
from caunet.files import write_json
from caunet.volumes.confidence import FEATURES, SIGNS, volume_features
from caunet.volumes.prepare import prepare
from caunet.volumes.register import register


def body(seed: int, size: tuple[int, int, int] = (48, 52, 46)) -> np.ndarray:
    """A textured body of random form, 0 around it."""
    rng = np.random.default_rng(seed)
    texture = sum(
        ndi.gaussian_filter(rng.normal(size=size), s) * s**1.5 * rng.uniform(0.3, 1) for s in (1.0, 2.0, 4.0)
    )
    places = np.stack(np.meshgrid(*(np.linspace(-1.3, 1.3, n) for n in size), indexing="ij"))
    form = (places * rng.uniform(0.8, 1.25, 3)[:, None, None, None]) ** 2
    edge = form.sum(0) + 2.0 * ndi.gaussian_filter(rng.normal(size=size), 5.0) * 5.0
    inside = ndi.gaussian_filter((edge < 0.9).astype(float), 0.8)
    return (np.clip(0.6 + 0.25 * texture / texture.std(), 0.05, None) * inside).astype(np.float32)


def motion(rng: np.random.Generator, shape: tuple[int, ...], affine: bool) -> np.ndarray:
    """(4, 4) in voxels: up to 180 degrees, a seventh of the side, and stretches of up to 20 %."""
    center = (np.array(shape[::-1]) - 1) / 2
    angle = rng.choice([10.0, 40.0, 90.0, 180.0]) * rng.uniform()
    turn = caunet.geometry.rotate(angle, axis=rng.normal(size=3).tolist()).double().numpy()[:3, :3]
    M = np.eye(4)
    M[:3, :3] = turn @ (np.diag(1 + rng.uniform(-0.2, 0.2, 3)) if affine else np.eye(3))
    M[:3, 3] = center + rng.uniform(-1, 1, 3) * min(shape) / 7 - M[:3, :3] @ center
    return M


def pair(index: int, real: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, str]:
    """Two volumes, the motion between them (None if there is none), and the model."""
    rng = np.random.default_rng([7, index])
    use_real = real is not None and index % 3 == 0
    a = real if use_real else body(index)
    affine = bool(rng.uniform() < 0.4)
    M: np.ndarray | None = motion(rng, a.shape, affine)
    seen = a
    if rng.uniform() < 0.3:  # another organ
        seen, M = body(10_000 + index, a.shape), None
    back = np.linalg.inv(motion(rng, a.shape, affine) if M is None else M)
    flip = [2, 1, 0]
    b = ndi.affine_transform(seen, back[:3, :3][flip][:, flip], back[:3, 3][flip], order=1).astype(np.float32)
    noise = rng.choice([0.0, 0.03, 0.1, 0.3, 0.8])
    a, b = (v + noise * rng.normal(size=v.shape).astype(np.float32) for v in (a, b))
    if rng.uniform() < 0.4:
        z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in b.shape), indexing="ij")
        b = b * (1 + 0.3 * (rng.normal() * x + rng.normal() * y + rng.normal() * z).clip(-2, 2)) + 0.1
    if rng.uniform() < 0.3:
        b = b[: b.shape[0] - b.shape[0] // 3]
    return a, b.astype(np.float32), M, "affine" if affine else "rigid"


def measured(index: int, real: np.ndarray | None) -> dict[str, object]:
    a, b, M, model = pair(index, real)
    levels = [prepare(caunet.volumes.Volume(v, np.eye(4)), None, torch.device("cpu")) for v in (a, b)]
    with torch.inference_mode():
        found = register(*levels, create_motion_model(model, dimensions=3), [np.eye(4)])
    corners = caunet.geometry.corners(a.shape, like=np.eye(4))
    error = np.inf
    if M is not None:
        there = [caunet.geometry.apply(T, corners) for T in (found.T, M)]
        error = np.sqrt(((there[0] - there[1]) ** 2).sum(1)).mean() / np.sqrt((corners[6] ** 2).sum())
    return {
        "right": bool(error < 0.01),
        "related": M is not None,
        "features": volume_features(found.evidence),
    }


def fit(rows: list[dict], hold: float = 0.5) -> dict[str, object]:
    """Logistic regression whose weights have the signs that they must have; a little is held back towards zero."""
    X, y = np.array([r["features"] for r in rows]), np.array([float(r["right"]) for r in rows])
    means, scales = X.mean(0), X.std(0) + 1e-6
    Z = np.concatenate([(X - means) / scales, np.ones((len(X), 1))], 1)
    free = np.ones(Z.shape[1], bool)
    while True:
        w = np.zeros(Z.shape[1])
        for _ in range(60):
            p = 1 / (1 + np.exp(-Z @ w))
            own = np.diag([hold] * (len(w) - 1) + [1e-3])
            H = (Z * (p * (1 - p))[:, None]).T @ Z + own
            step = np.linalg.solve(H[np.ix_(free, free)], (Z.T @ (y - p) - own @ w)[free])
            w[free] += np.clip(step, -2, 2)
        wrong = np.flatnonzero(free[:-1] & (w[:-1] * np.array(SIGNS) < 0))
        if not len(wrong):
            break
        free[wrong] = False
    return {
        "features": list(FEATURES), "weights": w[:-1].tolist(), "bias": float(w[-1]),
        "means": means.tolist(), "scales": scales.tolist(),
    }  # fmt: skip


def calibration_error(rows: list[dict], fitted: dict) -> float:
    """Expected calibration error over ten bins."""
    p = np.array([logistic(r["features"], fitted) for r in rows])
    y = np.array([float(r["right"]) for r in rows])
    which = np.minimum((p * 10).astype(int), 9)
    return float(sum(abs((p - y)[which == k].sum()) for k in range(10)) / len(rows))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("volume", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("src/caunet/weights/confidence3.json"))
    parser.add_argument("--rows", type=Path, default=Path("benchmarks/results/volume_confidence.json"))
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no pair after this time")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    real = None
    if args.volume is not None:
        values = caunet.volumes.read_volume(args.volume).values.astype(np.float32)
        real = ndi.gaussian_filter(values / np.quantile(values, 0.995), 1.5)[::3, ::3, ::3]
    rows = json.loads(args.rows.read_text())["rows"] if args.rows.exists() else []
    started = time.perf_counter()
    while len(rows) < args.count and time.perf_counter() - started < 60 * args.minutes:
        rows.append(measured(len(rows), real))
        if len(rows) % 5 == 0:
            write_json(args.rows, {"rows": rows})
            print(f"{len(rows)} pairs, {sum(r['right'] for r in rows)} right", flush=True)
    fitted = fit(rows[::2])
    report = {
        "rows": rows,
        "ece_fit": calibration_error(rows[::2], fitted),
        "ece": calibration_error(rows[1::2], fitted),
        "unrelated_above_half": sum(
            logistic(r["features"], fitted) >= 0.5 for r in rows[1::2] if not r["related"]
        ),
        "unrelated": sum(not r["related"] for r in rows[1::2]),
    }
    write_json(args.rows, report)
    write_json(args.out, fitted)
    print({name: value for name, value in report.items() if name != "rows"})


if __name__ == "__main__":
    main()
