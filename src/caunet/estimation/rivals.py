"""The second-best answer: a wall of bricks looks the same one brick further.

An image that repeats itself, or looks the same after half a turn, has answers that differ and explain both images
about equally well. The autocorrelation of the whole first image says which motions leave it alike; the answer composed
with one of them is a rival. Answer and rival are compared window by window: a single detail that only one of them
explains decides between them.
"""

import functools

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet.estimation.evidence import Windows
from caunet.geometry import Matrix

__all__ = ["advantage", "symmetries"]

_BROAD = 30  # pixels: waves longer than about this are left out
_FAINT = 1e-9  # squared gray levels below which there is nothing to compare
_APART = 2  # pixels by which two peaks differ
_LOOKS = 16  # at most, for peaks
_ALIKE = 0.3  # correlation of the image with its moved self above which a motion is a candidate
_COMMON = 0.25  # share of the image that both must show
_CLEAR = 3.0  # times that a window must leave more unexplained under one answer to speak for the other
_MORE = 0.35  # or by this share of its variance: under noise no answer explains all,
_LITTLE = 0.15  # and if one explains more than this, half of it is clearly less
_SEEN = 0.2  # share of the answer's windows that a rival must leave inside b
_UNCLEAR = 0.03  # share of a window's variance that no answer explains


def symmetries(a: Tensor, least: float, most: int = 4) -> list[tuple[float, Matrix]]:
    """Motions (3, 3) of a (H, W) in its own plane after which it looks like itself, and how much: the clearest first.

    Shifts of at least ``least`` pixels, and half turns; at most ``most`` shifts and their opposites, one half turn.

    >>> tiles = torch.rand(12, 12, generator=torch.Generator().manual_seed(0)).repeat(5, 5)
    >>> shifts = [motion[0, 2] for likeness, motion in symmetries(tiles, 3.0) if motion[0, 0] > 0]
    >>> max(abs(float(shift) - 12 * round(float(shift) / 12)) for shift in shifts) < 0.5
    True
    """
    height, width = a.shape
    size = (2 * height, 2 * width)
    flat = a - a.mean()
    # Strong edges must not decide alone: contrast beyond twice the usual one is cut.
    limit = 2 * float(flat.std())
    spectrum = torch.fft.rfft2(flat.clamp_(-limit, limit), size)
    spectrum *= _without_slow_waves(size, a.device)
    squares = torch.stack([spectrum * spectrum.conj(), spectrum * spectrum])
    shifted, turned = torch.fft.irfft2(squares, size).numpy(force=True)
    energy = float(shifted[0, 0]) / a.numel()
    if energy < _FAINT:
        return []
    shifts, turns = _share_of_shifts(height, width), _share_of_turns(height, width)
    columns = np.arange(size[1])
    dx = np.where(columns < width, columns, columns - size[1])
    # Each shift has its opposite: one half of the plane is enough.
    allowed = np.square(np.arange(height))[:, None] + np.square(dx) >= least * least
    allowed &= shifts[:height] > 0
    allowed[0, width:] = False
    found = []
    for likeness, row, column in _peaks(shifted * (shifts / energy), allowed, most):
        right = column if column < width else column - size[1]
        for sign in (1.0, -1.0):
            found.append((likeness, np.array([[1.0, 0, sign * right], [0, 1, sign * row], [0, 0, 1]])))
    # a(q - p) is a after half a turn about q / 2.
    for likeness, row, column in _peaks(turned * (turns / energy), turns > 0, 1):
        found.append((likeness, np.array([[-1.0, 0, column], [0, -1, row], [0, 0, 1]])))
    return sorted(found, key=lambda one: -one[0])


@functools.lru_cache(maxsize=8)
def _without_slow_waves(size: tuple[int, int], device: torch.device) -> Tensor:
    """A filter for spectra of images of ``size``: a slow change of brightness correlates everywhere."""
    y, x = torch.fft.fftfreq(size[0], device=device), torch.fft.rfftfreq(size[1], device=device)
    return 1 - torch.exp(-_BROAD * _BROAD * (y[:, None].square() + x.square()))


@functools.lru_cache(maxsize=8)
def _share_of_shifts(height: int, width: int) -> npt.NDArray[np.float32]:
    """(2 height, 2 width): one over the pixels that an image and its shifted self have in common; 0 if they are few."""
    common = np.abs(height - np.arange(2 * height))[:, None] * np.abs(width - np.arange(2 * width))
    return _inverse(common, _COMMON * height * width)


@functools.lru_cache(maxsize=8)
def _share_of_turns(height: int, width: int) -> npt.NDArray[np.float32]:
    """(2 height, 2 width): the same for half turns about half of each place."""
    high, wide = (np.minimum(n + 1, len(n) - 1 - n) for n in (np.arange(2 * height), np.arange(2 * width)))
    return _inverse(high[:, None] * wide, 2 * _COMMON * height * width)


def _inverse(common: npt.NDArray[np.int64], least: float) -> npt.NDArray[np.float32]:
    return np.where(common > least, 1 / np.maximum(common, 1), 0).astype(np.float32)


def _peaks(
    values: npt.NDArray[np.float32], allowed: npt.NDArray[np.bool_], most: int
) -> list[tuple[float, float, float]]:
    """The highest local maxima: value, row and column, to a fraction of a pixel.

    ``allowed`` are the first rows of ``values``, or all of them; beyond the edges the other side continues.
    """
    left = np.where(allowed, values[: len(allowed)], np.float32(-1.0))
    height, width = values.shape
    found: list[tuple[float, float, float]] = []
    for _ in range(_LOOKS):
        row, column = divmod(int(left.argmax()), width)
        value = float(left[row, column])
        if value < _ALIKE or len(found) == most:
            break
        near = np.arange(-1, 2)
        around = values[(row + near)[:, None] % height, (column + near) % width]
        if value >= around.max():  # else it is the slope of something that is not allowed
            (_, up, _), (before, _, after), (_, down, _) = around.tolist()
            found.append((value, row + _vertex(up, value, down), column + _vertex(before, value, after)))
        apart = np.arange(-_APART, _APART + 1)
        left[max(row - _APART, 0) : row + _APART + 1, (column + apart) % width] = -1.0
    return found


def _vertex(before: float, here: float, after: float) -> float:
    """Where the parabola through three values at -1, 0 and 1 is highest."""
    bend = 2 * here - before - after
    return max(min((after - before) / (2 * bend), 0.5), -0.5) if bend > 1e-9 else 0.0


def advantage(answer: Windows, rival: Windows) -> float:
    """Share of the windows that speak clearly for the answer, less that of those that speak for its rival: -1 to 1.

    Only windows that both answers place inside b are compared. A rival that leaves less than a fifth of them is none:
    what it would explain is not the images.
    """
    weight = torch.minimum(answer.weight, rival.weight)
    total = float(weight.sum())
    if total <= max(_SEEN * float(answer.weight.sum()), 1e-6):
        return 1.0
    mine, its = (windows.likeness.clamp_min(0).square() for windows in (answer, rival))
    clear = _clearly(mine, its).to(weight.dtype) - _clearly(its, mine).to(weight.dtype)
    return float((weight * clear).sum()) / total


def _clearly(more: Tensor, less: Tensor) -> Tensor:
    """Which windows an answer that explains ``more`` of their variance explains clearly better: bool."""
    return (
        (1 + _UNCLEAR - less > _CLEAR * (1 + _UNCLEAR - more))
        | (more - less > _MORE)
        | ((more > _LITTLE) & (less < 0.5 * more))
    )
