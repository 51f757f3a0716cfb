"""What CTN, BLN and CAN learned of rotation, as a figure, from the shipped networks.

    python -m benchmarks.learned

For CAN: the unit that stands out most at -40, -20, 0, 20 and 40 degrees, the u and v of its four rank-one terms, and
(above) how its response varies with the angle. For BLN: the factors of the units to which the decoder listens most.
For CTN: the first layer's rows of largest norm, each a filter on x and one on y. BLN's and CTN's weights have signs:
red is positive, blue negative.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from caunet.data import PairSource, load_images
from caunet.models import RelationNetwork, load_pretrained
from caunet.reproduction.figures import new_figure
from caunet.reproduction.unit_figures import mosaic

ANGLES = (-40, -20, 0, 20, 40)
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "learned-rotation.png"


def tuned(model: RelationNetwork, source: PairSource) -> tuple[list[int], Tensor]:
    """The unit that stands out most above its own mean response at each angle, and all units' responses over theirs.

    On rotation the softmin is soft and a few units have the largest response almost always; what tells the angle is
    how the responses of all units deviate from their means. Bins are of 3 degrees.
    """
    pairs = source.batch(0, torch.arange(30_000))
    with torch.no_grad():
        responses = model.units(pairs.x, pairs.y)
    place = ((pairs.z[:, 0] + 45) / 3).floor().long().clamp(0, 29)
    total = torch.zeros(30, responses.shape[1]).index_add_(0, place, responses)
    tuning = (total / place.bincount(minlength=30)[:, None] / responses.mean(0)).T
    tuning[responses.mean(0) < 1e-3] = 0.0  # units that as good as never speak
    return [int(tuning[:, int((angle + 45) / 3)].argmax()) for angle in ANGLES], tuning


def strongest(model: RelationNetwork, count: int = 10) -> tuple[Tensor, Tensor]:
    """Filters on x and on y (count, 11, 11): of BLN's most heard units, or of CTN's largest rows."""
    first = model.decoder[0].weight.detach()
    if model.model_spec.relation == "concatenation":
        rows = first[first.norm(dim=1).topk(count).indices]
        left, right = rows.chunk(2, 1)
    else:
        units = first.norm(dim=0).topk(count).indices
        u, v = (p.detach().view(-1, 4, 121)[units] for p in (model.relation.u, model.relation.v))
        term = (u.norm(dim=2) * v.norm(dim=2)).argmax(1)
        left, right = (p[torch.arange(count), term] for p in (u, v))
    return left.reshape(-1, 11, 11), right.reshape(-1, 11, 11)


def draw(networks: dict[str, RelationNetwork], source: PairSource) -> Any:
    figure = new_figure(9.6, 6.0)
    heights = [1.6, 1.1, 1.5, 1.5]
    curves, can, bln, ctn = figure.subplots(4, 1, height_ratios=heights)
    units, tuning = tuned(networks["can"], source)
    z = torch.linspace(-43.5, 43.5, 30)
    for number, (unit, angle) in enumerate(zip(units, ANGLES, strict=True)):
        curves.plot(z, tuning[unit], color=f"C{number}", label=f"chosen at {angle}°")
    curves.legend(fontsize=7, ncols=5, frameon=False)
    curves.set(
        xlim=(-45, 45),
        ylabel="response / its mean",
        title="CAN: response of five units over the angle (degrees)",
    )
    factors = [
        p.detach().view(-1, 4, 11, 11)[units].flatten(0, 1)
        for p in (networks["can"].relation.u, networks["can"].relation.v)
    ]
    tiles = torch.stack([f / f.flatten(1).amax(1)[:, None, None] for f in factors])
    can.imshow(mosaic(tiles), cmap="viridis", vmin=0, vmax=1, interpolation="none")
    can.set_title("CAN: their u (above) and v (below), four terms a unit, units from -40° to 40°")
    for number in range(1, 5):
        can.axvline(number * 4 * 13 - 1.5, color="black", lw=1)
    for axis, name in ((bln, "bln"), (ctn, "ctn")):
        pair = torch.stack(strongest(networks[name]))
        pair = pair / pair.flatten(2).abs().amax(2)[..., None, None]
        axis.imshow(mosaic(pair), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="none")
        what = "strongest terms of ten units" if name == "bln" else "ten rows of the first layer"
        axis.set_title(f"{name.upper()}: {what}, filters on x (above) and y (below)")
    for axis in (can, bln, ctn):
        axis.set_axis_off()
    for axis in (curves, can, bln, ctn):
        axis.title.set_fontsize(9)
    return figure


def main() -> None:
    networks = {name: load_pretrained(f"{name}-rotation") for name in ("ctn", "bln", "can")}
    source = PairSource(load_images("cifar10", split="test"), "rotation", "text", pairs="fresh")
    draw(networks, source).savefig(FIGURE, dpi=110)
    print(f"saved to {FIGURE}")


if __name__ == "__main__":
    main()
