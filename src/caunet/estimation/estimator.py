"""``caunet.estimate``: how are these two images related?

>>> import numpy as np
>>> scene = np.random.default_rng(0).random((12, 12)).repeat(8, 0).repeat(8, 1)
>>> found = estimate(scene[:80, :80], scene[4:84, 6:86], model="translation")
>>> found.matrix[:2, 2].round().tolist()
[-6.0, -4.0]
"""

import copy
import functools
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.confidence import confidence
from caunet.estimation.evidence import FAR
from caunet.estimation.motion_models import MotionModel, create_motion_model
from caunet.estimation.register import Registration, register
from caunet.estimation.result import Estimate, Field
from caunet.estimation.threads import cpu_threads
from caunet.images import read_image
from caunet.images.masks import find_border
from caunet.matching import Matcher
from caunet.matching.network import shipped_matcher
from caunet.models import RelationNetwork, load_pretrained

__all__ = ["Estimator", "estimate", "estimate_many"]

_AGREES = 1.0  # pixels of the level where motions were measured, up to which one agrees with the answer


class Estimator:
    """Relates images; one made for several calls loads its network once.

    Args:
        model: the motion model, what may relate the images: translation, euclidean, similarity, affine, projective,
            camera-rotation, or one of your own.
        device: where to compute; the CPU if not given.
        threads: CPU threads to use in a call; what torch is set to if not given.
        network: a network for the task ``motion``; the shipped one if not given. It is copied, and stays as it is.
        **options: of the motion model; camera-rotation has ``focal`` and ``principal_point``, in pixels.

    >>> Estimator("affin")
    Traceback (most recent call last):
    ...
    ValueError: model must be one of translation, ..., got 'affin'; did you mean 'affine'?
    """

    def __init__(
        self,
        model: str | MotionModel = "projective",
        *,
        device: torch.device | str | None = None,
        threads: int | None = None,
        network: RelationNetwork | None = None,
        **options: Any,
    ) -> None:
        self.motion_model = create_motion_model(model, **options)
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ValueError(f"threads must be a whole number of at least 1, got {threads!r}")
        self.threads = threads
        self.device = torch.device("cpu" if device is None else device)
        self.network = _shipped(str(self.device)) if network is None else _own(network, self.device)

    def __call__(self, a: Any, b: Any) -> Estimate:
        """How image ``b`` is related to image ``a``: anything that :func:`caunet.images.read_image` reads."""
        started = time.perf_counter()
        first = read_image(a, "a", device=self.device)
        second = read_image(b, "b", device=self.device)
        with torch.inference_mode(), cpu_threads(self.threads):
            masks = [find_border(image.gray) for image in (first, second)]
            found = register(first.gray, second.gray, self.network, self.motion_model, self._matcher, *masks)
        field, inliers = _field(found)
        sure = confidence(found.evidence)
        return Estimate(
            matrix=torch.from_numpy(found.H) if isinstance(a, Tensor) else found.H,
            model=self.motion_model.name,
            confidence=sure,
            covariance=found.covariance,
            reason=found.reason if found.reason != "found" else None,
            size_a=first.size,
            size_b=second.size,
            inliers=inliers,
            field=field,
            seconds=time.perf_counter() - started,
            model_options=self.motion_model.options,
        )

    def _matcher(self) -> Matcher:
        """A matcher with the shipped network, which is loaded when the first pair needs it."""
        return Matcher(shipped_matcher(str(self.device)))

    def many(self, pairs: Iterable[tuple[Any, Any]]) -> list[Estimate]:
        """One estimate for each pair, in order."""
        return [self(a, b) for a, b in pairs]


def estimate(a: Any, b: Any, model: str | MotionModel = "projective", **options: Any) -> Estimate:
    """How image ``b`` is related to image ``a``.

    Args:
        a, b: paths, bytes of files, PIL images, arrays (H, W[, C]) or tensors ([C,] H, W), of any sizes.
        model: translation, euclidean, similarity, affine, projective or camera-rotation (with ``focal=``, in pixels).
        **options: as :class:`Estimator` has them.
    """
    return Estimator(model, **options)(a, b)


def estimate_many(
    pairs: Iterable[tuple[Any, Any]], model: str | MotionModel = "projective", **options: Any
) -> list[Estimate]:
    """:func:`estimate` for each of ``pairs``, with one estimator."""
    return Estimator(model, **options).many(pairs)


@functools.lru_cache(maxsize=4)
def _shipped(device: str) -> RelationNetwork:
    return load_pretrained("motion", device=device)


def _own(network: RelationNetwork, device: torch.device) -> RelationNetwork:
    """A copy of the caller's network, to compute with."""
    if not isinstance(network, RelationNetwork):
        raise TypeError(f"network must be a RelationNetwork, got {type(network).__name__}")
    spec = network.model_spec
    if spec.dim < 2:
        raise ValueError(
            f"network must have a shift as its first two outputs, got one of the task {spec.task!r}, "
            f"which has {spec.dim}"
        )
    return copy.deepcopy(network).to(device, torch.float32).eval()


def _field(found: Registration) -> tuple[Field, Tensor]:
    """The motions in pixels of the images, and which of them agree with the answer."""
    weight = torch.tensor(found.weight.tolist(), dtype=torch.float32)
    error = np.hypot(*(geometry.apply(found.H, found.points, far=FAR) - found.targets).T)
    agree = torch.from_numpy(error < _AGREES * found.pixel) & (weight > 0)
    usable = torch.from_numpy((np.abs(found.targets) < FAR).all(1))
    points, motion = (torch.from_numpy(part) for part in (found.points, found.targets - found.points))
    return Field(points[usable], motion[usable], weight[usable]), agree[usable]
