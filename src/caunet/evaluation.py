"""Evaluation: any predictor on any source of pairs, streaming, in bounded memory.

A predictor is a network or any function (x, y) -> z_hat; a source is a :class:`caunet.data.PairSource` or
anything with its ``batch``, ``homography``, ``task`` and ``patch``.

>>> from caunet.data.pairs import PairSource
>>> from caunet.models import create_model
>>> images = torch.randint(0, 256, (4, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
>>> source = PairSource(images, "rotation")
>>> errors = evaluate(create_model("can", "rotation", seed=0), source)
>>> errors["count"], sorted(errors["corner_error"])
(40, ['mean', 'median', 'p90'])
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from caunet.metrics import ErrorSums, ParameterSums
from caunet.progress import track
from caunet.tasks import Task

__all__ = ["PredictionCounts", "Predictor", "Source", "error_sums", "evaluate"]

Predictor = Callable[[Tensor, Tensor], Tensor]


class Source(Protocol):
    """What evaluation asks of a source of pairs."""

    task: Task
    protocol: str
    patch: int

    @property
    def rows_first(self) -> bool:
        """Whether z is (rows, columns), y before x."""

    def __len__(self) -> int: ...

    def batch(self, epoch: int, index: Tensor) -> Any:
        """Pairs (x, y, z)."""

    def homography(self, z: Tensor) -> Tensor:
        """z (B, dim), in the source's order, to H (B, 3, 3)."""


class PredictionCounts:
    """For each parameter of z: how often which truth met which prediction. Fixed bins, so shards add up.

    ``counts`` is (dim, bins, bins): truth, prediction, over the task's range; what lies outside the range is
    counted in the outermost bins.
    """

    def __init__(self, task: Task, bins: int = 60, names: tuple[str, ...] | None = None) -> None:
        self.task, self.bins, self.names = task, bins, names or task.names
        self.counts = torch.zeros(task.dim, bins, bins, dtype=torch.int64)

    def update(self, z_hat: Tensor, z: Tensor) -> None:
        """Count inferred and true parameters, (B, dim) each; what is not finite is left out."""
        finite = z_hat.isfinite().all(dim=-1)
        inferred, truth = self._bin(z_hat[finite]), self._bin(z[finite])
        for dim, counts in enumerate(self.counts):
            place = (truth[:, dim] * self.bins + inferred[:, dim]).cpu()
            counts += torch.bincount(place, minlength=self.bins**2).reshape(self.bins, self.bins)

    def compute(self) -> dict[str, Any]:
        """``names``, ``low``, ``high`` of the dimensions and ``counts`` as nested lists."""
        task = self.task
        return {
            "names": list(self.names),
            "low": list(task.low),
            "high": list(task.high),
            "counts": self.counts.tolist(),
        }

    def _bin(self, z: Tensor) -> Tensor:
        z = z.double()
        low, high = z.new_tensor(self.task.low), z.new_tensor(self.task.high)
        return ((z - low) / (high - low) * self.bins).floor().clamp(0, self.bins - 1).long()


def evaluate(
    predictor: nn.Module | Predictor,
    source: Source,
    *,
    batch: int = 2000,
    limit: int | None = None,
    epoch: int = 0,
    predictions: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Errors of ``predictor`` on the pairs of ``source``, as JSON-able data.

    Args:
        predictor: a network, or a function from x, y (B, patch, patch) to z (B, dim).
        source: where the pairs come from; all of epoch ``epoch``, or the first ``limit`` of them.
        batch: pairs at a time.
        predictions: also count predictions against truths (``predictions`` in the result).
        progress: show a bar, where there is a terminal to show it on.

    Returns:
        ``count``, ``parameter_error``, ``transformation_error``, ``corner_error`` with ``mean``, ``median``,
        ``p90``, ``histogram``, ``not_finite``, ``task``, ``protocol``; ``per_parameter``: for each parameter of z, by
        name and in the source's order, ``error``, ``error_of_mean`` and ``r2`` (:class:`caunet.metrics.ParameterSums`);
        ``parameter_error_of_mean``: the parameter error of always predicting the mean of z over these pairs. A mean
        that is not finite is ``None``.
    """
    names = _names(source)
    counts = PredictionCounts(source.task, names=names) if predictions else None
    parameters = ParameterSums(source.task.dim)
    sums = error_sums(
        predictor,
        source,
        batch=batch,
        stop=_stop(source, limit),
        epoch=epoch,
        counts=counts,
        parameters=parameters,
        progress=progress,
    )
    each = parameters.compute(names)
    found = {**sums.compute(), "task": source.task.name, "protocol": source.protocol, "per_parameter": each}
    found["parameter_error_of_mean"] = sum(one["error_of_mean"] for one in each.values()) / len(each)
    return found if counts is None else {**found, "predictions": counts.compute()}


def error_sums(
    predictor: nn.Module | Predictor,
    source: Source,
    *,
    batch: int = 2000,
    start: int = 0,
    stop: int | None = None,
    epoch: int = 0,
    counts: PredictionCounts | None = None,
    parameters: ParameterSums | None = None,
    progress: bool = True,
) -> ErrorSums:
    """Sums of errors over pairs ``start`` to ``stop`` - 1: one shard, to be merged with others.

    ``counts`` and ``parameters``, if given, are updated, too.
    """
    if batch < 1:
        raise ValueError(f"batch must be 1 or more, got {batch!r}")
    stop = len(source) if stop is None else stop
    if not 0 <= start <= stop <= len(source):
        raise ValueError(
            f"start and stop must be 0 <= start <= stop <= {len(source)}, got {start} and {stop}"
        )
    sums = ErrorSums()
    bar = track(stop - start, "evaluating", "pairs") if progress else contextlib.nullcontext(None)
    # Not inference_mode: the source may keep pairs it makes here, and tensors of inference mode cannot be trained on.
    with _eval_mode(predictor), torch.no_grad(), bar as shown:
        for first in range(start, stop, batch):
            index = torch.arange(first, min(first + batch, stop))
            x, y, z = source.batch(epoch, index)
            z_hat = _predict(predictor, x, y, z)
            sums.update(z_hat, z, source, source.patch)
            if counts is not None:
                counts.update(z_hat, z)
            if parameters is not None:
                parameters.update(z_hat, z)
            if shown is not None:
                shown.advance(len(index))
    return sums


def _predict(predictor: nn.Module | Predictor, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """z_hat (B, dim), where and how z is, wherever the predictor works."""
    if isinstance(predictor, nn.Module):
        like = next(predictor.parameters(), x)
        x, y = (t.to(device=like.device, dtype=like.dtype) for t in (x, y))
    z_hat: Tensor = predictor(x, y)
    if z_hat.shape != z.shape:
        got, wanted = tuple(z_hat.shape), tuple(z.shape)
        raise ValueError(f"predictor must give z of shape {wanted}, got {got}: is it for another task?")
    return z_hat.to(z.device)


def _names(source: Source) -> tuple[str, ...]:
    """The task's names of the parameters, in the source's order."""
    names = source.task.names
    return names[::-1] if source.rows_first else names


def _stop(source: Source, limit: int | None) -> int:
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be 1 or more pairs (None for all), got {limit!r}")
    return len(source) if limit is None else min(limit, len(source))


@contextlib.contextmanager
def _eval_mode(predictor: nn.Module | Predictor) -> Iterator[None]:
    """Put a network in evaluation mode for a while."""
    if not isinstance(predictor, nn.Module):
        yield
        return
    was_training = predictor.training
    predictor.eval()
    try:
        yield
    finally:
        predictor.train(was_training)
