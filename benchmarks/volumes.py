"""Registration of volumes beside SimpleITK, ANTs, dipy and greedy, on motions that are known.

    python -m benchmarks.volumes run FOLDER               # half resolution; --step 1 for full
    python -m benchmarks.volumes time FOLDER              # all methods take turns on the same pairs
    python -m benchmarks.volumes heads FOLDER             # one head to another, both directions
    python -m benchmarks.volumes tables                   # docs/volumes.md and README.md from what was measured

FOLDER holds mni.nii.gz, ch2.nii.gz and, for other contrasts, BrainWeb's T1 and T2 (brainweb1e1a10f20.mha,
brainweb1e5a10f17.mha). Each case is a volume, filtered and sampled every second voxel, and the same volume carried by
a random motion (cubic splines), sampled likewise; then noise, another gain and a bias field, a crop or thick slices.
All methods see the same two volumes, and use as many threads (THREADS in the environment; 2 if not set). Rows are
saved as they come; the same command goes on where it ended. Settings of all methods were chosen on BrainWeb's T1
volume, which no row uses but those from T1 to T2.
"""

import argparse
import ctypes
import functools
import json
import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.ndimage as ndi
import torch
from benchmarks.harness import RESULTS, environment
from benchmarks.volume_methods import METHODS, THREADS, last_confidence

import caunet
import caunet.volumes
from caunet.files import write_json
from caunet.provenance import commit
from caunet.reproduction.tables import fill
from caunet.tables import Cell, Table, bold

ROOT = Path(__file__).parents[1]
STORED = {2: RESULTS / "volumes.json", 1: RESULTS / "volumes_full.json"}

# name: largest angle, model, what else is done to b
CONDITIONS: dict[str, tuple[float, str, str]] = {
    **{f"rigid {angle:g}°": (angle, "rigid", "") for angle in (10.0, 30.0, 60.0, 180.0)},
    **{f"affine {angle:g}°": (angle, "affine", "") for angle in (10.0, 30.0, 60.0, 180.0)},
    **{
        f"rigid 30°, {what}": (30.0, "rigid", what)
        for what in ("noise", "gain and bias", "crop", "thick slices")
    },
    "rigid 180°, crop": (180.0, "rigid", "crop"),
    "rigid 30°, T1 to T2": (30.0, "rigid", "T1 to T2"),
    "rigid 180°, T1 to T2": (180.0, "rigid", "T1 to T2"),
}
SHIFT, SCALE, NOISE = 30.0, 0.2, 0.05
HEADS = ("mni.nii.gz", "ch2.nii.gz")
CONTRASTS = ("brainweb1e1a10f20.mha", "brainweb1e5a10f17.mha")


# -- cases -------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=5)
def source(path: str, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, their spline coefficients, and voxels to millimeters (LPS), filtered for every ``step``-th voxel."""
    volume = caunet.volumes.read_volume(path)
    values = volume.values.astype(np.float32) * np.float32(volume.slope) + np.float32(volume.intercept)
    values = ndi.gaussian_filter(values / np.float32(np.quantile(values[::4, ::4, ::4], 0.995)), 0.5 * step)
    return values, ndi.spline_filter(values, 3, output=np.float32), volume.to_mm


def random_motion(rng: np.random.Generator, angle: float, model: str, center: np.ndarray) -> np.ndarray:
    """(4, 4): half of ``angle`` to all of it about a random axis, up to SHIFT, and stretches up to SCALE if affine."""
    axis = rng.normal(size=3)
    turn = caunet.geometry.rotate(angle * rng.uniform(0.5, 1), axis=axis.tolist()).double().numpy()[:3, :3]
    stretch = np.diag(1 + rng.uniform(-SCALE, SCALE, 3)) if model == "affine" else np.eye(3)
    away = rng.normal(size=3)
    shift = SHIFT * rng.uniform() * away / np.sqrt((away**2).sum())
    T = np.eye(4)
    T[:3, :3] = turn @ stretch
    T[:3, 3] = center + shift - T[:3, :3] @ center
    return T


def names(condition: str, index: int) -> tuple[str, str]:
    """The file that a is made of, and the one of b."""
    head = HEADS[index % 2]
    return CONTRASTS if CONDITIONS[condition][2] == "T1 to T2" else (head, head)


def case(folder: Path, condition: str, index: int, step: int) -> dict[str, Any]:
    """Two volumes and the motion between them: a function of the condition and the index."""
    first, second = names(condition, index)
    return made(str(folder / first), str(folder / second), condition, index, step)


def made(path: str, path_b: str, condition: str, index: int, step: int) -> dict[str, Any]:
    """The same for any two files on one grid."""
    angle, model, what = CONDITIONS[condition]
    rng = np.random.default_rng([index, *condition.encode()])
    values, _, to_mm = source(path, step)
    coefficients = source(path_b, step)[1]
    a = values[::step, ::step, ::step]
    grid_a = to_mm.copy()
    grid_a[:3, :3] *= step
    center = (to_mm @ [*((np.array(values.shape[::-1]) - 1) / 2), 1.0])[:3]
    T = random_motion(rng, angle, model, center)
    shape, grid_b = list(a.shape), grid_a.copy()
    if what == "thick slices":  # 4 times as thick as wide
        shape[0] = (shape[0] + 3) // 4
        grid_b[:3, 2] *= 4
    if what == "crop":  # a third of b is missing, at a side
        axis, end = int(rng.integers(3)), int(rng.integers(2))
        shape[axis] -= shape[axis] // 3
        if end:
            grid_b[:3, 3] += grid_b[:3, 2 - axis] * (a.shape[axis] // 3)
    b = sampled(
        coefficients, np.linalg.inv(to_mm) @ np.linalg.inv(T), grid_b, tuple(shape), what == "thick slices"
    )
    a = a + np.float32(0)
    if what == "noise":
        a, b = (v + NOISE * rng.normal(size=v.shape).astype(np.float32) for v in (a, b))
    if what == "gain and bias":
        places = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in b.shape), indexing="ij"))
        field = 1 + sum(rng.uniform(-0.25, 0.25) * p + rng.uniform(-0.15, 0.15) * p * p for p in places)
        b = (b * field * rng.uniform(0.5, 2) + rng.uniform(0, 0.3)).astype(np.float32)
    return {"a": a, "b": b, "grid_a": grid_a, "grid_b": grid_b, "T": T, "model": model}


def sampled(
    coefficients: np.ndarray, back: np.ndarray, grid: np.ndarray, shape: tuple[int, ...], thick: bool
) -> np.ndarray:
    """The volume read at ``back @ grid``; thick slices are the mean of four places across each."""
    index = np.indices(shape, dtype=np.float32)[::-1].reshape(3, -1)
    offsets = (-0.375, -0.125, 0.125, 0.375) if thick else (0.0,)
    total = np.zeros(shape, np.float32)
    for offset in offsets:
        moved = back @ grid @ np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, offset], [0, 0, 0, 1.0]])
        places = (moved[:3, :3].astype(np.float32) @ index + moved[:3, 3:].astype(np.float32))[::-1]
        total += ndi.map_coordinates(coefficients, places, order=3, prefilter=False, mode="constant").reshape(
            shape
        )
    return total / len(offsets)


def target_error(found: np.ndarray, truth: np.ndarray, a: np.ndarray, grid: np.ndarray) -> float:
    """Mean distance in millimeters at 27 points of the head: thirds of the box around what is bright."""
    bright = np.argwhere(a > 0.2)
    low, high = np.quantile(bright, 0.05, axis=0)[::-1], np.quantile(bright, 0.95, axis=0)[::-1]
    lines = [np.linspace(lo, hi, 3) for lo, hi in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*lines), -1).reshape(-1, 3)
    places = grid @ np.concatenate([points, np.ones((27, 1))], 1).T
    return float(np.sqrt((((found - truth) @ places)[:3] ** 2).sum(0)).mean())


# -- running -----------------------------------------------------------------------------------------------


def read_status(name: str) -> float:
    """A line of /proc/self/status in MB: VmRSS what is used now, VmHWM the most since :func:`reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise ValueError(f"name must be a line of /proc/self/status, got {name!r}")


def reset_peak() -> float:
    """Forget the most memory that was used so far; what is used now, in MB, all that is free given back."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return read_status("VmRSS")


def measured(method: str, pair: dict[str, Any]) -> dict[str, Any]:
    """Error (mm), CPU and wall seconds, and the memory that the method took beyond what was there, MB."""
    before, cpu, wall = reset_peak(), time.process_time(), time.perf_counter()
    try:
        found = METHODS[method](pair["a"], pair["b"], pair["grid_a"], pair["grid_b"], pair["model"])
    except Exception as failure:  # a rival that gives up has not found it
        found = None
        print(f"  {method}: {type(failure).__name__}: {str(failure)[-200:]}")
    row: dict[str, Any] = {
        "cpu": round(time.process_time() - cpu, 3),
        "wall": round(time.perf_counter() - wall, 3),
        "memory": round(read_status("VmHWM") - before, 1),
        "error": None,
    }
    if found is not None and np.isfinite(found).all():
        row["error"] = round(target_error(found, pair["T"], pair["a"], pair["grid_a"]), 5)
    if method == "caunet" and found is not None:
        row["confidence"] = round(last_confidence(), 4)
    return row


def warmed(methods: Iterable[str], folder: Path) -> None:
    """Each method once on a very small pair, so that loading a library counts for no row."""
    pair = case(folder, "rigid 10°", 0, 8)
    for method in methods:
        measured(method, pair)


def stored(path: Path, step: int) -> dict[str, Any]:
    report = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    return report | {"environment": environment(), "threads": THREADS, "voxel_mm": float(step)}


def run(args: argparse.Namespace) -> None:
    path = args.out or STORED[args.step]
    report = stored(path, args.step)
    for method in args.again:
        report["rows"] = {k: r for k, r in report["rows"].items() if not k.startswith(f"{method}|")}
    warmed(args.only, args.folder)
    started = time.perf_counter()
    for index in range(args.count):
        for condition in args.conditions:
            pair = None
            for method in args.only:
                key = f"{method}|{condition}|{index}"
                if key in report["rows"] or time.perf_counter() - started > 60 * args.minutes:
                    continue
                pair = pair or case(args.folder, condition, index, args.step)
                row = measured(method, pair)
                report["rows"][key] = row | ({"commit": commit()} if method == "caunet" else {})
                print(f"{key}: {row}", flush=True)
                write_json(path, report)


def take_turns(args: argparse.Namespace) -> None:
    """Every pair by every method, one after the other, the order reversed from pair to pair: times to compare."""
    path = args.out or STORED[args.step]
    report = stored(path, args.step) | {"time_threads": THREADS}
    kept = report.setdefault("time", {})
    if args.again:
        kept.clear()
    warmed(args.only, args.folder)
    started = time.perf_counter()
    for number, (index, condition) in enumerate((i, c) for i in range(args.count) for c in args.conditions):
        key = f"{condition} #{index}"
        if key in kept or time.perf_counter() - started > 60 * args.minutes:
            continue
        pair = case(args.folder, condition, index, args.step)
        order = args.only if number % 2 == 0 else args.only[::-1]
        kept[key] = {method: measured(method, pair) for method in order} | {"commit": commit()}
        print(key, {m: row["wall"] for m, row in kept[key].items() if m != "commit"}, flush=True)
        write_json(path, report)


def heads(args: argparse.Namespace) -> None:
    """mni to ch2 and back: how far a point is from where it was, mean over 27 points of the head, in millimeters."""
    path = args.out or STORED[args.step]
    report = stored(path, args.step)
    kept = report.setdefault("heads", {})
    warmed(args.only, args.folder)
    sides = []
    for name in HEADS:
        values, _, to_mm = source(str(args.folder / name), args.step)
        grid = to_mm.copy()
        grid[:3, :3] *= args.step
        sides.append((np.ascontiguousarray(values[:: args.step, :: args.step, :: args.step]), grid))
    (a, grid_a), (b, grid_b) = sides
    for model in ("rigid", "affine"):
        for method in args.only:
            there = METHODS[method](a, b, grid_a, grid_b, model)
            back = METHODS[method](b, a, grid_b, grid_a, model)
            error = target_error(back @ there, np.eye(4), a, grid_a)
            kept[f"{method}|{model}"] = {"there and back": round(error, 5), "there": there.round(6).tolist()}
            print(f"{method}, {model}: {error:.4f} mm", flush=True)
            write_json(path, report)


# -- tables ------------------------------------------------------------------------------------------------


def chosen(report: dict[str, Any], method: str, conditions: Iterable[str]) -> list[dict[str, Any]]:
    wanted = {(method, condition) for condition in conditions}
    return [row for key, row in report["rows"].items() if tuple(key.split("|")[:2]) in wanted]


def errors_of(rows: list[dict[str, Any]]) -> list[float]:
    return [np.inf if row["error"] is None else row["error"] for row in rows]


def known(report: dict[str, Any]) -> list[str]:
    """The methods that have rows, in the order of the tables."""
    return [method for method in METHODS if chosen(report, method, CONDITIONS)]


def by_condition(report: dict[str, Any]) -> str:
    """For each condition and method: how many are found, and the median error of those; the best in bold."""
    methods, lines, voxel = known(report), [], report["voxel_mm"]
    for condition in CONDITIONS:
        cells = {method: errors_of(chosen(report, method, [condition])) for method in methods}
        if not any(cells.values()):
            continue
        good = {method: [e for e in errors if e < voxel] for method, errors in cells.items()}
        shares = {method: len(good[method]) / len(errors) for method, errors in cells.items() if errors}
        middles = {
            m: statistics.median(good[m]) for m, share in shares.items() if share == max(shares.values()) > 0
        }
        # Of those that find the most; a hundredth of a millimeter counts as equal.
        best = {m for m, middle in middles.items() if middle <= min(middles.values()) + 0.01}
        line: list[str | Cell] = [condition]
        for method, errors in cells.items():
            middle = f", {statistics.median(good[method]):.3f} mm" if good[method] else ""
            text = f"{len(good[method])} of {len(errors)}{middle}" if errors else ""
            line.append(bold(text, method in best))
        lines.append(line)
    return Table(["", *methods], "l" * (len(methods) + 1), lines).markdown()


# What the columns of the summary count: up to 60 degrees, half a turn, and what else is done to b.
GROUPS = {
    "found, up to 60°": [c for c, (angle, _, what) in CONDITIONS.items() if angle <= 60 and not what],
    "found, to 180°": [c for c, (angle, _, what) in CONDITIONS.items() if angle > 60 and not what],
    "found, noise, light, crop, thick slices": [
        c for c, (_, _, what) in CONDITIONS.items() if what and "T2" not in what
    ],
    "found, T1 to T2": [c for c in CONDITIONS if "T2" in c],
}


def summary(report: dict[str, Any]) -> str:
    """For each method: how often it finds the motion, its median error, and what it takes."""
    voxel, lines = report["voxel_mm"], []
    everywhere = [c for group in GROUPS.values() for c in group]
    methods = known(report)
    groups = {name: group for name, group in GROUPS.items() if any(chosen(report, m, group) for m in methods)}
    for method in methods:
        line = [method]
        for group in groups.values():
            errors = errors_of(chosen(report, method, group))
            found = sum(e < voxel for e in errors)
            line.append(f"{found} of {len(errors)} ({100 * found / len(errors):.0f} %)" if errors else "–")
        rows = chosen(report, method, everywhere)
        good = [e for e in errors_of(rows) if e < voxel]
        line.append(f"{statistics.median(good):.3f} mm" if good else "–")
        line.append(f"{statistics.median(r['cpu'] for r in rows):.1f} s")
        line.append(f"{max(r['memory'] for r in rows):.0f} MB")
        lines.append(line)
    heads_of = ["", *groups, "median error of those found", "CPU time", "memory, most"]
    return Table(heads_of, "l" + "r" * (len(heads_of) - 1), lines).markdown()


def ratios(report: dict[str, Any]) -> str:
    """How many times as long as caunet the others take: median over pairs on which all took turns."""
    turns = list(report.get("time", {}).values())
    if not turns:
        return ""
    others = [m for m in METHODS if m != "caunet" and all(m in turn for turn in turns)]
    lines = []
    for method in others:
        own = [turn[method] for turn in turns]
        times = [
            [o[kind] / t["caunet"][kind] for o, t in zip(own, turns, strict=True)] for kind in ("wall", "cpu")
        ]
        lines.append([method, *(f"{statistics.median(values):.1f}×" for values in times)])
    return Table(["time of caunet's", "wall clock", "CPU"], "lrr", lines).markdown()


def between_heads(report: dict[str, Any]) -> str:
    """mni to ch2 and back."""
    kept = report.get("heads", {})
    methods = [m for m in METHODS if f"{m}|rigid" in kept and f"{m}|affine" in kept]
    lines = [
        [m, *(f"{kept[f'{m}|{model}']['there and back']:.3f} mm" for model in ("rigid", "affine"))]
        for m in methods
    ]
    return Table(["there and back", "rigid", "affine"], "lrr", lines).markdown() if lines else ""


def of_threads(count: int) -> str:
    return "1 thread each" if count == 1 else f"{count} threads each"


def measured_by(report: dict[str, Any]) -> str:
    machine = report["environment"]
    commits = sorted({row["commit"] for row in report["rows"].values() if "commit" in row})
    return (
        f"{of_threads(report['threads'])}, {machine['cpu']}, {machine['cores']} cores shared with other work; "
        f"voxels of {report['voxel_mm']:g} mm; caunet at {', '.join(commits)}."
    )


def pages() -> dict[tuple[str, str], str]:
    """What stands where: a page and its section, and the text."""
    half = json.loads(STORED[2].read_text())
    parts = [
        f"Half resolution. {measured_by(half)}", summary(half),
        "How many are found (below one voxel), and the median error of those. In bold: of the methods that find the "
        "most, the lowest error, and what is within 0.01 mm of it.", by_condition(half),
    ]  # fmt: skip
    if text := ratios(half):
        parts += [
            f"How many times as long as caunet the others take, {of_threads(half['time_threads'])}, the median over "
            f"pairs at which all took turns ({', '.join(half['time'])}):",
            text,
        ]
    if text := between_heads(half):
        parts += ["mni to ch2, two different heads, and back: the distance from where a point was.", text]
    if STORED[1].exists():
        full = json.loads(STORED[1].read_text())
        parts += [f"Full resolution. {measured_by(full)}", summary(full), by_condition(full)]
        if text := ratios(full):
            parts += [
                f"The same at full resolution, over {len(full['time'])} pairs:",
                text,
            ]
    return {("docs/volumes.md", "volumes"): "\n\n".join(parts), ("README.md", "volumes"): summary(half)}


def tables(_: argparse.Namespace) -> None:
    for (name, section), text in pages().items():
        print(name, "updated" if fill(ROOT / name, text, section=section) else "was up to date")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function, about in (
        ("run", run, "register the pairs of every condition"),
        ("time", take_turns, "all methods in turn on a few pairs"),
        ("heads", heads, "one head to another and back"),
    ):
        command = commands.add_parser(name, help=about)
        command.set_defaults(function=function)
        command.add_argument("folder", type=Path, help="where the volumes are")
        command.add_argument(
            "--out", type=Path, help="the report; benchmarks/results/volumes.json if not given"
        )
        command.add_argument(
            "--step", type=int, default=2, choices=(1, 2), help="2: half resolution, 1: full"
        )
        command.add_argument(
            "--only", nargs="*", default=list(METHODS), choices=list(METHODS), help="methods"
        )
        if name == "heads":
            continue
        command.add_argument("--conditions", nargs="*", default=list(CONDITIONS), choices=list(CONDITIONS))
        command.add_argument("--count", type=int, default=20, help="pairs a condition")
        command.add_argument("--again", nargs="*", default=[], help="methods to measure again (time: any)")
        command.add_argument("--minutes", type=float, default=1e9, help="begin no row after this time")
    command = commands.add_parser("tables", help="fill docs/volumes.md and README.md")
    command.set_defaults(function=tables)
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    os.environ["ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"] = str(THREADS)  # ANTs reads it when it starts
    args.function(args)


if __name__ == "__main__":
    main()
