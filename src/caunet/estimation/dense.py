"""A patch network slid over whole pictures, with the same weights: a field of z.

A rank-one contrast association unit with factors u and v is

    h = 1/2 [ (sum of v) u . a^2 + (sum of u) v . b^2 ] - (u . a)(v . b)

so over whole pictures it is four convolutions: of a, a^2, b and b^2. The squares of a unit of rank r share one
kernel each. Bilinear units are two convolutions, and concatenation's first layer is one of each picture. A network
with features of its own, or that sees pairs of equal or relative contrast, is given its patches, a few rows at a time.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from caunet.models import RelationNetwork

__all__ = ["DenseRelations"]

_CHUNK = 1 << 24  # numbers held at once for the unfolded patches, or for the maps of the units


class DenseRelations:
    """``DenseRelations(model)(a, b)`` is z at every position of the patch, as ``model`` tells it of the two patches.

    Args:
        model: any relation network; used as it is (its device, precision and weights).

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
            raise TypeError(f"model takes a RelationNetwork, got {type(model).__name__}")
        self.model = model
        self.patch = model.model_spec.patch

    def __call__(self, a: Tensor, b: Tensor, stride: int = 1) -> Tensor:
        """z (..., dim, rows, columns) of pictures a and b (..., H, W), every ``stride`` pixels.

        Position (r, c) is the patch whose first pixel is (r * stride, c * stride).
        """
        self._check(a, b, stride)
        height, width = a.shape[-2:]
        flat_a, flat_b = a.reshape(-1, 1, height, width), b.reshape(-1, 1, height, width)
        work = self._convolved() or self._unfolded
        z = torch.cat(
            [self._rows(work, x[None], y[None], stride) for x, y in zip(flat_a, flat_b, strict=True)]
        )
        return z.reshape(*a.shape[:-2], *z.shape[1:])

    def _check(self, a: Tensor, b: Tensor, stride: int) -> None:
        if a.shape != b.shape or a.ndim < 2 or a.numel() == 0:
            raise ValueError(f"a and b take one shape (..., H, W), got {tuple(a.shape)} and {tuple(b.shape)}")
        if min(a.shape[-2:]) < self.patch:
            raise ValueError(
                f"a and b take at least {self.patch} x {self.patch} pixels, got {tuple(a.shape)}"
            )
        if isinstance(stride, bool) or not isinstance(stride, int) or stride < 1:
            raise ValueError(f"stride takes a whole number of at least 1, got {stride!r}")

    def _rows(
        self, work: Callable[[Tensor, Tensor, int], Tensor], a: Tensor, b: Tensor, stride: int
    ) -> Tensor:
        """A band of positions at a time, so that memory does not grow with the picture: (1, dim, rows, columns)."""
        rows = (a.shape[-2] - self.patch) // stride + 1
        columns = (a.shape[-1] - self.patch) // stride + 1
        spec = self.model.model_spec
        wide = max(2 * self.patch**2, spec.units * (spec.rank or 1), *spec.hidden)
        band = max(1, _CHUNK // (wide * columns))
        parts = []
        for first in range(0, rows, band):
            last = min(first + band, rows) - 1
            lines = slice(first * stride, last * stride + self.patch)
            z = work(a[..., lines, :], b[..., lines, :], stride)
            parts.append(z.mT.reshape(1, -1, last - first + 1, columns))
        return torch.cat(parts, -2)

    def _unfolded(self, a: Tensor, b: Tensor, stride: int) -> Tensor:
        """z (positions, dim) from the patches themselves."""
        x, y = (nn.functional.unfold(t, self.patch, stride=stride)[0].mT for t in (a, b))
        z: Tensor = self.model(x, y)
        return z

    def _convolved(self) -> Callable[[Tensor, Tensor, int], Tensor] | None:
        """The network by convolutions, where pixels go into its units as they are."""
        model, spec = self.model, self.model.model_spec
        if not isinstance(model.features, nn.Identity) or spec.contrast is not None or spec.relative:
            return None
        if spec.relation == "concatenation":
            return self._concatenated
        return None if spec.rank is None else self._paired

    def _paired(self, a: Tensor, b: Tensor, stride: int) -> Tensor:
        spec = self.model.model_spec
        responses: Tensor = self.model.competition(self._units(a, b, stride))
        return self._scaled(self.model.decoder(responses * spec.response_scale))

    def _units(self, a: Tensor, b: Tensor, stride: int) -> Tensor:
        """Relation units (positions, units) of rank r, before the competition."""
        u, v, rank = self.model.relation.u, self.model.relation.v, self.model.model_spec.rank
        assert isinstance(u, Tensor)
        assert isinstance(v, Tensor)
        assert rank is not None
        contrast = self.model.model_spec.relation == "contrast-association"
        if contrast:  # a common offset changes nothing, and small numbers lose less when squared
            middle = 0.5 * (a.mean() + b.mean())
            a, b = a - middle, b - middle
        product = self._slide(a, u, stride) * self._slide(b, v, stride)
        pooled = product.view(len(product), -1, rank).sum(-1)
        if not contrast:
            return pooled
        left = (u * v.sum(1, keepdim=True)).view(-1, rank, u.shape[1]).sum(1)
        right = (v * u.sum(1, keepdim=True)).view(-1, rank, v.shape[1]).sum(1)
        squares = self._slide(a.square(), left, stride) + self._slide(b.square(), right, stride)
        return 0.5 * squares - pooled

    def _slide(self, picture: Tensor, kernels: Tensor, stride: int) -> Tensor:
        """(1, 1, H, W) under K kernels of a patch's pixels: (positions, K)."""
        maps = conv2d(picture, kernels.view(-1, 1, self.patch, self.patch), stride=stride)
        return maps.flatten(2)[0].mT

    def _concatenated(self, a: Tensor, b: Tensor, stride: int) -> Tensor:
        first = self.model.decoder[0]
        assert isinstance(first, nn.Linear)
        of_a, of_b = first.weight.chunk(2, 1)
        hidden = self._slide(a, of_a, stride) + self._slide(b, of_b, stride)
        if first.bias is not None:
            hidden = hidden + first.bias
        return self._scaled(self.model.decoder[1:](hidden))

    def _scaled(self, z: Tensor) -> Tensor:
        center, scale = self.model.output_center, self.model.output_scale
        return z if center is None or scale is None else torch.addcmul(center, z, scale)
