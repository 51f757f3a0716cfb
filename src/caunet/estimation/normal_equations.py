"""The linear system of one polish step: weighted sums of the products of its columns.

Columns are H's first eight entries (the last two with the opposite sign), the light (a gain, a bias, a difference in
sharpness; then, where it is a field, the slopes of the bias and of the gain), and last b. Each is a plane times powers
of the place: five planes, and b.
"""

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

_SMALL = 900_000  # multiplications below which a BLAS multiplies without rearranging: three times as fast
_PARTS = 2  # products whose columns are made at once: what fits into a processor's cache
_APART = 16  # numbers by which rows are longer than a power of two, which would put all of them into few cache lines


def products(planes: Tensor, root: Tensor, places: Tensor, lights: int) -> Matrix:
    """(columns, columns): weighted sums of the products of all columns of the linear system and b.

    ``planes`` (6, ...) are both gradients, a, ones, the Laplacian and b, ``root`` (...) the roots of the weights,
    ``places`` (2, ...) x and y; all of them contiguous.

    >>> plane = torch.ones(6, 1, 2, 2)
    >>> sums = products(plane, plane[0], torch.zeros(2, 1, 2, 2), UNIFORM)
    >>> sums[GAIN].tolist()
    [0.0, 0.0, 4.0, 0.0, 0.0, 4.0, 0.0, 0.0, 4.0, 4.0, 4.0, 4.0]
    """
    last = 8 + lights
    planes, root, places = planes.view(6, -1), root.view(-1), places.view(2, -1)
    step = max(_SMALL // (last + 1) ** 2, 1)
    total = np.zeros((last + 1, last + 1))
    columns = planes.new_empty(last + 1, min(_PARTS * step, len(root)) + _APART)
    for first in range(0, len(root), _PARTS * step):
        part = slice(first, first + _PARTS * step)
        weight = root[part]
        c = columns[:, : len(weight)]
        torch.mul(planes[:2, part], weight, out=c[2:6:3])
        if lights == UNIFORM:  # b follows
            torch.mul(planes[2:, part], weight, out=c[GAIN:])
        else:
            torch.mul(planes[2:5, part], weight, out=c[GAIN:11])
            torch.mul(planes[5, part], weight, out=c[last])
        fill_columns(c, places[:, part], lights)
        _add_products(total, c, step)
    return total


def fill_columns(c: Tensor, places: Tensor, lights: int) -> None:
    """Fill ``c`` (columns, ...) from those of its rows that are planes, and the ``places`` (2, ...), x and y."""
    slopes = c[:6].view(2, 3, *c.shape[1:])
    torch.mul(slopes[:, 2:], places, out=slopes[:, :2])
    torch.mul(c[0] + c[4], places, out=c[6:8])
    if lights == UNIFORM:
        return
    torch.mul(c[ONE], places, out=c[11:13])
    torch.mul(c[GAIN], places, out=c[13:15])  # the gain: a x, a y, then a x^2, a x y, a y^2
    torch.mul(c[13], places, out=c[15:17])
    torch.mul(c[14], places[1], out=c[17])


def _add_products(total: Matrix, columns: Tensor, step: int) -> None:
    """Add to ``total`` the products of ``columns`` (N, pixels) with each other, of ``step`` pixels at a time."""
    if columns.device.type != "cpu":
        total += (columns @ columns.mT).double().cpu().numpy()
        return
    # NumPy's BLAS has a faster way for small products, which it takes unless it knows that both factors are one.
    values = columns.numpy()
    for first in range(0, values.shape[1], step):
        part = values[:, first : first + step]
        total[:, :-1] += part @ part[:-1].T
        total[-1, -1] += part[-1] @ part[-1]
    total[:-1, -1] = total[-1, :-1]
