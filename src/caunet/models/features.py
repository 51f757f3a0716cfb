"""Feature extractors f without weights, known by name: what a network may see instead of raw pixels."""

import torch
from torch import Tensor, nn

__all__ = ["BUILT_IN", "Standardize", "built_in_name"]


class Standardize(nn.Module):
    """Each patch minus its mean, with its standard deviation scaled to ``scale``.

    Contrast association does not see a common offset but does see a gain; behind this it sees neither. A patch
    whose deviation is small beside ``floor`` (one gray level is 1/255) stays nearly flat instead of having its
    noise amplified.

    >>> f = Standardize()
    >>> patch = torch.rand(1, 1, 11, 11, generator=torch.Generator().manual_seed(0))
    >>> bool(torch.allclose(f(patch), f(0.5 * patch + 0.2), atol=2e-3))
    True
    >>> round(f(patch).std(correction=0).item(), 2)
    0.25
    """

    scale = 0.25  # about the contrast of natural patches, for which the paper's initial weights were made
    floor = 0.008

    def forward(self, patch: Tensor) -> Tensor:
        """(B, 1, ...) -> the same shape."""
        dimensions = tuple(range(2, patch.ndim))
        centered = patch - patch.mean(dimensions, keepdim=True)
        variance = centered.square().mean(dimensions, keepdim=True)
        return centered * (self.scale * torch.rsqrt(variance + self.floor**2))

    def extra_repr(self) -> str:
        return f"scale={self.scale}, floor={self.floor}"


BUILT_IN: dict[str, type[nn.Module]] = {"standardize": Standardize}

# How the card of a shipped network and the settings of committed runs spell them.
_SPELLINGS = {"standardise": "standardize"}


def built_in_name(name: str) -> str:
    """The name of built-in features, however committed files spell it.

    >>> built_in_name("standardise")
    'standardize'
    """
    return _SPELLINGS.get(name, name)
