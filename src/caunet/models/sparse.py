"""A pruned network evaluated by its non-zero weights alone: the same answers, several times faster."""

import torch
from torch import Tensor, nn

from caunet.models.network import RelationNetwork, equal_contrast
from caunet.nn import SparseRows

__all__ = ["SparseNetwork", "is_pruned"]

# Pairs at a time: as many columns as let all that is computed of them stay in the cache. A multiple of 16, so that no
# vector of a row lies across two cache lines.
_COLUMNS = 256
# A layer of the decoder is worth it below this share of non-zero weights; dense products are that much faster.
_WORTH = 0.2


class SparseNetwork:
    """``SparseNetwork(model)(x, y)`` is ``model(x, y)``, to rounding and without gradients.

    Everything is computed with a pair in each column (:meth:`columns`): sums over few rows are then sums of vectors.

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
        self._layers = _layers(model)

    @torch.no_grad()
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Infer z (B, dim) from patches x and y, each (B, *patch_shape) or (B, pixels)."""
        if x.shape != y.shape:
            raise ValueError(f"x and y must have one shape, got {tuple(x.shape)} and {tuple(y.shape)}")
        if not len(x):
            return self.model(x, y)  # type: ignore[no-any-return]
        parts = zip(torch.split(x, _COLUMNS), torch.split(y, _COLUMNS), strict=True)
        return torch.cat([self._answer(*self._features(a, b)).mT for a, b in parts])

    @torch.no_grad()
    def columns(self, x: Tensor, y: Tensor) -> Tensor:
        """z (dim, P) of patches in columns, x and y (pixels, P)."""
        if not isinstance(self.model.features, nn.Identity):
            return self(x.mT, y.mT).mT
        contrast = self.model.model_spec.contrast
        found = []
        for a, b in zip(torch.split(x, _COLUMNS, 1), torch.split(y, _COLUMNS, 1), strict=True):
            a, b = a.contiguous(), b.contiguous()
            found.append(self._answer(*((a, b) if contrast is None else equal_contrast(a, b, contrast, 0))))
        return torch.cat(found, 1)

    def _features(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Features of patches in rows, in columns."""
        a, b = self.model.extract(x, y)
        return a.mT.contiguous(), b.mT.contiguous()

    def _answer(self, a: Tensor, b: Tensor) -> Tensor:
        model = self.model
        h = model.relation(a.mT, b.mT).mT if self._relate is None else self._relate(a, b)
        columns = model.competition.columns(h)
        if self._layers is None:
            return model.decode(columns.mT).mT
        for layer in self._layers:
            columns = layer(columns)
        return columns


class _Affine:
    """A layer of the decoder on columns, by its non-zero weights if they are few."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        few = int(weight.count_nonzero()) <= _WORTH * weight.numel()
        self.rows, self.weight, self.bias = SparseRows(weight) if few else None, weight, bias[:, None]

    def __call__(self, x: Tensor) -> Tensor:
        if self.rows is not None:
            return (self.rows @ x).add_(self.bias)
        return torch.addmm(self.bias, self.weight, x)


@torch.no_grad()
def _layers(model: RelationNetwork) -> list[nn.PReLU | _Affine] | None:
    """What :meth:`RelationNetwork.decode` does, on columns: its centering and scaling go into the first and the last
    layer. None of a decoder that is not the usual one, linear layers with PReLUs of one slope between them."""
    spec, layers = model.model_spec, list(model.decoder)
    usual = all(isinstance(layer, nn.Linear) for layer in layers[::2]) and all(
        isinstance(layer, nn.PReLU) and layer.num_parameters == 1 for layer in layers[1::2]
    )
    if not usual or len(layers) % 2 == 0:
        return None
    found: list[nn.PReLU | _Affine] = []
    for number, layer in enumerate(layers):
        if isinstance(layer, nn.PReLU):
            found.append(layer)
            continue
        assert isinstance(layer, nn.Linear)
        weight = layer.weight.detach()
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach()
        if number == 0:
            weight = spec.response_scale * weight
            if spec.response_center:
                bias = bias - weight.sum(1) / model.relation.outputs
        if number == len(layers) - 1 and model.output_scale is not None and model.output_center is not None:
            weight = model.output_scale[:, None] * weight
            bias = torch.addcmul(model.output_center, bias, model.output_scale)
        found.append(_Affine(weight, bias))
    return found


def is_pruned(model: RelationNetwork) -> bool:
    """Whether so few of the relation's weights are left that computing with those alone is faster."""
    sizes = [(int(weight.count_nonzero()), weight.numel()) for weight in model.relation.parameters()]
    return bool(sizes) and sum(n for n, _ in sizes) < _WORTH * sum(size for _, size in sizes)
