"""The optimizer under all rules: it checks what it is given, and hands groups of parameters to their rule.

Two promises hold for every subclass. Weights that must be non-negative are refused when they are not. And a
step whose gradients are not all finite raises :class:`FloatingPointError` with the parameter's name, having
changed nothing.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from caunet.optim import sharded
from caunet.optim.kernels import compute_dtype
from caunet.optim.rules import MOMENTS, RULES, apply_rule

__all__ = ["RuleOptimizer"]

# Gradients of fewer entries than this are added up together.
_SMALL = 20_000


class RuleOptimizer(Optimizer):
    """Parameter groups that each name their rule under ``"rule"`` (see :data:`caunet.optim.rules.RULES`)."""

    def __init__(
        self,
        params: ParamsT,
        rule: str,
        options: dict[str, Any],
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        if differentiable:
            raise ValueError("differentiable must be False: these rules change weights in place, got True")
        self._rule = rule
        super().__init__(params, {**options, "rule": rule, "foreach": foreach, "maximize": bool(maximize)})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, after checking its options and its weights.

        Its rule is ``param_group["rule"]``, by default that of this optimizer; options that are not given are those of
        this optimizer, or the defaults of the rule if it is another one.
        """
        index = len(self.param_groups)
        name = param_group.get("rule", self._rule)
        defaults = _rule(name).defaults
        if name != self._rule:
            param_group = {**defaults, **param_group}
        super().add_param_group(param_group)
        try:
            _check_group(self.param_groups[index], index)
        except Exception:
            del self.param_groups[index]
            raise

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._rule = self.defaults["rule"]

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of every parameter that has a gradient.

        Args:
            closure: re-evaluates the model and returns the loss, which is then returned.

        Raises:
            FloatingPointError: a gradient is not finite. No parameter, moment or step count has changed.
            RuntimeError: a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.apply_gradients([p.grad for group in self.param_groups for p in group["params"]], trusted=True)
        return loss

    def apply_gradients(self, grads: Sequence[Tensor | None], *, trusted: bool = False) -> None:
        """:meth:`step` with gradients that are handed over instead of those that the parameters hold.

        Args:
            grads: one for each parameter, in the order of the groups; None leaves its parameter as it is.
            trusted: number and shapes are known to be right and need not be looked at.

        >>> import torch
        >>> from caunet.optim import MultiplicativeUpdate
        >>> w = torch.ones(2)
        >>> MultiplicativeUpdate([w]).apply_gradients([torch.tensor([1.0, -1.0])])
        >>> w
        tensor([0.7943, 1.2589])
        """
        if not trusted:
            self._check_shapes(grads)
        self._check_gradients(grads)
        rest = iter(grads)
        with torch.no_grad():
            for group in self.param_groups:
                pairs = [
                    (p, grad) for p, grad in zip(group["params"], rest, strict=False) if grad is not None
                ]
                if pairs:
                    params, given = zip(*pairs, strict=True)
                    if group.get("maximize"):  # (states of earlier versions do not have it)
                        given = tuple(-grad for grad in given)
                    states = [self.state_of(p, group) for p in params]
                    apply_rule(group, *sharded.local_parts(params, given, states))

    def state_of(self, param: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter, begun at zero when there is none yet: how many steps, and the rule's moments.

        (A rule without moments counts too: distributed checkpoints ask for the state of every parameter.)
        """
        state: dict[str, Any] = self.state[param]
        if not state:
            state["step"] = 0
            if RULES[group["rule"]].moments:
                for key in MOMENTS:
                    state[key] = torch.zeros_like(param, dtype=compute_dtype(param.dtype))
        return state

    def _check_shapes(self, grads: Sequence[Tensor | None]) -> None:
        """Raise if these cannot be gradients of the parameters."""
        params = [p for group in self.param_groups for p in group["params"]]
        if len(grads) != len(params):
            raise ValueError(f"grads must be one for each of {len(params)} parameters, got {len(grads)}")
        for i, (p, grad) in enumerate(zip(params, grads, strict=True)):
            if grad is not None and grad.shape != p.shape:
                raise ValueError(f"grads[{i}] must have shape {tuple(p.shape)}, got {tuple(grad.shape)}")

    def _check_gradients(self, grads: Sequence[Tensor | None]) -> None:
        """Raise if a gradient is sparse or not finite; see :meth:`step`."""
        given = [grad for grad in grads if grad is not None]
        if any(grad.is_sparse for grad in given):
            name = self._names(grads, lambda grad: grad.is_sparse)[0]
            raise RuntimeError(
                f"{type(self).__name__} does not take sparse gradients, and {name} has one;"
                " build its layer with sparse=False"
            )
        if _surely_finite(given):
            return
        bad = self._names(grads, lambda grad: not sharded.all_finite(grad))
        if bad:
            raise FloatingPointError(
                f"the gradient of {', '.join(bad)} is not finite; no weight was changed by this step"
            )

    def _names(self, grads: Sequence[Tensor | None], wanted: Callable[[Tensor], bool]) -> list[str]:
        """What to call the parameters whose gradients are ``wanted``."""
        places = [
            (group, i, g) for g, group in enumerate(self.param_groups) for i in range(len(group["params"]))
        ]
        return [
            _name(*place)
            for place, grad in zip(places, grads, strict=True)
            if grad is not None and wanted(grad)
        ]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what :meth:`state_dict` gave; the steps that follow are those of an uninterrupted run."""
        final: dict[str, Any] = {}

        # As hooks, the first last and the second first: what users' hooks make of the state is what is loaded.
        def check(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
            self._check_rules(state_dict)
            final.update(state_dict)

        def copy(optimizer: Optimizer) -> None:
            self._copy_moments(final)

        before = self.register_load_state_dict_pre_hook(check)
        after = self.register_load_state_dict_post_hook(copy, prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _check_rules(self, state_dict: dict[str, Any]) -> None:
        for mine, saved in zip(self.param_groups, state_dict["param_groups"], strict=False):
            if saved.get("rule") != mine["rule"]:
                raise ValueError(
                    f"state_dict has rule {saved.get('rule')!r} where this optimizer has {mine['rule']!r}"
                )

    def _copy_moments(self, state_dict: dict[str, Any]) -> None:
        # Torch casts the moments of half precision weights to half, and shares the others with the dict.
        keys = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        params = chain.from_iterable(group["params"] for group in self.param_groups)
        for key, param in zip(keys, params, strict=True):
            for moment in MOMENTS:
                if moment in state_dict["state"].get(key, {}):
                    self.state[param][moment] = torch.empty_like(param, dtype=compute_dtype(param.dtype))
                    self.state[param][moment].copy_(state_dict["state"][key][moment])


def _rule(name: str) -> Any:
    if name not in RULES:
        raise ValueError(f"rule must be one of {', '.join(map(repr, RULES))}, got {name!r}")
    return RULES[name]


def _name(group: dict[str, Any], i: int, g: int) -> str:
    if "param_names" in group:
        return f"parameter {group['param_names'][i]!r}"
    return f"parameter {i} of group {g} (shape {tuple(group['params'][i].shape)})"


def _surely_finite(grads: Sequence[Tensor]) -> bool:
    """Whether the sum of all gradients is finite, as no infinity or NaN among them allows: a cheap pass."""
    parts: dict[object, list[Tensor]] = {}
    shared = sharded.any_sharded(grads)
    for grad in grads:
        parts.setdefault((shared and sharded.mesh_of(grad)) or grad.device, []).append(grad)
    totals = (sharded.total(part, _sum) if shared else _sum(part).item() for part in parts.values())
    return all(map(math.isfinite, totals))


def _sum(tensors: list[Tensor]) -> Tensor:
    """The sum of all entries. Small tensors are put together first: starting to add takes longer than adding."""
    small, sums = [], []
    for tensor in tensors:
        if tensor.numel() >= _SMALL:
            sums.append(tensor.sum())
        else:
            small.append(tensor if tensor.ndim == 1 else tensor.reshape(-1))
    if small:
        sums.append(torch.cat(small).sum())
    return torch.stack(sums).sum()


def _check_group(group: dict[str, Any], index: int) -> None:
    rule = _rule(group["rule"])
    _check_options(group, rule.defaults)
    for i, param in enumerate(group["params"]):
        if not param.is_floating_point():
            raise TypeError(f"{_name(group, i, index)} must be real floating point, got {param.dtype}")
        tiny = torch.finfo(compute_dtype(param.dtype)).tiny
        for key in ("eps", "mix_eps"):
            if key in rule.defaults and rule.nonnegative and group[key] < tiny:
                raise ValueError(
                    f"{key} must be at least {tiny:.2e} for {param.dtype} weights, got {group[key]!r}"
                )
        if rule.nonnegative:
            _check_weight(sharded.local(param.detach()), _name(group, i, index))


def _check_options(group: dict[str, Any], options: Iterable[str]) -> None:
    for key in options:
        value = group[key]
        if key == "betas":
            if len(value) != 2 or not all(0.0 <= beta < 1.0 for beta in value):
                raise ValueError(f"betas must be two numbers in [0, 1), got {value!r}")
        elif not 0.0 <= float(value) < math.inf or (key.endswith("eps") and float(value) == 0.0):
            raise ValueError(
                f"{key} must be finite and {'> 0' if key.endswith('eps') else '>= 0'}, got {value!r}"
            )


def _check_weight(weight: Tensor, name: str) -> None:
    if not bool(torch.isfinite(weight).all()):
        raise ValueError(f"{name} must be non-negative and finite, but has entries that are not finite")
    if weight.numel() and float(weight.min()) < 0:
        raise ValueError(
            f"{name} must be non-negative and finite, but its smallest entry is {float(weight.min())!r}"
        )
