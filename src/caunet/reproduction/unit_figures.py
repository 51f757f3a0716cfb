"""Figures of a trained network: pairs and predictions, the weights of units, what each unit prefers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from caunet.data import PairSource
from caunet.drawing import new_figure
from caunet.models import RelationNetwork
from caunet.nn import UnitView
from caunet.reproduction.figures import COLORS, INK

_GAP = 2  # pixels between the tiles of a mosaic

__all__ = ["Tuning", "associations", "filters", "matches", "mosaic", "preferences", "samples", "tuning_of"]


def samples(models: Mapping[str, RelationNetwork], source: PairSource, count: int = 8) -> Any:
    """Test pairs: x, and y with a square of x carried by the true H and by each network's.

    The closer the colored squares are to the pale one, the better the inference.
    """
    # One pair per image, images far apart.
    index = torch.linspace(0, len(source) - 1, count).long()
    pairs = source.batch(0, index)
    with torch.no_grad():
        inferred = {name: source.homography(model(pairs.x, pairs.y)) for name, model in models.items()}
    truth = source.homography(pairs.z)
    figure = new_figure(9.3, 3.0)
    axis = figure.subplots()
    side = source.patch + _GAP
    _show(axis, mosaic(torch.stack([pairs.x, pairs.y])), cmap="gray", vmin=-0.5, vmax=0.5)
    for i in range(count):
        _square(axis, torch.eye(3), source.patch, (i * side, 0), "white", "-", 1.8)
        _square(axis, truth[i], source.patch, (i * side, side), "white", "-", 2.2)
        for name, H in inferred.items():
            _square(axis, H[i], source.patch, (i * side, side), COLORS[name], "--", 1.4)
        text = _numbers(pairs.z[i])
        axis.text(i * side + source.patch / 2 - 0.5, 2 * side - 0.5, text, ha="center", va="top", fontsize=7)
    for row, name in enumerate("xy"):
        axis.text(-1.5, row * side + source.patch / 2 - 0.5, name, ha="right", va="center")
    lines = [_key("#b8bec6", "-", "truth"), *(_key(COLORS[name], "--", name.upper()) for name in models)]
    figure.legend(handles=lines, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _key(color: str, style: Any, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, linestyle=style, label=label)


def mosaic(tiles: Tensor) -> Tensor:
    """Tiles (rows, columns, height, width) as one image, NaN between them: one draws faster than many."""
    rows, columns, height, width = tiles.shape
    padded = torch.nn.functional.pad(tiles, (0, _GAP, 0, _GAP), value=float("nan"))
    whole = padded.transpose(1, 2).reshape(rows * (height + _GAP), columns * (width + _GAP))
    return whole[:-_GAP, :-_GAP]


def _show(axis: Any, image: Tensor, **options: Any) -> None:
    axis.imshow(image.numpy(), interpolation="none", **options)
    axis.set_axis_off()


def _square(
    axis: Any, H: Tensor, patch: int, corner: tuple[float, float], color: str, style: str, width: float
) -> None:
    """Draw a square at the center of the patch at ``corner``, carried by H, clipped at the edge of the patch."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    reach = patch / 4
    corners = torch.tensor([[-1.0, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1], [-1, -1, 1]])
    moved = (corners * torch.tensor([reach, reach, 1.0])) @ H.to(corners.dtype).T
    moved = moved[:, :2] / moved[:, 2:] + (patch - 1) / 2 + torch.tensor(corner)
    # A dark rim keeps lines visible on any gray.
    rim = [withStroke(linewidth=width + 1.2, foreground="#000000", alpha=0.55)]
    (line,) = axis.plot(*moved.T.numpy(), color=color, linestyle=style, linewidth=width, path_effects=rim)
    line.set_clip_path(Rectangle((corner[0] - 0.5, corner[1] - 0.5), patch, patch, transform=axis.transData))


def _numbers(z: Tensor) -> str:
    texts = [f"{value:.3g}" for value in z.tolist()]
    half = (len(texts) + 1) // 2
    return ", ".join(texts) if len(texts) <= 2 else ", ".join(texts[:half]) + "\n" + ", ".join(texts[half:])


@dataclass(frozen=True)
class Tuning:
    """Mean response of every unit as z varies, over the bins of one or two of its dimensions.

    ``response`` is (units, bins) or (units, bins, bins); a bin without pairs is NaN.
    """

    names: tuple[str, ...]
    extent: tuple[tuple[float, float], ...]
    response: Tensor

    @property
    def selectivity(self) -> Tensor:
        """How much a unit's best bin stands out: (units,). Units that respond to everything come last."""
        flat = self.response.flatten(1)
        return flat.nan_to_num(-1).amax(1) - 2 * flat.nanmean(1)

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
    # 11 bins are one per integer for translation; a curve can afford more.
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
    names = tuple(source.names[d] for d in dims)
    return Tuning(names, extent, (total / count[:, None]).T.reshape(shape))


def _bins(z: Tensor, extent: Sequence[tuple[float, float]], bins: int) -> Tensor:
    place = torch.zeros(len(z), dtype=torch.long)
    for column, (low, high) in zip(z.T, extent, strict=True):
        place = place * bins + ((column - low) / (high - low) * bins).floor().clamp(0, bins - 1).long()
    return place


def preferences(tuning: Tuning, count: int = 16) -> Any:
    """The most selective units' mean responses as z sweeps its range: each prefers one transformation."""
    units = tuning.selectivity.topk(min(count, len(tuning.response))).indices.tolist()
    units.sort(key=tuning.preferred)
    if tuning.response.ndim == 2:
        return _preference_lines(tuning, units)
    # Whole rows of eight: each unit a map over z, the first dimension across, the second down.
    units = units[: max(1, len(units) // 8) * 8]
    maps = tuning.response[units].transpose(1, 2)
    maps = maps / maps.nan_to_num(0).flatten(1).amax(1).clamp(min=1e-12)[:, None, None]
    columns = min(8, len(units))
    figure = new_figure(9.3, 0.35 + 1.15 * len(units) / columns)
    axis = figure.subplots()
    _show(axis, mosaic(maps.unflatten(0, (-1, columns))), cmap="magma", vmin=0, vmax=1)  # type: ignore[no-untyped-call]
    bins = maps.shape[-1]
    rows = len(units) // columns
    first, second = (
        f"{n} {low:g} to {high:g}" for n, (low, high) in zip(tuning.names, tuning.extent, strict=True)
    )
    axis.text(-0.5, rows * (bins + _GAP), f"each square: {first} across, {second} down", va="top", fontsize=8)
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


def _views(model: RelationNetwork, units: Sequence[int]) -> list[UnitView]:
    """What some units compare; ValueError for units that cannot be drawn."""
    views = [model.relation.view(unit) for unit in units]
    drawn = [view for view in views if view is not None]
    if len(drawn) < len(views):
        raise ValueError(f"model must have units that can be drawn, got {model.model_spec.relation}")
    return drawn


def _terms(model: RelationNetwork, units: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The rank-one terms of some units as patches: two of (units, rank, patch, patch)."""
    views, shape = _views(model, units), model.model_spec.patch_shape
    both = (torch.stack([getattr(view, side) for view in views]) for side in ("terms_a", "terms_b"))
    u, v = (terms.unflatten(-1, shape) for terms in both)  # type: ignore[no-untyped-call]
    return u, v


def filters(model: RelationNetwork, units: Sequence[int]) -> Any:
    """u and v of the rank-one terms of some CAUs, as images: u above v, one column per term."""
    factors = _terms(model, units)
    patch, rank = factors[0].shape[-1], factors[0].shape[1]
    flat = [f.flatten(0, 1) for f in factors]
    tiles = torch.stack([f / f.flatten(1).amax(1).clamp(min=1e-30)[:, None, None] for f in flat])
    figure = new_figure(9.3, 0.4 + 9.0 * 2 / max(8, tiles.shape[1]))
    axis = figure.subplots()
    _show(axis, mosaic(tiles), cmap="viridis", vmin=0, vmax=1)
    for row, name in enumerate("uv"):
        axis.text(-1.5, row * (patch + _GAP) + patch / 2, name, ha="right", va="center")
    for place, unit in enumerate(units):
        axis.text(place * rank * (patch + _GAP) - 0.5, -1.5, f"unit {unit}", fontsize=8)
        if place:
            axis.axvline(place * rank * (patch + _GAP) - 0.5 - _GAP / 2, color=INK, linewidth=0.8)
    return figure


def matches(model: RelationNetwork, units: Sequence[int]) -> Any:
    """What some CAUs compare: one arrow per rank-one term, from the center of its u (in x) to that of its v (in y)."""
    patch = model.model_spec.patch
    grid = torch.arange(float(patch))
    ends = []
    for weight in _terms(model, units):
        share = weight / weight.sum((-1, -2), keepdim=True).clamp(min=1e-30)
        ends.append(torch.stack([(share.sum(-2) * grid).sum(-1), (share.sum(-1) * grid).sum(-1)], -1))
    side = patch + _GAP
    shift = torch.zeros(len(units), 1, 2)
    shift[:, 0, 0] = side * torch.arange(len(units))
    start, step = (ends[0] + shift).flatten(0, 1), (ends[1] - ends[0]).flatten(0, 1)
    figure = new_figure(9.3, 0.4 + 9.0 / len(units))
    axis = figure.subplots()
    _show(axis, mosaic(torch.zeros(1, len(units), patch, patch)), cmap="gray", vmin=-4, vmax=1, alpha=0.12)
    arrows = {"angles": "xy", "scale_units": "xy", "scale": 1, "color": COLORS["can"], "width": 0.003}
    axis.quiver(*start.T.numpy(), *step.T.numpy(), **arrows)
    axis.plot(*start.T.numpy(), "o", color=COLORS["can"], markersize=3)
    for place, unit in enumerate(units):
        axis.text(place * side - 0.5, -1.2, f"unit {unit}", fontsize=8)
    return figure


def associations(model: RelationNetwork, units: Sequence[int]) -> Any:
    """W = sum of u v^T of some CAUs: which pixel of x (down) is compared with which pixel of y (across)."""
    weights = torch.stack([view.matrix for view in _views(model, units)])
    weights = (weights / weights.flatten(1).amax(1).clamp(min=1e-30)[:, None, None]).sqrt()
    # Learned weights are so sparse that single entries would be lost on a screen: each is shown five wide.
    weights = torch.nn.functional.max_pool2d(weights[None], 5, stride=1, padding=2)[0]
    figure = new_figure(9.3, 0.4 + 9.0 / len(units))
    axis = figure.subplots()
    _show(axis, mosaic(weights[None]), cmap="viridis", vmin=0, vmax=1)
    size = weights.shape[-1] + _GAP
    for place, unit in enumerate(units):
        axis.text(place * size, -4, f"unit {unit}", fontsize=8)
    axis.text(-5, size / 2, "pixel of x", rotation=90, ha="right", va="center", fontsize=8)
    axis.text(len(units) * size / 2, size + 2, "pixel of y", ha="center", va="top", fontsize=8)
    return figure
