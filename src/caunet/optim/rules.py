"""The learning rules by name: their options, what they keep, and one step on a list of parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from caunet import torch_private
from caunet.optim import kernels
from caunet.optim.foreach import multiplicative_adam_foreach_, multiplicative_foreach_

__all__ = ["MOMENTS", "RULES", "Rule", "apply_rule", "corrections", "hyperparameters"]

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Rule:
    """How one kind of weight learns.

    Attributes:
        kernel: in-place update of one tensor, from :mod:`caunet.optim.kernels`.
        defaults: the options of a parameter group and their values when nothing is said.
        nonnegative: whether the weights must be, and are kept, non-negative.
        moments: whether two moments and a step count are kept for each parameter.
    """

    kernel: Callable[..., None]
    defaults: dict[str, Any] = field(default_factory=dict)
    nonnegative: bool = False
    moments: bool = False


_BETAS = (0.9, 0.999)

RULES: dict[str, Rule] = {
    "multiplicative": Rule(kernels.multiplicative_, {"lr": 0.005, "eps": 1e-20}, nonnegative=True),
    "multiplicative-adam": Rule(
        kernels.multiplicative_adam_,
        {"lr": 0.05, "betas": _BETAS, "eps": 1e-12, "mix": 0.0, "mix_eps": 1e-20},
        nonnegative=True,
        moments=True,
    ),
    "projection": Rule(
        kernels.projection_, {"lr": 0.005, "betas": _BETAS, "eps": 1e-8}, nonnegative=True, moments=True
    ),
    "adam": Rule(kernels.adam_, {"lr": 0.005, "betas": _BETAS, "eps": 1e-8}, moments=True),
    "adam-reset": Rule(kernels.adam_reset_, {"lr": 0.005, "eps": 1e-8}),
}


def hyperparameters(group: dict[str, Any]) -> dict[str, Any]:
    """The options of a parameter group that its kernel takes."""
    return {key: group[key] for key in RULES[group["rule"]].defaults}


def corrections(step: int, betas: tuple[float, float]) -> tuple[float, float]:
    """Adam's bias corrections (1 - β1^t, √(1 - β2^t)) at step t = 1, 2, ...

    >>> [round(c, 4) for c in corrections(1, (0.9, 0.999))]
    [0.1, 0.0316]
    """
    return 1 - betas[0] ** step, (1 - betas[1] ** step) ** 0.5


def apply_rule(
    group: dict[str, Any], params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict[str, Any]]
) -> None:
    """One step of ``group["rule"]`` on every parameter, in place. The gradients have been checked."""
    rule, options = RULES[group["rule"]], hyperparameters(group)
    if not rule.moments:
        _advance(states)
        if group["rule"] == "multiplicative" and _use_foreach(group["foreach"], params):
            multiplicative_foreach_(list(params), list(grads), **options)
            return
        for param, grad in zip(params, grads, strict=True):
            rule.kernel(param, grad, **options)
    elif (
        group["rule"] == "multiplicative-adam"
        and _use_foreach(group["foreach"], params)
        and _same_step(states)
    ):
        _advance(states)
        (bias,) = _biases(states[:1], options["betas"], params)
        means, squares = ([state[key] for state in states] for key in MOMENTS)
        multiplicative_adam_foreach_(list(params), list(grads), means, squares, corrections=bias, **options)
    elif (
        rule.kernel is kernels.adam_
        and _can_fuse(params, grads, states)
        and (fused := torch_private.fused_adam())
    ):
        _advance(states)
        means, squares = ([state[key] for state in states] for key in MOMENTS)
        # Read only: one tensor serves all.
        step = torch.tensor(float(states[0]["step"]), device=params[0].device)
        fused(params, grads, means, squares, step, float(options["lr"]), options["betas"], options["eps"])
    else:
        _advance(states)
        biases = _biases(states, options["betas"], params)
        for param, grad, state, bias in zip(params, grads, states, biases, strict=True):
            moments = (state[key] for key in MOMENTS)
            rule.kernel(param, grad, *moments, corrections=bias, **options)


def _use_foreach(wanted: bool | None, params: Sequence[Tensor]) -> bool:
    """Lists of kernels pay where launching them is slow; on a CPU tensor after tensor stays in the cache."""
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in params):
        return False
    asked = bool(wanted) if wanted is not None else all(p.is_cuda for p in params)
    return asked and torch_private.foreach_works()


def _can_fuse(params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict[str, Any]]) -> bool:
    """Torch's one-pass Adam takes dense tensors of one device and type, all at the same step."""
    dtype, device = params[0].dtype, params[0].device
    return (
        dtype in (torch.float32, torch.float64)
        and device.type in ("cpu", "cuda")
        and not torch.compiler.is_compiling()
        and all(p.is_contiguous() and p.dtype == dtype and p.device == device for p in params)
        and all(g.is_contiguous() for g in grads)
        and _same_step(states)
    )


def _same_step(states: Sequence[dict[str, Any]]) -> bool:
    return all(state["step"] == states[0]["step"] for state in states)


def _advance(states: Sequence[dict[str, Any]]) -> None:
    """Count a step in each state."""
    # torch.compile would make a symbol of the count, and code that does not know it (torch 2.13).
    if torch.compiler.is_compiling():
        _advance_outside(states)
        return
    for state in states:
        state["step"] += 1


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _advance_outside(states: Sequence[dict[str, Any]]) -> None:
    for state in states:
        state["step"] += 1


def _biases(
    states: Sequence[dict[str, Any]], betas: tuple[float, float], params: Sequence[Tensor]
) -> list[tuple[Any, Any]]:
    """Adam's bias corrections for each state; as tensors for ``torch.compile``, which would compile numbers in."""
    if torch.compiler.is_compiling():
        made: list[tuple[Any, Any]] = _biases_outside(states, betas, params)
        return made
    return [corrections(state["step"], betas) for state in states]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _biases_outside(
    states: Sequence[dict[str, Any]], betas: tuple[float, float], params: Sequence[Tensor]
) -> list[tuple[Any, Any]]:
    made = []
    for state, param in zip(states, params, strict=False):
        dtype, device = kernels.compute_dtype(param.dtype), param.device
        first, second = (
            torch.tensor(number, dtype=dtype, device=device) for number in corrections(state["step"], betas)
        )
        made.append((first, second))
    return made
