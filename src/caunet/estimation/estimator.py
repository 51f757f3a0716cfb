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
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caunet import geometry
from caunet.estimation.confidence import confidence, doubt
from caunet.estimation.evidence import FAR
from caunet.estimation.limits import Bounds, Limits
from caunet.estimation.motion_models import PLANE, Fixed, MotionModel, create_motion_model
from caunet.estimation.polish import unit_coordinates
from caunet.estimation.reasons import Reason
from caunet.estimation.regions import Part, part_of
from caunet.estimation.register import Registration, register
from caunet.estimation.result import Estimate, Field
from caunet.estimation.uncertainty import of_points
from caunet.geometry import Matrix
from caunet.images import LoadedImage, read_image, read_mask
from caunet.images.masks import find_border
from caunet.matching import Matcher
from caunet.matching.network import shipped_matcher
from caunet.models import RelationNetwork, load_pretrained
from caunet.threads import cpu_threads

__all__ = ["Estimator", "estimate"]

_ENOUGH = 0.95  # confidence from which no other channel is asked
_AGREES = 1.0  # pixels of the level where motions were measured, up to which one agrees with the answer


class Estimator:
    """Relates images; one made for several calls loads its network once.

    Args:
        model: the motion model, what may relate the images: translation, euclidean, similarity, affine, projective,
            camera-rotation, or one of your own.
        bounds: how far an answer may go, a dict with some of ``shift`` (the largest, in pixels), ``angle`` (the
            largest, in degrees, or (smallest, largest)) and ``scale`` (the largest factor, or (smallest, largest)), as
            :attr:`Estimate.parameters` measures them. Other answers are not given: the reason is ``out of range``.
        fixed: parameters that are known, such as ``{"angle": 0}``: shift_x, shift_y, angle, scale, as far as the motion
            model has them (of affine and projective both shifts).
        channel: what is compared of color images: ``gray`` (the default), ``red``, ``green``, ``blue`` or an index;
            ``all``: gray, then each color, until one of them is surely right, and the most confident answer; or two
            of these, for a and for b.
        find_borders: look for borders of one gray level and round apertures, and leave them out, in images for which
            no mask is given.
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
        bounds: Bounds | Mapping[str, Any] | None = None,
        fixed: Mapping[str, float] | None = None,
        channel: int | str | tuple[int | str, int | str] | None = None,
        find_borders: bool = True,
        device: torch.device | str | None = None,
        threads: int | None = None,
        network: RelationNetwork | None = None,
        **options: Any,
    ) -> None:
        self.motion_model = create_motion_model(model, **options)
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise ValueError(f"threads must be a whole number of at least 1, got {threads!r}")
        if not isinstance(find_borders, bool):
            raise TypeError(f"find_borders must be True or False, got {find_borders!r}")
        self.bounds, self.find_borders, self.threads = Bounds.of(bounds), find_borders, threads
        self.fixed = None if fixed is None else dict(Fixed(self.motion_model, fixed).fixed)
        self.channels = _channels(channel)
        self.device = torch.device("cpu" if device is None else device)
        self.network = _shipped(str(self.device)) if network is None else _own(network, self.device)

    def __call__(
        self,
        a: Any,
        b: Any,
        *,
        mask_a: Any = None,
        mask_b: Any = None,
        region: Any = None,
        region_b: Any = None,
        initial: Any = None,
    ) -> Estimate:
        """How image ``b`` is related to image ``a``: anything that :func:`caunet.images.read_image` reads.

        Args:
            mask_a, mask_b: which pixels show the scene, (H, W): arrays or tensors of bool or uint8, PIL images or
                paths; what is not zero counts. Transparent, NaN and masked pixels never do.
            region, region_b: (x, y, width, height), the part of a (of b) to compare; the matrix is that of the whole
                images, the confidence speaks of the region's corners.
            initial: (3, 3), or an Estimate, from a to b: tried first.
        """
        started = time.perf_counter()
        best: tuple[float, Registration] | None = None
        for first, second in self._readings(a, b):
            with torch.inference_mode(), cpu_threads(self.threads):
                mask_1, mask_2 = self._mask(first, mask_a, "mask_a"), self._mask(second, mask_b, "mask_b")
                parts = (
                    part_of(first, mask_1, region, "region", crop=self._crops),
                    part_of(second, mask_2, region_b, "region_b", crop=self._crops),
                )
                found = self._register((first.size, second.size), parts, initial)
            sure = confidence(found.evidence)
            best = (sure, found) if best is None or sure > best[0] else best
            if sure >= _ENOUGH:
                break
        assert best is not None
        sure, found = best
        field, inliers = _field(found)
        return Estimate(
            matrix=torch.from_numpy(found.H) if isinstance(a, Tensor) else found.H,
            model=self.motion_model.name,
            confidence=sure,
            covariance=found.covariance,
            explained=found.evidence.get("explained"),
            reason=_reason(found, sure),
            size_a=first.size,
            size_b=second.size,
            inliers=inliers,
            field=field,
            seconds=time.perf_counter() - started,
            model_options=self.motion_model.options,
        )

    def _readings(self, a: Any, b: Any) -> Iterator[tuple[LoadedImage, LoadedImage]]:
        """Both images, gray; with the channel ``all`` then the colors of both, or of the one that has any."""
        several = [channel == "all" for channel in self.channels]
        first, second = (
            read_image(image, name, device=self.device, channel=None if all_of else channel)
            for image, name, channel, all_of in zip((a, b), "ab", self.channels, several, strict=True)
        )
        yield first, second
        colored = [
            one and image.pixels.ndim == 3 for one, image in zip(several, (first, second), strict=True)
        ]
        for channel in ("red", "green", "blue") if any(colored) else ():
            yield (
                read_image(first, "a", channel=channel) if colored[0] else first,
                read_image(second, "b", channel=channel) if colored[1] else second,
            )

    def batch(self, a: Tensor, b: Tensor, *, mask_a: Any = None, mask_b: Any = None) -> list[Estimate]:
        """One estimate for each pair of images of two batches of tensors (B, C, H, W) or (B, H, W).

        The pairs are estimated one after the other, each as a call of its own would (images that differ in what they
        need have no steps in common); masks are (B, H, W). The batches may be on any device.
        """
        for name, batch in (("a", a), ("b", b)):
            if not isinstance(batch, Tensor):
                raise TypeError(
                    f"{name} must be a tensor (B, C, H, W) or (B, H, W), got {type(batch).__name__}"
                )
            if batch.ndim not in (3, 4):
                raise ValueError(
                    f"{name} must be a tensor (B, C, H, W) or (B, H, W), got {tuple(batch.shape)}"
                )
        if len(a) != len(b):
            raise ValueError(f"b must have as many images as a, {len(a)}, got {len(b)}")
        for name, masks in (("mask_a", mask_a), ("mask_b", mask_b)):
            if masks is not None and (not hasattr(masks, "shape") or len(masks) != len(a)):
                raise ValueError(f"{name} must have shape (B, H, W) with B = {len(a)}, got {_shape(masks)}")
        return [
            self(
                a[k],
                b[k],
                mask_a=None if mask_a is None else mask_a[k],
                mask_b=None if mask_b is None else mask_b[k],
            )
            for k in range(len(a))
        ]

    def many(self, pairs: Iterable[tuple[Any, Any]]) -> list[Estimate]:
        """One estimate for each pair, in order."""
        return [self(a, b) for a, b in pairs]

    @property
    def _crops(self) -> bool:
        """Whether a region may be cut out: not where the motion model depends on the image's center."""
        return self.motion_model.name in PLANE and not self.fixed

    def _register(
        self, sizes: tuple[tuple[int, int], tuple[int, int]], parts: tuple[Part, Part], initial: Any
    ) -> Registration:
        """Register two parts of images of these ``sizes``; the answer is that of the images."""
        a, b = parts
        model = self.motion_model if self.fixed is None else Fixed(self.motion_model, self.fixed)
        no_motion, limits = model.initial(*sizes), self._limits(sizes[0])
        if limits is not None and not limits.contains(no_motion):
            no_motion = _member(model, limits.nearest(no_motion), sizes)
            if not limits.contains(no_motion):
                raise ValueError(
                    f"bounds must allow a motion of the model {self.motion_model.name!r}, got {self.bounds}"
                )
        given = _initial(initial)
        given = None if given is None else _member(model, given, sizes)
        if given is not None and limits is not None and not limits.contains(given):
            raise ValueError(f"initial must be within the bounds {self.bounds}, got {given.tolist()}")
        if given is None and (a.cropped or b.cropped):
            given = no_motion  # the parts have other sizes: see what of them corresponds
        found = register(
            a.gray,
            b.gray,
            self.network,
            model,
            self._matcher,
            a.mask,
            b.mask,
            no_motion=_between(no_motion, a, b) if a.cropped or b.cropped or limits is not None else None,
            initial=None if given is None else _between(given, a, b),
            limits=None if limits is None else limits.inside(a.into, b.into),
        )
        return _of_whole(found, sizes[0], a, b) if a.cropped or b.cropped else found

    def _limits(self, size: tuple[int, int]) -> Limits | None:
        """The bounds, and what is fixed as such: a search then tries nothing else."""
        fixed = self.fixed or {}
        angle, scale = ((fixed[name],) * 2 if name in fixed else None for name in ("angle", "scale"))
        bounds = self.bounds or Bounds()
        whole = Bounds(bounds.shift, bounds.angle or angle, bounds.scale or scale)
        return None if whole == Bounds() else Limits.for_image(whole, size)

    def _mask(self, image: LoadedImage, given: Any, argument: str) -> Tensor | None:
        """What of an image counts: what is there, and what the caller or the search for borders says."""
        mask = read_mask(given, image.size, argument, device=self.device)
        if mask is None and self.find_borders:
            mask = find_border(image.gray)
        if mask is None or image.mask is None:
            return image.mask if mask is None else mask
        both = mask & image.mask
        if given is not None and not bool(both.any()):
            raise ValueError(
                f"{argument} must have pixels that are in the image, got only transparent or NaN ones"
            )
        return both

    def _matcher(self) -> Matcher:
        """A matcher with the shipped network, which is loaded when the first pair needs it."""
        return Matcher(shipped_matcher(str(self.device)))


def estimate(
    a: Any,
    b: Any,
    model: str | MotionModel = "projective",
    *,
    mask_a: Any = None,
    mask_b: Any = None,
    region: Any = None,
    region_b: Any = None,
    initial: Any = None,
    **options: Any,
) -> Estimate:
    """How image ``b`` is related to image ``a``.

    Args:
        a, b: paths, bytes of files, PIL images, arrays (H, W[, C]) or tensors ([C,] H, W), of any sizes.
        model: translation, euclidean, similarity, affine, projective or camera-rotation (with ``focal=``, in pixels).
        mask_a, mask_b: which pixels show the scene, (H, W).
        region, region_b: (x, y, width, height): the part of a (of b) to compare.
        initial: (3, 3) from a to b: tried first.
        **options: as :class:`Estimator` has them: bounds, fixed, channel, find_borders, device, threads, ...
    """
    estimator = Estimator(model, **options)
    return estimator(a, b, mask_a=mask_a, mask_b=mask_b, region=region, region_b=region_b, initial=initial)


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


def _channels(channel: Any) -> tuple[int | str | None, int | str | None]:
    """For a and for b; which there are is known when the images are."""
    if isinstance(channel, tuple | list):
        if len(channel) != 2:
            raise ValueError(f"channel must be one channel, or two, for a and for b, got {channel!r}")
        return channel[0], channel[1]
    return channel, channel


def _initial(value: Any) -> Matrix | None:
    """(3, 3), checked."""
    if value is None:
        return None
    try:
        matrix = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"initial must be a matrix (3, 3), got {value!r}") from error
    if matrix.shape != (3, 3):
        raise ValueError(f"initial must be a matrix (3, 3), got shape {matrix.shape}")
    geometry.check(matrix, "initial")
    if abs(matrix[2, 2]) < 1e-9 * np.abs(matrix).max():
        raise ValueError("initial must not send the origin to infinity, got a matrix whose last entry is 0")
    return geometry.normalize(matrix)


def _member(model: MotionModel, H: Matrix, sizes: tuple[tuple[int, int], tuple[int, int]]) -> Matrix:
    """The transform of the motion model that is nearest to H for images of these ``sizes``."""
    if model.name not in PLANE:
        return model.for_images(*sizes).nearest(H)
    into = unit_coordinates(sizes[0])
    out = geometry.invert(into, checked=False)
    corners = geometry.apply(into, geometry.corners(sizes[0], like=H))
    there = geometry.apply(into @ H @ out, corners, far=FAR)
    return geometry.normalize(out @ model.fit(corners, there, np.ones(4)) @ into, checked=False)


def _between(H: Matrix, a: Part, b: Part) -> Matrix:
    """H between two images as one between their parts."""
    return geometry.normalize(b.into @ H @ geometry.invert(a.into, checked=False), checked=False)


def _of_whole(found: Registration, size: tuple[int, int], a: Part, b: Part) -> Registration:
    """The answer for the parts a and b of images, the first of ``size``, as the answer for the images."""
    out_b = geometry.invert(b.into, checked=False)
    covariance = found.covariance
    if covariance is not None:
        corners = geometry.apply(a.into, geometry.corners(size, like=found.H))
        covariance = of_points(found.H, a.size, covariance, corners)
    far = (np.abs(found.targets) >= FAR).any(1, keepdims=True)
    return found._replace(
        H=geometry.normalize(out_b @ found.H @ a.into, checked=False),
        points=found.points - a.into[:2, 2],
        targets=np.where(far, found.targets, found.targets - b.into[:2, 2]),
        covariance=covariance,
    )


def _shape(value: Any) -> Any:
    return tuple(value.shape) if hasattr(value, "shape") else type(value).__name__


def _reason(found: Registration, sure: float) -> Reason:
    """How it ended: what the registration knows, or what speaks against an answer that is not trusted."""
    if found.reason != "found" or sure >= 0.5:
        return found.reason
    return doubt(found.evidence)


def _field(found: Registration) -> tuple[Field, Tensor]:
    """The motions in pixels of the images, and which of them agree with the answer."""
    weight = torch.tensor(found.weight.tolist(), dtype=torch.float32)
    error = np.hypot(*(geometry.apply(found.H, found.points, far=FAR) - found.targets).T)
    agree = torch.from_numpy(error < _AGREES * found.pixel) & (weight > 0)
    usable = torch.from_numpy((np.abs(found.targets) < FAR).all(1))
    points, motion = (torch.from_numpy(part) for part in (found.points, found.targets - found.points))
    return Field(points[usable], motion[usable], weight[usable]), agree[usable]
