"""Draw docs/figures/before-after.png: two images on top of each other, before and after caunet.estimate.

    python -m benchmarks.before_after
    python -m benchmarks.before_after --stress    # docs/figures/before-after-stress.png

Two photographs by two cameras, 19 cm apart: the motorcycle of the Middlebury stereo set of 2014, as it comes with
scikit-image; the middle of both, where most is the motorcycle. In an overlay the first picture is red and the second
cyan, so that what agrees is gray; for that the second is shown with the first's mean and contrast. Where the second
shows nothing the first is dimmed. ``--stress``: cases of the stress set instead, one a row.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

import caunet
from caunet.benchmark.cases import relative_error, stress_cases
from caunet.files import atomic_write
from caunet.images import photograph

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "before-after.png"
PART = (slice(90, 470), slice(60, 660))
STRESS_CASES = (("foreground 50 %", "astronaut"), ("scale 3", "coffee"), ("negative", "rocket"))


def overlay(a: Tensor, b: Tensor, there: Tensor) -> Tensor:
    """(H, W, 3): a in red, b in green and blue; a dimmed where b is not ``there``."""
    b = (b - b[there].mean()) * (a[there].std() / b[there].std()) + a[there].mean()
    seen = torch.stack([a, b, b], -1)
    return torch.where(there[..., None], seen, 0.5 * a[..., None]).clamp(0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stress", action="store_true", help="cases of the stress set instead of a pair")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.stress:
        draw_stress(options.out or FIGURE.with_name("before-after-stress.png"))
    else:
        draw_photographs(options.out or FIGURE)


def draw_stress(path: Path) -> None:
    """Some cases of the stress set, a row of pictures each."""
    panels: dict[str, Tensor] = {}
    for row, name in STRESS_CASES:
        case = next(c for c in stress_cases("bench", (row,)) if c.name == name)
        a, b = (torch.from_numpy(image).float() / 255 for image in (case.a, case.b))
        found = caunet.estimate(case.a, case.b)
        error = relative_error(torch.as_tensor(found.matrix), case)
        back, there = found.warp(b), found.warp(torch.ones_like(b)) > 0.99
        if row == "negative":  # shown as what it is, compared as what it was
            b, back = 1 - b, 1 - back
        panels[f"{name}: first"] = a[..., None].expand(-1, -1, 3)
        panels[f"{row}: second"] = (torch.from_numpy(case.b).float() / 255)[..., None].expand(-1, -1, 3)
        panels[f"{row}: before"] = overlay(a, b, torch.ones_like(b) > 0)
        panels[f"after, {error:.3%} off, confidence {found.confidence:.2f}"] = overlay(a, back, there)
    show(panels, path)


def draw_photographs(path: Path) -> None:
    """Two photographs of one scene, and both on top of each other."""
    a, b = (
        torch.from_numpy(photograph(f"motorcycle_{side}.png")[PART]).float() / 255
        for side in ("left", "right")
    )
    found = caunet.estimate(a, b)
    panels = {
        "first": a[..., None].expand(-1, -1, 3),
        "second": b[..., None].expand(-1, -1, 3),
        "before": overlay(a, b, torch.ones_like(b) > 0),
        "after": overlay(a, found.warp(b), found.warp(torch.ones_like(b)) > 0.99),
    }
    show(panels, path)
    print(f"{path.name}: {found}")


def show(panels: dict[str, Tensor], path: Path, columns: int = 4) -> None:
    """Pictures side by side, in ``columns``, to a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(panels) // columns)
    height, width = next(iter(panels.values())).shape[:2]
    wide = 12.0 / columns
    figure = Figure(figsize=(12.0, rows * (wide * height / width + 0.25)), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(rows, columns, squeeze=False).flat
    for place, (title, picture) in zip(places, panels.items(), strict=True):
        place.imshow(picture.numpy(), interpolation="lanczos")
        place.set_title(title, fontsize=11)
        place.set_axis_off()
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=80 if rows > 1 else 100)


if __name__ == "__main__":
    main()
