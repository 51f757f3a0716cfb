"""Read images and volumes at places between pixels: the one reader that is exact, differentiable and general.

Convention: pixel centers at integers, x right, y down, z through the slices; 0 is the center of the first pixel.
Coordinates stay in pixels throughout (`torch.nn.functional.grid_sample` normalizes them to [-1, 1] and
back, which moves an integer place off the integer): a place on a pixel returns that pixel bit for bit.

There are two other readers, each for one purpose and for the time it saves (measured on one core):
    - `caunet.geometry.grids` reads one float image at a grid of places for estimation, 3 to 7 times as fast (0.18 ms
      against 0.57 ms for 256 x 256 places), because torch has one fused kernel for it; not exact at integers.
    - `caunet.data.lookup` cuts small patches out of many byte images for training pairs, about 3 times as fast, because
      it needs no border arithmetic, no gradient and no float copy of the images.

Border: outside is `fill`. Instead of masking taps, which is slow, a place is pulled back onto the image and
its value fades out with the distance that it was pulled: for one axis of linear interpolation that is
the same thing, and with whole distances (nearest, and each tap of the cubic) it is the mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Literal, get_args

import torch
from torch import Tensor

__all__ = ["MODES", "VOLUME_MODES", "Mode", "VolumeMode", "sample"]

Mode = Literal["bilinear", "bicubic", "nearest"]
MODES: tuple[Mode, ...] = get_args(Mode)
VolumeMode = Literal["linear", "cubic", "nearest"]
"""In space nothing is "bi": the same kernels along three axes."""
VOLUME_MODES: tuple[VolumeMode, ...] = get_args(VolumeMode)

CUBIC = -0.75  # Keys' parameter as OpenCV and PyTorch have it (MATLAB and Pillow take -0.5)

Reader = Callable[[Tensor, Sequence[int], Sequence[Tensor], Tensor], tuple[Tensor, Tensor]]


def sample(
    images: Tensor,
    places: Sequence[Tensor],
    base: Tensor,
    mode: Mode | VolumeMode = "bilinear",
    fill: float = 0.0,
) -> Tensor:
    """Values of ``images`` (..., H, W) at the places x, y (B, *shape): (B, *shape); of volumes at x, y, z.

    ``places`` are two coordinates or three, and the last two or three axes of the images what they count. ``base`` (B,)
    is the offset of each row's image in the flattened images. Everything outside an image is ``fill``, so a place less
    than a pixel from the border mixes border and fill. The result has the dtype of the images, or float32 for byte
    images. Differentiable in images (when floating) and places.

    >>> image = torch.tensor([[0., 1.], [2., 3.]])
    >>> sample(image, (torch.tensor([[0., 0.5, 1.5]]), torch.tensor([[1., 0.5, 0.]])), torch.tensor([0]))
    tensor([[2.0000, 1.5000, 0.5000]])
    """
    flat = images.reshape(-1)
    # Half as wide indices are read twice as fast; torch indexes with both.
    integer = torch.int32 if flat.numel() < 2**31 else torch.int64
    base = base.to(integer).reshape(-1, *[1] * (places[0].ndim - 1))
    sides = tuple(reversed(images.shape[-len(places) :]))  # width, height[, depth], as the places are ordered
    value, share = _READERS[mode](flat, sides, places, base)
    return value if fill == 0 else value + fill * (1 - share)


def _nearest(
    flat: Tensor, sides: Sequence[int], places: Sequence[Tensor], base: Tensor
) -> tuple[Tensor, Tensor]:
    pulled = [_pull(x.detach().round(), side) for x, side in zip(places, sides, strict=True)]
    share = _product([fade for _, fade in pulled]).to(_float(flat))
    return _pick(flat, _index([inside for inside, _ in pulled], sides, base)) * share, share


def _linear(
    flat: Tensor, sides: Sequence[int], places: Sequence[Tensor], base: Tensor
) -> tuple[Tensor, Tensor]:
    dtype = _float(flat)
    pulled = [_pull(x, side) for x, side in zip(places, sides, strict=True)]
    share = _product([fade for _, fade in pulled]).to(dtype)
    # The last pixel is reached from the one before it with t = 1, so that both taps are always inside.
    first = [x.detach().floor().clamp_max(max(n - 2, 0)) for (x, _), n in zip(pulled, sides, strict=True)]
    steps = [stride * min(side - 1, 1) for stride, side in zip(_strides(sides), sides, strict=True)]
    t = [(x - start).to(dtype) for (x, _), start in zip(pulled, first, strict=True)]
    return _between(flat, _index(first, sides, base), list(zip(steps, t, strict=True))) * share, share


def _between(flat: Tensor, place: Tensor, axes: Sequence[tuple[int, Tensor]]) -> Tensor:
    """What lies between the two taps of each axis; ``axes``: how far the second tap is, and the share it has."""
    if not axes:
        return _pick(flat, place)
    *others, (step, t) = axes
    # lerp is exact at both ends.
    return torch.lerp(_between(flat, place, others), _between(flat, place + step, others), t)


def _cubic(
    flat: Tensor, sides: Sequence[int], places: Sequence[Tensor], base: Tensor
) -> tuple[Tensor, Tensor]:
    dtype = _float(flat)
    taps = [_cubic_taps(x, side, dtype) for x, side in zip(places, sides, strict=True)]
    strides = _strides(sides)
    axes = [
        [(tap.to(base.dtype) * stride, weight) for tap, weight in zip(*along, strict=True)]
        for along, stride in zip(taps, strides, strict=True)
    ]
    share = _product([(w[0] + w[1]) + (w[2] + w[3]) for _, w in taps])
    return _weighted(flat, base, axes), share


def _weighted(flat: Tensor, place: Tensor, axes: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> Tensor:
    """The weighted sum over all taps; ``axes``: where the taps of each axis are, and their weights."""
    if not axes:
        return _pick(flat, place)
    *others, taps = axes
    total = torch.zeros((), dtype=taps[0][1].dtype, device=place.device)
    for step, weight in taps:
        total = torch.addcmul(total, _weighted(flat, place + step, others), weight)
    return total


_READERS: dict[str, Reader] = {
    **dict.fromkeys(("bilinear", "linear"), _linear),
    **dict.fromkeys(("bicubic", "cubic"), _cubic),
    "nearest": _nearest,
}


def _strides(sides: Sequence[int]) -> list[int]:
    """How far apart neighbors along each axis are in memory, for sides (width, height[, depth])."""
    return [math.prod(sides[:axis]) for axis in range(len(sides))]


def _index(places: Sequence[Tensor], sides: Sequence[int], base: Tensor) -> Tensor:
    """Where whole places lie in memory."""
    index = base
    for place, stride in zip(places, _strides(sides), strict=True):
        index = index + place.to(base.dtype) * stride
    return index


def _product(factors: Sequence[Tensor]) -> Tensor:
    return reduce(torch.mul, factors)


def _cubic_taps(x: Tensor, length: int, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """Along one axis: the four pixels around x (pulled inside) and their weights (0 if they were outside)."""
    x = x.clamp(-2.0, length + 1.0)  # beyond these no pixel has weight, and infinities have no fraction
    first = x.detach().floor()
    pulled = [_pull(first + k, length) for k in (-1, 0, 1, 2)]
    weights = _cubic_weights((x - first).to(dtype))
    return [tap for tap, _ in pulled], [
        w * fade.to(dtype) for w, (_, fade) in zip(weights, pulled, strict=True)
    ]


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Keys' cubic convolution weights of the pixels at -1, 0, 1, 2 for a place at t in [0, 1)."""
    a, s = CUBIC, 1 - t
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, s)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + t, 1 + s)]
    return [far[0], near[0], near[1], far[1]]


def _pull(x: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """x pulled onto [0, length - 1], and 1 minus the distance that took, not below 0."""
    inside = x.clamp(0.0, length - 1.0)
    return inside, (1 - (x - inside).abs()).clamp_min(0.0)


def _pick(flat: Tensor, place: Tensor) -> Tensor:
    return flat.index_select(0, place.reshape(-1)).reshape(place.shape).to(_float(flat))


def _float(images: Tensor) -> torch.dtype:
    return images.dtype if images.is_floating_point() else torch.float32
