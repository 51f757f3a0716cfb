"""The pictures of docs/stacks.md: a drift taken out of a stack, and a shaking video made steady.

    python -m benchmarks.stack_figures               # about two minutes on one core; writes docs/figures/stack-*.png

Both are made from embedded photographs, and both go through files and the command line, as a reader would do it.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from benchmarks.stacks import drift

import caunet
from caunet import geometry
from caunet.benchmark.frames import take
from caunet.benchmark.photographs import colored
from caunet.cli import main as command
from caunet.drawing import new_figure, save_figure
from caunet.images.frames import open_frames
from caunet.stacks.writing import write_frames

OUT = Path(__file__).parents[1] / "docs" / "figures"
SIZE = (180, 320)


def drift_figure(folder: Path) -> None:
    """The mean of 60 frames before and after, and how far the frames had drifted."""
    frames, truth = drift(60, seed=3)
    write_frames(frames, folder / "drift.tif")
    arguments = ["align", str(folder / "drift.tif"), "--out", str(folder / "aligned.tif")]
    assert (
        command([*arguments, "--table", str(folder / "m.json"), "--missing", "interpolate"]) == 3
    )  # blank frames
    aligned = np.stack([frame.pixels for frame in open_frames(folder / "aligned.tif")])
    table = json.loads((folder / "m.json").read_text())
    rows = np.array([frame["matrix"] for frame in table["frames"]])
    middle = np.array([127.5, 127.5, 1])
    figure = new_figure(9.6, 3.3)
    axes = figure.subplots(1, 3, width_ratios=[1, 1, 1.25])
    blank = [k for k, frame in enumerate(frames) if frame.std() == 0]
    shown = np.delete(np.arange(len(frames)), blank)
    for axis, stack, title in zip(
        axes, (frames, aligned), ("mean of 60 frames", "after caunet align"), strict=False
    ):
        axis.imshow(stack[shown].mean(0), cmap="gray", vmin=20, vmax=200)
        axis.set_title(title)
        axis.set_axis_off()
    for k, name in enumerate("xy"):
        axes[2].plot(
            (truth @ middle - middle)[:, k], color="0.75", linewidth=4, label="true" if k == 0 else None
        )
        axes[2].plot((rows @ middle - middle)[:, k], linewidth=1.3, label=f"found, {name}")
    axes[2].plot(blank, (rows @ middle - middle)[blank, 0], "kx", label="blank: interpolated")
    axes[2].set(xlabel="frame", ylabel="drift (pixels)")
    axes[2].legend(fontsize=8, loc="lower right")
    save_figure(figure, OUT / "stack-drift.png")


def shaking(count: int, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """A video (T, 180, 320, 3) of a camera that pans over a photograph and shakes; its path (T, 3): x, y, angle."""
    rng = np.random.default_rng(seed)
    photo = colored("bench")["coffee"]
    time = np.arange(count) / count
    pan = np.stack([140 + 160 * time, 105 + 30 * np.sin(3 * time), 3 * np.sin(5 * time)], 1)
    shake = rng.normal(0, [6.0, 6.0, 1.5], (count, 3))
    shake = 0.6 * shake + 0.4 * np.concatenate([shake[:1], shake[:-1]])
    frames = []
    for x, y, angle in pan + shake:
        turn = geometry.center(geometry.rotate(torch.tensor(angle, dtype=torch.float64)), SIZE)
        pose = geometry.compose(geometry.translate(*torch.tensor([x, y], dtype=torch.float64)), turn)
        view = torch.stack([take(channel, pose, SIZE, fine=1) for channel in photo], -1).float()
        noisy = view + 0.012 * torch.from_numpy(rng.standard_normal(view.shape)).float()
        frames.append((noisy.clamp(0, 1) * 255).round().byte().numpy())
    return np.stack(frames), pan + shake


def path_of(frames: np.ndarray) -> np.ndarray:
    """(T, 3): how far each frame has moved from the first, measured anew: x, y, angle."""
    found = caunet.align(frames, threads=1, progress=False).matrices
    height, width = frames.shape[1:3]
    middle = np.array([(width - 1) / 2, (height - 1) / 2, 1])
    shift = (found @ middle - middle)[:, :2]
    return np.column_stack([shift, np.degrees(np.arctan2(found[:, 1, 0], found[:, 0, 0]))])


def steady_figure(folder: Path) -> None:
    """Frames before and after --stabilise, and the path of the camera in both."""
    frames, _ = shaking(90)
    write_frames(frames, folder / "hand.mkv")
    out = folder / "steady.mkv"
    assert (
        command(
            ["align", str(folder / "hand.mkv"), "--stabilise", "12", "--crop", "common", "--out", str(out)]
        )
        == 0
    )
    steady = np.stack([frame.pixels for frame in open_frames(out)])
    figure = new_figure(9.6, 6.2)
    grid = figure.add_gridspec(3, 4, height_ratios=[1, 1, 1.25])
    numbers = [40, 43, 46]
    for row, (stack, title) in enumerate(((frames, "before"), (steady, "after --stabilise 12"))):
        for column, number in enumerate(numbers):
            axis = figure.add_subplot(grid[row, column])
            axis.imshow(stack[number])
            height, width = stack.shape[1:3]
            axis.axhline(height / 2, color="white", linewidth=0.8)
            axis.axvline(width / 2, color="white", linewidth=0.8)
            axis.set_title(f"{title}, frame {number}" if column == 0 else f"frame {number}", fontsize=9)
            axis.set_axis_off()
        axis = figure.add_subplot(grid[row, 3])
        axis.imshow(stack[:, stack.shape[1] // 2], aspect="auto")
        axis.set_title("middle row over time", fontsize=9)
        axis.set(xticks=[], yticks=[], ylabel="time")
    # The path is measured anew in what was written: not what the command meant to do, but what it did.
    before, after = (path - path.mean(0) for path in (path_of(frames), path_of(steady)))
    for place, (name, unit) in enumerate((("x", "pixels"), ("y", "pixels"), ("angle", "degrees"))):
        axis = figure.add_subplot(grid[2, place])
        axis.plot(before[:, place], color="0.7", label="before")
        axis.plot(after[:, place], color="tab:blue", label="after")
        axis.set_title(f"{name} of the camera ({unit})", fontsize=9)
        axis.set_xlabel("frame", fontsize=8)
        axis.legend(fontsize=7)
    axis = figure.add_subplot(grid[2, 3])
    axis.plot(np.abs(np.diff(before[:, :2], 2, axis=0)).mean(1), color="0.7", label="before")
    axis.plot(np.abs(np.diff(after[:, :2], 2, axis=0)).mean(1), color="tab:blue", label="after")
    axis.set_title("shaking (pixels)", fontsize=9)
    axis.set_xlabel("frame", fontsize=8)
    axis.legend(fontsize=7)
    save_figure(figure, OUT / "stack-steady.png")
    shake = [float(np.sqrt(np.square(np.diff(path[:, :2], 2, axis=0)).mean())) for path in (before, after)]
    print(
        f"shaking, root mean square of the second difference: {shake[0]:.2f} before, {shake[1]:.2f} after (pixels)"
    )


def main() -> None:
    """Draw both."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        drift_figure(Path(folder))
        steady_figure(Path(folder))


if __name__ == "__main__":
    main()
