"""Setting weights to zero that hardly count: :func:`prune`, and how far to go at which update of a training.

The multiplicative update drives most weights of contrast association units to almost nothing; taking them away changes
little, and a weight that is exactly zero stays zero under that rule. Weights of either sign are kept at zero by a mask.

Pruned are the weights of the relation units, by the measure that the units themselves give
(:meth:`caunet.nn.Relation.prunable`). Where those have none (concatenation), the weights of the decoder's linear layers
are pruned by magnitude.
"""

import copy

import torch
from torch import Tensor, nn

from caunet.models.network import RelationNetwork

__all__ = ["GradualPruning", "prune"]


def prune(
    model: RelationNetwork, *, keep: float | None = None, threshold: float | None = None
) -> RelationNetwork:
    """A copy of ``model`` in which weights that hardly count are exactly zero. Give one of:

    Args:
        model: the network; it stays as it is.
        keep: below 1, the share of the weights that is kept; a whole number is how many non-zero numbers the whole
            network may have, the layers that are not pruned included. What counts most is kept. Every relation unit
            keeps at least one entry of each factor: a unit without weights would match everything.
        threshold: entries below this share of the largest in their row become zero, each row (of u, of v) by itself.

    >>> from caunet.models import create_model
    >>> model = create_model("can", "rotation", seed=0)
    >>> pruned = prune(model, keep=100_000)
    >>> model.nonzero_count(), pruned.nonzero_count()
    (330703, 100000)
    >>> prune(model, threshold=0.5).nonzero_count() < 200_000
    True
    """
    if (keep is None) == (threshold is None):
        raise ValueError("give either keep or threshold")
    pruned = copy.deepcopy(model)
    if keep is not None:
        prune_to(pruned, keep)
    elif threshold is not None:
        _cut_rows(pruned, threshold)
    return pruned


class GradualPruning:
    """Pruning while a network learns: nothing in the first quarter of the updates, then more and more, ever more slowly
    (Zhu & Gupta 2017), and in the last quarter the pattern stays as it is.

    Args:
        model: the network in training.
        keep: what is left in the end, as in :func:`prune`.
        updates: how long the training is.

    The zeros of the weights are all there is to remember: a run that is resumed finds its pattern in its weights.

    >>> from caunet.models import create_model
    >>> model = create_model("bln", "rotation", units=10, seed=0)
    >>> pruning = GradualPruning(model, 0.25, updates=4000)
    >>> [pruning.wanted(step) for step in (1000, 2000, 3000, 4000)]
    [None, 3328, 2420, 2420]
    """

    first, last, every = 0.25, 0.75, 100

    def __init__(self, model: RelationNetwork, keep: float, updates: int) -> None:
        self.model, self.updates = model, updates
        sizes = {name: weight.numel() for name, weight in _weights(model).items()}
        self.start = sum(sizes.values())
        self.target = _kept(model, keep)
        free = {id(p) for p in _nonnegative(model)}
        self._masked = [weight for weight in _weights(model).values() if id(weight) not in free]
        self._masks: list[Tensor] | None = None

    def wanted(self, step: int) -> int | None:
        """How many of the weights that may go are left after ``step`` updates; None before anything goes."""
        done = (step / self.updates - self.first) / (self.last - self.first)
        if done <= 0:
            return None
        return round(self.target + (self.start - self.target) * (1 - min(done, 1.0)) ** 3)

    def resume(self, step: int) -> None:
        """Take the pattern from the weights that were loaded, as they are after ``step`` updates."""
        self._masks = None if self.wanted(step) is None else [weight != 0 for weight in self._masked]

    def after(self, step: int) -> None:
        """What is to be done after update number ``step``, counted from 1: go further now and then, keep the zeros."""
        wanted = self.wanted(step)
        if wanted is None:
            return
        final = round(self.last * self.updates)
        if (step % self.every == 0 and step < final) or step == final:
            _keep_largest(self.model, wanted)
            self._masks = None
        with torch.no_grad():
            if self._masks is None:
                self._masks = [weight != 0 for weight in self._masked]
            for weight, mask in zip(self._masked, self._masks, strict=True):
                weight.mul_(mask)


def prune_to(model: RelationNetwork, keep: float) -> None:
    """:func:`prune` by ``keep``, in place."""
    _keep_largest(model, _kept(model, keep))


def _kept(model: RelationNetwork, keep: float) -> int:
    """How many of the weights that may go are to stay."""
    sizes = [weight.numel() for weight in _weights(model).values()]
    if isinstance(keep, bool) or not isinstance(keep, int | float) or not keep > 0:
        raise ValueError(f"keep must be a share below 1 or a number of weights, got {keep!r}")
    if keep < 1:
        return max(1, round(keep * sum(sizes)))
    if keep != int(keep):
        raise ValueError(f"keep must be a share below 1 or a whole number of weights, got {keep!r}")
    others = model.parameter_count() - sum(sizes)
    if int(keep) <= others:
        raise ValueError(
            f"keep must be above {others:,}, the numbers in layers that are not pruned, got {keep:,.0f}"
        )
    return min(int(keep) - others, sum(sizes))


def _nonnegative(model: nn.Module) -> list[nn.Parameter]:
    found = []
    for module in model.modules():
        listed = getattr(module, "nonnegative_parameters", None)
        found += list(listed()) if listed else []
    return found


def _scores(model: RelationNetwork) -> dict[str, Tensor]:
    """How much each weight counts that may go, by the name of its parameter in the network."""
    sizes = {f"relation.{name}": size for name, size in model.relation.prunable().items()}
    if sizes:
        return sizes
    if any(True for _ in model.relation.parameters()):
        raise ValueError(f"{type(model.relation).__name__} has no weights that can be set to zero")
    linear = [(f"decoder.{i}.weight", m) for i, m in enumerate(model.decoder) if isinstance(m, nn.Linear)]
    return {name: layer.weight.detach().abs() for name, layer in linear}


def _weights(model: RelationNetwork) -> dict[str, nn.Parameter]:
    return {name: model.get_parameter(name) for name in _scores(model)}


@torch.no_grad()
def _keep_largest(model: RelationNetwork, count: int) -> None:
    scores = _scores(model)
    for name, score in scores.items():
        if name.startswith("relation."):
            _protect_(score, model.relation.outputs)
    flat = torch.cat([score.flatten() for score in scores.values()])
    if count >= flat.numel():
        return
    # By place where equal, so that exactly so many are kept whatever the device.
    kept = torch.zeros_like(flat, dtype=torch.bool)
    kept[flat.argsort(descending=True, stable=True)[:count]] = True
    masks = torch.split(kept, [score.numel() for score in scores.values()])
    for name, mask in zip(scores, masks, strict=True):
        weight = model.get_parameter(name)
        weight.mul_(mask.view_as(weight))


def _protect_(score: Tensor, units: int) -> None:
    """Make the largest entry in the weightiest row of each unit count more than anything."""
    rows = score.view(units, -1, score.shape[-1]) if score.ndim == 2 else score.flatten(1).unsqueeze(1)
    unit = torch.arange(units, device=score.device)
    row = rows.sum(2).argmax(1)
    rows[unit, row, rows[unit, row].argmax(1)] = torch.inf


@torch.no_grad()
def _cut_rows(model: RelationNetwork, threshold: float) -> None:
    if not 0 <= threshold < 1:
        raise ValueError(f"threshold must be at least 0 and below 1, got {threshold!r}")
    for weight in _weights(model).values():
        rows = weight.view(len(weight), -1)
        rows.mul_(rows.abs() >= threshold * rows.abs().amax(1, keepdim=True))
