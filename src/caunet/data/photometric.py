"""Changes of light between the two patches: gain, bias, noise, blur and tone, off unless asked for.

The second patch is blurred, its tones are bent, then it is scaled by the gain and raised by the bias; both patches get
noise of their own. Everything is drawn from the pair's keys, so a pair with its changes is still a function of
(seed, epoch, index).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from caunet.data import keys
from caunet.data.keys import Stream, stream_of

__all__ = ["Photometric"]

Range = tuple[float, float]

# In the order in which their numbers are drawn.
_NAMES = ("gain", "bias", "noise", "blur", "gamma")


@dataclass(frozen=True)
class Photometric:
    """Ranges to draw from, one number per pair, uniformly.

    Args:
        gain: factor on the second patch's gray levels (black stays black).
        bias: added to the second patch, as a share of the range from black to white.
        noise: standard deviation of Gaussian noise on both patches, as a share of that range.
        blur: standard deviation, in pixels, of a Gaussian blur of the second patch (the patch's edge pixels
            are repeated outwards).
        gamma: exponent of a tone curve of the second patch: gray levels between black, 0, and white, 1, become
            their power; below 1 is brighter.

    >>> Photometric(gain=(0.8, 1.2), noise=(0.0, 0.02)).gain
    (0.8, 1.2)
    """

    gain: Range = (1.0, 1.0)
    bias: Range = (0.0, 0.0)
    noise: Range = (0.0, 0.0)
    blur: Range = (0.0, 0.0)
    gamma: Range = (1.0, 1.0)

    def __post_init__(self) -> None:
        for name in _NAMES:
            low, high = getattr(self, name)
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise ValueError(f"{name} must be (low, high) with low <= high, got {(low, high)}")
            if name != "bias" and low < 0:
                raise ValueError(f"{name} must not be negative, got {(low, high)}")

    @classmethod
    def from_json(cls, value: Mapping[str, Sequence[float]]) -> "Photometric":
        """From a settings file's object, where ranges are lists; an unknown name is an error.

        >>> Photometric.from_json({"blur": [0, 1.5]}).blur
        (0, 1.5)
        """
        unknown = sorted(set(value) - set(_NAMES))
        if unknown or not all(len(pair) == 2 for pair in value.values()):
            listed = f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}"
            raise ValueError(f"photometric must hold {listed}, each [low, high], got {dict(value)}")
        return cls(**{name: (low, high) for name, (low, high) in value.items()})

    def apply(
        self, x: Tensor, y: Tensor, seed: int, epoch: int, index: Tensor, split: str = "train"
    ) -> tuple[Tensor, Tensor]:
        """Gray levels x and y (B, patch, patch[, patch]), changed for the pairs ``index`` (B,), as float64."""
        x, y = x.to(torch.float64), y.to(torch.float64)
        u = keys.uniform(seed, epoch, index, len(_NAMES), stream_of(Stream.PHOTOMETRIC, split))
        ranges = [getattr(self, name) for name in _NAMES]
        drawn = [u[:, i] * (high - low) + low for i, (low, high) in enumerate(ranges)]
        gain, bias, noise, blur, gamma = (value.view(-1, *[1] * (x.ndim - 1)) for value in drawn)
        if self.blur[1] > 0:
            y = _blurred(y, blur, radius=math.ceil(3 * self.blur[1]))
        if self.gamma != (1.0, 1.0):
            y = 255.0 * (y / 255.0) ** gamma
        y = y * gain + 255.0 * bias
        if self.noise[1] > 0:
            grain = keys.normal(seed, epoch, index, 2 * x[0].numel(), stream_of(Stream.NOISE, split))
            grain = 255.0 * noise[:, None] * grain.view(-1, 2, *x.shape[1:])
            x, y = x + grain[:, 0], y + grain[:, 1]
        return x, y


def _blurred(y: Tensor, sigma: Tensor, radius: int) -> Tensor:
    # Along one axis after the other, as a sum over taps written out: a convolution's rounding may depend on the batch.
    weights = _weights(sigma, radius)
    for axis in range(1, y.ndim):
        size = y.shape[axis]
        here = torch.arange(size, device=y.device)
        out = torch.zeros_like(y)
        for k, weight in enumerate(weights):
            out += weight * y.index_select(axis, (here + k - radius).clamp(0, size - 1))
        y = out
    return y


def _weights(sigma: Tensor, radius: int) -> list[Tensor]:
    # A Gaussian's values at whole pixels, made to add up to 1; sigma 0 leaves the patch as it is.
    narrow = 2.0 * sigma.clamp(min=1e-3).square()
    raw = [(-float(k * k) / narrow).exp() for k in range(-radius, radius + 1)]
    total = torch.zeros_like(sigma)
    for weight in raw:
        total = total + weight
    return [weight / total for weight in raw]
