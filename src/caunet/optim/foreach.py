"""The multiplicative rules for lists of tensors: the steps of :mod:`caunet.optim.kernels`, list by list.

On a GPU one launch serves all tensors of a list. The operations and their order are those of the
single-tensor kernels, so the results are the same bits.
"""

import math

import torch
from torch import Tensor

from caunet.torch_private import foreach

__all__ = ["multiplicative_adam_foreach_", "multiplicative_foreach_"]

Tensors = list[Tensor]


def multiplicative_foreach_(weights: Tensors, grads: Tensors, *, lr: float | Tensor, eps: float) -> None:
    """W <- W ∘ (∇-/∇+)^η for each weight, in place; see :func:`caunet.optim.kernels.multiplicative_`.

    >>> w = [torch.tensor([2.0]), torch.tensor([2.0, 0.0])]
    >>> multiplicative_foreach_(w, [torch.tensor([1.0]), torch.tensor([-1.0, 1.0])], lr=0.005, eps=1e-20)
    >>> w
    [tensor([1.5887]), tensor([2.5179, 0.0000])]
    """
    powers = _log2_ratios(grads, eps)
    foreach("mul_")(powers, -lr)
    _scale_(weights, powers)


def multiplicative_adam_foreach_(
    weights: Tensors,
    grads: Tensors,
    means: Tensors,
    squares: Tensors,
    *,
    lr: float | Tensor,
    betas: tuple[float, float],
    corrections: tuple[float, float],
    eps: float,
    mix: float,
    mix_eps: float,
) -> None:
    """:func:`caunet.optim.kernels.multiplicative_adam_` for each weight, all at the same step."""
    limits = [math.sqrt(torch.finfo(m.dtype).max) / 2 for m in means]
    scaled = list(foreach("mul")(weights, grads))
    foreach("maximum_")(scaled, [-l for l in limits])
    foreach("minimum_")(scaled, limits)
    foreach("lerp_")(means, scaled, 1 - betas[0])
    foreach("mul_")(squares, betas[1])
    foreach("addcmul_")(squares, scaled, scaled, 1 - betas[1])
    roots = list(foreach("sqrt")(squares))
    foreach("div_")(roots, corrections[1])
    foreach("add_")(roots, eps)
    directions = list(foreach("div")(means, roots))
    foreach("div_")(directions, corrections[0])
    if mix:
        foreach("add_")(directions, _log2_ratios(grads, mix_eps), alpha=mix * math.log(2))
    foreach("mul_")(directions, -lr / math.log(2))
    _scale_(weights, directions)


def _log2_ratios(grads: Tensors, eps: float) -> Tensors:
    ratios = list(foreach("abs")(grads))
    foreach("add_")(ratios, eps)
    foreach("log2_")(ratios)
    foreach("sub_")(ratios, math.log2(eps))
    foreach("mul_")(ratios, list(foreach("sign")(grads)))
    return ratios


def _scale_(weights: Tensors, powers: Tensors) -> None:
    limits = [torch.finfo(w.dtype) for w in weights]
    for power in powers:
        power.exp2_()  # which has no form for lists
    foreach("mul_")(powers, weights)
    foreach("minimum_")(powers, [l.max for l in limits])
    foreach("minimum_")(weights, [l.tiny for l in limits])
    foreach("maximum_")(weights, powers)
