"""Random numbers without a state: each is a pure function of (seed, epoch, index, lane, stream).

The generator is Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3,
SC 2011), in int64 tensor operations, so that it runs on any device and gives the same bits on all of them.
The seed is the key; index, epoch, stream and block of four lanes are the counter:

    counter word 0, 1   index, low and high 32 bits
    counter word 2      epoch
    counter word 3      stream * 2^20 + lane // 4

A number does not depend on which others are asked for with it; that is what lets any worker make any pair.

>>> index = torch.tensor([7, 8, 9])
>>> bool((uniform(0, 3, index, 2)[1:2] == uniform(0, 3, index[1:2], 2)).all())
True
"""

import math
from enum import IntEnum

import torch
from torch import Tensor

__all__ = ["SPLITS", "Stream", "normal", "permutation", "philox", "stream_of", "uniform", "words"]

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_BLOCKS = 1 << 20  # blocks of four lanes in a stream


class Stream(IntEnum):
    """What the numbers are for. Streams never share a number."""

    PARAMETERS = 0
    PLACE = 1
    SHUFFLE = 2
    PHOTOMETRIC = 3
    NOISE = 4
    FIGURE = 5
    SHAPES = 6


SPLITS = {"train": 0, "train-fit": 0, "validation": 1024, "test": 2048}
"""Where the streams of each part of the images begin: what is measured on shares no number with what is learned."""


def stream_of(purpose: Stream, split: str = "train") -> int:
    """The number of the stream for a purpose and a part of the images.

    >>> stream_of(Stream.PLACE), stream_of(Stream.PLACE, "test")
    (1, 2049)
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    return SPLITS[split] + int(purpose)


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Ten rounds of Philox-4x32 on four int64 tensors that hold 32-bit words (shapes broadcast).

    >>> zero = torch.zeros((), dtype=torch.int64)
    >>> [f"{int(word):08x}" for word in philox((zero, zero, zero, zero), (0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # int64 products wrap modulo 2^64, which keeps every bit of 32 x 32; the mask undoes the sign.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = (p1 >> 32 & _MASK) ^ c1 ^ k0, (p0 >> 32 & _MASK) ^ c3 ^ k1
        c1, c3 = p1 & _MASK, p0 & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def words(seed: int, epoch: int, index: Tensor, lanes: int, stream: int = 0) -> Tensor:
    """32-bit random words as int64: (B, lanes) for an index (B,)."""
    _check(seed, epoch, index, lanes, stream)
    blocks = -(-lanes // 4)
    block = torch.arange(blocks, device=index.device) + stream * _BLOCKS  # (blocks,)
    low, high = (index & _MASK)[:, None], (index >> 32 & _MASK)[:, None]
    late = torch.full((1, 1), epoch, dtype=torch.int64, device=index.device)
    out = philox((low, high, late, block[None]), (seed & _MASK, seed >> 32))
    wide = torch.stack([word.expand(len(index), blocks) for word in out], -1)  # (B, blocks, 4)
    return wide.reshape(len(index), 4 * blocks)[:, :lanes]


def uniform(seed: int, epoch: int, index: Tensor, lanes: int, stream: int = 0) -> Tensor:
    """Uniform on [0, 1), in steps of 2^-32: (B, lanes) float64 for an int64 index (B,)."""
    return words(seed, epoch, index, lanes, stream).to(torch.float64) * 2.0**-32


def normal(seed: int, epoch: int, index: Tensor, lanes: int, stream: int = 0) -> Tensor:
    """Standard normal numbers by Box and Muller, at most 6.7 from 0: (B, lanes) float64."""
    half = -(-lanes // 2)
    u = uniform(seed, epoch, index, 2 * half, stream)
    radius = (-2.0 * torch.log1p(-u[:, :half].contiguous())).sqrt()
    angle = (2.0 * math.pi) * u[:, half:].contiguous()
    return torch.cat([radius * angle.cos(), radius * angle.sin()], 1)[:, :lanes]


def permutation(
    seed: int, epoch: int, n: int, device: torch.device | str | None = None, stream: int = Stream.SHUFFLE
) -> Tensor:
    """A permutation of range(n), (n,) int64: the order of 63-bit keys.

    >>> sorted(permutation(0, 1, 5).tolist())
    [0, 1, 2, 3, 4]
    """
    pair = words(seed, epoch, torch.arange(n, device=device), 2, stream)
    return torch.argsort((pair[:, 0] >> 1 << 32) | pair[:, 1], stable=True)


def _check(seed: int, epoch: int, index: Tensor, lanes: int, stream: int) -> None:
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed must be an integer in [0, 2^64), got {seed}")
    if not 0 <= epoch < 1 << 32:
        raise ValueError(f"epoch must be an integer in [0, 2^32), got {epoch}")
    if index.dtype != torch.int64 or index.ndim != 1:
        raise TypeError(
            f"index must be an int64 tensor (B,), got {index.dtype} of shape {tuple(index.shape)}"
        )
    if not 0 < lanes <= 4 * _BLOCKS:
        raise ValueError(f"lanes must be 1 to {4 * _BLOCKS}, got {lanes}")
    if not 0 <= stream < 1 << 12:
        raise ValueError(f"stream must be an integer in [0, 4096), got {stream}")
