"""What an engine is, and the three there are by name."""

import contextlib
import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, TypeVar

from caunet.execution.outcome import Outcome
from caunet.progress import track

__all__ = ["ENGINES", "Engine", "create_engine"]

Item = TypeVar("Item")
Result = TypeVar("Result")
Factory = Callable[[], Callable[[Item], Result]]

ENGINES = {
    "serial": "caunet.execution.serial:Serial",
    "processes": "caunet.execution.processes:Processes",
    "ray": "caunet.execution.ray:Ray",
}
"""Engines by name, as ``module:class``; a module is imported when its engine is asked for."""


_LEAD = 4  # items that may be ahead of the slowest one, in units of those under way


class Engine(ABC):
    """Runs functions on items. Close it (or use it in a ``with`` block) to end its workers.

    Engines differ in where items are run, not in what comes out.
    """

    workers: int
    """How many items are run at the same time."""

    def run(
        self,
        factory: Factory[Item, Result],
        items: Iterable[Item],
        *,
        ordered: bool = True,
        progress: str | None = None,
        ahead: int = 1,
    ) -> Iterator[Outcome[Result]]:
        """One outcome per item.

        Args:
            factory: called once in each worker; what it returns is called with each item. Module-level functions,
                partials and closures will do.
            items: any iterable. It is read only a few items ahead of the work, so it may be long, or lazy.
            ordered: outcomes in the order of the items; otherwise as they are done.
            progress: a word for what is being done; shows a progress bar.
            ahead: how many items wait for each worker beside the one that it runs. Items that take seconds can do with
                0, and then an item is taken from ``items`` only when a worker is free for it.

        Ctrl-C is passed on to the items being run, which may end early with a value (a training saves its state);
        their outcomes are yielded, and then KeyboardInterrupt is raised.
        """
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
            raise ValueError(f"ahead must be a whole number of at least 0, got {ahead!r}")
        # In order, an early outcome waits for the late ones before it: no more of them than this.
        lead = _LEAD * self.workers * (1 + ahead) if ordered else None
        outcomes = self._run(factory, items, ahead, lead)
        if ordered:
            outcomes = _in_order(outcomes)
        if progress is None:
            yield from outcomes
            return
        with track(len(items) if isinstance(items, Sized) else None, progress, "items") as bar:
            for outcome in outcomes:
                bar.advance()
                yield outcome

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        ordered: bool = True,
        progress: str | None = None,
    ) -> Iterator[Outcome[Result]]:
        """:meth:`run` for a function that needs no preparation.

        >>> [outcome.result() for outcome in create_engine("serial").map(abs, [-1, 2])]
        [1, 2]
        """
        return self.run(functools.partial(_same, function), items, ordered=ordered, progress=progress)

    @abstractmethod
    def _run(
        self, factory: Factory[Item, Result], items: Iterable[Item], ahead: int, lead: int | None
    ) -> Iterator[Outcome[Result]]:
        """Outcomes as they are done; no item is begun that is ``lead`` or more behind the first that has not ended."""

    @abstractmethod
    def close(self) -> None:
        """End the workers; a closed engine starts new ones when it is used again."""

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def create_engine(name: str = "serial", workers: int | None = None, address: str | None = None) -> Engine:
    """The engine called ``name``.

    Args:
        name: ``serial`` (in this process), ``processes`` (on this machine) or ``ray`` (a cluster; extra ``ray``).
        workers: how many items at once; by default one per usable core (of the cluster, for ``ray``).
        address: of a Ray cluster to join; without it Ray is started on this machine.

    >>> create_engine("threads")
    Traceback (most recent call last):
        ...
    ValueError: engine must be one of serial, processes, ray, got 'threads'
    """
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be a whole number of at least 1, got {workers!r}")
    if address is not None and name != "ray":
        raise ValueError(f"address is for engine 'ray' only, got {address!r} with engine {name!r}")
    module, _, attribute = ENGINES[name].partition(":")
    engine: Any = getattr(importlib.import_module(module), attribute)
    made: Engine = engine(workers, address) if name == "ray" else engine(workers)
    return made


def _same(function: Callable[[Item], Result]) -> Callable[[Item], Result]:
    return function


def _in_order(outcomes: Iterator[Outcome[Result]]) -> Iterator[Outcome[Result]]:
    """Outcomes by index; those that come early wait for their turn, and for no longer when the run is interrupted."""
    early: dict[int, Outcome[Result]] = {}
    turn = 0
    try:
        for outcome in outcomes:
            early[outcome.index] = outcome
            while turn in early:
                yield early.pop(turn)
                turn += 1
    except KeyboardInterrupt:
        yield from (early[index] for index in sorted(early))
        raise
    finally:
        with contextlib.suppress(AttributeError):
            outcomes.close()  # type: ignore[attr-defined]  # a generator: its workers end now, not when it is collected
