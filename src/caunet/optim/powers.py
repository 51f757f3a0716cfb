"""Logarithm and exponential to base 2 in a dozen vector instructions each, for compiled updates.

In a compiled update on a CPU the calls of the mathematical library are what costs most beside the matrix
products: one logarithm and one exponential for each weight. Written out as bit operations and a polynomial they
are fused with everything around them, in half the time. The polynomials are minimax fits (iteratively
reweighted least squares) whose errors lie below those of float32 itself.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["exp2_float32", "limited_float32", "log2_float32"]

# log2(1 + t) / t on [-1/3, 1/3], absolute error of log2 4.4e-8; highest power first.
_LOG2 = (
    -0.23198194805751676,
    0.2520268974817801,
    -0.23467967632412504,
    0.2845878849411025,
    -0.36092767933605974,
    0.48101972291718803,
    -0.721343931644734,
    1.442694084844505,
)
# (2^f - 1) / f on [-1/2, 1/2], relative error of 2^f 2.0e-9; so 2^0 is exactly 1.
_EXP2 = (
    0.00015353362027656185,
    0.001339887465057952,
    0.009618437359133675,
    0.055503324705357335,
    0.24022647913600506,
    0.6931472028553368,
)
_TINY, _MAX = 0x00800000, 0x7F7FFFFF  # the bits of the smallest normal and of the largest finite number
_TWO_THIRDS = 0x3F2AAAAB  # the bits of 2/3: mantissas are taken from [2/3, 4/3)


def log2_float32(x: Tensor) -> Tensor:
    """log2 of positive, normal, finite float32 numbers, to 1e-7 plus rounding.

    >>> log2_float32(torch.tensor([1e-20, 1.0, 8.0]))
    tensor([-66.4386,   0.0000,   3.0000])
    """
    bits = x.view(torch.int32)
    exponent = (bits - _TWO_THIRDS) >> 23
    t = (bits - (exponent << 23)).view(torch.float32) - 1
    return exponent.to(torch.float32) + _polynomial(_LOG2, t) * t


def exp2_float32(x: Tensor) -> Tensor:
    """2^x for float32 x of size below 2^31; beyond the range of normal numbers its whole part is -126 or 127.

    >>> exp2_float32(torch.tensor([-1.5, 0.0, 3.0]))
    tensor([0.3536, 1.0000, 8.0000])
    """
    whole = x.round()
    f = x - whole
    # Clamped as integers, which takes one instruction where floating point numbers, for the sake of NaN, take four.
    power = ((whole.to(torch.int32).clamp(-126, 127) + 127) << 23).view(torch.float32)
    return (_polynomial(_EXP2, f) * f + 1) * power


def limited_float32(scaled: Tensor, weight: Tensor) -> Tensor:
    """``scaled`` in [tiny, max] of float32, and 0 where ``weight`` is; both are non-negative, of any size.

    Numbers that are not negative are ordered as their bits are.

    >>> limited_float32(torch.tensor([1e-42, torch.inf, 0.0, 0.0]), torch.tensor([1e-30, 1e30, 1e-37, 0.0]))
    tensor([1.1755e-38, 3.4028e+38, 1.1755e-38, 0.0000e+00])
    """
    least = weight.view(torch.int32).clamp(max=_TINY)
    return torch.maximum(scaled.view(torch.int32).clamp(max=_MAX), least).view(torch.float32)


def _polynomial(coefficients: tuple[float, ...], t: Tensor) -> Tensor:
    """Estrin's scheme: by pairs, in steps that need not wait for each other as those of Horner's do."""
    terms: list[Any] = list(reversed(coefficients))
    while len(terms) > 1:
        pairs = [low + high * t for low, high in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
        t = t * t
    value: Tensor = terms[0]
    return value
