"""The learning rules as in-place functions on one weight and its gradient.

Every rule is written once here, for one tensor; :mod:`caunet.optim.foreach` repeats the hot one for lists,
and :class:`caunet.training.update.Update` traces these same functions into its compiled update. Learning
rates and bias corrections may therefore be Python numbers or 0-d tensors (which do not cause a
recompilation).

Differences from the paper's equation (mul_update):

* (∇-/∇+)^η is computed as 2^(-η sign(g) (log2(|g| + ε) - log2 ε)): the same number with one logarithm and one
  exponential, and no division that overflows in float32.
* Weights are held in [tiny, max] of their type, tiny being the smallest normal number, so that no run of
  gradients makes one vanish or overflow. A weight that is exactly 0 stays 0, as in the paper's formula.
* bfloat16 and float16 weights are updated in float32 and rounded once.
"""

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import Tensor

from caunet.optim.powers import exp2_float32, limited_float32, log2_float32

__all__ = [
    "Number",
    "adam_",
    "adam_reset_",
    "compute_dtype",
    "multiplicative_",
    "multiplicative_adam_",
    "projection_",
    "to_be_compiled",
]

Number = float | Tensor

_HALF = (torch.float16, torch.bfloat16)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which a weight of type ``dtype`` is updated, and in which its moments are kept.

    >>> compute_dtype(torch.bfloat16), compute_dtype(torch.float64)
    (torch.float32, torch.float64)
    """
    return torch.float32 if dtype in _HALF else dtype


def multiplicative_(weight: Tensor, grad: Tensor, *, lr: Number, eps: float) -> None:
    """W <- W ∘ (∇-/∇+)^η, the paper's multiplicative update, in place.

    Args:
        weight: non-negative weights, any shape.
        grad: dE/dW, same shape, finite.
        lr: η.
        eps: ε.

    >>> w = torch.tensor([2.0, 2.0, 2.0, 0.0])
    >>> multiplicative_(w, torch.tensor([1.0, -1.0, 0.0, 1.0]), lr=0.005, eps=1e-20)
    >>> w
    tensor([1.5887, 2.5179, 2.0000, 0.0000])
    """
    _scale_(weight, _log2_ratio(grad.to(compute_dtype(weight.dtype)), eps).mul_(-lr))


def multiplicative_adam_(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    lr: Number,
    betas: tuple[float, float],
    corrections: tuple[Number, Number],
    eps: float,
    mix: float = 0.0,
    mix_eps: float = 1e-20,
) -> None:
    """W <- W ∘ exp(-α [ m / (√v + eps) + mix sign(g) log1p(|g| / mix_eps) ]), in place.

    m and v are Adam's bias-corrected moments of W ∘ g, the gradient with respect to log W. With ``mix`` = 0
    this is Adam on the logarithms; otherwise both rules act in one exponent, with η = α mix.

    Args:
        weight, grad: as in :func:`multiplicative_`.
        mean, square: the moments, in :func:`compute_dtype` of the weight's type; updated in place.
        corrections: (1 - β1^t, √(1 - β2^t)).

    >>> w, m, v = torch.tensor([1.0]), torch.zeros(1), torch.zeros(1)
    >>> multiplicative_adam_(w, torch.tensor([3.0]), m, v, lr=0.1, betas=(0.9, 0.999),
    ...                      corrections=(0.1, 0.001**0.5), eps=1e-12)
    >>> w  # exp(-0.1): the first step of Adam has length lr
    tensor([0.9048])
    """
    grad = grad.to(mean.dtype)
    # Squares of larger numbers would not fit; a gradient of 1e19 has no finer meaning anyway.
    limit = math.sqrt(torch.finfo(mean.dtype).max) / 2
    direction = _moments_((weight * grad).clamp_(-limit, limit), mean, square, betas, corrections, eps)
    if mix:
        direction.add_(_log2_ratio(grad, mix_eps), alpha=mix * math.log(2))
    _scale_(weight, direction.mul_(-lr / math.log(2)))


def adam_(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    lr: Number,
    betas: tuple[float, float],
    corrections: tuple[Number, Number],
    eps: float,
) -> None:
    """W <- W - α m / (√v + eps), Adam, in place; arguments as in :func:`multiplicative_adam_`.

    >>> w, m, v = torch.tensor([1.0]), torch.zeros(1), torch.zeros(1)
    >>> adam_(w, torch.tensor([3.0]), m, v, lr=0.1, betas=(0.9, 0.99), corrections=(0.1, 0.1), eps=1e-8)
    >>> w
    tensor([0.9000])
    """
    _subtract_(weight, _moments_(grad.to(mean.dtype), mean, square, betas, corrections, eps).mul_(lr))


def projection_(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    lr: Number,
    betas: tuple[float, float],
    corrections: tuple[Number, Number],
    eps: float,
) -> None:
    """Adam, then the nearest non-negative weights (which the paper found slow); see :func:`adam_`."""
    adam_(weight, grad, mean, square, lr=lr, betas=betas, corrections=corrections, eps=eps)
    weight.clamp_(min=0)


def adam_reset_(weight: Tensor, grad: Tensor, *, lr: Number, eps: float) -> None:
    """W <- W - α g / (|g| + eps), in place: Adam that forgets its moments at every step.

    >>> w = torch.tensor([1.0, 1.0])
    >>> adam_reset_(w, torch.tensor([3.0, -1e-8]), lr=0.1, eps=1e-8)
    >>> w
    tensor([0.9000, 1.0500])
    """
    grad = grad.to(compute_dtype(weight.dtype))
    _subtract_(weight, grad.div(grad.abs().add_(eps)).mul_(lr))


def _log2_ratio(grad: Tensor, eps: float) -> Tensor:
    """log2(∇+/∇-) = sign(g) log2(1 + |g|/ε), in a form in which |g|/ε need not be representable."""
    size = grad.abs().add_(eps)
    logarithm = log2_float32(size) if _written_out(size) else size.log2_()
    return logarithm.sub_(math.log2(eps)).mul_(grad.sign())


def _moments_(
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    betas: tuple[float, float],
    corrections: tuple[Number, Number],
    eps: float,
) -> Tensor:
    """Update Adam's moments in place and return m̂ / (√v̂ + eps)."""
    mean.lerp_(grad, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    return mean.div(square.sqrt().div_(corrections[1]).add_(eps)).div_(corrections[0])


def _scale_(weight: Tensor, power: Tensor) -> None:
    """weight <- weight * 2^power, in [tiny, max] except where it is 0; overwrites ``power``.

    Base 2 because exp2 takes half the time of exp.
    """
    if _written_out(power) and weight.dtype == torch.float32:
        weight.copy_(limited_float32(exp2_float32(power) * weight, weight))
        return
    limits = torch.finfo(weight.dtype)
    scaled = power.exp2_().mul_(weight).to(weight.dtype)
    # min(w, tiny) is tiny for every normal weight and 0 for a weight of 0, which so stays 0.
    torch.clamp(scaled, min=weight.clamp_(max=limits.tiny), max=weight.new_full((), limits.max), out=weight)


_TO_BE_COMPILED = ContextVar("to_be_compiled", default=False)


@contextlib.contextmanager
def to_be_compiled() -> Iterator[None]:
    """Inside it, rules are traced into a graph that will be compiled: they take the forms that are faster there."""
    token = _TO_BE_COMPILED.set(True)
    try:
        yield
    finally:
        _TO_BE_COMPILED.reset(token)


def _written_out(values: Tensor) -> bool:
    """Whether powers are better written out than called: where they are compiled into one loop on a CPU."""
    compiled = torch.compiler.is_compiling() or _TO_BE_COMPILED.get()
    return compiled and values.dtype == torch.float32 and values.device.type == "cpu"


def _subtract_(weight: Tensor, change: Tensor) -> None:
    if weight.dtype == change.dtype:
        weight.sub_(change)
    else:
        weight.copy_(weight - change)
