"""The linear system of one polish step: weighted sums of the products of its columns.

Columns are H's first eight entries, the light (a gain, a bias, a difference in sharpness; then, where it is a field,
the slopes of the bias and of the gain), and last b. Each is a plane times powers of the place: five planes, and b.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from caunet.geometry import Matrix

__all__ = ["GAIN", "LIGHT", "ONE", "PLANES", "UNIFORM", "fill_columns", "products"]

LIGHT, UNIFORM = 10, 3
"""Columns of the light; of the uniform light, which are the first of them."""
GAIN, ONE = 8, 9
"""The columns of a (the gain) and of 1 (the bias)."""
PLANES = (2, 5, GAIN, ONE, 10)
"""Columns that are planes themselves: both gradients, a, 1 and the Laplacian."""

_STRIP = 1 << 13  # pixels whose columns are made at once: what fits into a processor's cache
_SMALL = 900_000  # multiplications below which a BLAS multiplies without rearranging: three times as fast
_APART = 16  # numbers by which rows are longer than a power of two, which would put all of them into few cache lines


def products(planes: tuple[Tensor, ...], root: Tensor, x: Tensor, y: Tensor, lights: int) -> Matrix:
    """(columns, columns): weighted sums of the products of all columns of the linear system and b.

    ``planes`` are both gradients, a, the Laplacian and b, (K, h, w) each, ``root`` the roots of the weights, x
    (K, 1, w) and y (K, h, 1) the places.

    >>> plane, place = torch.ones(1, 2, 2), torch.zeros(1, 2, 1)
    >>> sums = products((plane, plane, plane, plane, plane), plane, place.mT, place, UNIFORM)
    >>> sums[GAIN].tolist()
    [0.0, 0.0, 4.0, 0.0, 0.0, 4.0, 0.0, 0.0, 4.0, 4.0, 4.0, 4.0]
    """
    g_x, g_y, a, laplacian, b = planes
    last = 8 + lights
    strip = max(_STRIP, a.shape[2])
    columns = a.new_empty(last + 1, strip + _APART)
    total = np.zeros((last + 1, last + 1))
    for part in _strips(a.shape, strip):
        weight = root[part]
        count = weight.numel()
        c = columns[:, :count].view(-1, *weight.shape)
        for k, plane in zip((*PLANES, last), (g_x, g_y, a, None, laplacian, b), strict=True):
            if plane is None:
                c[k] = weight
            else:
                torch.mul(plane[part], weight, out=c[k])
        fill_columns(c, x[part[0]], y[part], lights)
        _add_products(total, columns[:, :count])
    return total


def fill_columns(c: Tensor, x: Tensor, y: Tensor, lights: int) -> None:
    """Fill ``c`` (columns, ...) from those of its rows that are planes, and the places x and y."""
    torch.mul(c[2], x, out=c[0])
    torch.mul(c[2], y, out=c[1])
    torch.mul(c[5], x, out=c[3])
    torch.mul(c[5], y, out=c[4])
    radial = (c[0] + c[4]).neg_()
    torch.mul(radial, x, out=c[6])
    torch.mul(radial, y, out=c[7])
    if lights == UNIFORM:
        return
    torch.mul(c[ONE], x, out=c[11])
    torch.mul(c[ONE], y, out=c[12])
    for k, (factor, column) in enumerate([(x, GAIN), (y, GAIN), (x, 13), (y, 13), (y, 14)]):
        torch.mul(c[column], factor, out=c[13 + k])  # the gain: a x, a y, a x^2, a x y, a y^2


def _strips(shape: torch.Size, most: int) -> Iterator[tuple[slice, slice]]:
    """Parts of blocks (K, h, w) of at most about ``most`` pixels: blocks, or rows of the only one."""
    count, height, width = shape
    if count == 1:
        step = max(most // width, 1)
        yield from ((slice(0, 1), slice(row, row + step)) for row in range(0, height, step))
    else:
        step = max(most // (height * width), 1)
        yield from ((slice(k, k + step), slice(None)) for k in range(0, count, step))


def _add_products(total: Matrix, columns: Tensor) -> None:
    """Add to ``total`` the products of ``columns`` (N, pixels) with each other."""
    if columns.device.type != "cpu":
        total += (columns @ columns.mT).double().cpu().numpy()
        return
    # NumPy's BLAS has a faster way for small products, which it takes unless it knows that both factors are one.
    values = columns.numpy()
    step = max(_SMALL // len(values) ** 2, 1)
    for first in range(0, values.shape[1], step):
        part = values[:, first : first + step]
        total[:, :-1] += part @ part[:-1].T
        total[-1, -1] += part[-1] @ part[-1]
    total[:-1, -1] = total[-1, :-1]
