"""Parameters that are sharded over processes (FSDP2's DTensors): rules work on the part that is here.

All rules are elementwise, so a step on every part is a step on the whole. Only whether all gradients are finite has to
be the same answer everywhere, and is summed over the processes.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["all_finite", "any_sharded", "local", "local_parts", "mesh_of", "total"]


def _kind() -> type[Any] | None:
    """The class of sharded tensors; None where nobody has imported it, and so nobody has one."""
    module = sys.modules.get("torch.distributed.tensor")
    kind: type[Any] | None = getattr(module, "DTensor", None)
    return kind


def any_sharded(tensors: Sequence[Tensor]) -> bool:
    """Whether any of ``tensors`` is sharded."""
    kind = _kind()
    return kind is not None and any(isinstance(tensor, kind) for tensor in tensors)


def mesh_of(tensor: Tensor) -> object:
    """The processes that share ``tensor``; None for an ordinary tensor."""
    kind = _kind()
    return tensor.device_mesh if kind is not None and isinstance(tensor, kind) else None


def local(tensor: Tensor) -> Tensor:
    """The part of ``tensor`` that is here, in the same memory; an ordinary tensor is all here."""
    kind = _kind()
    if kind is None or not isinstance(tensor, kind):
        return tensor
    with torch.no_grad():
        part: Tensor = tensor.to_local()
    return part


def local_parts(
    params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict[str, Any]]
) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[dict[str, Any]]]:
    """What a rule is given, with the parts that are here in place of sharded tensors; their steps are counted."""
    if not any_sharded(params):
        return params, grads, states
    mine, given, held = [], [], []
    for param, grad, state in zip(params, grads, states, strict=True):
        mine.append(local(param))
        given.append(local(_placed_as(grad, param)))
        held.append({key: local(v) if isinstance(v, Tensor) else v for key, v in state.items()})
        state["step"] += 1  # the rule counts in its copy
    return mine, given, held


def _placed_as(grad: Any, param: Any) -> Tensor:
    """``grad``, divided among the processes as ``param`` is."""
    same = mesh_of(param) is None or grad.placements == param.placements
    placed: Tensor = grad if same else grad.redistribute(placements=param.placements)
    return placed


def total(tensors: list[Tensor], add: Callable[[list[Tensor]], Tensor]) -> float:
    """``add(tensors)`` over all processes that share them; they are all ordinary, or all shared by the same ones."""
    mesh = mesh_of(tensors[0])
    if mesh is None:
        return add(tensors).item()
    return _over_processes(add([local(tensor) for tensor in tensors]), mesh)


def all_finite(tensor: Tensor) -> bool:
    """Whether every entry is finite, here and in the parts of other processes."""
    bad = (~torch.isfinite(local(tensor))).sum()
    mesh = mesh_of(tensor)
    return not (bad.item() if mesh is None else _over_processes(bad, mesh))


def _over_processes(value: Tensor, mesh: Any) -> float:
    from torch.distributed.tensor import DTensor, Partial

    return DTensor.from_local(value, mesh, [Partial()] * mesh.ndim).full_tensor().item()
