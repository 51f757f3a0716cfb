"""One item after the other, in this process."""

from collections.abc import Iterable, Iterator

from caunet.execution.engine import Engine, Factory, Item, Result
from caunet.execution.outcome import Failure, Outcome

__all__ = ["Serial"]


class Serial(Engine):
    """The plainest engine, and the one that the others must agree with.

    >>> [outcome.value for outcome in Serial().map(str.upper, ["a", "b"])]
    ['A', 'B']
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers not in (None, 1):
            raise ValueError(f"workers must be 1 for engine 'serial', got {workers}; use engine 'processes'")
        self.workers = 1

    def close(self) -> None:
        """Nothing to end."""

    def _run(
        self, factory: Factory[Item, Result], items: Iterable[Item], ahead: int, lead: int | None
    ) -> Iterator[Outcome[Result]]:
        function = factory()
        for index, item in enumerate(items):
            try:
                outcome = Outcome(index, value=function(item))
            except Exception as error:  # any item may fail in any way; the others go on
                outcome = Outcome(index, error=Failure.of(error))
            yield outcome
