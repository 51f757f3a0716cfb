"""A pruned network evaluated by its non-zero weights alone: the same answers, several times faster."""

import torch
from torch import Tensor, nn

from caunet.models.network import RelationNetwork
from caunet.nn import SparseRows

__all__ = ["SparseNetwork", "is_pruned"]

# Pairs at a time: as many columns as let all that is computed of them stay in the cache.
_COLUMNS = 256
# A layer of the decoder is worth it below this share of non-zero weights; dense products are that much faster.
_WORTH = 0.2


class SparseNetwork:
    """``SparseNetwork(model)(x, y)`` is ``model(x, y)``, to rounding and without gradients.

    Args:
        model: a pruned network (:func:`caunet.prune`); its weights are taken as they are now. Of relation units that
            have no sparse form (:meth:`caunet.nn.Relation.sparse`) the dense one is used.

    >>> from caunet.models import create_model, prune
    >>> model = prune(create_model("can", "translation", seed=0), keep=0.05)
    >>> x, y = torch.rand(2, 7, 11, 11, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(SparseNetwork(model)(x, y), model(x, y), atol=1e-5))
    True
    """

    def __init__(self, model: RelationNetwork) -> None:
        if not isinstance(model, RelationNetwork):
            raise TypeError(f"model must be a RelationNetwork, got {type(model).__name__}")
        self.model = model
        self._relate = model.relation.sparse()
        self._layers = [_layer(module) for module in model.decoder]
        self._sparse_decoder = any(isinstance(layer, SparseRows) for layer, _ in self._layers)

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Infer z (B, dim) from patches x and y, each (B, *patch_shape) or (B, pixels)."""
        if x.shape != y.shape:
            raise ValueError(f"x and y must have one shape, got {tuple(x.shape)} and {tuple(y.shape)}")
        if not len(x):
            return self.model(x, y)  # type: ignore[no-any-return]
        parts = zip(torch.split(x, _COLUMNS), torch.split(y, _COLUMNS), strict=True)
        return torch.cat([self._some(a, b) for a, b in parts])

    def _some(self, x: Tensor, y: Tensor) -> Tensor:
        model = self.model
        a, b = model.extract(x, y)
        h = (
            model.relation(a, b)
            if self._relate is None
            else self._relate(a.t().contiguous(), b.t().contiguous()).t()
        )
        return model.decode(model.competition(h), self._decode if self._sparse_decoder else None)

    def _decode(self, responses: Tensor) -> Tensor:
        columns = responses.t().contiguous()
        for layer, bias in self._layers:
            if isinstance(layer, SparseRows):
                columns = layer @ columns
                columns = columns if bias is None else columns.add_(bias[:, None])
            else:
                columns = layer(columns.t()).t()
        return columns.t()


def _layer(module: nn.Module) -> tuple[nn.Module | SparseRows, Tensor | None]:
    """A layer of the decoder, by its non-zero weights if they are few."""
    if (
        not isinstance(module, nn.Linear)
        or int(module.weight.count_nonzero()) > _WORTH * module.weight.numel()
    ):
        return module, None
    return SparseRows(module.weight), None if module.bias is None else module.bias.detach()


def is_pruned(model: RelationNetwork) -> bool:
    """Whether so few of the relation's weights are left that computing with those alone is faster."""
    sizes = [(int(weight.count_nonzero()), weight.numel()) for weight in model.relation.parameters()]
    return bool(sizes) and sum(n for n, _ in sizes) < _WORTH * sum(size for _, size in sizes)
