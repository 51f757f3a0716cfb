"""One training update, fast: forward pass, gradients and optimizer step, compiled into one graph where possible.

Called eagerly, an update of a small network is a few hundred short operations, and much of its time goes into
starting them and into carrying intermediate results to memory and back. :class:`Update` traces all of it, the
optimizer's own kernels included, into a single function for ``torch.compile``. Nothing is kept in the compiled
function: weights live in the model, moments in the optimizer, learning rates in its parameter groups.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value
from torch.nn.functional import mse_loss

from caunet.optim.base import RuleOptimizer
from caunet.optim.rules import MOMENTS, RULES, corrections

__all__ = ["Loss", "Update", "can_compile"]

Loss = Callable[[Tensor, Tensor], Tensor]


def can_compile(device: torch.device | str = "cpu") -> bool:
    """Whether ``torch.compile`` has what it needs: a C++ compiler for the CPU (``$CXX`` or a usual name)."""
    if torch.device(device).type != "cpu":
        from torch.utils._triton import has_triton

        return bool(has_triton())
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    return any(shutil.which(name) for name in names)


class Update:
    """``update(x, y, z)`` does one training step of ``model`` and returns its loss.

    Args:
        model: ``model(x, y)`` gives the estimate of ``z``.
        optimizer: any of :mod:`caunet.optim`; its groups hold the parameters of ``model`` that learn.
        loss: ``"mse"``, or a function ``(estimate, z) -> 0-d tensor``.
        compile: True, False, or ``"auto"``: compile when a C++ compiler is there. Both ways agree to rounding, and
            each gives the same bits for the same weights, state and batch.

    >>> from caunet.optim import HybridOptimizer
    >>> class Difference(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.gain = nn.Parameter(torch.ones(()))
    ...     def forward(self, x, y):
    ...         return self.gain * (y - x)
    >>> model = Difference()
    >>> update = Update(model, HybridOptimizer.for_model(model, free_lr=0.1), compile=False)
    >>> update(torch.zeros(4), torch.ones(4), torch.full((4,), 2.0))
    tensor(1.)
    >>> model.gain.item()
    1.1...
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: RuleOptimizer,
        loss: Literal["mse"] | Loss = "mse",
        compile: bool | Literal["auto"] = "auto",
    ) -> None:
        if loss != "mse" and not callable(loss):
            raise ValueError(f"loss must be 'mse' or a function, got {loss!r}")
        if compile not in (True, False, "auto"):
            raise ValueError(f"compile must be True, False or 'auto', got {compile!r}")
        self.model, self.optimizer = model, optimizer
        self.loss: Loss = mse_loss if loss == "mse" else loss
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        named = {id(p): name for name, p in model.named_parameters() if p.requires_grad and id(p) in owned}
        # (name, group number) for every parameter, in the optimizer's order.
        self._slots = [
            (named[id(p)], p, g)
            for g, group in enumerate(optimizer.param_groups)
            for p in group["params"]
            if id(p) in named
        ]
        # What the compiled step reads of the groups. Not the groups themselves: the compiler would take their
        # learning rates for constants and compile again at each change.
        self._settings = [
            (group["rule"], {key: group[key] for key in RULES[group["rule"]].defaults if key != "lr"})
            for group in optimizer.param_groups
        ]
        device = self._slots[0][1].device
        self.compiled = can_compile(device) if compile == "auto" else bool(compile)
        if self.compiled:
            self._fused = torch.compile(self._step, fullgraph=True, dynamic=False)
            self._compiled_gradients = torch.compile(self._gradients, fullgraph=True, dynamic=False)

    def __call__(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """One update on a batch; returns the loss before it, a detached 0-d tensor.

        Raises:
            FloatingPointError: a gradient is not finite; no weight was changed.
        """
        if not self.compiled:
            loss = self.gradients(x, y, z)
            self.apply()
            return loss
        params, moments, scalars = self._inputs()
        with torch.no_grad():
            loss, finite = self._fused(params, moments, scalars, x, y, z)
        if not finite:
            self._explain(x, y, z)
        for _, param, g in self._slots:
            group = self.optimizer.param_groups[g]
            if RULES[group["rule"]].moments:
                self.optimizer.state[param]["step"] += 1
        return loss

    def gradients(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Set ``.grad`` of every parameter for a batch and return the loss; nothing is updated."""
        if self.compiled:
            params = [p for _, p, _ in self._slots]
            with torch.no_grad():
                grads, loss = self._compiled_gradients(params, x, y, z)
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad
            return loss
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model(x, y), z)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def apply(self) -> None:
        """Let the optimizer step with the gradients that are there."""
        self.optimizer.step()

    def _inputs(self) -> tuple[list[Tensor], list[list[Tensor]], Tensor]:
        """What the compiled step reads and writes, gathered anew so that a loaded state is seen."""
        params, moments = [], []
        numbers: list[list[float]] = [[float(g["lr"]), 1.0, 1.0] for g in self.optimizer.param_groups]
        for _, param, g in self._slots:
            group = self.optimizer.param_groups[g]
            state = self.optimizer.moments_of(param, group)
            params.append(param)
            moments.append([state[key] for key in MOMENTS] if state else [])
            if state:
                numbers[g][1:] = corrections(state["step"] + 1, group["betas"])
        return params, moments, torch.tensor(numbers, device=params[0].device)

    def _gradients(self, params: Sequence[Tensor], x: Tensor, y: Tensor, z: Tensor) -> tuple[list[Tensor], Tensor]:
        names = [name for name, _, _ in self._slots]

        def objective(values: list[Tensor]) -> Tensor:
            weights = dict(zip(names, values, strict=True))
            return self.loss(functional_call(self.model, weights, (x, y)), z)

        grads, loss = grad_and_value(objective)(list(params))
        return grads, loss

    def _step(
        self, params: list[Tensor], moments: list[list[Tensor]], scalars: Tensor, x: Tensor, y: Tensor, z: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The whole update on explicit inputs, in place; traced by torch.compile."""
        grads, loss = self._gradients(params, x, y, z)
        # 0 * g is 0 for finite g only, and unlike a sum of g it cannot overflow.
        finite = torch.stack([(grad * 0).sum() for grad in grads]).sum() == 0
        for (_, _, g), param, grad, held in zip(self._slots, params, grads, moments, strict=True):
            before = [t.clone() for t in (param, *held)]
            _apply(*self._settings[g], param, grad, held, scalars[g])
            for tensor, old in zip((param, *held), before, strict=True):
                tensor.copy_(torch.where(finite, tensor, old))
        return loss, finite

    def _explain(self, x: Tensor, y: Tensor, z: Tensor) -> None:
        """The compiled step found a gradient that is not finite and wrote nothing: find out which, and raise."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            self.loss(self.model(x, y), z).backward()  # type: ignore[no-untyped-call]
        self.optimizer.check_gradients()
        raise FloatingPointError("a gradient is not finite; no weight was changed by this step")


def _apply(
    name: str, settings: dict[str, Any], param: Tensor, grad: Tensor, moments: list[Tensor], scalars: Tensor
) -> None:
    rule, options = RULES[name], dict(settings)
    if rule.moments:
        options["corrections"] = (scalars[1], scalars[2])
    rule.kernel(param, grad, *moments, lr=scalars[0], **options)
