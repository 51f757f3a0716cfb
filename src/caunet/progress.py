"""One progress bar for everything that takes longer than two seconds; a line every ten seconds where there is none.

>>> with track(3, "warping") as bar:      # stderr is not a terminal in a test: nothing is drawn
...     for _ in range(3):
...         bar.advance(loss=0.25)
>>> bar.done
3
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import IO, Any, cast

__all__ = ["Track", "track"]

# Seconds between two lines of progress in a log file.
_EVERY = 10.0


class Track:
    """What :func:`track` yields: counts, and shows the count. By itself it is silent."""

    def __init__(self) -> None:
        self.done = 0

    def advance(self, n: int = 1, **fields: object) -> None:
        """Count ``n`` more; ``fields`` are shown behind the count (``loss=0.123``)."""
        self.done += n

    def say(self, text: str) -> None:
        """Show a line of text (``compiling ...``)."""


class _Bar(Track):
    """On a terminal, drawn by rich."""

    def __init__(self, bar: Any, task: Any) -> None:
        super().__init__()
        self._bar, self._task = bar, task

    def advance(self, n: int = 1, **fields: object) -> None:
        super().advance(n, **fields)
        update = {"note": _shown(fields)} if fields else {}
        self._bar.update(self._task, advance=n, **update)

    def say(self, text: str) -> None:
        self._bar.update(self._task, note=text)


class _Lines(Track):
    """In a file or a pipe: a line now and then, if it takes that long."""

    def __init__(self, total: int | None, description: str, unit: str) -> None:
        super().__init__()
        self._total, self._description, self._unit = total, description, unit
        self._next = time.monotonic() + _EVERY

    def advance(self, n: int = 1, **fields: object) -> None:
        super().advance(n, **fields)
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY
        of = "" if self._total is None else f" of {self._total:,}"
        self.say("  ".join(filter(None, [f"{self.done:,}{of} {self._unit}".rstrip(), _shown(fields)])))

    def say(self, text: str) -> None:
        stream = _Forgiving(sys.stderr)
        stream.write(f"{self._description}: {text}\n")
        stream.flush()


class _Forgiving:
    """A stream that may be closed at the other end (a terminal after SIGHUP): what runs goes on without it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def _shown(fields: dict[str, object]) -> str:
    return "  ".join(f"{name} {_short(value)}" for name, value in fields.items())


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextlib.contextmanager
def track(total: int | None, description: str, unit: str = "") -> Iterator[Track]:
    """Progress of ``total`` steps on stderr (``None``: unknown): a bar on a terminal, else a line every ten seconds.

    Under ``torchrun`` one process shows it.
    """
    if os.environ.get("RANK", "0") != "0":
        yield Track()
        return
    if not sys.stderr.isatty():
        yield _Lines(total, description, unit)
        return
    # rich takes a tenth of a second to import; only people at a terminal pay for it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    extra = (TimeRemainingColumn(compact=True), TextColumn("{task.fields[note]}"))
    console = Console(file=cast(IO[str], _Forgiving(sys.stderr)))
    with Progress(*columns, *extra, console=console, transient=True) as progress:
        yield _Bar(progress, progress.add_task(description, total=total, note=""))
