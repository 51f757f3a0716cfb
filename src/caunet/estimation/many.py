"""Many pairs of images: here, in processes, on a cluster; a bad pair is an error of its own and not the end.

>>> import numpy as np
>>> scene = np.random.default_rng(0).random((12, 12)).repeat(8, 0).repeat(8, 1)
>>> pairs = [(scene[:80, :80], scene[4:84, 6:86]), (scene, "nowhere.png")]
>>> for outcome in estimate_many(pairs, "translation"):
...     print(outcome.index, outcome.ok, outcome.value or outcome.error.kind)
0 True Estimate(translation, shift (-6.00, -4.00) px, angle +0.00°, scale 1.0000, confidence ...)
1 False ImageError
"""

import functools
from collections.abc import Callable, Generator, Iterable
from typing import Any

from caunet.estimation.estimator import Estimator
from caunet.estimation.motion_models import MotionModel
from caunet.estimation.result import Estimate
from caunet.execution import Outcome, create_engine

__all__ = ["AHEAD", "estimate_many", "iterate_estimates"]

Pair = tuple[Any, Any]

AHEAD = 4
"""Pairs that wait for each worker beside the one that it estimates. One takes some hundredths of a second: a worker
would stand idle whenever this process is late by more than that."""


def estimate_many(
    pairs: Iterable[Pair],
    model: str | MotionModel = "projective",
    *,
    engine: str = "serial",
    workers: int | None = None,
    address: str | None = None,
    progress: bool = False,
    **options: Any,
) -> list[Outcome[Estimate]]:
    """:func:`caunet.estimate` for each of ``pairs``: one outcome per pair, in their order.

    An outcome has an ``index`` and either a ``value``, the estimate, or an ``error``; its ``result()`` is the value or
    raises. Each worker loads the networks once.

    Args:
        pairs: any iterable of (a, b); with another engine than ``serial``, of what can be pickled (paths are best).
        model: the motion model.
        engine: ``serial`` (one after the other), ``processes`` (on this machine) or ``ray`` (a cluster; extra ``ray``).
            Workers have one thread each.
        workers: how many pairs at once; by default one per core.
        address: of a Ray cluster to join.
        progress: show a progress bar.
        **options: as :class:`Estimator` has them.
    """
    made = iterate_estimates(
        pairs, model, engine=engine, workers=workers, address=address, progress=progress, **options
    )
    return list(made)


def iterate_estimates(
    pairs: Iterable[Pair],
    model: str | MotionModel = "projective",
    *,
    engine: str = "serial",
    workers: int | None = None,
    address: str | None = None,
    ordered: bool = True,
    progress: bool = False,
    **options: Any,
) -> Generator[Outcome[Estimate], None, None]:
    """The outcomes of :func:`estimate_many` one by one; not ``ordered``, as they are done."""
    Estimator(model, **options)  # a wrong option is refused here, not once for each pair
    with create_engine(engine, workers, address) as running:
        factory = functools.partial(_make, model, options)
        shown = "estimating" if progress else None
        yield from running.run(factory, pairs, ordered=ordered, progress=shown, ahead=AHEAD)


def _make(model: str | MotionModel, options: dict[str, Any]) -> Callable[[Pair], Estimate]:
    """What a worker runs on each pair."""
    return functools.partial(_estimate, Estimator(model, **options))


def _estimate(estimator: Estimator, pair: Any) -> Estimate:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"pairs must be (a, b) each, got {type(pair).__name__}")
    return estimator(pair[0], pair[1])
