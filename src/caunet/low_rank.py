"""Low-rank contrast in groups of rank-one terms: what contrast association units compute, and its gradients.

With W_g = sum of u_k v_k^T over a group g of ``rank`` terms, the units need

    energy_g = 1/2 [ (W_g 1)·a² + (W_g^T 1)·b² ]    and    products_g = a^T W_g b = sum_k (u_k·a)(v_k·b),

and neither needs W_g itself. Composed of torch's operations, the gradients that autograd
derives are a dozen passes over arrays of the size of the weights. The custom function below needs half of them, and a
training step that is not compiled is a tenth faster. The composition stays: for everything that is not a plain backward
pass (compiling, ``torch.func``, forward mode, autocast, gradients of gradients, meta tensors), and as the reference in
the tests.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from caunet import torch_private

__all__ = ["centered", "contrast_and_energy", "is_tracing", "pooled", "row_sums"]


def contrast_and_energy(
    a: Tensor, b: Tensor, u: Tensor, v: Tensor, rank: int, constant: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Contrast 1/2 sum_ij W_gij (a_i - b_j)², energy 1/2 sum_ij W_gij (a_i² + b_j²) and W_g 1 of every group.

    Args:
        a: ``(..., I)``; a and b are :func:`centered` first.
        b: ``(..., J)``; the leading dimensions broadcast.
        u: ``(K, I)``.
        v: ``(K, J)``.
        rank: how many consecutive terms make a group; divides K.
        constant: as in :func:`centered`.

    Returns:
        ``(..., K // rank)``, ``(..., K // rank)`` and ``(K // rank, I)``.

    >>> contrast_and_energy(torch.ones(1, 2), -torch.ones(1, 3), torch.ones(4, 2), torch.ones(4, 3), rank=2)  # W_g = 2
    (tensor([[24., 24.]]), tensor([[12., 12.]]), tensor([[6., 6.],
            [6., 6.]]))
    """
    if not _plain_backward(a, b, u, v) or a.shape[:-1] != b.shape[:-1]:
        return _composed(a, b, u, v, rank, constant)
    flat = (x.reshape(-1, x.shape[-1]) for x in (a, b))
    contrast, energy, rows = _LowRankContrast.apply(*flat, u, v, rank, constant)  # type: ignore[no-untyped-call]
    shape = (*a.shape[:-1], len(rows))
    return contrast.reshape(shape), energy.reshape(shape), rows


def centered(a: Tensor, b: Tensor, constant: bool = True) -> tuple[Tensor, Tensor]:
    """``a`` and ``b`` minus the middle of their two means.

    Args:
        a, b: ``(..., I)`` and ``(..., J)``; the leading dimensions broadcast.
        constant: treat the middle as a constant in every derivative, as is exact where only a - b matters.

    >>> centered(torch.tensor([1.0, 3.0]), torch.tensor([6.0]))
    (tensor([-3., -1.]), tensor([2.]))
    """
    middle = _middle(a.detach(), b.detach()) if constant else _middle(a, b)
    return a - middle, b - middle


def _middle(a: Tensor, b: Tensor) -> Tensor:
    if not is_tracing() and a.shape == b.shape:
        return torch.cat((a, b), -1).mean(-1, keepdim=True)
    return 0.5 * (a.mean(-1, keepdim=True) + b.mean(-1, keepdim=True))


def pooled(h: Tensor, size: int) -> Tensor:
    """Sums of consecutive groups of ``size`` over the last dimension.

    >>> pooled(torch.tensor([1.0, 2.0, 3.0, 4.0]), 2)
    tensor([3., 7.])
    """
    if size == 1:
        return h
    shape = (*h.shape[:-1], h.shape[-1] // size)
    if h.device.type == "cpu":
        # Sums over a short last dimension are not vectorized; a product with ones takes a quarter of the time.
        return h.reshape(-1, size).mv(h.new_ones(size)).reshape(shape)
    return h.reshape(*shape, size).sum(-1)


def _composed(
    a: Tensor, b: Tensor, u: Tensor, v: Tensor, rank: int, constant: bool
) -> tuple[Tensor, Tensor, Tensor]:
    a, b = centered(a, b, constant)
    rows, columns = row_sums(u, v.sum(1), rank), row_sums(v, u.sum(1), rank)
    if a.ndim == b.ndim == 2 and _learning(a, b, u, v):
        # Units first in memory, for the reasons given at _LowRankContrast.
        energy = 0.5 * (torch.mm(rows, a.square().t()) + torch.mm(columns, b.square().t()))
        products = torch.mm(u, a.t()) * torch.mm(v, b.t())
        contrast = energy - products.view(len(rows), rank, products.shape[1]).sum(1)
        return _transposed(contrast), _transposed(energy), rows
    energy = 0.5 * (linear(a.square(), rows) + linear(b.square(), columns))
    return energy - pooled(linear(a, u) * linear(b, v), rank), energy, rows


def _transposed(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # Dynamo does not take functions that have a jvp
        return x.t().contiguous()
    transposed: Tensor = _Transposed.apply(x)  # type: ignore[no-untyped-call]
    return transposed


class _Transposed(torch.autograd.Function):
    """The transpose of a matrix as a copy, and of its gradient likewise, so that both are read row by row."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.t().contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _transposed(grad)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return _transposed(tangent)


def row_sums(u: Tensor, sums: Tensor, rank: int) -> Tensor:
    """W_g 1 = sum over the group of u_k (v_k·1): ``(K // rank, I)``, without building W_g."""
    if rank == 1:
        return u * sums.unsqueeze(1)
    groups = u.shape[0] // rank
    # A batched product, for it needs no (K, I) intermediate: measured faster than multiply and sum.
    return torch.bmm(sums.reshape(groups, 1, rank), u.reshape(groups, rank, u.shape[1])).squeeze(1)


def _learning(*tensors: Tensor) -> bool:
    """Whether gradients will be needed. (``torch.jit.trace`` records the same graph with and without them.)"""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors) and not is_tracing()


def is_tracing() -> bool:
    """Whether ``torch.jit.trace`` is recording: sizes are then tensors, and comparing them would fix them."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return tracing


def _plain_backward(*tensors: Tensor) -> bool:
    """Whether the result needs no more than one backward pass of torch's own engine."""
    return (
        _learning(*tensors)
        and not torch.compiler.is_compiling()
        and not tensors[0].is_meta
        and not torch_private.transforms_active()
        and not torch.is_autocast_enabled(tensors[0].device.type)
        and not torch_private.forward_mode_active()
    )


class _LowRankContrast(torch.autograd.Function):
    """:func:`_composed` for ``a (N, I)`` and ``b (N, J)``.

    Everything is stored units first, ``(K, N)``: groups are then sums of whole rows, and two threads share the
    products evenly, which they do not for ``(N, K)``. And x, which is [-a, 0, b, 0], pads a and b to whole vectors:
    products over the pixels of a patch are a fifth faster with 128 of them instead of 121.
    """

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, u: Tensor, v: Tensor, rank: int, constant: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        count, size_a, size_b = len(a), a.shape[1], b.shape[1]
        left = _whole_vectors(size_a)
        x = a.new_zeros(count, left + _whole_vectors(size_b))
        x_t, middle = x.t(), _middle(a, b)
        minus_a, own_b = x_t.narrow(0, 0, size_a), x_t.narrow(0, left, size_b)
        torch.sub(middle.t(), a.t(), out=minus_a)
        torch.sub(b.t(), middle.t(), out=own_b)
        squares = x * x
        squares_t = squares.t()

        sums_u, sums_v = u.sum(1), v.sum(1)
        rows, columns = row_sums(u, sums_v, rank), row_sums(v, sums_u, rank)
        energy = torch.mm(rows, squares_t.narrow(0, 0, size_a))
        energy.addmm_(columns, squares_t.narrow(0, left, size_b), beta=0.5, alpha=0.5)
        p, q = torch.mm(u, minus_a), torch.mm(v, own_b)
        contrast = (p * q).view(len(rows), rank, count).sum(1).add_(energy)

        ctx.save_for_backward(a, b, u, v, x, squares, sums_u, sums_v, rows, columns, p, q)
        ctx.rank, ctx.constant = rank, constant
        ctx.set_materialize_grads(False)
        return contrast.t().contiguous(), energy.t(), rows

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        a, b, u, v, x, squares, sums_u, sums_v, rows, columns, p, q = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *_differentiable(a, b, u, v, ctx.rank, ctx.constant, grads), None, None
        d_contrast, d_energy, d_rows_given = grads
        count, size_a, size_b, rank, groups = len(a), a.shape[1], b.shape[1], ctx.rank, len(rows)
        left = _whole_vectors(size_a)

        d = p.new_zeros(groups, count) if d_contrast is None else d_contrast.t().contiguous()
        d_energy = d if d_energy is None else d + d_energy.t()
        # The gradient of a unit is that of each product in its sum.
        d = d.unsqueeze(1)
        dp, dq = ((d * t.view(groups, rank, count)).view(p.shape) for t in (q, p))
        # Twice the gradients of the sums W_g 1 and W_g^T 1; the factor 1/2 is applied where they are used, at no cost.
        d_sums = torch.mm(d_energy, squares).unsqueeze(1)
        d_rows, d_columns = d_sums.narrow(2, 0, size_a), d_sums.narrow(2, left, size_b)
        if d_rows_given is not None:
            d_rows.add_(d_rows_given.unsqueeze(1), alpha=2)

        def factor(
            d: Tensor, x: Tensor, d_own: Tensor, sums: Tensor, other: Tensor, d_other: Tensor
        ) -> Tensor:
            """Through the products, this factor's own sums W_g 1, and its share in the sums of the other."""
            size = d_own.shape[2]
            grad = torch.mm(d, x).view(groups, rank, -1).narrow(2, 0, size)
            grad = torch.addcmul(grad, d_own, sums.view(groups, rank, 1), value=0.5)
            grad.add_((other.reshape(groups, rank, -1) * d_other).sum(2, keepdim=True), alpha=0.5)
            return grad.view(-1, size)

        da = db = du = dv = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            da = torch.mm(dp.t(), u).addcmul_(torch.mm(d_energy.t(), rows), x.narrow(1, 0, size_a)).neg_()
            db = torch.mm(dq.t(), v).addcmul_(torch.mm(d_energy.t(), columns), x.narrow(1, left, size_b))
            if not ctx.constant:
                d_middle = 0.5 * (da.sum(1, keepdim=True) + db.sum(1, keepdim=True))
                da, db = da - d_middle / size_a, db - d_middle / size_b
        if ctx.needs_input_grad[2]:
            du = factor(dp, x.narrow(1, 0, left), d_rows, sums_v, v, d_columns)
        if ctx.needs_input_grad[3]:
            dv = factor(dq, x.narrow(1, left, x.shape[1] - left), d_columns, sums_u, u, d_rows)
        return da, db, du, dv, None, None


def _whole_vectors(size: int) -> int:
    """``size``, rounded up to a multiple of 16."""
    return size + -size % 16


def _differentiable(
    a: Tensor, b: Tensor, u: Tensor, v: Tensor, rank: int, constant: bool, grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients through the composition, which can be differentiated again."""
    inputs, outputs = (a, b, u, v), _composed(a, b, u, v, rank, constant)
    given = [(y, dy) for y, dy in zip(outputs, grads, strict=True) if dy is not None]
    if not given:
        return [None] * len(inputs)
    ys, dys = zip(*given, strict=True)
    wanted = [t for t in inputs if t.requires_grad]
    found = iter(torch.autograd.grad(ys, wanted, dys, create_graph=True, allow_unused=True))
    return [next(found) if t.requires_grad else None for t in inputs]
