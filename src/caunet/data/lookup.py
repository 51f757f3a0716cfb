"""Reading patches out of many byte images at once, by elementwise operations only.

Geometry's `warp` is the general, differentiable tool. Pairs need less and need it faster: bytes in, a small
patch out, a different image and map for each, and the same bits whatever the batch. Everything is float64,
so that devices agree; every operation is elementwise or a gather, so that a pair never feels its neighbours.

The images lie on a canvas with a border of zeros (`pad`), so that out-of-image pixels are 0 without a test.
A *pull* (B, 3, 3) maps patch coordinates (column, row, 1), counted from the patch's first pixel, to image
coordinates (x, y, 1), pixel centres at integers.
"""

import math

import torch
from torch import Tensor

__all__ = ["BICUBIC_A", "BORDER", "bicubic", "bilinear", "crop", "pad", "positions", "to_bytes"]

BORDER = 4
BICUBIC_A = -0.5  # Keys's kernel as MATLAB has it; OpenCV and torch take -0.75


def pad(images: Tensor) -> Tensor:
    """Bytes (N, H, W) on a canvas (N, H + 8, W + 8) of zeros."""
    return torch.nn.functional.pad(images, (BORDER,) * 4)


def crop(canvas: Tensor, image: Tensor, corner: Tensor, patch: int) -> Tensor:
    """Bytes (B, patch, patch) whose first pixel is at ``corner`` (B, 2) = (row, column) of ``image`` (B,)."""
    row, column = corner.unbind(-1)
    start = _start(canvas, image) + (row + BORDER) * canvas.shape[2] + (column + BORDER)
    k = torch.arange(patch, device=canvas.device)
    return _gather(canvas, start[:, None, None] + (k * canvas.shape[2])[:, None] + k)


def positions(pull: Tensor, patch: int, size: tuple[int, int], reach: int) -> tuple[Tensor, Tensor]:
    """Where each patch pixel reads: canvas coordinates x and y, (B, patch, patch) float64.

    What lies more than ``reach`` outside the image (only zeros there) is put ``reach`` outside; so is what
    lies behind the horizon of a projective map, and everything when the map is singular (not finite).
    """
    k = torch.arange(patch, dtype=torch.float64, device=pull.device)

    def plane(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        # A map of the plane is a sum of a row and a column: (B, 1, patch) + (B, patch, 1).
        return (a[:, None] * k + c[:, None])[:, None, :] + (b[:, None] * k)[:, :, None]

    x, y = plane(*pull[:, 0].unbind(-1)), plane(*pull[:, 1].unbind(-1))
    if not bool((pull[:, 2] == pull.new_tensor([0.0, 0.0, 1.0])).all()):
        w = plane(*pull[:, 2].unbind(-1))
        x, y = ((p / w).masked_fill_(~(w > 0), -math.inf) for p in (x, y))
        x, y = (p.nan_to_num_(nan=-math.inf, posinf=math.inf, neginf=-math.inf) for p in (x, y))
    height, width = size
    x.clamp_(-reach, width - 1 + reach).add_(BORDER)
    y.clamp_(-reach, height - 1 + reach).add_(BORDER)
    return x, y


def bilinear(canvas: Tensor, image: Tensor, pull: Tensor, patch: int) -> Tensor:
    """Linear interpolation in both directions: float64 (B, patch, patch), grey levels."""
    start, dx, dy = _cells(canvas, image, pull, patch, reach=1)
    top = _between(_read(canvas, start), _read(canvas, start + 1), dx)
    start += canvas.shape[2]
    bottom = _between(_read(canvas, start), _read(canvas, start + 1), dx)
    return _between(top, bottom, dy)


def bicubic(canvas: Tensor, image: Tensor, pull: Tensor, patch: int) -> Tensor:
    """Cubic convolution (Keys, a = -0.5): float64 (B, patch, patch); overshoots 0 and 255 at edges."""
    start, dx, dy = _cells(canvas, image, pull, patch, reach=2)
    start -= canvas.shape[2] + 1
    across, down = _keys(dx), _keys(dy)
    out = torch.zeros_like(dx)
    for weight in down:
        row = _read(canvas, start).mul_(across[0])
        for j in (1, 2, 3):
            row += _read(canvas, start + j).mul_(across[j])
        out += row.mul_(weight)
        start += canvas.shape[2]
    return out


def _cells(
    canvas: Tensor, image: Tensor, pull: Tensor, patch: int, reach: int
) -> tuple[Tensor, Tensor, Tensor]:
    # The cell (the pixel above and left of a position) as an address on the canvas, and the place in it.
    size = (canvas.shape[1] - 2 * BORDER, canvas.shape[2] - 2 * BORDER)
    x, y = positions(pull, patch, size, reach)
    column, row = x.floor(), y.floor()
    # Half the bytes to move where 32 bits can address the canvas.
    integer = torch.int32 if canvas.numel() < 2**31 else torch.int64
    start = row.to(integer).mul_(canvas.shape[2]).add_(column.to(integer))
    return start.add_(_start(canvas, image).to(integer)[:, None, None]), x.sub_(column), y.sub_(row)


def _start(canvas: Tensor, image: Tensor) -> Tensor:
    return image * (canvas.shape[1] * canvas.shape[2])


def _gather(canvas: Tensor, address: Tensor) -> Tensor:
    return canvas.view(-1).index_select(0, address.view(-1)).view(address.shape)


def _read(canvas: Tensor, address: Tensor) -> Tensor:
    return _gather(canvas, address).to(torch.float64)


def _between(a: Tensor, b: Tensor, t: Tensor) -> Tensor:
    return b.sub_(a).mul_(t).add_(a)


def _keys(t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # Weights of the taps at -1, 0, 1, 2 for a position t in [0, 1).
    a, square = BICUBIC_A, t * t
    cube = square * t
    before = (cube - 2.0 * square + t) * a
    here = cube * (a + 2.0) - square * (a + 3.0) + 1.0
    after = (square - cube) * a
    return before, here, 1.0 - before - here - after, after


def to_bytes(grey: Tensor) -> Tensor:
    """Grey levels to bytes: nearest, halves up, what lies outside 0..255 brought to its ends. Bytes stay."""
    if grey.dtype == torch.uint8:
        return grey
    return (grey + 0.5).floor_().clamp_(0, 255).to(torch.uint8)
