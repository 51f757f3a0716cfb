"""Failures of the world outside the program: each message says what to do about it.

Wrong arguments are ``ValueError`` or ``TypeError`` as everywhere in Python. What is here is for files,
networks and runs, so that a program (and the command line) can catch one class and show one line.
"""

__all__ = [
    "CaunetError",
    "CheckpointError",
    "DataError",
    "DivergenceError",
    "FeaturesError",
    "ItemError",
    "MissingExtraError",
    "PeerError",
    "RunBusyError",
    "TrainingError",
]


class CaunetError(Exception):
    """Base of every failure that is not a programming mistake."""


class DataError(CaunetError):
    """Images could not be had: missing, unreadable, not what they should be."""


class ItemError(CaunetError):
    """One of many items has no result; ``index`` says which, ``kind`` is the name of the exception it ended with."""

    def __init__(self, index: int, kind: str, message: str) -> None:
        super().__init__(f"item {index}: {kind}: {message}")
        self.index, self.kind, self.message = index, kind, message


class MissingExtraError(CaunetError, ImportError):
    """An optional dependency is not installed; ``extra`` is the extra of caunet that brings ``module``."""

    def __init__(self, module: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {module}: pip install 'caunet[{extra}]'")
        self.module, self.extra = module, extra


class CheckpointError(CaunetError):
    """A checkpoint or weights file is missing, damaged, or belongs to another run."""


class FeaturesError(CheckpointError, ValueError):
    """A weights file needs another ``features`` module than the one that was passed."""


class TrainingError(CaunetError):
    """A run cannot go on: its loss is not finite, its disk is full, its configuration has changed."""


class DivergenceError(TrainingError):
    """The loss or a gradient is not finite, or the loss has grown far beyond its beginning.

    ``update`` is the number of the update (from 1) at which this was noticed, ``loss`` the loss there, if it is known.
    """

    def __init__(self, message: str, update: int | None = None, loss: float | None = None) -> None:
        super().__init__(message)
        self.update, self.loss = update, loss


class RunBusyError(TrainingError):
    """Another process (``owner``, its process id, if known) works in the same run directory."""

    def __init__(self, message: str, owner: int | None = None) -> None:
        super().__init__(message)
        self.owner = owner


class PeerError(TrainingError):
    """Another process of a data-parallel run has failed; that one says why."""
