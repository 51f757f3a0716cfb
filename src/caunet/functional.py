"""The paper's equations as pure functions, numbered as in the paper.

Source: Lu, Yang, Kannala, Kaski, "Learning Image Relations with Contrast Association Networks" (IJCNN 2019).

Every relation maps ``a (..., I)`` and ``b (..., J)`` to ``(..., K)``; the leading dimensions
broadcast, may be empty, and may be absent. Nothing here holds state, draws random numbers or moves data
between devices; all of it is twice differentiable (except :func:`winner_take_all`, which is flat) and works
under ``torch.func.vmap`` and ``torch.compile(fullgraph=True)``. ``docs/equations.md`` lists which
equation is where.

Section III-B of the paper, three units that detect a translation by -1, 0 and 1:

>>> below = torch.diag(torch.ones(4), -1)
>>> weight = torch.stack([below, torch.eye(5), below.T])   # W_1, W_2, W_3 of equation (14)
>>> c = torch.tensor([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0])
>>> a, b = c[1:6], torch.stack([c[2:7], c[1:6], c[0:5]])   # b_1, b_2, b_3 of equations (9)-(11)
>>> h = contrast_association(a, b, weight)
>>> h.diagonal()                                           # each unit is silent at its own translation
tensor([0., 0., 0.])
>>> winner_take_all(h) @ torch.tensor([-1.0, 0.0, 1.0])
tensor([-1.,  0.,  1.])
"""

import torch
from torch import Tensor
from torch.nn.functional import linear

from caunet.low_rank import centered, contrast_and_energy, is_tracing, pooled

__all__ = [
    "bilinear",
    "bilinear_low_rank",
    "concatenate",
    "contrast_association",
    "contrast_association_low_rank",
    "relative_contrast",
    "relative_contrast_low_rank",
    "softmin",
    "sum_pool",
    "winner_take_all",
]


def concatenate(a: Tensor, b: Tensor) -> Tensor:
    """Concatenation units, h = [a b], equation (3).

    Args:
        a: ``(..., I)``.
        b: ``(..., J)``.

    Returns:
        ``(..., I + J)``.

    >>> concatenate(torch.zeros(2, 3), torch.ones(2, 1))
    tensor([[0., 0., 0., 1.],
            [0., 0., 0., 1.]])
    """
    shape = _check_leading(a, b)
    return torch.cat((a.expand(*shape, a.shape[-1]), b.expand(*shape, b.shape[-1])), dim=-1)


def bilinear(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    """Bilinear units of full rank, h_k = a^T W_k b, equation (4).

    Computed as the paper writes it, vec(W_k)^T vec(a b^T): one matrix product, no copy of the weights, and
    nothing larger than the outer products ``(..., I, J)``.

    Args:
        a: ``(..., I)``.
        b: ``(..., J)``.
        weight: ``(K, I, J)``.

    Returns:
        ``(..., K)``.

    >>> bilinear(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.eye(2)[None])
    tensor([11.])
    """
    _check_weight(a, b, weight)
    outer = a.unsqueeze(-1) * b.unsqueeze(-2)  # (..., I, J)
    return linear(outer.flatten(-2), weight.flatten(1))


def bilinear_low_rank(a: Tensor, b: Tensor, u: Tensor, v: Tensor, rank: int = 1) -> Tensor:
    """Bilinear units of rank ``rank``: equation (4) with W_g = sum of u_k v_k^T over the group g.

    Args:
        a: ``(..., I)``.
        b: ``(..., J)``.
        u: ``(K, I)``, the left vectors.
        v: ``(K, J)``, the right vectors.
        rank: how many consecutive rank-one terms make a unit; divides K.

    Returns:
        ``(..., K // rank)``.

    >>> u, v = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> bilinear_low_rank(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), u, v, rank=2)
    tensor([11.])
    """
    _check_factors(a, b, u, v, rank)
    return sum_pool(linear(a, u) * linear(b, v), rank)


def contrast_association(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    """Contrast association units of full rank, h_k = 1/2 sum_ij W_kij (a_i - b_j)^2, equation (5).

    The squared differences are formed once, ``(..., I, J)``, and multiplied by all weights in one matrix
    product: no cancellation, exact zeros where the images match, no negative value for weights >= 0.

    Args:
        a: ``(..., I)``.
        b: ``(..., J)``.
        weight: ``(K, I, J)``, non-negative for the values to be matching errors (not checked).

    Returns:
        ``(..., K)``.

    >>> contrast_association(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]), torch.eye(2)[None])
    tensor([2.])
    """
    _check_weight(a, b, weight)
    squared = (a.unsqueeze(-1) - b.unsqueeze(-2)).square()  # D(a, b) of equation (13): (..., I, J)
    return 0.5 * linear(squared.flatten(-2), weight.flatten(1))


def contrast_association_low_rank(a: Tensor, b: Tensor, u: Tensor, v: Tensor, rank: int = 1) -> Tensor:
    """Contrast association units of rank ``rank``: equation (15), sum-pooled in groups.

    With W_g = sum of u_k v_k^T over the group g,

        h_g = 1/2 [ (W_g 1)·a² + (W_g^T 1)·b² ] - sum_k (u_k·a)(v_k·b),

    so that the squares need one vector per group where the paper's matrix form needs one per rank-one term.
    Both inputs are first centered by a common value, which changes nothing but the rounding.

    Args:
        a: ``(..., I)``.
        b: ``(..., J)``.
        u: ``(K, I)``, non-negative (not checked).
        v: ``(K, J)``, non-negative (not checked).
        rank: how many consecutive rank-one terms make a unit; divides K. 1 gives the paper's h*.

    Returns:
        ``(..., K // rank)``. Non-negative up to rounding for weights >= 0.

    >>> u, v = torch.eye(2), torch.eye(2)
    >>> contrast_association_low_rank(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]), u, v, rank=2)
    tensor([2.])
    """
    _check_factors(a, b, u, v, rank)
    contrast, _, _ = contrast_and_energy(a, b, u, v, rank)
    return contrast


def relative_contrast(a: Tensor, b: Tensor, weight: Tensor, floor: float = 1e-3) -> Tensor:
    """Contrast association in proportion to what could differ: not in the paper, see docs/learning-rule.md.

        r_k = sum_ij W_kij (a_i - b_j)^2 / sum_ij W_kij (a_i^2 + b_j^2 + 2 floor),

    after the middle of the two means has been subtracted from a and b. For weights >= 0 it is between 0 (what the
    unit compares is equal) and 2 (opposite); unrelated inputs give about 1. A common offset changes nothing, a common
    gain only by way of ``floor``, and the size of a unit's weights nothing at all.

    Args:
        a: ``(..., I)``.
        b: ``(..., J)``.
        weight: ``(K, I, J)``, non-negative (not checked).
        floor: added to the mean square that a unit sees, so that blank inputs give 0 instead of 0/0.

    Returns:
        ``(..., K)``.

    >>> a, b = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 3.0])
    >>> relative_contrast(a, b, torch.stack([torch.eye(2), torch.eye(2).flip(0), torch.ones(2, 2)]), floor=0.0)
    tensor([2., 0., 1.])
    """
    _check_weight(a, b, weight)
    _check_floor(floor)
    difference = linear((a.unsqueeze(-1) - b.unsqueeze(-2)).square().flatten(-2), weight.flatten(1))
    a, b = centered(a, b, constant=False)
    energy = a.square().unsqueeze(-1) + b.square().unsqueeze(-2) + 2 * floor  # (..., I, J)
    return difference / linear(energy.flatten(-2), weight.flatten(1))


def relative_contrast_low_rank(
    a: Tensor, b: Tensor, u: Tensor, v: Tensor, rank: int = 1, floor: float = 1e-3
) -> Tensor:
    """:func:`relative_contrast` of rank ``rank``: W_g = sum of u_k v_k^T over the group g.

    It needs the same products as :func:`contrast_association_low_rank`.

    Args:
        a: ``(..., I)``.
        b: ``(..., J)``.
        u: ``(K, I)``, non-negative (not checked).
        v: ``(K, J)``, non-negative (not checked).
        rank: how many consecutive rank-one terms make a unit; divides K.
        floor: added to the mean square that a unit sees.

    Returns:
        ``(..., K // rank)``.

    >>> a, b = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 3.0])
    >>> relative_contrast_low_rank(a, b, torch.eye(2), torch.eye(2), rank=2, floor=0.0)
    tensor([2.])
    """
    _check_factors(a, b, u, v, rank)
    _check_floor(floor)
    contrast, energy, rows = contrast_and_energy(a, b, u, v, rank, constant=False)
    return contrast / (energy + floor * rows.sum(1))


def winner_take_all(h: Tensor) -> Tensor:
    """Winner-take-all competition, equation (6): 1 for the smallest of ``h (..., K)``, 0 for the others.

    Of several equal minima the first one wins, so that exactly one unit responds. The result is flat in h
    and carries no gradient; ``caunet.nn.WinnerTakeAll(straight_through=True)`` uses softmin's.

    >>> winner_take_all(torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]]))
    tensor([[0., 1., 0.],
            [1., 0., 0.]])
    """
    _check_units(h)
    winner = h.argmin(dim=-1, keepdim=True)
    return (winner == torch.arange(h.shape[-1], device=h.device)).to(h.dtype)


def softmin(h: Tensor, temperature: float | Tensor = 1.0, dim: int = -1) -> Tensor:
    """Softmin competition, equation (7): exp(-h_k / T) normalized to sum 1 over the units.

    Args:
        h: ``(..., K)``.
        temperature: T > 0; the paper's is 1. Towards 0 it becomes winner-take-all.
        dim: the dimension of the units.

    Returns:
        ``(..., K)``.

    >>> softmin(torch.tensor([0.0, 0.0, 1e4]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    _check_units(h, dim)
    if not isinstance(temperature, Tensor) and not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    unscaled = not isinstance(temperature, Tensor) and temperature == 1
    return torch.softmax(-h if unscaled else h / -temperature, dim=dim)


def sum_pool(h: Tensor, size: int) -> Tensor:
    """Sum consecutive groups of ``size`` over the last dimension (Section III-C): ``(..., K // size)``.

    >>> sum_pool(torch.tensor([1.0, 2.0, 3.0, 4.0]), size=2)
    tensor([3., 7.])
    """
    if not is_tracing():
        _check_groups(h.shape[-1], "the last dimension of h", size, "size")
    return pooled(h, size)


def _check_leading(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """The shape that all dimensions but the last broadcast to."""
    if is_tracing():
        both: list[Tensor] = torch.broadcast_tensors(a[..., 0], b[..., 0])  # type: ignore[no-untyped-call]
        return tuple(both[0].shape)
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"a and b need at least one dimension, got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.shape[:-1] == b.shape[:-1]:
        return tuple(a.shape[:-1])
    for m, n in zip(a.shape[-2::-1], b.shape[-2::-1], strict=False):
        if m != n and m != 1 and n != 1:
            raise ValueError(
                f"the leading dimensions of a and b must broadcast, got {tuple(a.shape)} and {tuple(b.shape)}"
            )
    return tuple(torch.broadcast_shapes(a.shape[:-1], b.shape[:-1]))  # type: ignore[no-untyped-call]


def _check_weight(a: Tensor, b: Tensor, weight: Tensor) -> None:
    if is_tracing():
        return
    _check_leading(a, b)
    if weight.ndim != 3 or weight.shape[1] != a.shape[-1] or weight.shape[2] != b.shape[-1]:
        raise ValueError(
            f"weight must be (K, {a.shape[-1]}, {b.shape[-1]}) for these a and b, got {tuple(weight.shape)}"
        )


def _check_factors(a: Tensor, b: Tensor, u: Tensor, v: Tensor, rank: int) -> None:
    if is_tracing():
        return
    _check_leading(a, b)
    for name, factor, of, size in (("u", u, "a", a.shape[-1]), ("v", v, "b", b.shape[-1])):
        if factor.ndim != 2 or factor.shape[1] != size:
            raise ValueError(f"{name} must be (K, {size}) for this {of}, got {tuple(factor.shape)}")
    if u.shape[0] != v.shape[0]:
        raise ValueError(f"u and v must have as many rows, got {u.shape[0]} and {v.shape[0]}")
    _check_groups(u.shape[0], "the rows of u and v", rank, "rank")


def _check_groups(total: int, what: str, size: int, name: str) -> None:
    if size < 1 or total % size:
        raise ValueError(f"{name} must be a positive divisor of {what} ({total}), got {size}")


def _check_floor(floor: float) -> None:
    if not floor >= 0:
        raise ValueError(f"floor must be at least 0, got {floor}")


def _check_units(h: Tensor, dim: int = -1) -> None:
    if h.ndim == 0 or (not is_tracing() and h.shape[dim] == 0):
        where = "last dimension" if dim == -1 else f"dimension {dim}"
        raise ValueError(f"h must hold at least one unit in its {where}, got shape {tuple(h.shape)}")
