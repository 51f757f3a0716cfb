"""What the tests of engines run: importable by workers."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


def square(x: int) -> int:
    return x * x


def fail_on_three(x: int) -> int:
    if x == 3:
        raise ValueError("three is bad")
    return x * x


def counting(folder: Path) -> Callable[[int], int]:
    """A factory that leaves a file for each time it is called."""
    (folder / f"made-{os.getpid()}-{time.monotonic_ns()}").touch()
    return square


def die(x: int) -> int:
    """Item 2 always ends its worker."""
    if x == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return x * x


def die_once(folder: Path) -> Callable[[int], int]:
    """The first worker that gets item 2 dies; the next one does it."""

    def run(x: int) -> int:
        (folder / f"ran-{x}-{time.monotonic_ns()}").touch()
        mark = folder / "died"
        if x == 2 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x * x

    return run


def save_when_interrupted(x: int) -> str:
    """Ends with a value when interrupted, as a training does."""
    if x == 0:
        return "quick"
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        return f"saved {x}"
    return "slept"


def environment(_: int) -> tuple[str | None, int]:
    return os.environ.get("OMP_NUM_THREADS"), os.getpid()


def slow_fail_on_three(x: int) -> int:
    time.sleep(0.05)
    return fail_on_three(x)


def first_is_slow(x: int) -> int:
    time.sleep(1.5 if x == 0 else 0.0)
    return x


def draw_a_bar(count: int) -> int:
    """How many steps a progress bar of tqdm counts."""
    import io

    from tqdm import tqdm

    return len(list(tqdm(range(count), file=io.StringIO())))
