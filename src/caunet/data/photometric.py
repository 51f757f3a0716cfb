"""Changes of light between the two patches: gain, bias, noise and blur, off unless asked for.

The second patch is blurred, then scaled by the gain and raised by the bias; both patches get noise of their
own. Everything is drawn from the pair's keys, so a pair with its changes is still a function of
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


@dataclass(frozen=True)
class Photometric:
    """Ranges to draw from, one number per pair, uniformly.

    Args:
        gain: factor on the second patch's gray levels (black stays black).
        bias: added to the second patch, as a share of the range from black to white.
        noise: standard deviation of Gaussian noise on both patches, as a share of that range.
        blur: standard deviation, in pixels, of a Gaussian blur of the second patch (the patch's edge pixels
            are repeated outwards).

    >>> Photometric(gain=(0.8, 1.2), noise=(0.0, 0.02))
    Photometric(gain=(0.8, 1.2), bias=(0.0, 0.0), noise=(0.0, 0.02), blur=(0.0, 0.0))
    """

    gain: Range = (1.0, 1.0)
    bias: Range = (0.0, 0.0)
    noise: Range = (0.0, 0.0)
    blur: Range = (0.0, 0.0)

    def __post_init__(self) -> None:
        for name in ("gain", "bias", "noise", "blur"):
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
        unknown = sorted(set(value) - {"gain", "bias", "noise", "blur"})
        if unknown or not all(len(pair) == 2 for pair in value.values()):
            raise ValueError(
                f"photometric must hold gain, bias, noise or blur, each [low, high], got {dict(value)}"
            )
        return cls(**{name: (low, high) for name, (low, high) in value.items()})

    def apply(
        self, x: Tensor, y: Tensor, seed: int, epoch: int, index: Tensor, split: str = "train"
    ) -> tuple[Tensor, Tensor]:
        """Gray levels x and y (B, patch, patch), changed for the pairs ``index`` (B,), as float64."""
        x, y = x.to(torch.float64), y.to(torch.float64)
        u = keys.uniform(seed, epoch, index, 4, stream_of(Stream.PHOTOMETRIC, split))
        ranges = (self.gain, self.bias, self.noise, self.blur)
        drawn = [u[:, i] * (high - low) + low for i, (low, high) in enumerate(ranges)]
        gain, bias, noise, blur = (value[:, None, None] for value in drawn)
        if self.blur[1] > 0:
            y = _blurred(y, blur, radius=math.ceil(3 * self.blur[1]))
        y = y * gain + 255.0 * bias
        if self.noise[1] > 0:
            _, height, width = x.shape
            grain = keys.normal(seed, epoch, index, 2 * height * width, stream_of(Stream.NOISE, split))
            grain = 255.0 * noise[..., None] * grain.view(-1, 2, height, width)
            x, y = x + grain[:, 0], y + grain[:, 1]
        return x, y


def _blurred(y: Tensor, sigma: Tensor, radius: int) -> Tensor:
    # Rows, then columns, as a sum over taps written out: a convolution's rounding may depend on the batch.
    weights = _weights(sigma, radius)
    for axis in (1, 2):
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
