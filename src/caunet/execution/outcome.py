"""How an item ended: a value, or an error."""

import traceback
from dataclasses import dataclass
from typing import Generic, TypeVar

from caunet.errors import ItemError

__all__ = ["Failure", "Outcome"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Failure:
    """Why an item has no value."""

    kind: str
    """Name of the exception's class; ``WorkerDied`` when the item ended its worker."""
    message: str
    """The exception's message."""
    trace: str = ""
    """Where it was raised: the traceback as text."""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """The failure that ``error`` describes."""
        return cls(type(error).__name__, str(error), "".join(traceback.format_exception(error)))

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """How item number ``index`` ended: exactly one of ``value`` and ``error`` counts.

    >>> Outcome(3, value=1.5).result()
    1.5
    >>> Outcome(4, error=Failure("ValueError", "no image")).result()
    Traceback (most recent call last):
        ...
    caunet.errors.ItemError: item 4: ValueError: no image
    """

    index: int
    value: Result | None = None
    error: Failure | None = None

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.error is None

    def result(self) -> Result:
        """The value; raises :class:`caunet.errors.ItemError` when there is none."""
        if self.error is not None:
            raise ItemError(self.index, self.error.kind, self.error.message)
        return self.value  # type: ignore[return-value]  # None may be the value itself
