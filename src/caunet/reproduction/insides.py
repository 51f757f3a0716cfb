"""Figures that look into a trained network: pairs and predictions, units' weights, what each unit prefers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from caunet.data import PairSource
from caunet.models import RelationNetwork
from caunet.reproduction.figures import COLOURS, INK, new_figure

__all__ = ["Tuning", "associations", "filters", "preferences", "samples", "tuning_of"]


def samples(models: Mapping[str, RelationNetwork], source: PairSource, count: int = 8) -> Any:
    """Test pairs: x, and y with a square of x carried by the true H and by each network's.

    The closer the coloured squares lie to the pale one, the better the inference.
    """
    # One pair of an image, images far apart.
    index = torch.linspace(0, len(source) - 1, count).long()
    pairs = source.batch(0, index)
    with torch.no_grad():
        inferred = {name: source.homography(model(pairs.x, pairs.y)) for name, model in models.items()}
    truth = source.homography(pairs.z)
    figure = new_figure(1.15 * count, 3.1)
    axes = figure.subplots(2, count, squeeze=False)
    for i in range(count):
        _patch(axes[0, i], pairs.x[i])
        _patch(axes[1, i], pairs.y[i])
        _square(axes[0, i], torch.eye(3), source.patch, "white", "-", 1.6)
        _square(axes[1, i], truth[i], source.patch, "white", "-", 2.4)
        for name, H in inferred.items():
            _square(axes[1, i], H[i], source.patch, COLOURS[name], "--", 1.3)
        axes[1, i].set_xlabel(_numbers(pairs.z[i]), fontsize=7)
    axes[0, 0].set_ylabel("x")
    axes[1, 0].set_ylabel("y")
    lines = [_key("#b8bec6", "-", "truth"), *(_key(COLOURS[name], "--", name.upper()) for name in models)]
    figure.legend(handles=lines, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _key(colour: str, style: Any, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linestyle=style, label=label)


def _patch(axis: Any, pixels: Tensor, **options: Any) -> None:
    defaults = {"cmap": "gray", "vmin": -0.5, "vmax": 0.5} if not options else {}
    axis.imshow(pixels.numpy(), interpolation="none", **(defaults | options))
    axis.set(xticks=[], yticks=[])
    axis.grid(False)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _square(axis: Any, H: Tensor, patch: int, colour: str, style: str, width: float) -> None:
    """Draw a square about the centre of a patch, carried by H."""
    middle, reach = (patch - 1) / 2, patch / 4
    corners = torch.tensor([[-1.0, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1], [-1, -1, 1]])
    corners = corners * torch.tensor([reach, reach, 1.0])
    moved = corners @ H.to(corners.dtype).T
    moved = moved[:, :2] / moved[:, 2:] + middle
    from matplotlib.patheffects import withStroke

    # A dark rim keeps lines visible on any gray.
    rim = [withStroke(linewidth=width + 1.2, foreground="#000000", alpha=0.55)]
    axis.plot(*moved.T.numpy(), color=colour, linestyle=style, linewidth=width, path_effects=rim)
    axis.set(xlim=(-0.5, patch - 0.5), ylim=(patch - 0.5, -0.5))


def _numbers(z: Tensor) -> str:
    texts = [f"{value:.3g}" for value in z.tolist()]
    half = (len(texts) + 1) // 2
    return ", ".join(texts) if len(texts) <= 2 else ", ".join(texts[:half]) + "\n" + ", ".join(texts[half:])


@dataclass(frozen=True)
class Tuning:
    """Mean response of every unit as z varies, over the bins of one or two of its dimensions.

    ``response`` is (units, bins) or (units, bins, bins); a bin that no pair fell in is NaN.
    """

    names: tuple[str, ...]
    extent: tuple[tuple[float, float], ...]
    response: Tensor

    @property
    def selectivity(self) -> Tensor:
        """How much a unit's best bin stands out of its mean: (units,)."""
        flat = self.response.flatten(1)
        return flat.nan_to_num(-1).amax(1) - flat.nanmean(1)

    def preferred(self, unit: int) -> tuple[float, ...]:
        """The z at the middle of a unit's best bin, in the dimensions shown."""
        response = self.response[unit]
        best = int(response.nan_to_num(-1).argmax())
        places = [best] if response.ndim == 1 else list(divmod(best, response.shape[1]))
        bins = response.shape[0]
        return tuple(
            low + (place + 0.5) * (high - low) / bins
            for place, (low, high) in zip(places, self.extent, strict=True)
        )


def tuning_of(model: RelationNetwork, source: PairSource, most: int = 40_000) -> Tuning:
    """Responses after the competition, averaged over test pairs that fall into the same bin of z.

    Of more than two dimensions the two shears, a12 and a21, are shown; the others vary freely.
    """
    task = source.task
    dims = [0] if task.dim == 1 else [0, 1] if task.dim == 2 else [1, 2]
    # 11 bins are one an integer for translation; a line can afford more.
    bins = 45 if len(dims) == 1 else 11
    place, responses = [], []
    for start in range(0, min(most, len(source)), 2000):
        pairs = source.batch(0, torch.arange(start, min(start + 2000, len(source))))
        with torch.no_grad():
            responses.append(model.units(pairs.x, pairs.y))
        place.append(_bins(pairs.z[:, dims], [(task.low[d], task.high[d]) for d in dims], bins))
    where, response = torch.cat(place), torch.cat(responses)
    total = torch.zeros(bins ** len(dims), response.shape[1]).index_add_(0, where, response)
    count = torch.bincount(where, minlength=bins ** len(dims))
    shape = (-1, bins) if len(dims) == 1 else (-1, bins, bins)
    extent = tuple((task.low[d], task.high[d]) for d in dims)
    # The released translation is (rows, columns); every other z has the order of its task.
    rows_first = task.name == "translation" and source.protocol == "release"
    names = ("rows", "columns") if rows_first else tuple(task.names[d] for d in dims)
    return Tuning(names, extent, (total / count[:, None]).T.reshape(shape))


def _bins(z: Tensor, extent: Sequence[tuple[float, float]], bins: int) -> Tensor:
    place = torch.zeros(len(z), dtype=torch.long)
    for column, (low, high) in zip(z.T, extent, strict=True):
        place = place * bins + ((column - low) / (high - low) * bins).floor().clamp(0, bins - 1).long()
    return place


def preferences(tuning: Tuning, count: int = 12) -> Any:
    """The most selective units' mean responses as z sweeps its range: each prefers one transformation."""
    units = tuning.selectivity.topk(min(count, len(tuning.response))).indices.tolist()
    units.sort(key=tuning.preferred)
    if tuning.response.ndim == 2:
        return _preference_lines(tuning, units)
    columns = 6
    rows = -(-len(units) // columns)
    figure = new_figure(9.3, 1.75 * rows)
    (x0, x1), (y0, y1) = tuning.extent
    for place, unit in enumerate(units):
        axis = figure.add_subplot(rows, columns, place + 1)
        # The first dimension along x, the second down.
        shown = tuning.response[unit].T.numpy()
        axis.imshow(shown, extent=(x0, x1, y1, y0), aspect="auto", cmap="magma", interpolation="none", vmin=0)
        axis.grid(False)
        axis.tick_params(labelsize=6, length=2)
        axis.set_title(f"unit {unit}", fontsize=8)
    figure.supxlabel(tuning.names[0], fontsize=9, color=INK)
    figure.supylabel(tuning.names[1], fontsize=9, color=INK)
    return figure


def _preference_lines(tuning: Tuning, units: Sequence[int]) -> Any:
    from matplotlib import colormaps

    figure = new_figure(7.5, 3.0)
    axis = figure.subplots()
    (low, high), bins = tuning.extent[0], tuning.response.shape[1]
    z = torch.linspace(low, high, 2 * bins + 1)[1::2]
    for unit in units:
        share = (tuning.preferred(unit)[0] - low) / (high - low)
        axis.plot(z, tuning.response[unit], color=colormaps["turbo"](0.08 + 0.84 * share), linewidth=1.5)
    axis.set(xlabel=tuning.names[0], ylabel="mean response after softmin", ylim=(0, None))
    return figure


def _factors(model: RelationNetwork) -> tuple[Tensor, Tensor]:
    u, v = model.relation.u, model.relation.v
    assert isinstance(u, Tensor)
    assert isinstance(v, Tensor)
    return u.detach(), v.detach()


def filters(model: RelationNetwork, units: Sequence[int]) -> Any:
    """u and v of the rank-one terms of some CAUs, as images: a column a term, four terms a unit."""
    patch, rank = model.model_spec.patch, model.model_spec.rank or 1
    u, v = (p.reshape(-1, rank, patch, patch) for p in _factors(model))
    figure = new_figure(9.3, 2.1)
    parts = figure.subfigures(1, len(units), wspace=0.03)
    for part, unit in zip(parts if len(units) > 1 else [parts], units, strict=True):
        axes = part.subplots(2, rank, squeeze=False)
        part.suptitle(f"unit {unit}", fontsize=8, color=INK)
        for term in range(rank):
            for row, weights in enumerate((u[unit, term], v[unit, term])):
                _patch(axes[row, term], weights, cmap="viridis", vmin=0)
        axes[0, 0].set_ylabel("u", rotation=0, labelpad=6)
        axes[1, 0].set_ylabel("v", rotation=0, labelpad=6)
    return figure


def associations(model: RelationNetwork, units: Sequence[int]) -> Any:
    """W = sum of u v^T of some CAUs: which pixel of x (down) is compared with which pixel of y (across)."""
    rank = model.model_spec.rank or 1
    u, v = (p.reshape(-1, rank, p.shape[1]) for p in _factors(model))
    figure = new_figure(9.3, 2.6)
    axes = figure.subplots(1, len(units), squeeze=False)[0]
    for axis, unit in zip(axes, units, strict=True):
        weight = torch.einsum("ri,rj->ij", u[unit], v[unit])
        _patch(axis, weight / weight.max(), cmap="viridis", vmin=0, vmax=1)
        axis.set_title(f"W of unit {unit}", fontsize=8)
    axes[0].set_ylabel("pixel of x")
    figure.supxlabel("pixel of y", fontsize=9, color=INK)
    return figure
