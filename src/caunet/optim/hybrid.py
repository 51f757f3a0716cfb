"""One optimizer for a whole network: a non-negative rule where weights need it, Adam for all others."""

import weakref
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
        # What is added later takes the same rules and options, by kind of weight: non-negative, free.
        self._options: list[dict[str, Any]] = [
            {**RULES[rule].defaults, **options, "rule": rule},
            {**RULES[free_rule].defaults, "lr": free_lr, "rule": free_rule},
        ]
        self._model: weakref.ref[nn.Module] | None = None
        parts = [{"params": list(nonnegative), "rule": rule}, {"params": list(free), "rule": free_rule}]
        # Schedulers that cycle the momentum want betas in every group, whether its rule uses them or not.
        defaults = {"lr": free_lr, "betas": RULES["adam"].defaults["betas"]}
        super().__init__([part for part in parts if part["params"]], free_rule, defaults, foreach)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; options that are not given are those this optimizer was made with.

        Without ``"rule"`` the weights learn by Adam, except those that a module of the model this optimizer was made
        for (:meth:`for_model`) declares non-negative: they become a group of their own, with the rule for such weights.

        >>> import torch
        >>> optimizer = HybridOptimizer([nn.Parameter(torch.ones(2))], [], free_lr=0.1)
        >>> optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
        >>> optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))], "rule": "multiplicative"})
        >>> [(group["rule"], group["lr"]) for group in optimizer.param_groups]
        [('multiplicative', 0.005), ('adam', 0.1), ('multiplicative', 0.005)]
        """
        param_group = {**param_group, "params": self._named(param_group["params"])}
        parts = [param_group] if "rule" in param_group else self._divide(param_group)
        before = len(self.param_groups)
        try:
            for part in parts:
                known: dict[str, Any] = next((o for o in self._options if o["rule"] == part["rule"]), {})
                super().add_param_group({**known, **part})
        except Exception:
            del self.param_groups[before:]
            raise

    def _named(self, params: Any) -> list[Any]:
        """With names if the other groups have them (torch wants all or none), without if they have none."""
        listed = [params] if isinstance(params, Tensor) else list(params)
        if not self.param_groups:
            return listed
        if "param_names" not in self.param_groups[0]:
            return [entry[1] if isinstance(entry, tuple) else entry for entry in listed]
        model = self._model() if self._model is not None else None
        known = {id(p): name for name, p in model.named_parameters()} if model is not None else {}
        place = f"group{len(self.param_groups)}"
        return [
            entry if isinstance(entry, tuple) else (known.get(id(entry), f"{place}.{i}"), entry)
            for i, entry in enumerate(listed)
        ]

    def _divide(self, group: dict[str, Any]) -> list[dict[str, Any]]:
        """The group, or two: weights that must stay non-negative, and others."""
        model = self._model() if self._model is not None else None
        marked = {id(p) for p in split_parameters(model)[0]} if model is not None else set()
        parts: list[list[Any]] = [[], []]  # non-negative, free
        for entry in group["params"]:
            param = entry[1] if isinstance(entry, tuple) else entry
            parts[id(param) not in marked].append(entry)
        divided = [
            {**group, "params": part, "rule": options["rule"]}
            for part, options in zip(parts, self._options, strict=True)
            if part
        ]
        return divided or [{**group, "rule": self._options[1]["rule"]}]  # empty: torch's own error

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._model = None  # the copy does not know it

    @classmethod
    def for_model(cls, model: nn.Module, **options: Any) -> "HybridOptimizer":
        """Build it for every parameter of ``model``, which its modules divide (:func:`split_parameters`).

        >>> HybridOptimizer.for_model(nn.Linear(2, 1), free_lr=0.01).param_groups[0]["rule"]
        'adam'
        """
        optimizer = cls(*split_parameters(model, named=True), **options)
        optimizer._model = weakref.ref(model)
        return optimizer
