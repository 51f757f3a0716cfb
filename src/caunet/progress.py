"""One progress bar for everything that takes longer than two seconds; silent when nobody is watching.

>>> with track(3, "warping") as bar:      # stderr is not a terminal in a test: nothing is drawn
...     for _ in range(3):
...         bar.advance(loss=0.25)
>>> bar.done
3
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["Track", "track"]


class Track:
    """What :func:`track` yields: counts, and draws when there is a bar to draw on."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self.done = 0
        self._bar, self._task = bar, task

    def advance(self, n: int = 1, **fields: object) -> None:
        """Count ``n`` more; ``fields`` are shown behind the bar (``loss=0.123``)."""
        self.done += n
        if self._bar is not None:
            shown = "  ".join(f"{name} {_short(value)}" for name, value in fields.items())
            update = {"note": shown} if fields else {}
            self._bar.update(self._task, advance=n, **update)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextlib.contextmanager
def track(total: int | None, description: str, unit: str = "") -> Iterator[Track]:
    """A bar of ``total`` steps on stderr (``None``: a pulse). Silent when stderr is not a terminal."""
    if not sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":  # under torchrun one process draws
        yield Track()
        return
    # rich takes a tenth of a second to import; only people at a terminal pay for it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    extra = (TimeRemainingColumn(compact=True), TextColumn("{task.fields[note]}"))
    with Progress(*columns, *extra, console=Console(stderr=True), transient=True) as bar:
        yield Track(bar, bar.add_task(description, total=total, note=""))
