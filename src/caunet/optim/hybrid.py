"""One optimizer for a whole network: a non-negative rule where weights need it, Adam for all others."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from caunet.optim.base import RuleOptimizer
from caunet.optim.rules import RULES
from caunet.optim.split import split_parameters

__all__ = ["HybridOptimizer"]

_Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]]


class HybridOptimizer(RuleOptimizer):
    """Drives a non-negative rule and Adam as one optimizer: one step, one state, any torch scheduler.

    There is a parameter group for each part that is not empty; ``group["rule"]`` tells them apart, and
    schedulers scale the learning rate of each.

    Args:
        nonnegative: weights that must stay non-negative (may be empty), as from :func:`split_parameters`.
        free: all other weights (may be empty).
        rule: ``"multiplicative"`` (the paper's), ``"multiplicative-adam"`` or ``"projection"``.
        lr: learning rate of the non-negative part; the rule's default when None.
        free_lr: learning rate of Adam.
        adam_reset: forget Adam's moments at every step, as the authors' scripts did.
        foreach: as in :class:`MultiplicativeUpdate`.
        options: further options of ``rule``, such as ``mix=0.04`` for ``"multiplicative-adam"``.

    >>> import torch
    >>> gain, bias = nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(2))
    >>> optimizer = HybridOptimizer([gain], [bias], lr=0.01, free_lr=0.1)
    >>> (gain * 3 + bias).sum().backward()
    >>> optimizer.step()
    >>> bias.detach(), [group["rule"] for group in optimizer.param_groups]
    (tensor([-0.1000, -0.1000]), ['multiplicative', 'adam'])
    """

    def __init__(
        self,
        nonnegative: _Parameters,
        free: _Parameters,
        *,
        rule: str = "multiplicative",
        lr: float | None = None,
        free_lr: float = 0.005,
        adam_reset: bool = False,
        foreach: bool | None = None,
        **options: Any,
    ) -> None:
        known = [name for name, r in RULES.items() if r.nonnegative]
        if rule not in known:
            raise ValueError(f"rule must be one of {', '.join(map(repr, known))}, got {rule!r}")
        if unknown := set(options) - set(RULES[rule].defaults):
            raise TypeError(f"rule {rule!r} has no option {', '.join(sorted(unknown))}")
        if lr is not None:
            options["lr"] = lr
        free_rule = "adam-reset" if adam_reset else "adam"
        parts = [
            {**RULES[rule].defaults, **options, "params": list(nonnegative), "rule": rule},
            {**RULES[free_rule].defaults, "lr": free_lr, "params": list(free), "rule": free_rule},
        ]
        # Schedulers that cycle the momentum want betas in every group, whether its rule uses them or not.
        defaults = {"lr": free_lr, "betas": RULES["adam"].defaults["betas"]}
        super().__init__([part for part in parts if part["params"]], rule, defaults, foreach)

    @classmethod
    def for_model(cls, model: nn.Module, **options: Any) -> "HybridOptimizer":
        """Build it for every parameter of ``model``, which its modules divide (:func:`split_parameters`).

        >>> HybridOptimizer.for_model(nn.Linear(2, 1), free_lr=0.01).param_groups[0]["rule"]
        'adam'
        """
        return cls(*split_parameters(model, named=True), **options)
