"""What happens in a worker process: the factory is called once, and each item ends as an outcome."""

import contextlib
import gc
import importlib
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from caunet.execution.outcome import Failure, Outcome

__all__ = ["INTERRUPTED", "THREADS", "prepare", "run_item"]

THREADS = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)
"""Environment of a worker: one thread each, because there are as many workers as cores."""

INTERRUPTED = "KeyboardInterrupt"
"""Kind of the failure of an item that was interrupted."""

_PATIENCE = 60.0  # seconds for the item being run to save its state when the parent has gone


class Event(Protocol):
    """As far as a worker is concerned."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


# The function made by the last factory: a worker serves one run at a time, so one is enough.
_made: dict[str, Callable[[Any], Any]] = {}
_stop: Event | None = None


def prepare(parent: int, stop: Event) -> None:
    """Make this process a worker, which ends its item when ``stop`` is set or when its parent has gone.

    The terminal sends Ctrl-C to all processes of a group; a worker leaves the group, so that its parent alone decides.
    """
    global _stop
    _stop = stop
    with contextlib.suppress(AttributeError, OSError):  # not on Windows; not for the leader of a session
        os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # between items there is nothing to interrupt
    _without_shared_locks()
    threading.Thread(target=_watch, args=(parent, stop), daemon=True).start()


def _without_shared_locks() -> None:
    """Keep tqdm, which torch imports to compile, from making a lock between processes in this one.

    Workers are ended by being killed, and its semaphore would be left behind, with a warning at the very end.
    """
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("tqdm.std").TqdmDefaultWriteLock.mp_lock = None  # as where there are none


def _watch(parent: int, stop: Event) -> None:
    while not stop.wait(1.0) and os.getppid() == parent:
        pass
    os.kill(os.getpid(), signal.SIGINT)
    if os.getppid() != parent:
        threading.Event().wait(_PATIENCE)
        os._exit(1)


def run_item(key: str, factory: bytes, index: int, item: Any) -> Outcome[Any]:
    """Run item number ``index``; ``factory`` is pickled, and called when ``key`` is new to this worker."""
    try:
        if key not in _made:
            _made.clear()
            _made[key] = pickle.loads(factory)()
            # loky collects garbage every second, and looks at all that importing torch has made: 7 % of the time.
            # What is there now stays, and need not be looked at.
            gc.unfreeze()  # what an earlier factory made may go
            gc.collect()
            gc.freeze()
        with _interruptible():
            if _stop is not None and _stop.is_set():
                raise KeyboardInterrupt
            return Outcome(index, value=_made[key](item))
    except KeyboardInterrupt:
        return Outcome(index, error=Failure(INTERRUPTED, "interrupted"))
    except Exception as error:  # any item may fail in any way; the others go on
        return Outcome(index, error=Failure.of(error))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt for a while, where this thread may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
