"""Private doors of torch: every use of an interface that torch does not promise to keep.

Each door is a function here. It is tried once, when it is first needed; if this version of torch has closed it, there
is one warning and from then on the public way, which gives the same results more slowly.

>>> transforms_active()
False
"""

import functools
import warnings
from collections.abc import Callable
from typing import TypeVar

import torch
from torch.autograd import forward_ad

__all__ = ["forward_mode_active", "open_door", "transforms_active"]

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
        warnings.warn(
            f"torch {torch.__version__} has no usable {what} ({error}); {cost}", RuntimeWarning, stacklevel=3
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
