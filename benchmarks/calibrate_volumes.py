"""Fit the confidence of volumes, and measure it and the covariance: registrations whose answer is known.

    python -m benchmarks.calibrate_volumes FOLDER --out src/caunet/weights/confidence3.json

Pairs to fit on: textured bodies and volumes of shapes3 (training split), made on the spot, and BrainWeb's T1 and T2 in
FOLDER at a third of their resolution. Pairs to measure on: other bodies, shapes3's test split, and the heads mni and
ch2. Without FOLDER, those made on the spot alone. Pairs are related by random motions of up to 180 degrees, with noise,
light, crops and another contrast, or not related at all (another organ, another contrast of one, noise). An answer is
right if the corners are off by less than 1 % of the diagonal. Rows are saved as they come; the same command goes on
where it ended.

Of each pair that is found, the errors at five points are kept with the covariances that the residuals alone give; the
factor and the floor (register.py) are those by which 95 % of the ellipsoids of the pairs to fit on hold the truth.
"""

import argparse
import functools
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.ndimage as ndi
import torch
from benchmarks.harness import environment

import caunet
import caunet.volumes
from caunet.data import shapes3
from caunet.estimation.confidence import logistic
from caunet.estimation.motion_models import create_motion_model
from caunet.files import write_json
from caunet.volumes import uncertainty
from caunet.volumes.confidence import FEATURES, SIGNS, volume_features
from caunet.volumes.prepare import prepare
from caunet.volumes.register import _INFLATION, _RESAMPLING, register

HEADS = {
    "fit": ("brainweb1e1a10f20.mha", "brainweb1e5a10f17.mha"),
    "test": ("mni.nii.gz", "ch2.nii.gz"),
}
INSIDE = 7.815  # the 95 % quantile of chi squared with three degrees of freedom


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


@functools.lru_cache(maxsize=4)
def head(path: str) -> np.ndarray:
    """A head at a third of its resolution."""
    volume = caunet.volumes.read_volume(path)
    values = volume.values.astype(np.float32) * np.float32(volume.slope) + np.float32(volume.intercept)
    return ndi.gaussian_filter(values / np.quantile(values[::4, ::4, ::4], 0.995), 1.5)[::3, ::3, ::3]


def organ(rng: np.random.Generator, split: str, folder: Path | None, kind: str) -> np.ndarray:
    """A volume of a kind: body, shapes or head."""
    number = int(rng.integers(1, 1 << 20))
    if kind == "head" and folder is not None:
        return head(str(folder / HEADS[split][0 if split == "fit" else number % 2]))
    if kind == "shapes":
        count = shapes3.TRAIN if split == "fit" else shapes3.TEST
        whole = shapes3.make(number % count, "train" if split == "fit" else "test").astype(np.float32) / 255
        return whole[6:-6, 4:-4, 8:-8]
    return body(2 * number + (split == "fit"))


def pair(
    index: int, split: str, folder: Path | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, str, str]:
    """Two volumes, the motion between them (None if there is none), the model, and what it is."""
    rng = np.random.default_rng([7, split == "fit", index])
    kinds = ("body", "shapes", "head")
    kind = kinds[index % 3]
    a = organ(rng, split, folder, kind)
    affine = bool(rng.uniform() < 0.4)
    M: np.ndarray | None = motion(rng, a.shape, affine)
    seen, name = a, kind
    chance = rng.uniform()
    if chance < 0.3:  # another organ
        others = [one for one in kinds if one != kind] if kind == "head" else kinds
        seen, M, name = (
            organ(rng, split, folder, others[int(rng.integers(len(others)))]),
            None,
            f"{kind}, other",
        )
        seen = seen if rng.uniform() < 0.7 else 1 - seen
    elif chance < 0.34:
        seen, M, name = rng.random(a.shape).astype(np.float32), None, f"{kind}, noise"
    elif chance < 0.42 and split == "fit" and kind == "head" and folder is not None:
        seen, name = head(str(folder / HEADS["fit"][1])), "T1 and T2"
    elif chance < 0.42:
        seen, name = (1.2 - a) * (a > 0.1), f"{kind}, contrast"
    back = np.linalg.inv(motion(rng, a.shape, affine) if M is None else M)
    flip = [2, 1, 0]
    b = ndi.affine_transform(
        seen, back[:3, :3][flip][:, flip], back[:3, 3][flip], output_shape=a.shape, order=3
    ).astype(np.float32)
    noise = rng.choice([0.0, 0.03, 0.1, 0.3, 0.8])
    a, b = (v + noise * rng.normal(size=v.shape).astype(np.float32) for v in (a, b))
    if rng.uniform() < 0.4:
        z, y, x = np.meshgrid(*(np.linspace(-1, 1, n) for n in b.shape), indexing="ij")
        b = b * (1 + 0.3 * (rng.normal() * x + rng.normal() * y + rng.normal() * z).clip(-2, 2)) + 0.1
    if rng.uniform() < 0.3:
        b = b[: b.shape[0] - b.shape[0] // 3]
    return a, b.astype(np.float32), M, "affine" if affine else "rigid", name


def measured(index: int, split: str, folder: Path | None) -> dict[str, Any]:
    a, b, M, model, name = pair(index, split, folder)
    levels = [prepare(caunet.volumes.Volume(v, np.eye(4)), None, torch.device("cpu")) for v in (a, b)]
    with torch.inference_mode():
        found = register(*levels, create_motion_model(model, dimensions=3), [np.eye(4)])
    corners = caunet.geometry.corners(a.shape, like=np.eye(4))
    row: dict[str, Any] = {"kind": name, "related": M is not None, "right": False}
    row["features"] = [round(value, 6) for value in volume_features(found.evidence)]
    if M is None:
        return row
    there = [caunet.geometry.apply(T, corners) for T in (found.T, M)]
    error = np.sqrt(((there[0] - there[1]) ** 2).sum(1)).mean() / np.sqrt((corners[6] ** 2).sum())
    row |= {"error": float(error), "right": bool(error < 0.01)}
    if row["right"]:
        middle = corners.mean(0)
        points = middle + 0.5 * (np.concatenate([middle[None], corners[[0, 2, 5, 7]]]) - middle)
        spread = uncertainty.of_points(corners, found.covariance, points)
        own = np.stack([spread[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] for k in range(len(points))])
        row["errors"] = (caunet.geometry.apply(found.T, points) - caunet.geometry.apply(M, points)).tolist()
        row["spreads"] = ((own - _RESAMPLING**2 * np.eye(3)) / _INFLATION).tolist()
    return row


def inside(rows: list[dict[str, Any]], factor: float, floor: float) -> float:
    """The share of ellipsoids that hold the truth, for a factor and a floor of covariances."""
    held = [
        float(error @ np.linalg.solve(factor * spread + floor**2 * np.eye(3), error)) <= INSIDE
        for row in rows
        if "errors" in row
        for error, spread in zip(np.array(row["errors"]), np.array(row["spreads"]), strict=True)
    ]
    return float(np.mean(held)) if held else float("nan")


def fit_covariance(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """The factor and the floor by which 95 % of the ellipsoids hold the truth, of exact pairs and of noisy ones alike.

    For each floor there is one such factor; that pair is taken whose shares differ least between the half of the pairs
    with the smaller covariances and the other half.
    """
    found = [row for row in rows if "errors" in row]
    found.sort(key=lambda row: float(np.trace(np.array(row["spreads"]).mean(0))))
    halves = found[: len(found) // 2], found[len(found) // 2 :]
    choices = []
    for floor in (0.0, 0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03):
        low, high = 1e-3, 1e4
        if inside(found, low, floor) > 0.95:
            continue
        for _ in range(30):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if inside(found, middle, floor) < 0.95 else (low, middle)
        gap = abs(inside(halves[0], high, floor) - inside(halves[1], high, floor))
        choices.append((gap, round(high, 2), floor))
    _, factor, floor = min(choices)
    return factor, floor


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


def calibration(rows: list[dict[str, Any]], fitted: dict[str, Any]) -> dict[str, Any]:
    """Expected calibration error over ten bins, and the bins: how many, mean confidence, share that is right."""
    p = np.array([logistic(r["features"], fitted) for r in rows])
    y = np.array([float(r["right"]) for r in rows])
    which = np.minimum((p * 10).astype(int), 9)
    bins = [
        [
            int((which == k).sum()),
            round(float(p[which == k].mean()), 4),
            round(float(y[which == k].mean()), 4),
        ]
        for k in range(10)
        if (which == k).any()
    ]
    unrelated = [q for q, r in zip(p.tolist(), rows, strict=True) if not r["related"]]
    return {
        "pairs": len(rows),
        "right": int(y.sum()),
        "ece": round(float(sum(n * abs(mean - share) for n, mean, share in bins)) / len(rows), 4),
        "bins": bins,
        "unrelated": len(unrelated),
        "unrelated_above_half": sum(q >= 0.5 for q in unrelated),
        "right_below_half": int(((p < 0.5) & (y > 0)).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("src/caunet/weights/confidence3.json"))
    parser.add_argument("--rows", type=Path, default=Path("benchmarks/results/volume_confidence.json"))
    parser.add_argument("--count", type=int, default=300, help="pairs to fit on")
    parser.add_argument("--test", type=int, default=200, help="pairs to measure on")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no pair after this time")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("THREADS", "2")))
    kept: dict[str, list[dict[str, Any]]] = {"fit": [], "test": []}
    if args.rows.exists():
        kept = json.loads(args.rows.read_text())["rows"]
    started, wanted = time.perf_counter(), {"fit": args.count, "test": args.test}
    while time.perf_counter() - started < 60 * args.minutes:
        ahead = [split for split in kept if len(kept[split]) < wanted[split]]
        if not ahead:
            break
        split = min(ahead, key=lambda one: len(kept[one]) / wanted[one])  # both grow alike
        kept[split].append(measured(len(kept[split]), split, args.folder))
        done = sum(map(len, kept.values()))
        if done % 10 == 0:
            write_json(args.rows, {"rows": kept})
            print(
                f"{done} pairs, {sum(r['right'] for rows in kept.values() for r in rows)} right", flush=True
            )
    fitted = fit(kept["fit"])
    factor, floor = fit_covariance(kept["fit"])
    report = {
        "environment": environment(),
        "fitted": calibration(kept["fit"], fitted),
        "measured": calibration(kept["test"], fitted),
        "covariance": {
            "factor": factor,
            "floor": floor,
            "held_fitted": round(inside(kept["fit"], factor, floor), 4),
            "held_measured": round(inside(kept["test"], factor, floor), 4),
            "held_measured_now": round(inside(kept["test"], _INFLATION, _RESAMPLING), 4),
        },
    }
    write_json(args.rows, report | {"rows": kept})
    write_json(args.out, fitted)
    print(json.dumps({name: value for name, value in report.items() if name != "environment"}, indent=1))


if __name__ == "__main__":
    main()
