"""How many cores this process may use."""

import os

__all__ = ["usable_cores"]


def usable_cores() -> int:
    """Cores this process may run on: its CPU affinity where the system has one, else all of them.

    >>> 1 <= usable_cores() <= (os.cpu_count() or 1)
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
