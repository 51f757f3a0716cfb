"""Draw a pair of volumes before and after, and the errors of the benchmark of volumes.

python -m benchmarks.volume_figure pair         # docs/figures/volumes.png: shapes3, turned by 70 degrees
python -m benchmarks.volume_figure errors       # docs/figures/volumes-errors.png: every pair of every method
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.volumes import CONDITIONS, ROOT, STORED, known

import caunet
from caunet import geometry
from caunet.data.shapes3 import make
from caunet.drawing import new_figure, save_figure

FIGURES = ROOT / "docs" / "figures"
COLORS = ("#d55e00", "#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#7f7f7f")
LEAST, MOST = 1e-3, 300.0  # millimeters: what lies outside is drawn at the edge


def pair() -> Any:
    """a, b, b on the grid of a, and what is left, in three planes."""
    a = torch.from_numpy(make(3).astype(np.float32) / 255)
    M = geometry.compose(
        geometry.translate(4.0, -3.0, 2.0), geometry.center(geometry.rotate(70.0, axis=(1, 2, 1)), a.shape)
    )
    b = geometry.warp(a[None], M, mode="cubic")[0]
    found = caunet.estimate_volume(a, b, model="rigid")
    error = geometry.apply(found.matrix, geometry.corners(a.shape)) - geometry.apply(
        M.double(), geometry.corners(a.shape)
    )
    print(f"{found}; corners off by {float(error.norm(dim=1).mean()):.4f} voxels")
    rows = [("a", a), ("b", b), ("b on the grid of a", found.warp(b)), ("what is left", found.warp(b) - a)]
    figure = new_figure(7.2, 9.4)
    axes = figure.subplots(4, 3)
    middle = [side // 2 for side in a.shape]
    for row, (name, volume) in zip(axes, rows, strict=True):
        planes = [volume[middle[0]], volume[:, middle[1]], volume[:, :, middle[2]]]
        for axis, plane, title in zip(row, planes, ("z", "y", "x"), strict=True):
            limits = (-0.5, 0.5) if name == "what is left" else (0, 1)
            axis.imshow(plane.numpy(), cmap="gray", vmin=limits[0], vmax=limits[1])
            axis.set_title(f"{name}: plane {title}", fontsize=8)
            axis.set_axis_off()
    return figure


def errors(report: dict[str, Any]) -> Any:
    """One point for each pair, by condition and method, and the voxel below which a motion is found."""
    methods = known(report)
    figure = new_figure(8.4, 7.6)
    axis = figure.subplots()
    conditions = [c for c in CONDITIONS if any(key.split("|")[1] == c for key in report["rows"])]
    for number, (method, color) in enumerate(zip(methods, COLORS, strict=False)):
        where, values = [], []
        for key, row in report["rows"].items():
            name, condition, _ = key.split("|")
            if name == method:
                where.append(conditions.index(condition) + 0.13 * (number - (len(methods) - 1) / 2))
                values.append(MOST if row["error"] is None else min(max(row["error"], LEAST), MOST))
        axis.scatter(values, where, s=9, color=color, alpha=0.7, linewidths=0, label=method)
    axis.axvline(report["voxel_mm"], color="black", linewidth=0.8, linestyle=":")
    for line in range(1, len(conditions)):
        axis.axhline(line - 0.5, color="#dddddd", linewidth=0.6)
    axis.set(xscale="log", xlim=(LEAST / 1.4, MOST * 1.4), ylim=(len(conditions) - 0.5, -0.5))
    axis.set_yticks(range(len(conditions)), conditions, fontsize=8)
    axis.set_xlabel("error at 27 points of the head, mm (dotted: one voxel)", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, markerscale=2)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pair", "errors"), nargs="?", default="pair")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.what == "pair":
        save_figure(pair(), args.out or FIGURES / "volumes.png")
    else:
        report = json.loads(STORED[2].read_text())
        save_figure(errors(report), args.out or FIGURES / "volumes-errors.png", dpi=120)


if __name__ == "__main__":
    main()
