"""Estimates inside of a Ray dataset: ``dataset.map_batches(EstimateBatch, concurrency=n)``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from caunet.estimation.estimator import Estimator
from caunet.estimation.motion_models import MotionModel
from caunet.estimation.tables import COLUMNS, arrow_table, line_of
from caunet.execution import Failure, Outcome
from caunet.extras import require

__all__ = ["EstimateBatch"]


class EstimateBatch:
    """A callable class for :meth:`ray.data.Dataset.map_batches`: each actor loads the networks once.

    It takes batches with two columns of images (paths, bytes of files or arrays) and gives tables with the columns of
    ``caunet estimate-many``: the matrix as h11 to h33, confidence, reason, shift, angle, scale, seconds, error. Paths
    and all other columns of the batch stay; images themselves are left out. A pair that cannot be estimated is a row
    with an ``error``, and the others go on. Extra ``ray``.

    Args:
        model: the motion model.
        a, b: names of the columns with the two images.
        threads: CPU threads of each actor; Ray gives an actor of ``map_batches`` one core unless told otherwise.
        **options: as :class:`caunet.Estimator` has them.

    >>> scene = np.random.default_rng(0).random((12, 12)).repeat(8, 0).repeat(8, 1)
    >>> estimate = EstimateBatch("translation")
    >>> table = estimate({"a": scene[None, :80, :80], "b": scene[None, 4:84, 6:86], "day": np.array([7])})
    >>> [round(table[name][0].as_py()) for name in ("h13", "h23", "day")]
    [-6, -4, 7]
    """

    def __init__(
        self,
        model: str | MotionModel = "projective",
        *,
        a: str = "a",
        b: str = "b",
        threads: int | None = 1,
        **options: Any,
    ) -> None:
        self.a, self.b = a, b
        self.estimator = Estimator(model, threads=threads, **options)

    def __call__(self, batch: Mapping[str, Any]) -> Any:
        """The table (a :class:`pyarrow.Table`) of a batch, given as arrays or lists by column name."""
        for name in (self.a, self.b):
            if name not in batch:
                raise ValueError(f"the batch must have a column {name!r}, got {', '.join(map(repr, batch))}")
        pairs = zip(batch[self.a], batch[self.b], strict=True)
        table = arrow_table([self._line(index, *pair) for index, pair in enumerate(pairs)])
        arrow = require("pyarrow", "ray", "EstimateBatch")
        for name, column in batch.items():
            if name not in COLUMNS and not _holds_images(column):
                table = table.append_column(name, arrow.array(list(column)))
        return table

    def _line(self, index: int, a: Any, b: Any) -> dict[str, Any]:
        try:
            outcome = Outcome(index, value=self.estimator(_plain(a), _plain(b)))
        except Exception as error:  # any pair may fail in any way; the others go on
            outcome = Outcome(index, error=Failure.of(error))
        return line_of(_name(a), _name(b), self.estimator.motion_model.name, outcome)


def _plain(image: Any) -> Any:
    """NumPy's strings as Python's."""
    return str(image) if isinstance(image, str) else image


def _name(image: Any) -> str | None:
    """What stands in the columns a and b: a path; nothing for pixels."""
    return str(image) if isinstance(image, str) else None


def _holds_images(column: Any) -> bool:
    first = next(iter(column), None)
    return isinstance(first, bytes) or (isinstance(first, np.ndarray) and first.ndim >= 2)
