"""A check that users can switch on: no optimizer may make weights negative that must not be."""

import warnings
from types import TracebackType
from typing import Any, Literal, Self

from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from caunet.optim.rules import RULES
from caunet.optim.split import split_parameters

__all__ = ["Guard", "guard"]

Action = Literal["warn", "raise"]


def guard(model: nn.Module, action: Action = "warn") -> "Guard":
    """Watch every optimizer that steps on ``model``'s non-negative weights, until ``remove()`` or the end of a block.

    Contrast association needs weights at or above zero; plain Adam moves them below without a word, and the units stop
    measuring a mismatch. Before the first step of an optimizer that does not know this, and after a step that has
    made a weight negative, there is a warning, or an error.

    Args:
        model: any module with modules that have ``nonnegative_parameters()``.
        action: ``"warn"`` (once for each optimizer and each weight) or ``"raise"``.

    >>> import torch
    >>> from caunet.nn import ContrastAssociation
    >>> units = ContrastAssociation(4, 4, units=2, rank=1)
    >>> optimizer = torch.optim.Adam(units.parameters())
    >>> with guard(units, action="raise"):
    ...     optimizer.step()
    Traceback (most recent call last):
    ...
    RuntimeError: Adam does not keep weights non-negative, and is about to change u, v, which must be; use
    caunet.optim.HybridOptimizer.for_model(model)
    """
    return Guard(model, action)


class Guard:
    """What :func:`guard` returns."""

    def __init__(self, model: nn.Module, action: Action = "warn") -> None:
        if action not in ("warn", "raise"):
            raise ValueError(f"action must be 'warn' or 'raise', got {action!r}")
        self._action = action
        nonnegative, _ = split_parameters(model)
        wanted = {id(p) for p in nonnegative}
        self._names = {id(p): name for name, p in model.named_parameters() if id(p) in wanted}
        if not self._names:
            raise ValueError("model must have nonnegative_parameters(), and has none")
        self._told: set[object] = set()
        # Of all optimizers, for users make theirs as they like; removed with this guard.
        self._hooks = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]

    def remove(self) -> None:
        """Stop watching."""
        for hook in self._hooks:
            hook.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        careless = [
            self._names[id(p)]
            for group in optimizer.param_groups
            for p in group["params"]
            if id(p) in self._names and not _keeps_signs(group)
        ]
        if careless:
            self._tell(
                id(optimizer),
                f"{type(optimizer).__name__} does not keep weights non-negative, and is about to change "
                f"{', '.join(careless)}, which must be; use caunet.optim.HybridOptimizer.for_model(model)",
            )

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for p in group["params"]:
                if id(p) in self._names and not _keeps_signs(group):
                    below = int((p.detach() < 0).sum())
                    if below:
                        name = self._names[id(p)]
                        self._tell(
                            name,
                            f"{type(optimizer).__name__} has made {below} of {p.numel()} weights in {name} negative",
                        )

    def _tell(self, key: object, text: str) -> None:
        if self._action == "raise":
            raise RuntimeError(text)
        if key not in self._told:
            self._told.add(key)
            warnings.warn(text, RuntimeWarning, stacklevel=5)


def _keeps_signs(group: dict[str, Any]) -> bool:
    rule = RULES.get(group.get("rule", ""))
    return rule is not None and rule.nonnegative
