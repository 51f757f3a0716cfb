"""Which parameters of a model must stay non-negative: its modules say so themselves."""

from collections.abc import Iterable
from typing import Literal, overload

from torch import nn

__all__ = ["NamedParameters", "split_parameters"]

NamedParameters = list[tuple[str, nn.Parameter]]


@overload
def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]: ...
@overload
def split_parameters(
    model: nn.Module, named: Literal[False]
) -> tuple[list[nn.Parameter], list[nn.Parameter]]: ...
@overload
def split_parameters(model: nn.Module, named: Literal[True]) -> tuple[NamedParameters, NamedParameters]: ...


def split_parameters(
    model: nn.Module, named: bool = False
) -> tuple[list[nn.Parameter], list[nn.Parameter]] | tuple[NamedParameters, NamedParameters]:
    """Return ``(nonnegative, free)``: the parameters that must stay non-negative, and all others.

    Every submodule with a method ``nonnegative_parameters()`` is asked; no model or layer class need be
    known. Each parameter appears once, in the order of ``model.named_parameters()``, shared ones too.

    Args:
        model: any module.
        named: return ``(name, parameter)`` pairs instead. Optimizers take them too, and those of this
            package then call a parameter by its name in messages.

    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.gain = nn.Parameter(torch.ones(3))
    ...     def nonnegative_parameters(self):
    ...         yield self.gain
    >>> import torch
    >>> nonnegative, free = split_parameters(nn.Sequential(Scale(), nn.Linear(3, 1)), named=True)
    >>> [name for name, _ in nonnegative], [name for name, _ in free]
    (['0.gain'], ['1.weight', '1.bias'])
    """
    marked = {id(p) for module in model.modules() for p in _claimed(module)}
    pairs = list(model.named_parameters())
    nonnegative = [(name, p) for name, p in pairs if id(p) in marked]
    free = [(name, p) for name, p in pairs if id(p) not in marked]
    if named:
        return nonnegative, free
    return [p for _, p in nonnegative], [p for _, p in free]


def _claimed(module: nn.Module) -> Iterable[nn.Parameter]:
    claim = getattr(module, "nonnegative_parameters", None)
    return claim() if callable(claim) else ()
