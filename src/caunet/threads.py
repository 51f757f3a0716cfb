"""How many CPU threads torch uses in a call, put back when the last overlapping call ends."""

import contextlib
import threading
from collections.abc import Iterator

import torch

__all__ = ["cpu_threads"]

_lock = threading.Lock()
_calls = 0  # that are under way, in any thread
_before = 0  # threads that torch used when the first of them began


@contextlib.contextmanager
def cpu_threads(count: int | None) -> Iterator[None]:
    """Let torch use ``count`` CPU threads in this block; None changes nothing.

    torch keeps the number for the whole process. Of overlapping blocks each would take another's number for the one
    to put back; so the number of before the first is remembered, and every block ends with it.

    >>> before = torch.get_num_threads()
    >>> with cpu_threads(1):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    global _calls, _before
    if count is None:
        yield
        return
    with _lock:
        if _calls == 0:
            _before = torch.get_num_threads()
        _calls += 1
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _calls -= 1
            torch.set_num_threads(_before)
