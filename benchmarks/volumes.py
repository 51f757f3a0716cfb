"""Registration of volumes beside SimpleITK, ANTs, dipy and greedy, on motions that are known.

    python -m benchmarks.volumes FOLDER --out benchmarks/results/volumes.json

FOLDER holds mni.nii.gz and ch2.nii.gz. Each case is a volume, filtered and sampled every second voxel, and the same
volume carried by a random motion (cubic splines), sampled likewise; then noise, another gain and a bias field, a crop
or thick slices. All methods see the same two volumes, and use as many threads (THREADS in the environment; 2 if not
set). Rows are saved as they come; the same command goes on where it ended. Settings of caunet were chosen on BrainWeb's
T1 volume, which no row uses.
"""

import argparse
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.ndimage as ndi
import torch
from benchmarks.harness import environment

import caunet
import caunet.volumes
from caunet.files import write_json
from caunet.tables import Table

Register = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, str], np.ndarray]
THREADS = int(
    os.environ.get("THREADS", "2")
)  # for all methods; 1 on a busy machine, where waiting threads spin

# name: largest angle, model, what else is done to b
CONDITIONS: dict[str, tuple[float, str, str]] = {
    **{f"rigid {angle:g}°": (angle, "rigid", "") for angle in (10.0, 30.0, 60.0, 180.0)},
    **{f"affine {angle:g}°": (angle, "affine", "") for angle in (10.0, 30.0, 60.0, 180.0)},
    **{
        f"rigid 30°, {what}": (30.0, "rigid", what)
        for what in ("noise", "gain and bias", "crop", "thick slices")
    },
    "rigid 180°, crop": (180.0, "rigid", "crop"),
}
SHIFT, SCALE, NOISE = 30.0, 0.2, 0.05


# -- cases -------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
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


def case(path: str, condition: str, index: int, step: int) -> dict[str, Any]:
    """Two volumes and the motion between them: a function of the condition and the index."""
    angle, model, what = CONDITIONS[condition]
    rng = np.random.default_rng([index, *condition.encode()])
    values, coefficients, to_mm = source(path, step)
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


# -- methods: a, b, their grids (voxels to mm, LPS) and the model to mm of a -> mm of b (LPS) -------------


def by_caunet(a, b, grid_a, grid_b, model):
    volumes = [caunet.volumes.Volume(v, grid) for v, grid in ((a, grid_a), (b, grid_b))]
    found = caunet.estimate_volume(*volumes, model=model, threads=THREADS)
    by_caunet.confidence = found.confidence
    return found.in_space("LPS")


def itk_image(values, grid):
    import SimpleITK as sitk

    image, spacing = sitk.GetImageFromArray(values), np.sqrt((grid[:3, :3] ** 2).sum(0))
    image.SetSpacing(spacing.tolist())
    image.SetOrigin(grid[:3, 3].tolist())
    image.SetDirection((grid[:3, :3] / spacing).ravel().tolist())
    return image


def matrix_of(transform: Callable[[tuple[float, ...]], Any]) -> np.ndarray:
    """(4, 4) of an affine function of points."""
    T = np.eye(4)
    T[:3, 3] = transform((0.0, 0.0, 0.0))
    for k, unit in enumerate(np.eye(3).tolist()):
        T[:3, k] = np.array(transform(tuple(unit))) - T[:3, 3]
    return T


def by_simpleitk(metric):
    def run(a, b, grid_a, grid_b, model):
        import SimpleITK as sitk

        sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(THREADS)
        fixed, moving = itk_image(a, grid_a), itk_image(b, grid_b)
        kind = sitk.Euler3DTransform() if model == "rigid" else sitk.AffineTransform(3)
        start = sitk.CenteredTransformInitializer(
            fixed, moving, kind, sitk.CenteredTransformInitializerFilter.MOMENTS
        )
        method = sitk.ImageRegistrationMethod()
        if metric == "mattes":
            method.SetMetricAsMattesMutualInformation(50)
        else:
            method.SetMetricAsCorrelation()
        method.SetInterpolator(sitk.sitkLinear)
        method.SetOptimizerAsRegularStepGradientDescent(
            2.0, 1e-4, 300, relaxationFactor=0.5, gradientMagnitudeTolerance=1e-8
        )
        method.SetOptimizerScalesFromPhysicalShift()
        method.SetShrinkFactorsPerLevel([4, 2, 1])
        method.SetSmoothingSigmasPerLevel([2, 1, 0])
        method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOff()
        method.SetInitialTransform(start)
        return matrix_of(method.Execute(fixed, moving).TransformPoint)

    return run


def by_ants(a, b, grid_a, grid_b, model):
    import ants

    def image(values, grid):
        spacing = np.sqrt((grid[:3, :3] ** 2).sum(0))
        return ants.from_numpy(
            np.ascontiguousarray(values.transpose(2, 1, 0)),
            origin=grid[:3, 3].tolist(), spacing=spacing.tolist(), direction=grid[:3, :3] / spacing,
        )  # fmt: skip

    kind = {"rigid": "Rigid", "affine": "Affine"}[model]
    found = ants.registration(image(a, grid_a), image(b, grid_b), type_of_transform=kind, random_seed=1)
    return matrix_of(ants.read_transform(found["fwdtransforms"][0]).apply_to_point)


FLIP = np.diag([-1.0, -1.0, 1.0, 1.0])


def by_dipy(a, b, grid_a, grid_b, model):
    from dipy.align import affine_registration

    pipeline = ["center_of_mass", "translation", "rigid"] + (["affine"] if model == "affine" else [])
    static, moving = (np.ascontiguousarray(v.transpose(2, 1, 0), dtype=np.float64) for v in (a, b))
    _, T = affine_registration(
        moving, static, moving_affine=FLIP @ grid_b, static_affine=FLIP @ grid_a, pipeline=pipeline,
        level_iters=[10000, 1000, 100], sigmas=[3.0, 1.0, 0.0], factors=[4, 2, 1],
    )  # fmt: skip
    return FLIP @ T @ FLIP


def by_greedy(a, b, grid_a, grid_b, model):
    from picsl_greedy import Greedy3D

    greedy = Greedy3D()
    freedom = 6 if model == "rigid" else 12
    greedy.execute(
        f"-d 3 -threads {THREADS} -a -dof {freedom} -m NMI -ia-moments 1 -n 100x50x20 -i fixed moving -o found",
        fixed=itk_image(a, grid_a), moving=itk_image(b, grid_b), found=None,
    )  # fmt: skip
    return FLIP @ greedy["found"] @ FLIP


METHODS: dict[str, Register] = {
    "caunet": by_caunet,
    "SimpleITK Mattes": by_simpleitk("mattes"),
    "SimpleITK correlation": by_simpleitk("correlation"),
    "ANTs": by_ants,
    "dipy": by_dipy,
    "greedy": by_greedy,
}


# -- running -----------------------------------------------------------------------------------------------


def run_row(method: str, path: str, condition: str, index: int, step: int) -> dict[str, Any]:
    made = case(path, condition, index, step)
    cpu, wall = time.process_time(), time.perf_counter()
    try:
        found = METHODS[method](made["a"], made["b"], made["grid_a"], made["grid_b"], made["model"])
        error = target_error(found, made["T"], made["a"], made["grid_a"])
    except Exception as failure:  # a rival that gives up has not found it
        error, found = float("inf"), None
        print(f"  {method}: {type(failure).__name__}: {str(failure)[-200:]}")
    row = {
        "cpu": round(time.process_time() - cpu, 3),
        "wall": round(time.perf_counter() - wall, 3),
        "error": round(error, 5) if np.isfinite(error) else None,
    }
    if method == "caunet" and found is not None:
        row["confidence"] = round(by_caunet.confidence, 4)
    return row


def table(rows: dict[str, dict[str, Any]], voxel: float) -> str:
    """Found, median error of those found, and CPU seconds, for each condition and method."""
    methods = [m for m in METHODS if any(key.startswith(f"{m}|") for key in rows)]
    lines = []
    for condition in CONDITIONS:
        cells = [condition]
        for method in methods:
            own = [r for key, r in rows.items() if key.split("|")[:2] == [method, condition]]
            if not own:
                cells.append("")
                continue
            errors = [np.inf if r["error"] is None else r["error"] for r in own]
            good = [e for e in errors if e < voxel]
            middle = f", {np.median(good):.3f} mm" if good else ""
            cells.append(f"{len(good)} of {len(own)}{middle}, {np.median([r['cpu'] for r in own]):.1f} s")
        if any(cells[1:]):
            lines.append(cells)
    return Table(["condition", *methods], "l" * (len(methods) + 1), lines).markdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/volumes.json"))
    parser.add_argument("--count", type=int, default=20, help="cases a condition for caunet")
    parser.add_argument("--rivals", type=int, default=3, help="cases a condition for SimpleITK")
    parser.add_argument("--slow", type=int, default=1, help="cases a condition for ANTs, dipy and greedy")
    parser.add_argument("--step", type=int, default=2, help="2: half resolution, 1: full")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no row after this time")
    parser.add_argument("--only", nargs="*", default=list(METHODS))
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    os.environ["ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"] = str(THREADS)  # ANTs reads it when it starts
    paths = [str(args.folder / name) for name in ("mni.nii.gz", "ch2.nii.gz")]
    report = json.loads(args.out.read_text()) if args.out.exists() else {"rows": {}}
    report |= {
        "environment": environment(),
        "threads": THREADS,
        "voxel_mm": float(args.step),
        "conditions": CONDITIONS,
    }
    counts = {m: args.count if m == "caunet" else args.rivals if "ITK" in m else args.slow for m in METHODS}
    started = time.perf_counter()
    for index in range(max(counts.values())):
        for condition in CONDITIONS:
            for method in args.only:
                key = f"{method}|{condition}|{index}"
                if index >= counts[method] or key in report["rows"]:
                    continue
                if time.perf_counter() - started > 60 * args.minutes:
                    continue
                row = run_row(method, paths[index % 2], condition, index, args.step)
                report["rows"][key] = row | {"volume": Path(paths[index % 2]).name}
                print(f"{key}: {row}", flush=True)
                write_json(args.out, report)
    print(table(report["rows"], float(args.step)))


if __name__ == "__main__":
    main()
