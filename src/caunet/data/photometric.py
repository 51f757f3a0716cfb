"""Changes between the two patches beyond the motion: light, noise, blur, tone, a covered part; off unless asked for.

The second patch is blurred, its tones are bent, then it is scaled by the gain and raised by the bias; a part of it may
show something else; both patches get noise of their own. Everything is drawn from the pair's keys, so a pair with its
changes is still a function of (seed, epoch, index).
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
_NAMES = ("gain", "bias", "noise", "blur", "gamma", "covered")


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
        covered: share of the second patch, beyond a line of any direction, that shows something else: the first
            patch after half a turn, a texture like its own that lies elsewhere. A share below 0 is none: (-0.5, 0.5)
            covers a part of every other patch.

    >>> Photometric(gain=(0.8, 1.2), covered=(0.0, 0.5)).covered
    (0.0, 0.5)
    """

    gain: Range = (1.0, 1.0)
    bias: Range = (0.0, 0.0)
    noise: Range = (0.0, 0.0)
    blur: Range = (0.0, 0.0)
    gamma: Range = (1.0, 1.0)
    covered: Range = (0.0, 0.0)

    def __post_init__(self) -> None:
        for name in _NAMES:
            low, high = getattr(self, name)
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise ValueError(f"{name} must be (low, high) with low <= high, got {(low, high)}")
            if name not in ("bias", "covered") and low < 0:
                raise ValueError(f"{name} must not be negative, got {(low, high)}")
        if self.covered[1] > 1:
            raise ValueError(f"covered must not exceed 1, got {self.covered}")

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
        u = keys.uniform(seed, epoch, index, len(_NAMES) + 1, stream_of(Stream.PHOTOMETRIC, split))
        ranges = [getattr(self, name) for name in _NAMES]
        drawn = [u[:, i] * (high - low) + low for i, (low, high) in enumerate(ranges)]
        gain, bias, noise, blur, gamma, _ = (value.view(-1, *[1] * (x.ndim - 1)) for value in drawn)
        if self.blur[1] > 0:
            y = _blurred(y, blur, radius=math.ceil(3 * self.blur[1]))
        if self.gamma != (1.0, 1.0):
            y = 255.0 * (y / 255.0) ** gamma
        y = y * gain + 255.0 * bias
        if self.covered[1] > 0:
            there = _beyond(y.shape[1:], 2 * math.pi * u[:, -1], drawn[-1])
            y = torch.where(there, x.flip(*range(1, x.ndim)), y)
        if self.noise[1] > 0:
            grain = keys.normal(seed, epoch, index, 2 * x[0].numel(), stream_of(Stream.NOISE, split))
            grain = 255.0 * noise[:, None] * grain.view(-1, 2, *x.shape[1:])
            x, y = x + grain[:, 0], y + grain[:, 1]
        return x, y


def _beyond(size: Sequence[int], angle: Tensor, share: Tensor) -> Tensor:
    """(B, *size): the ``share`` (B,) of the pixels that lies farthest in a direction of the last two axes."""
    *_, height, width = size
    row, column = (torch.arange(n, device=angle.device, dtype=angle.dtype) for n in (height, width))
    along = angle.cos()[:, None, None] * column + angle.sin()[:, None, None] * row[:, None]
    along = along.view(-1, *[1] * (len(size) - 2), height, width).expand(-1, *size).flatten(1)
    place = along.argsort(dim=1, descending=True, stable=True).argsort(dim=1)  # 0 for the farthest
    return (place < share[:, None] * along.shape[1]).view(-1, *size)


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
