"""The paper's figure of sample patches: first row x, second row y, z under each column; of volumes the middle slice."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from caunet.data import keys
from caunet.data.pairs import PairSource
from caunet.drawing import check_figure, new_figure, save_figure
from caunet.tasks import Task

__all__ = ["choose", "draw_samples", "z_text"]


def draw_samples(source: PairSource, path: Path, columns: int = 10, epoch: int = 0) -> Tensor:
    """Draw ``columns`` pairs of different images into ``path`` (.png, .svg, .pdf); return their numbers."""
    check_figure(path, "out")
    index = choose(source, columns)
    x, y, z = source.bytes(epoch, index)
    if source.task.dimensions == 3:
        x, y = (patches[:, source.patch // 2] for patches in (x, y))
    lines = source.task.dim
    # Inches: a column of 0.92 with a patch of 0.84, room for the title and for a line of text a parameter.
    figure = new_figure(0.92 * columns + 0.45, 2.28 + 0.142 * lines, layout="none", facecolor="white")
    height = float(figure.get_figheight())
    axes = figure.subplots(2, columns, squeeze=False)
    figure.subplots_adjust(
        left=0.38 / (0.92 * columns + 0.45),
        right=0.995,
        top=1 - 0.36 / height,
        bottom=(0.13 + 0.142 * lines) / height,
        wspace=0.09,
        hspace=0.09,
    )
    for patches, row in zip((x, y), axes, strict=True):
        for patch, axis in zip(patches.cpu().numpy(), row, strict=True):
            _show(axis, patch)
    for column, axis in enumerate(axes[1]):
        axis.set_xlabel(
            z_text(source.task, source.names, z[column]), fontsize=8, labelpad=4, linespacing=1.25
        )
    for axis, name in zip(axes[:, 0], ("x", "y"), strict=True):
        axis.set_ylabel(name, rotation=0, fontsize=13, fontstyle="italic", labelpad=11, va="center")
    figure.suptitle(_title(source), fontsize=10, x=0.5, y=1 - 0.1 / height, va="top")
    save_figure(figure, path, "out")
    return index


def choose(source: PairSource, columns: int) -> Tensor:
    """Numbers of ``columns`` pairs, each of another image, drawn from the source's seed."""
    images = len(source) // source.per_image
    if not 1 <= columns <= images:
        raise ValueError(f"columns must be 1 to {images} (the number of images), got {columns}")
    u = keys.words(source.seed, 0, torch.arange(images), 1, keys.Stream.FIGURE)[:, 0]
    chosen = torch.argsort(u, stable=True)[:columns]
    return (chosen * source.per_image).to(source.device)


def z_text(task: Task, names: tuple[str, ...], z: Tensor) -> str:
    """z (dim,) as people read it, one parameter a line.

    >>> from caunet import tasks
    >>> z_text(tasks.get("rotation"), ("angle",), torch.tensor([12.34]))
    '12.3°'
    >>> print(z_text(tasks.get("translation"), ("rows", "columns"), torch.tensor([-3.0, 4.0])))
    rows −3
    columns 4
    """
    if task.units == ("degrees",):
        return f"{_number(float(z), 1)}°"
    decimals = [_DECIMALS.get(unit, 2) for unit in task.units]
    rows = zip(names, z.tolist(), decimals, strict=True)
    return "\n".join(f"{_SHORT.get(name, name)} {_number(value, places)}" for name, value, places in rows)


_DECIMALS = {"pixels": 1, "voxels": 1, "degrees": 1, "1/pixel": 4}
_SHORT = {
    "shift_x": "right",
    "shift_y": "down",
    "shift_z": "deep",
    "scale_x": "width ×",
    "scale_y": "height ×",
    "scale_z": "depth ×",
    "angle_x": "about x",
    "angle_y": "about y",
    "angle_z": "about z",
}


def _number(value: float, places: int) -> str:
    text = f"{value:.0f}" if value == round(value) else f"{value:.{places}f}"
    return text.replace("-", "−")


def _title(source: PairSource) -> str:
    images = getattr(source.images, "name", "")
    made = f"{source.task.name}, protocol {source.protocol}"
    made = f"{made}, middle slices" if source.task.dimensions == 3 else made
    return f"{made}, {images}" if images else made


def _show(axis: Any, patch: Any) -> None:
    axis.imshow(patch, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set(color="0.6", linewidth=0.5)
