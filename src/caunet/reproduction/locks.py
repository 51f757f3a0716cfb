"""A lock on a folder that its owner cannot leave behind.

The kernel drops the lock when its process ends, however it ends, so there are no stale locks: a file
``.lock`` whose process is gone locks nothing. ``.owner`` beside it holds the owner's pid, for people.

>>> import tempfile, pathlib
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> with hold(folder) as mine:
...     mine, owner(folder) == os.getpid()
(True, True)
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["hold", "owner"]


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[bool]:
    """Try to lock ``folder`` (made if missing); yields whether it is ours. Never waits.

    Record locks belong to the process and are not inherited by its children, unlike ``flock``'s:
    a compiler started by a killed run cannot keep the folder locked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        # Not in the lock file itself: a process that opens and closes that again would lose its lock.
        (folder / ".owner").write_text(f"{os.getpid()}\n")
        yield True


def owner(folder: Path) -> int | None:
    """The pid of whoever locked ``folder`` last (its process may be gone), or ``None``."""
    try:
        return int((folder / ".owner").read_text())
    except (OSError, ValueError):
        return None
