"""Draw docs/figures/before-after.png: two images on top of each other, before and after caunet.estimate.

python -m benchmarks.before_after [--index 3] [--condition occlusion] [--motion 0.2]

The pair is one of the benchmark's; the answer is the estimator's. In an overlay the first picture is red and the
second cyan, so that what agrees is gray; for that the second is shown with the first's mean and contrast. Where the
second shows nothing the first is dimmed.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

import caunet
from caunet.benchmark import draw_pair
from caunet.files import atomic_write
from caunet.metrics import corner_error

FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "before-after.png"


def overlay(a: Tensor, b: Tensor, there: Tensor) -> Tensor:
    """(H, W, 3): a in red, b in green and blue; a dimmed where b is not ``there``."""
    b = (b - b[there].mean()) * (a[there].std() / b[there].std()) + a[there].mean()
    seen = torch.stack([a, b, b], -1)
    return torch.where(there[..., None], seen, 0.5 * a[..., None]).clamp(0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--index", type=int, default=3)
    parser.add_argument("--condition", default="photometric")
    parser.add_argument("--motion", type=float, default=0.2)
    parser.add_argument("--out", type=Path, default=FIGURE)
    options = parser.parse_args()
    pair = draw_pair("bench", options.condition, options.motion, options.index, side=320)
    found = caunet.estimate(pair.a, pair.b)
    error = float(corner_error(torch.as_tensor(found.matrix), pair.H, 320, centered=False))
    panels = {
        "first": pair.a.clamp(0, 1)[..., None].expand(-1, -1, 3),
        "second": pair.b.clamp(0, 1)[..., None].expand(-1, -1, 3),
        "before": overlay(pair.a, pair.b, torch.ones_like(pair.b) > 0),
        "after": overlay(pair.a, found.warp(pair.b), found.warp(torch.ones_like(pair.b)) > 0.99),
    }
    show(panels, options.out)
    print(f"{options.out.name}: corner error {error:.3f} px, confidence {found.confidence:.2f}")


def show(panels: dict[str, Tensor], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.0 * len(panels), 3.25), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, picture) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        place.imshow(picture.numpy(), interpolation="lanczos")
        place.set_title(title, fontsize=11)
        place.set_axis_off()
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=100)


if __name__ == "__main__":
    main()
