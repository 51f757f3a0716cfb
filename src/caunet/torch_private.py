"""Private doors of torch: every use of an interface that torch does not promise to keep.

Each door is a function here. It is tried once, when it is first needed; if this version of torch has closed it, there
is one warning and from then on the public way, which gives the same results more slowly.

>>> transforms_active()
False
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, fx
from torch.autograd import forward_ad

__all__ = [
    "compile_graph",
    "foreach",
    "foreach_works",
    "forward_mode_active",
    "fused_adam",
    "has_triton",
    "open_door",
    "trace",
    "transforms_active",
]

T = TypeVar("T")


def open_door(what: str, private: Callable[[], T], public: T, cost: str) -> T:
    """What ``private`` returns, or ``public`` with a warning if it raises: this torch does not have that door.

    Args:
        what: the private name, for the warning.
        private: looks the private interface up and tries it.
        public: what to use instead.
        cost: what the public way costs, for the warning.
    """
    try:
        return private()
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        warnings.warn(
            f"torch {torch.__version__} has no usable {what} ({reason}); {cost}", RuntimeWarning, stacklevel=3
        )
        return public


def transforms_active() -> bool:
    """Whether ``torch.func`` is transforming what runs now (vmap, grad, jvp ...); True where that cannot be known."""
    return _transforms()()


def forward_mode_active() -> bool:
    """Whether a level of forward-mode differentiation is open; True where that cannot be known."""
    return _forward_mode()()


@functools.cache
def _transforms() -> Callable[[], bool]:
    def private() -> Callable[[], bool]:
        door: Callable[[], bool] = torch._C._are_functorch_transforms_active
        if door() not in (True, False):
            raise TypeError("it returns no bool")
        return door

    cost = "an update that is not compiled takes about a tenth longer"
    return open_door("torch._C._are_functorch_transforms_active", private, lambda: True, cost)


@functools.cache
def _forward_mode() -> Callable[[], bool]:
    def private() -> Callable[[], bool]:
        if not isinstance(forward_ad._current_level, int):
            raise TypeError("it is no whole number")
        return lambda: forward_ad._current_level >= 0

    cost = "an update that is not compiled takes about a tenth longer"
    return open_door("torch.autograd.forward_ad._current_level", private, lambda: True, cost)


FusedAdam = Callable[..., None]


def fused_adam() -> FusedAdam | None:
    """Adam in one pass over lists of dense tensors, or None: then it is computed one parameter at a time.

    Called with ``(params, grads, means, squares, step, lr, betas, eps)``; ``step`` is a 0-d tensor and only read.
    (``torch.optim.adam.adam``, the public way to it, counts in one tensor for each parameter.)
    """
    return _fused_adam()


@functools.cache
def _fused_adam() -> FusedAdam | None:
    def private() -> FusedAdam:
        door = torch._fused_adam_

        def step(
            params: Sequence[Tensor],
            grads: Sequence[Tensor],
            means: Sequence[Tensor],
            squares: Sequence[Tensor],
            step: Tensor,
            lr: float,
            betas: tuple[float, float],
            eps: float,
        ) -> None:
            door(
                list(params),
                list(grads),
                list(means),
                list(squares),
                [],
                [step] * len(params),
                lr=lr,
                beta1=betas[0],
                beta2=betas[1],
                weight_decay=0.0,
                eps=eps,
                amsgrad=False,
                maximize=False,
            )

        param, grad, mean, square = (torch.tensor([value]) for value in (1.0, 3.0, 0.0, 0.0))
        step([param], [grad], [mean], [square], torch.tensor(1.0), 0.1, (0.9, 0.99), 1e-8)
        if not torch.allclose(param, torch.tensor([0.9])):
            raise RuntimeError(f"its first step of 0.1 leads from 1 to {param.item()}")
        return step

    return open_door("torch._fused_adam_", private, None, "Adam is computed one parameter at a time")


_FOREACH = {"sqrt": 1, "abs": 1, "log2_": 1, "sign": 1, "addcmul_": 3}
_FOREACH |= dict.fromkeys(("mul", "mul_", "maximum_", "minimum_", "div", "div_", "add_", "sub_"), 2)


def foreach(name: str) -> Callable[..., Any]:
    """``torch._foreach_<name>``, an operation on lists of tensors; ask :func:`foreach_works` first."""
    operation: Callable[..., Any] = getattr(torch, f"_foreach_{name}")
    return operation


@functools.cache
def foreach_works() -> bool:
    """Whether the operations on lists of tensors are there; each is tried on two numbers."""

    def private() -> bool:
        for name, count in _FOREACH.items():
            foreach(name)(*([torch.ones(1), torch.ones(1)] for _ in range(count)))
        foreach("lerp_")([torch.ones(1)], [torch.ones(1)], 0.5)
        return True

    return open_door("torch._foreach_ operations", private, False, "parameters are updated one at a time")


@functools.cache
def has_triton() -> bool:
    """Whether Triton is there, which torch needs to compile for a GPU."""

    def private() -> bool:
        from torch.utils._triton import has_triton

        return bool(has_triton())

    return open_door("torch.utils._triton.has_triton", private, False, "updates on a GPU are not compiled")


def trace(function: Callable[..., Any], inputs: Sequence[Tensor]) -> fx.GraphModule | None:
    """The operations that ``function`` does on tensors like ``inputs``; None when torch has no tracer for it.

    Tensors that a module keeps as plain attributes become constants of the graph.
    """
    make = _tracer()
    if make is None:
        return None
    graph: fx.GraphModule = make(function)(*inputs)
    return graph


@functools.cache
def _tracer() -> Callable[..., Any] | None:
    def private() -> Callable[..., Any]:
        from torch.fx.experimental.proxy_tensor import make_fx

        tracer = functools.partial(make_fx, tracing_mode="fake", _allow_non_fake_inputs=True)
        tracer(torch.neg)(torch.ones(1))
        return tracer

    return open_door(
        "torch.fx.experimental.proxy_tensor.make_fx", private, None, "torch.compile traces updates"
    )


def compile_graph(
    graph: fx.GraphModule | Callable[..., Any], inputs: Sequence[Tensor], options: dict[str, Any]
) -> Callable[..., Any]:
    """Compiled code for ``graph`` (or for a function), to be called with tensors like ``inputs``.

    A graph goes straight to the code generator; ``torch.compile`` would trace it again and look at every call.
    """
    examples: list[Any] = [tensor.detach() for tensor in inputs]
    compiler = _inductor() if isinstance(graph, fx.GraphModule) else None
    function: Callable[..., Any]
    if compiler is not None:
        function = compiler(graph, examples, options=options)
    else:
        function = torch.compile(graph, fullgraph=True, dynamic=False, options=options)
    return function


@functools.cache
def _inductor() -> Callable[..., Any] | None:
    def private() -> Callable[..., Any]:
        import inspect

        from torch import _inductor

        inspect.signature(_inductor.compile).bind(
            None, [], options={}
        )  # compiling takes long: once is enough
        return _inductor.compile

    return open_door(
        "torch._inductor.compile", private, None, "torch.compile is used, which is slower per call"
    )
