"""``caunet.estimate``: how are these two pictures related?

>>> import numpy as np
>>> scene = np.random.default_rng(0).random((12, 12)).repeat(8, 0).repeat(8, 1)
>>> found = estimate(scene[:80, :80], scene[4:84, 6:86], model="translation")
>>> found.matrix[:2, 2].round().tolist()
[-6.0, -4.0]
"""

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.confidence import confidence
from caunet.estimation.evidence import FAR
from caunet.estimation.register import Registration, register
from caunet.estimation.result import MODELS, Estimate, Field
from caunet.images import read_image
from caunet.models import RelationNetwork, load_pretrained

__all__ = ["Estimator", "estimate", "estimate_many"]

_AGREES = 1.0  # pixels of the level where motions were measured, up to which one agrees with the answer


class Estimator:
    """Relates pictures; one made for several calls loads its network once.

    Args:
        model: what may relate the pictures: translation, euclidean, similarity, affine or projective.
        device: where to compute; the CPU if not given.
        threads: CPU threads to use in a call; what torch is set to if not given.
        network: a network for the task ``motion``; the shipped one if not given.

    >>> Estimator("affin")
    Traceback (most recent call last):
    ...
    ValueError: model takes one of translation, euclidean, similarity, affine, projective; got 'affin'
    """

    def __init__(
        self,
        model: str = "projective",
        *,
        device: torch.device | str | None = None,
        threads: int | None = None,
        network: RelationNetwork | None = None,
    ) -> None:
        if model not in MODELS:
            raise ValueError(f"model takes one of {', '.join(MODELS)}; got {model!r}")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ValueError(f"threads takes a whole number of at least 1, got {threads!r}")
        self.model, self.threads = model, threads
        self.device = torch.device("cpu" if device is None else device)
        self.network = _shipped(str(self.device)) if network is None else network.to(self.device).eval()
        if self.network.model_spec.dim < 2:
            raise ValueError(f"network takes one whose first two outputs are a shift, got task {network!r}")

    def __call__(self, a: Any, b: Any) -> Estimate:
        """How picture ``b`` is related to picture ``a``: anything :func:`read_image` reads."""
        started = time.perf_counter()
        first = read_image(a, "a", device=self.device)
        second = read_image(b, "b", device=self.device)
        with torch.inference_mode(), _threads(self.threads):
            found = register(first.gray, second.gray, self.network, self.model)
        field, inliers = _field(found)
        return Estimate(
            matrix=torch.from_numpy(found.H),
            model=self.model,
            confidence=confidence(found.evidence),
            size_a=first.size,
            size_b=second.size,
            inliers=inliers,
            field=field,
            seconds=time.perf_counter() - started,
        )

    def many(self, pairs: Iterable[tuple[Any, Any]]) -> list[Estimate]:
        """One estimate a pair, in order."""
        return [self(a, b) for a, b in pairs]


def estimate(a: Any, b: Any, model: str = "projective", **options: Any) -> Estimate:
    """How picture ``b`` is related to picture ``a``.

    Args:
        a, b: paths, bytes of files, PIL images, arrays (H, W[, C]) or tensors ([C,] H, W), of any sizes.
        model: translation, euclidean, similarity, affine or projective.
        **options: as :class:`Estimator` takes them.
    """
    return Estimator(model, **options)(a, b)


def estimate_many(
    pairs: Iterable[tuple[Any, Any]], model: str = "projective", **options: Any
) -> list[Estimate]:
    """:func:`estimate` for each of ``pairs``, with one estimator."""
    return Estimator(model, **options).many(pairs)


@functools.lru_cache(maxsize=4)
def _shipped(device: str) -> RelationNetwork:
    return load_pretrained("motion", device=device)


def _field(found: Registration) -> tuple[Field, Tensor]:
    """The motions in pixels of the pictures, and which of them agree with the answer."""
    factor = 2.0**found.level
    points = geometry.rescale_points(found.motions.points.double().cpu().numpy(), factor)
    target = geometry.rescale_points(found.targets, factor)
    weight = torch.tensor(found.motions.weight.tolist())  # no tensor of the inference mode leaves this place
    error = np.hypot(*(geometry.apply(found.H, points, far=FAR) - target).T)
    agree = torch.from_numpy(error < _AGREES * factor) & (weight > 0)
    usable = torch.from_numpy((np.abs(target) < FAR).all(1))
    motion = torch.from_numpy(target - points)
    return Field(torch.from_numpy(points)[usable], motion[usable], weight[usable]), agree[usable]


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    if count is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
