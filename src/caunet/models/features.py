"""Feature extractors f without weights, known by name: what a network may see instead of raw pixels."""

import torch
from torch import Tensor, nn

__all__ = ["BUILT_IN", "Standardise"]


class Standardise(nn.Module):
    """Each patch with its mean taken off and its standard deviation brought to ``scale``.

    Contrast association does not see a common offset but does see a gain; behind this it sees neither. A patch
    whose deviation is small beside ``floor`` (one grey level is 1/255) is left nearly flat instead of having its
    noise blown up.

    >>> f = Standardise()
    >>> patch = torch.rand(1, 1, 11, 11, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(f(patch), f(0.5 * patch + 0.2), atol=2e-3))
    True
    >>> round(f(patch).std(correction=0).item(), 2)
    0.25
    """

    scale = 0.25  # about the contrast of natural patches, which the paper's initial weights were made for
    floor = 0.008

    def forward(self, patch: Tensor) -> Tensor:
        """(B, 1, side, side) -> the same shape."""
        centred = patch - patch.mean((-2, -1), keepdim=True)
        variance = centred.square().mean((-2, -1), keepdim=True)
        return centred * (self.scale * torch.rsqrt(variance + self.floor**2))

    def extra_repr(self) -> str:
        return f"scale={self.scale}, floor={self.floor}"


BUILT_IN: dict[str, type[nn.Module]] = {"standardise": Standardise}
