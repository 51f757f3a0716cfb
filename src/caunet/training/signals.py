"""Signals that ask a run to stop: Ctrl-C, and what schedulers and closing terminals send."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["StopRequest", "stop_on_signals"]

# SIGHUP does not exist on Windows.
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class StopRequest:
    """Whether, and by which signal, the run was asked to stop; 0 when it was not."""

    def __init__(self) -> None:
        self.signal = 0


@contextlib.contextmanager
def stop_on_signals(at_once: Callable[[], bool]) -> Iterator[StopRequest]:
    """Turn the first SIGINT, SIGTERM or SIGHUP into a request that the loop reads between updates.

    A second one ends the program at once. Under ``torchrun`` one Ctrl-C arrives twice, from the terminal and from the
    launcher (which kills those that are not done after half a minute), so there a second signal changes nothing.
    SIGHUP stays ignored if it was: that is what ``nohup`` asks for. In a thread that is not the main one, nothing is
    changed: Python delivers signals to the main thread.

    Args:
        at_once: whether the program should be left right now (by KeyboardInterrupt) instead of after the update that
            is under way: while it compiles, which takes long.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def ask(signum: int, frame: FrameType | None) -> None:
        again, request.signal = request.signal, request.signal or signum
        if at_once() and not again:
            raise KeyboardInterrupt
        if again and "TORCHELASTIC_RUN_ID" not in os.environ:
            if signum == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + signum)

    ignored = {s for s in _SIGNALS if s != signal.SIGINT and signal.getsignal(s) is signal.SIG_IGN}
    previous = {s: signal.signal(s, ask) for s in _SIGNALS if s not in ignored}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
