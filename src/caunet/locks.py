"""Folders that one process works in at a time: a file lock that the system releases when its holder dies.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> with hold(folder) as mine:
...     mine, owner(folder) == os.getpid()
(True, True)
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["hold", "owner"]


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[bool]:
    """Try to lock ``folder`` (made if missing); yields whether it is ours. Never waits.

    A thread that holds a folder may hold it again (a grid holds the folder of the run that it trains, and so does the
    run); another thread or process may not. Programs that are started while it is held do not inherit the lock: a
    compiler left behind by a killed run cannot keep the folder locked.

    Raises:
        OSError: the folder cannot be made or written.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(
        folder.resolve() / ".lock", is_singleton=True
    )  # one object for each file and thread: counts
    try:
        lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    try:
        (folder / ".owner").write_text(f"{os.getpid()}\n", encoding="ascii")
        yield True
    finally:
        lock.release()


def owner(folder: Path) -> int | None:
    """The process id of whoever locked ``folder`` last (its process may be gone), or ``None``."""
    try:
        return int((folder / ".owner").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
