"""Matrices of projective transforms: make, compose, invert, normalize, apply, in the plane and in space.

A transform of d-dimensional points is H (..., d+1, d+1), d = 2 or 3; H and any non-zero multiple of it are the same
transform. Everything here takes tensors and NumPy arrays alike and returns the kind it was given (`arrays.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from caunet.geometry.arrays import (
    Array,
    Matrix,
    as_tensor,
    concatenate,
    copy,
    divide,
    entries_first,
    entries_last,
    multiply,
    where,
)

__all__ = [
    "NEAR",
    "adjugate",
    "affine",
    "apply",
    "apply_homogeneous",
    "check",
    "compose",
    "dimension",
    "exponential",
    "invert",
    "normalize",
    "projective",
    "rotate",
    "scale",
    "translate",
    "with_shifts",
]

Number = float | Tensor

NEAR = 1e-3
"""The last coordinate (1 at the origin) up to which a point counts as behind the viewer, where that is asked."""


def translate(*shift: Number) -> Tensor:
    """H that moves by (tx, ty) or (tx, ty, tz): numbers or tensors (...) to (..., d+1, d+1).

    >>> apply(translate(2.0, -1.0), torch.tensor([[0.0, 0.0]]))
    tensor([[ 2., -1.]])
    >>> translate(1.0, 2.0, 3.0).shape
    torch.Size([4, 4])
    """
    d = len(shift)
    _check_dimension("shift", d)
    entries: list[Number] = []
    for i in range(d):
        entries += [float(i == j) for j in range(d)] + [shift[i]]
    return _matrix([*entries, *[0.0] * d, 1.0], d + 1)


def rotate(degrees: Number, axis: Sequence[float] | None = None) -> Tensor:
    """H that turns about the origin: a number or tensor (...) to (..., 3, 3), or (..., 4, 4) with an ``axis``.

    In the plane, and about the axis (0, 0, 1), positive angles turn x towards y. In space the rotation is about the
    direction ``axis`` = (x, y, z), of any length.

    >>> apply(rotate(90.0), torch.tensor([[1.0, 0.0]])).round()
    tensor([[-0., 1.]])
    >>> apply(rotate(90.0, axis=(1, 0, 0)), torch.tensor([[0.0, 1.0, 0.0]])).round()
    tensor([[0., -0., 1.]])
    """
    angle = torch.as_tensor(degrees, dtype=None if isinstance(degrees, Tensor) else torch.get_default_dtype())
    angle = angle * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    if axis is None:
        return _matrix([cos, -sin, 0.0, sin, cos, 0.0, 0.0, 0.0, 1.0], 3)
    length = math.hypot(*axis)
    if len(axis) != 3 or not 0 < length < math.inf:
        raise ValueError(f"axis must be a direction (x, y, z), got {tuple(axis)}")
    x, y, z = (part / length for part in axis)
    rest = 1 - cos  # Rodrigues' formula
    return _matrix(
        [
            *(cos + x * x * rest, x * y * rest - z * sin, x * z * rest + y * sin, 0.0),
            *(y * x * rest + z * sin, cos + y * y * rest, y * z * rest - x * sin, 0.0),
            *(z * x * rest - y * sin, z * y * rest + x * sin, cos + z * z * rest, 0.0),
            *(0.0, 0.0, 0.0, 1.0),
        ],
        4,
    )


def scale(*factors: Number | None) -> Tensor:
    """H that stretches along the axes: (sx, sy) or (sx, sy, sz), (...) to (..., d+1, d+1); one number: the plane.

    >>> apply(scale(2.0, 0.5), torch.tensor([[1.0, 1.0]]))
    tensor([[2.0000, 0.5000]])
    >>> apply(scale(2.0), torch.tensor([[1.0, 1.0]]))
    tensor([[2., 2.]])
    """
    given = [factor for factor in factors if factor is not None]
    if len(given) == 1:
        given *= 2
    d = len(given)
    _check_dimension("factors", d)
    rows = [[given[i] if i == j else 0.0 for j in range(d + 1)] for i in range(d)]
    return _matrix([entry for row in rows for entry in row] + [0.0] * d + [1.0], d + 1)


def affine(z: Tensor) -> Tensor:
    """The paper's affine H, without translation: z (..., 4) to [[1+z1, z2, 0], [z3, 1+z4, 0], [0, 0, 1]].

    In space z (..., 9) to (..., 4, 4): identity plus z, row by row.

    >>> affine(torch.tensor([0.5, 0.25, 0.0, -0.5]))
    tensor([[1.5000, 0.2500, 0.0000],
            [0.0000, 0.5000, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    >>> affine(torch.zeros(9)).equal(torch.eye(4))
    True
    """
    if z.ndim < 1 or z.shape[-1] not in (4, 9):
        raise ValueError(f"z must have shape (..., 4) or, in space, (..., 9), got {tuple(z.shape)}")
    d = 2 if z.shape[-1] == 4 else 3
    parts: list[Number] = []
    for i in range(d):
        parts += [z[..., d * i + j] + 1 if i == j else z[..., d * i + j] for j in range(d)] + [0.0]
    return _matrix([*parts, *[0.0] * d, 1.0], d + 1)


def projective(z: Tensor) -> Tensor:
    """The paper's projective H: z (..., 6) to [[1+z1, z2, 0], [z3, 1+z4, 0], [z5, z6, 1]].

    >>> projective(torch.tensor([0., 0., 0., 0., 0.25, 0.]))[2]
    tensor([0.2500, 0.0000, 1.0000])
    """
    check_last_axis("z", z, 6)
    z1, z2, z3, z4, z5, z6 = z.unbind(-1)
    return _matrix([1 + z1, z2, 0.0, z3, 1 + z4, 0.0, z5, z6, 1.0], 3)


def compose(*H: Array) -> Array:
    """The product of transforms, as formulas have it: ``compose(A, B)`` is A B, and B acts first.

    >>> apply(compose(scale(2.0), translate(1.0, 0.0)), torch.tensor([[0.0, 0.0]]))
    tensor([[2., 0.]])
    """
    if not H:
        raise ValueError("compose must be given at least one transform, got none")
    product = H[0]
    dimension(product, "H[0]")
    for k in range(1, len(H)):
        _check_equal(dimension(H[k], f"H[{k}]"), dimension(product), k)
        product = multiply(product, H[k])
    return product


def with_shifts(H: Array, first: Array, last: Array) -> Array:
    """translate(last) H translate(first), for shifts (..., d): what changes origins, without two whole products.

    >>> with_shifts(scale(2.0), torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 0.0]))[0]
    tensor([ 2.,  0., -1.])
    """
    d = dimension(H)
    column = H[..., 0] * first[..., None, 0]
    for k in range(1, d):
        column = column + H[..., k] * first[..., None, k]
    moved = copy(H)
    moved[..., d] = column + H[..., d]
    moved[..., :d, :] = moved[..., :d, :] + last[..., :, None] * moved[..., d:, :]
    return moved


def adjugate(H: Array) -> tuple[Array, Array]:
    """The adjugate (..., n, n), det(H) H^-1 in closed form (n = 3 or 4), and the determinant (...).

    Written out, because every matrix then has the same bits alone and in a batch, which libraries of linear algebra
    do not promise; and exact for the identity and for translations, which a general inverse need not be.

    >>> adjugate(np.diag([2.0, 3.0, 4.0]))[0].diagonal(), float(adjugate(np.diag([2.0, 3.0, 4.0]))[1])
    (array([12.,  8.,  6.]), 24.0)
    """
    d = dimension(H)
    if isinstance(H, np.ndarray) and H.shape == (3, 3) and H.dtype == np.float64:
        return _adjugate_of_one(H)
    entries = entries_first(H)
    cofactors = _cofactors3(entries) if d == 2 else _cofactors4(entries)
    terms = entries[0] * cofactors[0]  # (d + 1, ...)
    determinant = terms[0] + terms[1] + terms[2]
    if d == 3:
        determinant = determinant + terms[3]
    return entries_last(cofactors).swapaxes(-1, -2), determinant


def _adjugate_of_one(H: Matrix) -> tuple[Matrix, Matrix]:
    """The same of one matrix (3, 3), by the same operations on plain numbers: a tenth of the time."""
    (a, b, c), (d, e, f), (g, h, i) = H.tolist()
    first = (e * i - f * h, f * g - d * i, d * h - e * g)
    second = (h * c - i * b, i * a - g * c, g * b - h * a)
    third = (b * f - c * e, c * d - a * f, a * e - b * d)
    determinant = a * first[0] + b * first[1] + c * first[2]
    return np.array([first, second, third]).T, np.array(determinant)


def _cofactors3(E: Array) -> Array:
    """Of E (3, 3, ...): with rows and columns going round, all nine are one difference of products."""
    E = concatenate([E, E[:2]], 0)
    E = concatenate([E, E[:, :2]], 1)
    return E[1:4, 1:4] * E[2:5, 2:5] - E[1:4, 2:5] * E[2:5, 1:4]


def _cofactors4(E: Array) -> Array:
    """Of E (4, 4, ...), by the 2 x 2 minors of the upper two rows and of the lower two (Laplace)."""
    first, second = [0, 0, 0, 1, 1, 2], [1, 2, 3, 2, 3, 3]
    upper = E[0][first] * E[1][second] - E[0][second] * E[1][first]  # (6, ...)
    lower = E[2][first] * E[3][second] - E[2][second] * E[3][first]
    rows = []
    for k, (row, minors) in enumerate([(E[1], lower), (E[0], lower), (E[3], upper), (E[2], upper)]):
        expanded = (
            row[[1, 0, 0, 0]] * minors[[5, 5, 4, 3]]
            - row[[2, 2, 1, 1]] * minors[[4, 2, 2, 1]]
            + row[[3, 3, 3, 2]] * minors[[3, 1, 0, 0]]
        )
        signs = [(-1.0) ** (k + column) for column in range(4)]
        rows.append(concatenate([signs[c] * expanded[c : c + 1] for c in range(4)], 0)[None])
    return concatenate(rows, 0)


def invert(H: Array, *, checked: bool = True) -> Array:
    """The inverse transform (..., n, n), in the dtype of H; refuses a singular or non-finite H by its index.

    With ``checked=False`` nothing is refused: what is singular becomes infinite or nan.

    >>> invert(translate(3.0, -2.0))
    tensor([[ 1.,  0., -3.],
            [ 0.,  1.,  2.],
            [ 0.,  0.,  1.]])
    """
    if checked:
        check(H)
    if isinstance(H, Tensor):
        return _inverse(H.double()).to(H.dtype)
    return _inverse(H)


def _inverse(H: Array) -> Array:
    cofactors, determinant = adjugate(H)
    return divide(cofactors, determinant[..., None, None]) + 0.0  # + 0 turns -0 into 0


def normalize(H: Array, *, checked: bool = True) -> Array:
    """The same transform scaled so that its last entry is 1; refuses one whose last entry is 0.

    >>> normalize(2 * translate(3.0, 0.0))[0]
    tensor([1., 0., 3.])
    """
    dimension(H)
    last = H[..., -1, -1]
    if checked:
        reason = "sends the origin to infinity (its last entry is 0) and cannot be normalized"
        _refuse("H", as_tensor(last) == 0, reason)
    return divide(H, last[..., None, None])


def apply_homogeneous(H: Array, points: Array) -> Array:
    """Points p (..., N, d) as homogeneous vectors H (p, 1), (..., N, d+1): what `apply` divides by its last part.

    >>> apply_homogeneous(translate(1.0, 2.0), torch.zeros(1, 2))
    tensor([[1., 2., 1.]])
    """
    d = dimension(H)
    check_last_axis("points", points, d)
    if not isinstance(H, Tensor):
        together: Matrix = points @ np.swapaxes(H[..., :d], -1, -2) + H[..., None, :, d]
        return together
    column = H[..., None, :, :].unbind(-1)  # d + 1 of (..., 1, d + 1)
    carried = points[..., :1] * column[0]
    for k in range(1, d):
        carried = carried + points[..., k : k + 1] * column[k]
    return carried + column[d]


def apply(H: Array, points: Array, *, far: float | None = None) -> Array:
    """Points p (..., N, d) carried to p' = H p (..., N, d), the last coordinate divided out.

    H is (..., d+1, d+1) with leading shapes that broadcast. A point that H sends to infinity becomes inf or nan, and
    one behind the viewer a mirror image; with ``far`` both get this number for all coordinates (behind is what has a
    last coordinate of at most `NEAR`, H being scaled so that it is about 1).

    >>> apply(projective(torch.tensor([0., 0., 0., 0., 0.5, 0.])), torch.tensor([[2.0, 4.0]]))
    tensor([[1., 2.]])
    >>> behind = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 1.0]])
    >>> apply(behind, np.array([[3.0, 0.0]]), far=1e6)
    array([[1000000., 1000000.]])
    """
    carried = apply_homogeneous(H, points)
    last = carried[..., -1:]
    if far is None:
        return divide(carried[..., :-1], last)
    return where(last > NEAR, carried[..., :-1] / last.clip(NEAR), far)


def exponential(A: Array) -> Array:
    """exp(A) of a matrix (n, n): a step in the algebra of a group of transforms as a member of that group.

    >>> exponential(np.array([[0.0, 0, 2], [0, 0, 1], [0, 0, 0]]))
    array([[1., 0., 2.],
           [0., 1., 1.],
           [0., 0., 1.]])
    """
    if isinstance(A, Tensor):
        exact: Tensor = torch.matrix_exp(A)
        return exact
    # By scaling and squaring: a third of the time of a call of torch.
    norm = max(float(np.abs(A).sum()), 1e-30)
    halvings = max(0, math.ceil(math.log2(norm)) + 3)
    A, norm = A / 2**halvings, norm / 2**halvings
    term = total = np.eye(len(A))
    left = 1.0
    for k in range(1, 10):
        term = term @ A / k
        total = total + term
        left *= norm / k
        if left < 1e-17:  # what follows is rounded away
            break
    for _ in range(halvings):
        total = total @ total
    return total


def check(H: Array, name: str = "H") -> None:
    """Raise ValueError if any of H (..., d+1, d+1) is not finite or is singular, naming the first one.

    Singular means: the determinant vanishes to the precision of H's dtype once rows and columns have been
    brought to a common size, so neither a far translation nor a small multiple of H is refused.

    >>> check(torch.zeros(3, 3))
    Traceback (most recent call last):
        ...
    ValueError: H is singular, must be invertible
    """
    dimension(H, name)
    if torch.compiler.is_compiling():
        return
    tensor = as_tensor(H).detach()
    wide = tensor.double()
    _refuse(name, ~wide.isfinite().all(-1).all(-1), "is not finite, must hold finite numbers")
    for _ in range(3):
        size = wide.abs()
        size = (size.amax(-1, keepdim=True) * size.amax(-2, keepdim=True)).sqrt()
        wide = wide / size.clamp_min(torch.finfo(torch.float64).tiny)
    _, determinant = adjugate(wide)
    limit = 16 * torch.finfo(tensor.dtype).eps
    _refuse(name, determinant.abs() <= limit, "is singular, must be invertible")


def dimension(H: Array, name: str = "H") -> int:
    """The d of matrices (..., d+1, d+1): 2 in the plane, 3 in space; refuses everything else.

    >>> dimension(np.eye(4))
    3
    """
    floating = (
        H.is_floating_point() if isinstance(H, Tensor) else getattr(H, "dtype", np.dtype(int)).kind == "f"
    )
    if not floating:
        got = getattr(H, "dtype", type(H).__name__)
        raise TypeError(f"{name} must be a floating tensor or array (..., 3, 3) or (..., 4, 4), got {got}")
    shape = tuple(H.shape)
    if shape[-2:] not in ((3, 3), (4, 4)):
        raise ValueError(f"{name} must have shape (..., 3, 3) or (..., 4, 4), got {shape}")
    return int(shape[-1]) - 1


def check_last_axis(name: str, array: Array, length: int) -> None:
    """Refuse an array that is not (..., length)."""
    if array.ndim < 1 or array.shape[-1] != length:
        raise ValueError(f"{name} must have shape (..., {length}), got {tuple(array.shape)}")


def _check_equal(got: int, d: int, k: int) -> None:
    if got != d:
        raise ValueError(f"H[{k}] must have {d} dimensions like H[0], got {got}")


def _check_dimension(name: str, d: int) -> None:
    if d not in (2, 3):
        raise ValueError(f"{name} must be two numbers (the plane) or three (space), got {d}")


def _matrix(entries: Sequence[Number], n: int) -> Tensor:
    """Numbers or tensors (...), row by row, as (..., n, n)."""
    like = next((e for e in entries if isinstance(e, Tensor)), torch.empty(()))
    if not like.is_floating_point():
        like = like.to(torch.get_default_dtype())
    parts = [torch.as_tensor(e, dtype=like.dtype, device=like.device) for e in entries]
    shape = torch.broadcast_shapes(*(part.shape for part in parts))  # type: ignore[no-untyped-call]
    return torch.stack([part.expand(shape) for part in parts], -1).reshape(*shape, n, n)


def _refuse(name: str, bad: Tensor, why: str) -> None:
    """Raise ValueError naming the first of `name` for which `bad` (...) is true."""
    if torch.compiler.is_compiling() or not bool(bad.any()):
        return
    place = ", ".join(str(int(i)) for i in bad.nonzero()[0])
    raise ValueError(f"{name}[{place}] {why}" if place else f"{name} {why}")
