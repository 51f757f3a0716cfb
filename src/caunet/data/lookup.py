"""Reading patches out of many byte images or volumes at once, by elementwise operations only.

Geometry's `warp` is the general, differentiable tool. Pairs need less and need it faster: bytes in, a small
patch out, a different image and map for each, and the same bits whatever the batch. So every operation here
is a gather or elementwise and exactly rounded (no fused multiply-add, whose use may depend on the place in a
batch): a pair does not depend on its neighbors. Positions are float64, the weights within a pixel float32.

It takes a third of the time of `caunet.geometry.sampling.sample` at the same places (2,000 patches of 11 x 11 pixels on
one core: 8 ms against 26), which is why there are two; a test holds them to the same numbers.

The images lie on a `Canvas` with a border of zeros, so that out-of-image pixels are 0 without a test.
A *pull* (B, 3, 3) float64 maps patch coordinates (column, row, 1), counted from the patch's first pixel, to
image coordinates (x, y, 1), pixel centers at integers. Of volumes it is (B, 4, 4), with the slice as third coordinate.

>>> canvas = Canvas(pad(torch.arange(0, 48, 2, dtype=torch.uint8).view(1, 4, 6)))
>>> pull = torch.tensor([[[1.0, 0.0, 1.5], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]], dtype=torch.float64)
>>> linear(canvas, pull, 2)
tensor([[[15., 17.],
         [27., 29.]]])
"""

import math

import torch
from torch import Tensor

__all__ = ["BICUBIC_A", "BORDER", "Canvas", "bicubic", "crop", "linear", "pad", "positions", "to_bytes"]

BORDER = 4
BICUBIC_A = -0.5  # Keys's kernel as MATLAB has it; OpenCV and torch take -0.75


def pad(images: Tensor) -> Tensor:
    """Images (N, height, width) or volumes (N, depth, height, width) with a border of zeros."""
    return torch.nn.functional.pad(images, (BORDER,) * (2 * (images.ndim - 1)))


class Canvas:
    """Byte images or volumes that carry a border of zeros (`pad`), one for each pair.

    Args:
        padded: (N, *size), contiguous.
        index: (B,) which of them each pair reads; without it they are taken in order.
    """

    def __init__(self, padded: Tensor, index: Tensor | None = None) -> None:
        self.size = tuple(n - 2 * BORDER for n in padded.shape[1:])
        self.strides = padded.stride()[:0:-1]  # of x, y(, z)
        self.flat = padded.view(-1)
        # Half the bytes to move where 32 bits can address the canvas.
        self.address = torch.int32 if self.flat.numel() < 2**31 else torch.int64
        which = torch.arange(len(padded), device=padded.device) if index is None else index
        first = (which * padded.stride(0)).to(self.address)
        self.start = first.view(-1, *[1] * len(self.size))  # where each image begins

    def read(self, address: Tensor) -> Tensor:
        """The bytes at ``address``."""
        return self.flat.index_select(0, address.view(-1)).view(address.shape)


def crop(canvas: Canvas, corner: Tensor, patch: int) -> Tensor:
    """Bytes (B, patch, patch) of images, whose first pixel is at ``corner`` (B, 2) = (row, column) of each."""
    row, column = (corner + BORDER).to(canvas.address)[:, :, None, None].unbind(1)
    k = torch.arange(patch, device=corner.device, dtype=canvas.address)
    line = canvas.strides[1]
    return canvas.read(canvas.start + row * line + column + ((k * line)[:, None] + k))


def positions(pull: Tensor, patch: int, size: tuple[int, ...], reach: int) -> list[Tensor]:
    """Where each patch pixel reads: canvas coordinates x, y(, z), each (B, patch, patch[, patch]) float64.

    What lies more than ``reach`` outside the image (only zeros there) is put ``reach`` outside; so is what
    lies behind the horizon of a projective map, and everything when the map is singular (not finite).
    """
    d = len(size)
    k = torch.arange(patch, dtype=torch.float64, device=pull.device)
    lines = [
        k.view(-1, *[1] * axis) for axis in range(d)
    ]  # along x, y(, z): the last axis, the one before, ...

    def spread(row: Tensor) -> Tensor:
        # A linear map is a sum of one line for each axis: (B, 1, patch) + (B, patch, 1).
        *slopes, offset = row.view(-1, d + 1, *[1] * d).unbind(1)
        total = slopes[0] * lines[0] + offset
        for slope, line in zip(slopes[1:], lines[1:], strict=True):
            total = total + slope * line
        return total

    *rows, last = pull.contiguous().unbind(1)  # so that what follows is in order, too
    places = [spread(row + BORDER * last) for row in rows]
    if not bool((last == last.new_tensor([0.0] * d + [1.0])).all()):
        w = spread(last)
        places = [(p / w).masked_fill_(~(w > 0), -math.inf) for p in places]
        places = [p.nan_to_num_(nan=-math.inf, posinf=math.inf, neginf=-math.inf) for p in places]
    for place, length in zip(places, reversed(size), strict=True):
        place.clamp_(BORDER - reach, BORDER + length - 1 + reach)
    return places


def linear(canvas: Canvas, pull: Tensor, patch: int) -> Tensor:
    """Linear interpolation along every axis: float32 (B, patch, patch[, patch]), gray levels."""
    start, fractions = _cells(canvas, pull, patch, reach=1)
    return _between(canvas, start, fractions)


def bicubic(canvas: Canvas, pull: Tensor, patch: int) -> Tensor:
    """Cubic convolution (Keys, a = -0.5) of images: float32 (B, patch, patch); overshoots 0 and 255 at edges."""
    start, (dx, dy) = _cells(canvas, pull, patch, reach=2)
    start -= canvas.strides[1] + 1
    across, down = _keys(dx), _keys(dy)
    out = torch.zeros_like(dx)
    for weight in down:
        row = torch.zeros_like(dx)
        for step, share in enumerate(across):
            row += canvas.read(start + step).to(torch.float32).mul_(share)
        out += row.mul_(weight)
        start += canvas.strides[1]
    return out


def to_bytes(gray: Tensor) -> Tensor:
    """Gray levels to bytes: nearest, halves up, what lies outside 0..255 brought to its ends. Bytes stay.

    >>> to_bytes(torch.tensor([-3.0, 1.49, 1.5, 300.0]))
    tensor([  0,   1,   2, 255], dtype=torch.uint8)
    """
    if gray.dtype == torch.uint8:
        return gray
    # By way of int32, which is faster than straight to bytes; both cut towards 0.
    return gray.clamp(0, 255).add_(0.5).to(torch.int32).to(torch.uint8)


def _cells(canvas: Canvas, pull: Tensor, patch: int, reach: int) -> tuple[Tensor, list[Tensor]]:
    # The cell (the pixel above and left of a position) as an address on the canvas, and the place in it.
    places = positions(pull, patch, canvas.size, reach)
    start = canvas.start
    for place, stride in zip(places, canvas.strides, strict=True):
        start = torch.add(start, place.to(canvas.address), alpha=stride)  # positive: cut is floor
    return start, [place.frac_().to(torch.float32) for place in places]


def _between(canvas: Canvas, start: Tensor, fractions: list[Tensor]) -> Tensor:
    # Along the last axis given, between what is read at the cell's near side and at its far side.
    if not fractions:
        return canvas.read(start).to(torch.float32)
    *others, t = fractions
    near = _between(canvas, start, others)
    return _between(canvas, start + canvas.strides[len(others)], others).sub_(near).mul_(t).add_(near)


def _keys(t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # Weights of the taps at -1, 0, 1, 2 for a position t in [0, 1).
    a, square = BICUBIC_A, t * t
    cube = square * t
    before = (cube - 2.0 * square + t) * a
    here = cube * (a + 2.0) - square * (a + 3.0) + 1.0
    after = (square - cube) * a
    return before, here, 1.0 - before - here - after, after
