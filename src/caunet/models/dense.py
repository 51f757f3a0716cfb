"""A patch network slid over whole images, with the same weights: a field of z.

The units themselves know how they slide (:meth:`caunet.nn.Relation.slide`): some are convolutions, all others see the
patches. Competition and decoder are the network's own, so that the field is what the network infers from the patches,
whatever its options.
"""

import math

import torch
from torch import Tensor

from caunet.models.network import RelationNetwork
from caunet.models.sparse import SparseNetwork, is_pruned
from caunet.nn import Window

__all__ = ["DenseRelations"]

# Numbers held at once, for patches or for the maps of the units. Eight times as many take 1.7 times as long: what does
# not fit the caches is fetched from memory, and asked of the system anew for each band.
_CHUNK = 1 << 21
_COLUMNS = 1 << 12  # patches in columns, for pruned networks: as many as some cache holds


class DenseRelations:
    """``DenseRelations(model)(a, b)`` is z at every position of the patch, as ``model`` infers it from the two patches.

    Args:
        model: any relation network; used as it is (its device, precision and weights). Of one that is pruned, only
            the non-zero weights (:class:`caunet.models.SparseNetwork`).

    >>> from caunet.models import create_model
    >>> model = create_model("can", "translation", patch=5, units=8, seed=0)
    >>> a, b = torch.rand(2, 12, 9, generator=torch.Generator().manual_seed(0))
    >>> z = DenseRelations(model)(a, b)
    >>> z.shape
    torch.Size([2, 8, 5])
    >>> one = model(a[None, 3:8, 2:7], b[None, 3:8, 2:7])[0]
    >>> bool(torch.allclose(z[:, 3, 2], one, atol=1e-5))
    True
    """

    def __init__(self, model: RelationNetwork) -> None:
        if not isinstance(model, RelationNetwork):
            raise TypeError(f"model must be a RelationNetwork, got {type(model).__name__}")
        self.model = model
        self.shape = model.model_spec.patch_shape

    def __call__(self, a: Tensor, b: Tensor, stride: int = 1) -> Tensor:
        """z (..., dim, rows, columns) of images a and b (..., H, W), every ``stride`` pixels.

        Position (r, c) is the patch whose first pixel is (r * stride, c * stride). A network for patches of three
        dimensions slides over volumes (..., D, H, W) likewise.
        """
        self._check(a, b, stride)
        size, window = a.shape[-len(self.shape) :], Window(self.shape, stride)
        sparse = SparseNetwork(self.model) if is_pruned(self.model) and not a.requires_grad else None
        pairs = zip(a.reshape(-1, 1, 1, *size), b.reshape(-1, 1, 1, *size), strict=True)
        z = torch.stack([self._field(first, second, window, sparse) for first, second in pairs])
        return z.reshape(*a.shape[: -len(self.shape)], *z.shape[1:])

    def _check(self, a: Tensor, b: Tensor, stride: int) -> None:
        dimensions = "(..., H, W)" if len(self.shape) == 2 else f"(..., {len(self.shape)} dimensions)"
        if a.shape != b.shape or a.ndim < len(self.shape) or a.numel() == 0:
            raise ValueError(
                f"a and b must have one shape {dimensions}, got {tuple(a.shape)} and {tuple(b.shape)}"
            )
        if min(a.shape[-len(self.shape) :]) < self.shape[0]:
            least = " x ".join(map(str, self.shape))
            raise ValueError(f"a and b must have at least {least} pixels, got {tuple(a.shape)}")
        if isinstance(stride, bool) or not isinstance(stride, int) or stride < 1:
            raise ValueError(f"stride must be a whole number of at least 1, got {stride!r}")

    def _field(self, a: Tensor, b: Tensor, window: Window, sparse: SparseNetwork | None) -> Tensor:
        """z (dim, rows, ...) of one pair (1, 1, H, ...): a band of rows at a time, so that memory stays bounded."""
        rows, *others = window.positions(tuple(a.shape[2:]))
        spec = self.model.model_spec
        held = max(2 * math.prod(self.shape), self.model.relation.working_size(), *spec.hidden, spec.dim)
        most = _CHUNK // held if sparse is None else _COLUMNS
        band = max(1, most // math.prod(others))
        parts = []
        for first in range(0, rows, band):
            last = min(first + band, rows) - 1
            lines = slice(first * window.stride, last * window.stride + window.shape[0])
            first_lines, second_lines = a[:, :, lines], b[:, :, lines]
            if sparse is not None:
                z = sparse.columns(window.columns(first_lines), window.columns(second_lines))
            else:
                z = self.model.decode(self._responses(first_lines, second_lines, window)).mT
            parts.append(z.reshape(-1, last - first + 1, *others))
        return torch.cat(parts, 1)

    def _responses(self, a: Tensor, b: Tensor, window: Window) -> Tensor:
        """Responses (positions, units) after the competition."""
        if self.model.slides_as_pixels():
            h = self.model.relation.slide(a, b, window)
            if h is not None:
                responses: Tensor = self.model.competition(h)
                return responses
        return self.model.units(window.patches(a), window.patches(b))
