"""The multiplicative update for lists of tensors: the steps of :mod:`caunet.optim.kernels`, list by list.

On a GPU one launch serves all tensors of a list. The operations and their order are those of the
single-tensor kernel, so the results are the same bits.
"""

import math

import torch
from torch import Tensor

__all__ = ["multiplicative_foreach_"]


def multiplicative_foreach_(
    weights: list[Tensor], grads: list[Tensor], *, lr: float | Tensor, eps: float
) -> None:
    """W <- W ∘ (∇-/∇+)^η for each weight, in place; see :func:`caunet.optim.kernels.multiplicative_`.

    >>> w = [torch.tensor([2.0]), torch.tensor([2.0, 0.0])]
    >>> multiplicative_foreach_(w, [torch.tensor([1.0]), torch.tensor([-1.0, 1.0])], lr=0.005, eps=1e-20)
    >>> w
    [tensor([1.5887]), tensor([2.5179, 0.0000])]
    """
    exponents = torch._foreach_abs(grads)
    torch._foreach_add_(exponents, eps)
    torch._foreach_log_(exponents)
    torch._foreach_sub_(exponents, math.log(eps))
    torch._foreach_mul_(exponents, torch._foreach_sign(grads))
    torch._foreach_mul_(exponents, -lr)
    torch._foreach_exp_(exponents)
    limits = [torch.finfo(w.dtype) for w in weights]
    floors = torch._foreach_minimum(weights, [l.tiny for l in limits])
    torch._foreach_mul_(weights, exponents)
    torch._foreach_minimum_(weights, [l.max for l in limits])
    torch._foreach_maximum_(weights, floors)
