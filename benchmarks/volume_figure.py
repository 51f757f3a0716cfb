"""Draw a pair of volumes before and after: shapes3, turned by 70 degrees, seen in three planes.

python -m benchmarks.volume_figure --out docs/figures/volumes.png
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import caunet
from caunet import geometry
from caunet.data.shapes3 import make
from caunet.drawing import new_figure, save_figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/figures/volumes.png"))
    args = parser.parse_args()
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
    save_figure(figure, args.out)


if __name__ == "__main__":
    main()
