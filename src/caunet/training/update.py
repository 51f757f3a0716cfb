"""One training update, fast: forward pass, gradients and optimizer step, compiled into one graph.

Called eagerly, an update of a small network is a few hundred short operations, and much of its time goes
into starting them and into carrying intermediate results to memory and back. :class:`Update` traces all of
it, the optimizer's own kernels included, into a single graph, and lets PyTorch's compiler make one function of it.
Nothing is kept in the compiled function: weights live in the model, moments in the optimizer, learning rates in its
groups; all are handed over at each call.

(``torch.compile`` would do the same by way of its own tracer, which then looks at every call: measured 4 % slower.)
"""

import os
import shutil
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call, grad_and_value

from caunet import torch_private
from caunet.errors import TrainingError
from caunet.optim.base import RuleOptimizer
from caunet.optim.kernels import compute_dtype, to_be_compiled
from caunet.optim.rules import MOMENTS, RULES, corrections

__all__ = ["Loss", "Update", "can_compile"]

Loss = Callable[[Tensor, Tensor], Tensor]
# A rule's name and its options other than the learning rate, which is an input of the compiled function.
_Options = tuple[str, tuple[tuple[str, Any], ...]]


def _squared_error(estimate: Tensor, z: Tensor) -> Tensor:
    if estimate.shape != z.shape:  # which torch would broadcast, (N, 1) against (N,) to (N, N)
        raise ValueError(
            f"z must have the shape of the estimate, {tuple(estimate.shape)}, got {tuple(z.shape)}"
        )
    # By its bare name: torch.nn.functional checks shapes too, at length, and only warns.
    loss: Tensor = torch.ops.aten.mse_loss.default(estimate, z)
    return loss


def can_compile(device: torch.device | str = "cpu") -> bool:
    """Whether what PyTorch's compiler needs is there: for the CPU a C++ compiler (``$CXX`` or a usual name)."""
    if torch.device(device).type != "cpu":
        return torch_private.has_triton()
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    return any(shutil.which(name) for name in names)


class Update:
    """``update(x, y, z)`` does one training step of ``model`` and returns its loss.

    Args:
        model: ``model(x, y)`` gives the estimate of ``z``. Change its weights as you like, but not what it
            computes (its attributes, its submodules): the compiled function would not notice.
        optimizer: any of :mod:`caunet.optim`; its groups hold the parameters of ``model`` that learn. Its rules and
            its state are used, its ``step`` (and hooks on that) is not called.
        loss: ``"mse"``, or a function ``(estimate, z) -> 0-d tensor``.
        compile: True, False, or ``"auto"``: compile when a C++ compiler is there and does its work; if it fails at
            the first update, one warning says so and updates are made without it. Both ways agree to rounding, and
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
        if any(group.get("maximize") for group in optimizer.param_groups):
            raise ValueError("optimizer must minimize, got a group with maximize=True")
        self.model, self.optimizer = model, optimizer
        self.loss: Loss = _squared_error if isinstance(loss, str) else loss
        self._slots = _slots(model, optimizer)
        self._params = [param for _, param, _ in self._slots]
        self._fixed = _fixed(model, self._params)
        self.compiled = can_compile(self._slots[0][1].device) if compile == "auto" else bool(compile)
        self._required = compile is True
        self._cache: dict[Hashable, Callable[..., Any]] = {}
        self.compiling = False
        """Whether a function is being compiled right now; it stays set when that is interrupted."""
        self.on_compile: Callable[[], None] = lambda: None
        """Called before a function is compiled, which takes from seconds to a minute."""
        self._state: Any = None

    def __call__(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """One update on a batch; returns the loss before it, a detached 0-d tensor.

        Raises:
            FloatingPointError: a gradient is not finite; no weight was changed.
        """
        if not self.compiled:
            return self._eager(x, y, z)
        scalars = self._scalars()
        if scalars is None:
            return self._eager(x, y, z)
        with torch.no_grad():
            found = self._run(_make_step, [*self._tensors, scalars], x, y, z)
        if isinstance(found, Exception):
            loss = self._eager(x, y, z)
            self._give_up(found)
            return loss
        loss, finite = found
        if not finite:  # and so nothing was written; the eager way names the gradient
            return self._eager(x, y, z)
        self._count()
        return loss  # type: ignore[no-any-return]

    def gradients(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        """Set ``.grad`` of every parameter for a batch and return the loss; nothing is updated."""
        found: Any = None
        if self.compiled:
            with torch.no_grad():
                found = self._run(_make_gradients, list(self._params), x, y, z)
        if found is None or isinstance(found, Exception):
            grads, loss = self._eager_gradients(x, y, z)
            if found is not None:
                self._give_up(found)
        else:
            *grads, loss = found
        for param, grad in zip(self._params, grads, strict=True):
            param.grad = grad
        return loss

    def apply(self) -> None:
        """Let the optimizer step with the gradients that are there."""
        self.optimizer.step()

    def _eager(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        grads, loss = self._eager_gradients(x, y, z)
        given = dict(zip(self._params, grads, strict=True))
        everything = [given.get(p) for group in self.optimizer.param_groups for p in group["params"]]
        self.optimizer.apply_gradients(everything, trusted=True)
        return loss

    def _eager_gradients(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Sequence[Tensor | None], Tensor]:
        # Not by way of backward(), which would have every gradient emptied and filled in its parameter.
        with torch.enable_grad():
            loss = self.loss(self.model(x, y), z)
            grads = torch.autograd.grad(loss, self._params, allow_unused=True)
        return grads, loss.detach()

    def _scalars(self) -> Tensor | None:
        """The numbers of each group, a row each; None when its parameters have taken unequal numbers of steps."""
        optimizer = self.optimizer
        if optimizer.state is not self._state or len(optimizer.state) != self._entries:
            self._gather()  # at the first step, and when a state was loaded
        numbers: list[tuple[float, float, float]] = []
        for group, states in zip(optimizer.param_groups, self._states, strict=True):
            bias = (1.0, 1.0)
            if states and RULES[group["rule"]].moments:
                step = states[0]["step"]
                if any(state["step"] != step for state in states):
                    return None
                bias = corrections(step + 1, group["betas"])
            numbers.append((float(group["lr"]), *bias))
        like = self._tensors[0]
        return torch.tensor(numbers, device=like.device, dtype=compute_dtype(like.dtype))

    def _gather(self) -> None:
        """Look up weights and moments. Doing so at every step, in a cold cache, costs as much as a product."""
        optimizer = self.optimizer
        self._tensors = [_vector(param) for _, param, _ in self._slots]
        self._states: list[list[dict[str, Any]]] = [[] for _ in optimizer.param_groups]
        for _, param, g in self._slots:
            group = optimizer.param_groups[g]
            state = optimizer.state_of(param, group)
            self._states[g].append(state)
            if RULES[group["rule"]].moments:
                self._tensors += [_vector(state[key]) for key in MOMENTS]
        self._state, self._entries = optimizer.state, len(optimizer.state)

    def _count(self) -> None:
        for states in self._states:
            for state in states:
                state["step"] += 1

    def _run(self, make: Callable[..., Any], tensors: list[Tensor], x: Tensor, y: Tensor, z: Tensor) -> Any:
        """Call the compiled function for these shapes and options, made at the first call."""
        inputs = [*tensors, *(owner[key] for _, owner, key in self._fixed), x, y, z]
        plan = tuple(_options(group) for group in self.optimizer.param_groups)
        batch = tuple((t.shape, t.stride(), t.dtype, t.device) for t in (x, y, z))
        threads = torch.get_num_threads()
        key = (make, plan, batch, x is y, self.model.training, threads)
        if key in self._cache:
            return self._cache[key](*inputs)
        return self._compile(key, make, plan, inputs, threads)

    def _compile(
        self,
        key: Hashable,
        make: Callable[..., Any],
        plan: Sequence[_Options],
        inputs: list[Tensor],
        threads: int,
    ) -> Any:
        """Make the function, call it and keep it. When that fails and need not be: the exception."""
        names = [(name, param.shape) for name, param, _ in self._slots]
        fixed = [name for name, *_ in self._fixed]
        objective = _make_objective(self.model, self.loss, names, fixed)
        function = make(objective, plan, [g for *_, g in self._slots], len(fixed))
        self.compiling = True
        self.on_compile()
        try:
            compiled = _generate(_trace(function, inputs), inputs, threads)
            found = compiled(*inputs)
        except Exception as error:
            if not self._required:
                return error
            if not isinstance(error, RuntimeError):  # the model's own
                raise
            reason = _first_line(error)
            raise TrainingError(f"cannot compile the update ({reason}); without: compile=False") from error
        self.compiling = False
        self._cache[key] = compiled
        return found

    def _give_up(self, error: Exception) -> None:
        """Compile no more. (Called after an update without: a fault of the model shows there, as it is.)"""
        self.compiled = self.compiling = False
        warnings.warn(
            f"the update could not be compiled ({_first_line(error)}); updates are made without, which is slower",
            RuntimeWarning,
            stacklevel=4,
        )


def _first_line(error: Exception) -> str:
    """What went wrong, without the pages of a C++ compiler."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _trace(function: Callable[..., Any], inputs: Sequence[Tensor]) -> fx.GraphModule | Callable[..., Any]:
    """The operations that ``function`` does on tensors like ``inputs``; none of them is done."""
    with torch.no_grad(), to_be_compiled():
        graph = torch_private.trace(function, inputs)
    if graph is None:
        return function
    if inputs[0].device.type == "cpu":
        _pad_products(graph)
    return graph


def _pad_products(graph: fx.GraphModule) -> None:
    """Give the products that make gradients of weights, G X, columns by the vector: 128 instead of 121, say.

    BLAS writes rows of 121 numbers in a tenth more time than rows of 128. The rest is cut off again.
    (A gradient of weights has more rows than X, which makes padding X cheap beside the product.)
    """
    aten = torch.ops.aten
    for node in graph.graph.find_nodes(op="call_function", target=aten.mm.default):
        left, right = node.args
        columns = right.meta["val"].shape[1]
        if len(left.meta["val"]) < len(right.meta["val"]) or columns % 4 == 0 or columns < 32:
            continue
        with graph.graph.inserting_after(node):
            cut = graph.graph.call_function(aten.slice.Tensor, (node, 1, 0, columns))
        node.replace_all_uses_with(cut, delete_user_cb=lambda user, cut=cut: user is not cut)
        with graph.graph.inserting_before(node):
            wide = graph.graph.call_function(aten.constant_pad_nd.default, (right, [0, -columns % 16]))
        node.replace_input_with(right, wide)
    graph.recompile()


def _generate(
    graph: fx.GraphModule | Callable[..., Any], inputs: Sequence[Tensor], threads: int
) -> Callable[..., Any]:
    """Compiled code for ``graph``."""
    return torch_private.compile_graph(graph, inputs, {**_INDUCTOR, "cpp.threads": threads})


_INDUCTOR: dict[str, str | int | bool] = {
    # Calls between the pieces of the graph from C++ rather than from Python.
    "cpp_wrapper": True,
    # Sums of a matrix product and a cheap term are not to become addmm, which first copies that term.
    "pattern_matcher": False,
    # Rows of 121 are fifteen vectors and one number: that one by itself is cheaper than as a masked vector.
    "cpp.enable_loop_tail_vec": False,
    # a * b + c in one instruction, in the polynomials of the rules above all.
    "cpp.enable_floating_point_contract_flag": "fast",
}


def _slots(model: nn.Module, optimizer: RuleOptimizer) -> list[tuple[str, Tensor, int]]:
    """(name, parameter, group number) of every parameter that learns, in the optimizer's order."""
    named = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    slots = [
        (named[id(p)], p, g)
        for g, group in enumerate(optimizer.param_groups)
        for p in group["params"]
        if id(p) in named
    ]
    if not slots:
        raise ValueError("optimizer must hold parameters of model that require gradients, and has none")
    return slots


def _fixed(model: nn.Module, learned: Sequence[Tensor]) -> list[tuple[str, dict[str, Any], str]]:
    """(name, where it is kept, under what name) of every buffer, and of every parameter that does not learn.

    Where, and not what: a module that is moved keeps its parameters and replaces its buffers.
    """
    known = {id(param) for param in learned}
    return [
        (f"{prefix}.{key}" if prefix else key, owner, key)
        for prefix, module in model.named_modules()
        for owner in (module._parameters, module._buffers)
        for key, tensor in owner.items()
        if tensor is not None and id(tensor) not in known
    ]


def _options(group: dict[str, Any]) -> _Options:
    keys = [key for key in RULES[group["rule"]].defaults if key != "lr"]
    return group["rule"], tuple((key, _frozen(group[key])) for key in keys)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _vector(tensor: Tensor) -> Tensor:
    """A 0-d tensor as one of length 1, in the same memory.

    Compiled functions lose what they write into 0-d tensors of float64 (torch 2.13).
    """
    return tensor if tensor.ndim else tensor.detach().reshape(1)


def _make_objective(
    model: nn.Module, loss: Loss, names: list[tuple[str, torch.Size]], fixed: list[str]
) -> Callable[..., Tensor]:
    def objective(
        values: Sequence[Tensor], others: Sequence[Tensor], x: Tensor, y: Tensor, z: Tensor
    ) -> Tensor:
        named = {name: value.reshape(shape) for (name, shape), value in zip(names, values, strict=True)}
        named |= zip(fixed, others, strict=True)
        return loss(functional_call(model, named, (x, y)), z)

    return objective


def _make_gradients(
    objective: Callable[..., Tensor], plan: Sequence[_Options], groups: Sequence[int], fixed: int
) -> Callable[..., Any]:
    def gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
        params, others, batch = _split(tensors, len(groups), fixed, 3)
        grads, loss = grad_and_value(objective)(params, others, *batch)
        return (*grads, loss)

    return gradients


def _make_step(
    objective: Callable[..., Tensor], plan: Sequence[_Options], groups: Sequence[int], fixed: int
) -> Callable[..., Any]:
    moments = [len(MOMENTS) if RULES[plan[g][0]].moments else 0 for g in groups]

    def step(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        params, *held, (scalars,), others, batch = _split(tensors, len(groups), *moments, 1, fixed, 3)
        grads, loss = grad_and_value(objective)(params, others, *batch)
        # Largest, not sum: that would be added up in pieces, for a precision nobody needs here.
        finite = torch.stack([grad.abs().amax() for grad in grads]).amax().isfinite()
        for g, grad, param, mine in zip(groups, grads, params, held, strict=True):
            before = [tensor.clone() for tensor in (param, *mine)]
            _apply(plan[g], param, grad, mine, scalars[g])
            for tensor, old in zip((param, *mine), before, strict=True):
                tensor.copy_(torch.where(finite, tensor, old))
        return loss, finite

    return step


def _split(tensors: Sequence[Tensor], *sizes: int) -> list[list[Tensor]]:
    """Cut a sequence into lists of these sizes."""
    rest = iter(tensors)
    return [[next(rest) for _ in range(size)] for size in sizes]


def _apply(group: _Options, param: Tensor, grad: Tensor, moments: list[Tensor], numbers: Tensor) -> None:
    """The group's rule on one parameter, with (learning rate, two bias corrections) from a tensor."""
    rule, options = RULES[group[0]], dict(group[1])
    if rule.moments:
        options["corrections"] = (numbers[1], numbers[2])
    rule.kernel(param, grad, *moments, lr=numbers[0], **options)
