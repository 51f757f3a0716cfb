"""Exact sums of floating-point numbers: added in any order, in any number of shards, they come out the same.

A float64 is an integer of 53 bits times a power of two. :class:`ExactSum` adds up the integers of each power
separately, as 64-bit integers split in two halves, so that no addition rounds; the one rounding is at the
end, when the total becomes a float. Its state is a small integer tensor (34 kB for each channel); merging two sums
is adding two tensors, and so is a distributed all-reduce.
"""

from fractions import Fraction

import torch
from torch import Tensor

__all__ = ["ExactSum"]

# frexp writes a float64 as m * 2^e with 1/2 <= |m| < 1; subnormals reach down to 2^-1074 = 1/2 * 2^-1073.
_LOWEST, _HIGHEST = -1073, 1024
_HALF_BITS, _MANTISSA_BITS = 27, 53


class ExactSum:
    """Sums of ``channels`` streams of float64 numbers, exact until read.

    >>> one, other = ExactSum(1), ExactSum(1)
    >>> one.add(torch.tensor([[1e16, 1.0]], dtype=torch.float64))
    >>> other.add(torch.tensor([[1.0, -1e16]], dtype=torch.float64))
    >>> one.merge(other)
    >>> one.totals()           # plain addition of these four gives 0.0 or 2.0, as their order falls
    [2.0]
    """

    def __init__(self, channels: int, device: torch.device | str | None = None) -> None:
        # (channel, exponent, low or high half of the mantissa). Halves are below 2^27 in size, so
        # 2^36 numbers fit before an int64 can overflow.
        shape = (channels, _HIGHEST - _LOWEST + 1, 2)
        self.state = torch.zeros(shape, dtype=torch.int64, device=device)

    def add(self, values: Tensor) -> None:
        """Add ``values`` (channels, n), finite float64, each row to its channel."""
        channels = self.state.shape[0]
        if values.ndim != 2 or values.shape[0] != channels or values.dtype != torch.float64:
            got = f"{tuple(values.shape)} of {values.dtype}"
            raise ValueError(f"values must be float64 of shape ({channels}, n), got {got}")
        if not bool(values.isfinite().all()):
            raise ValueError("values must be finite, got some that are not")
        values = values.to(self.state.device)
        mantissa, exponent = torch.frexp(values)
        whole = (mantissa * 2.0**_MANTISSA_BITS).to(torch.int64)
        # low + high * 2^27 is the whole, for either sign.
        halves = torch.stack((whole & (2**_HALF_BITS - 1), whole >> _HALF_BITS), dim=-1)
        row = (exponent.long() - _LOWEST).clamp(0)  # zero has exponent 0 and adds nothing wherever it lands
        for channel in range(channels):
            self.state[channel].index_add_(0, row[channel], halves[channel])

    def merge(self, other: "ExactSum") -> None:
        """Add what ``other`` has."""
        self.state += other.state.to(self.state.device)

    def totals(self) -> list[float]:
        """The sums, each rounded once (to infinity where it is beyond float64)."""
        return [_as_float(total) for total in self.fractions()]

    def fractions(self) -> list[Fraction]:
        """The sums without any rounding."""
        return [_exact(channel) for channel in self.state.cpu()]


def _exact(channel: Tensor) -> Fraction:
    total = 0
    for row in channel.any(dim=1).nonzero().flatten().tolist():
        low, high = channel[row].tolist()
        total += (low + (high << _HALF_BITS)) << row
    # Row 0 stands for 2^_LOWEST, and mantissas were scaled by 2^53.
    return Fraction(total, 2 ** (_MANTISSA_BITS - _LOWEST))


def _as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
