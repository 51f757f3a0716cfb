"""Who matches? Features of a patch, and contrast association units that compare them.

One unit stands for each candidate; its W is diagonal and the same for all of them, so that the mismatch

    h = 1/2 sum_k w_k (f_k(a) - f_k(b))^2,    w_k >= 0

of every patch of one image with every patch of another is one matrix product. The units compete by softmin:
the candidate with the least mismatch wins.
"""

import functools
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from caunet import tensor_files
from caunet.errors import CheckpointError
from caunet.nn import Softmin
from caunet.shipped import read_shipped

__all__ = [
    "FEATURES",
    "FORMAT",
    "PATCH",
    "REACH",
    "DiagonalContrast",
    "LogSoftmin",
    "MatchNetwork",
    "diagonal_contrast",
    "load_matcher",
    "save_matcher",
    "shipped_matcher",
]

FORMAT = "caunet-matcher-1"
PATCH = 32
"""Pixels along a side of what the network is shown."""
REACH = 6.0
"""Sigmas of a blob that a patch shows on each side of its center."""
FEATURES = 128

_FLAT = 1e-3  # added to a patch's deviation: a quarter of a gray level
_LAYERS = ((1, 16, 5, 2), (16, 32, 3, 2), (32, 48, 3, 1), (48, 64, 3, 2))  # inputs, outputs, kernel, stride


def diagonal_contrast(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    """Contrast association units with one diagonal W for all: ``a (M, K), b (N, K), weight (K,) -> (M, N)``.

    Equation (5) of the paper with W = diag(weight), and one unit for each row of b.

    >>> a, b = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 2.0], [3.0, 1.0]])
    >>> diagonal_contrast(a, b, torch.tensor([0.5, 4.0]))
    tensor([[0., 3.]])
    """
    if a.ndim != 2 or b.ndim != 2 or weight.ndim != 1 or not a.shape[1] == b.shape[1] == len(weight):
        shapes = ", ".join(str(tuple(t.shape)) for t in (a, b, weight))
        raise ValueError(f"a, b, weight must have shapes (M, K), (N, K), (K,), got {shapes}")
    weighted = a * weight
    squares = 0.5 * ((weighted * a).sum(1)[:, None] + (b * b) @ weight)
    return (squares - weighted @ b.mT).clamp_min(0)  # rounding can leave a little below 0


class DiagonalContrast(nn.Module):
    """:func:`diagonal_contrast` with its weights, which must stay non-negative.

    >>> units = DiagonalContrast(8)
    >>> units(torch.zeros(2, 8), torch.ones(3, 8)).shape, len(list(units.nonnegative_parameters()))
    (torch.Size([2, 3]), 1)
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return diagonal_contrast(a, b, self.weight)

    def nonnegative_parameters(self) -> list[nn.Parameter]:
        """The weights."""
        return [self.weight]

    def extra_repr(self) -> str:
        return f"features={len(self.weight)}"


class LogSoftmin(Softmin):
    """Softmin with a learned temperature that also gives logarithms, which do not underflow."""

    def log_probability(self, h: Tensor) -> Tensor:
        """The logarithm of :meth:`forward`, over the last dimension."""
        assert self.theta is not None
        return torch.log_softmax(-h * (self.rate_factor * self.theta).exp() / self.initial_temperature, -1)


class MatchNetwork(nn.Module):
    """Features f of gray patches, the units that compare them, and their competition.

    Args:
        fused: build it as it is shipped, each normalization merged with the convolution before it.

    >>> network = MatchNetwork().eval()
    >>> f = network(torch.rand(3, 32, 32))
    >>> f.shape, network.relation(f, f).shape
    (torch.Size([3, 128]), torch.Size([3, 3]))
    """

    def __init__(self, fused: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, kernel, stride in _LAYERS:
            layers.append(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=fused))
            layers += [] if fused else [nn.BatchNorm2d(outputs)]
            layers.append(nn.ReLU(inplace=True))
        layers.append(nn.Conv2d(_LAYERS[-1][1], FEATURES, 4, bias=fused))  # of 4 x 4 pixels, one
        layers += [] if fused else [nn.BatchNorm2d(FEATURES, affine=False)]
        self.features = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.relation = DiagonalContrast(FEATURES)
        self.competition = LogSoftmin(0.1, rate_factor=4.0)

    def forward(self, patches: Tensor) -> Tensor:
        """Features (B, K), each row of length 1, of gray patches (B, 32, 32); gain and offset of each do not matter."""
        if patches.shape[1:] != (PATCH, PATCH):
            raise ValueError(f"patches must have shape (B, {PATCH}, {PATCH}), got {tuple(patches.shape)}")
        if not len(patches):
            return patches.new_zeros(0, FEATURES)
        shown = _standardized(patches)[:, None].contiguous(memory_format=torch.channels_last)
        f: Tensor = self.features(shown).flatten(1)
        return nn.functional.normalize(f, dim=1)

    def fused(self) -> "MatchNetwork":
        """The same network as it is shipped, in evaluation mode: no normalization, fewer numbers."""
        made = MatchNetwork(fused=True).eval()
        pending, merged = None, []
        for layer in [*self.features, nn.ReLU()]:
            if isinstance(layer, nn.BatchNorm2d) and pending is not None:
                pending = fuse_conv_bn_eval(pending, layer.eval())
            elif isinstance(layer, nn.Conv2d):
                pending = layer.eval()
            elif pending is not None:
                merged.append(pending)
        for target, source in zip(made.features[::2], merged, strict=True):
            target.load_state_dict(source.state_dict())
        made.relation.load_state_dict(self.relation.state_dict())
        made.competition.load_state_dict(self.competition.state_dict())
        return made


def save_matcher(network: MatchNetwork, path: Path, dtype: torch.dtype = torch.float16) -> None:
    """Write a fused network to ``path`` (``*.safetensors``), whole or not at all."""
    tensors = {name: value.to(dtype) for name, value in network.fused().state_dict().items()}
    tensor_files.write(path, tensors, {}, FORMAT)


def load_matcher(path: Path) -> MatchNetwork:
    """The network that :func:`save_matcher` wrote, in float32 and evaluation mode."""
    try:
        data = tensor_files.read_bytes(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    return _from_bytes(data, path)


def _from_bytes(data: bytes, source: object) -> MatchNetwork:
    tensors, _ = tensor_files.unpack(data, FORMAT, source)
    network = MatchNetwork(fused=True).eval()
    try:
        network.load_state_dict({name: value.float() for name, value in tensors.items()})
    except RuntimeError as error:
        raise CheckpointError(f"{source} does not hold a matcher of this version: {error}") from error
    return network


@functools.lru_cache(maxsize=4)
def shipped_matcher(device: str = "cpu") -> MatchNetwork:
    """The network that comes with the package; one for all who ask, so leave it as it is."""
    return _from_bytes(read_shipped("match"), "match").to(device)


def _standardized(patches: Tensor) -> Tensor:
    """Each patch of (B, H, W) less its mean, divided by its deviation."""
    centered = patches - patches.mean((1, 2), keepdim=True)
    return centered / (centered.square().mean((1, 2), keepdim=True).sqrt() + _FLAT)
