"""Everything the server refuses, as exceptions with a status of HTTP and one sentence for the client."""

__all__ = [
    "MISTAKE",
    "UNAVAILABLE",
    "BusyError",
    "FieldError",
    "Refused",
    "StoppingError",
    "TooLargeError",
    "TooLongError",
    "WorkerError",
]


MISTAKE = "The server made a mistake; its log says which."
"""Of a 500."""
UNAVAILABLE = "The server cannot load what this needs; its log says why."
"""Of a 503: weights or photographs that the server itself was given are missing or damaged."""


class Refused(Exception):
    """A request that is not answered with 200; ``detail`` is the sentence in the answer's JSON.

    >>> error = FieldError("x is missing.")
    >>> error.status, error.detail, error.retry
    (422, 'x is missing.', None)
    """

    status = 500
    retry: int | None = None
    """Seconds after which it may work, for the header Retry-After."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class FieldError(Refused):
    """A field that cannot be used; the sentence names it."""

    status = 422


class TooLargeError(Refused):
    """The request needs more bytes or more memory than it may."""

    status = 413


class BusyError(Refused):
    """All workers are busy, and the queue is full."""

    status = 503
    retry = 1

    def __init__(self, detail: str = "All workers are busy; try again in a moment.") -> None:
        super().__init__(detail)


class TooLongError(Refused):
    """The computation did not end within its time, and was stopped."""

    status = 504


class WorkerError(Refused):
    """The process that computed ended, or could not begin."""

    status = 503


class StoppingError(Refused):
    """The server is shutting down."""

    status = 503
    retry = 5

    def __init__(self, detail: str = "The server is shutting down.") -> None:
        super().__init__(detail)
