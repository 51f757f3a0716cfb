"""``shapes3``: volumes made on the spot, for tasks in space. No anatomy, nothing to download.

A volume is a map of labels, where each voxel has the label whose smooth random field is largest there; every label has
a random intensity and a faint texture; then come blur, a bias field (intensities that drift across the volume, as a
coil of a scanner makes them) and noise. What a network learns from such volumes it has to learn from edges and blobs
of all shapes and sizes, at any contrast, and so it carries over to organs that it has never seen (the idea is
SynthMorph's: Hoffmann et al., IEEE TMI 2022).

Everything is computed with whole numbers (matrix products of whole numbers below 2^53 are exact in float64, whatever
the order), so volume number n has the same bytes on every machine.

>>> volume = make(0)
>>> volume.shape, volume.dtype
((64, 64, 64), dtype('uint8'))
>>> bool((make(0) == volume).all()), bool((make(1) == volume).any(axis=0).all())
(True, False)
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from caunet.data import keys
from caunet.data.keys import Stream, stream_of
from caunet.data.tiles import check_options, cut, join
from caunet.progress import track

__all__ = ["TEST", "TRAIN", "load", "make"]

TRAIN, TEST = 64, 12
"""How many volumes there are to learn from (the last tenth for validation) and to test on."""
SIDE = 64
_SEED = 0

# Voxels between two knots of the fields that labels compete by: blobs are about that wide.
_SPACINGS = (3, 4, 5, 6, 8, 10)
_LABELS = (2, 9)  # least and most, less one
_UNIT = (
    1 << 12
)  # a field's knots are whole numbers below it; fields of intensities are in 1/_UNIT of a gray level

Whole = npt.NDArray[np.float64]  # holds whole numbers, all below 2^53


def load(
    training: bool, *, tile: int = 20, stride: int | None = None, scales: Sequence[int] = (1, 2)
) -> tuple[npt.NDArray[np.uint8], int]:
    """Tiles (N, tile, tile, tile) of the training or test volumes; where validation begins among them.

    ``stride`` is two fifths of ``tile`` unless given.
    """
    stride = max(1, 2 * tile // 5) if stride is None else stride
    check_options(tile, stride, scales)
    count = TRAIN if training else TEST
    groups = []
    with track(count, "making shapes3", "volumes") as bar:
        for number in range(count):
            volume = make(number, "train" if training else "test")
            groups.append(cut(volume, tile=tile, stride=stride, scales=scales))
            bar.advance()
    return join([group for group in groups if len(group)])


def make(number: int, split: str = "train", side: int = SIDE) -> npt.NDArray[np.uint8]:
    """Volume ``number`` of a split: bytes (side, side, side)."""
    draw = _Draws(number, split)
    labels = _label_map(draw, side)
    count = int(labels.max()) + 1
    # Gray levels in 1/_UNIT, a texture of up to 12 levels either way in each label.
    levels = draw.whole(count, 16, 240) * _UNIT
    roughness = draw.whole(count, 0, 12)
    texture = _centered(_field(draw, side, draw.one(2, 4)))  # -_UNIT/2 .. _UNIT/2
    volume = levels[labels] + 2 * roughness[labels] * texture
    for _ in range(draw.one(0, 3)):
        volume = _blurred(volume)
    drift = draw.one(0, 40)  # per cent at most, either way
    bias = _centered(_field(draw, side, 16, levels=256))
    volume = volume + (volume * (2 * drift * bias) // (100 * _UNIT))
    grain = draw.one(0, 9) * _centered(draw.whole(side**3, 0, _UNIT)).reshape(volume.shape)
    bytes_ = (volume + grain + _UNIT // 2) // _UNIT
    out: npt.NDArray[np.uint8] = np.clip(bytes_, 0, 255).astype(np.uint8)
    return out


class _Draws:
    """Whole random numbers of one volume, one after the other: a function of (seed, split, volume, place)."""

    def __init__(self, number: int, split: str) -> None:
        self.index, self.stream, self.used = torch.tensor([number]), stream_of(Stream.SHAPES, split), 0

    def whole(self, count: int, low: int, high: int) -> Whole:
        """``count`` numbers from low to high - 1."""
        # Each call is an epoch of its own, so that no number is used twice.
        words = keys.words(_SEED, self.used, self.index, count, self.stream)[0].numpy()
        self.used += 1
        return (low + (words * (high - low) >> 32)).astype(np.float64)

    def one(self, low: int, high: int) -> int:
        """One number from low to high - 1."""
        return int(self.whole(1, low, high)[0])


def _label_map(draw: _Draws, side: int) -> npt.NDArray[np.int64]:
    """The number of the largest of several fields at every voxel (side, side, side)."""
    spacing = _SPACINGS[draw.one(0, len(_SPACINGS))]
    best = _field(draw, side, spacing)
    labels = np.zeros(best.shape, np.int64)
    for label in range(1, draw.one(*_LABELS)):
        other = _field(draw, side, spacing)
        labels[other > best] = label
        np.maximum(best, other, out=best)
    return labels


def _field(draw: _Draws, side: int, spacing: int, levels: int = _UNIT) -> Whole:
    """A smooth random field (side, side, side): a cubic B-spline whose knots are ``spacing`` voxels apart.

    It is below levels * (6 spacing^3)^3, which must be below 2^53.
    """
    spline = _spline(side, spacing)
    knots = spline.shape[1]
    field = draw.whole(knots**3, 0, levels).reshape(knots, knots, knots)
    for _ in range(3):  # along one axis after the other; each product turns the next axis to the front
        field = np.tensordot(spline, field, axes=(1, 2))
    return field


def _spline(side: int, spacing: int) -> Whole:
    """Whole weights (side, knots) of the four knots around each voxel; rows add up to 6 spacing^3."""
    weights = np.zeros((side, (side - 1) // spacing + 4))
    for place in range(side):
        cell, t = divmod(place, spacing)
        s = spacing - t
        middle = [3 * u**3 - 6 * u * u * spacing + 4 * spacing**3 for u in (t, s)]
        weights[place, cell : cell + 4] = [s**3, *middle, t**3]
    return weights


def _centered(field: Whole) -> Whole:
    """A field brought to whole numbers from -_UNIT/2 to _UNIT/2, its lowest and highest values."""
    low, high = field.min(), field.max()
    spread: Whole = (field - low) * _UNIT // max(high - low, 1.0) - _UNIT // 2
    return spread


def _blurred(volume: Whole) -> Whole:
    """The means of each voxel and its neighbors with weights 1, 2, 1 along each axis, rounded down; edges repeated."""
    total = volume
    for axis in range(3):
        lines = np.moveaxis(total, axis, 0)
        total = 2 * total
        out = np.moveaxis(total, axis, 0)  # a view
        out[1:] += lines[:-1]
        out[:-1] += lines[1:]
        out[0] += lines[0]
        out[-1] += lines[-1]
    return total // 64
