"""What a source of pairs is made of: moments of z and of the pixels, and how much of it shows nothing.

>>> from caunet.data.pairs import PairSource
>>> flat = torch.full((4, 32, 32), 51, dtype=torch.uint8)
>>> result = pair_statistics(PairSource(flat, "rotation"))
>>> result["pairs"], result["featureless"], result["out_of_image_pixels"]
(40, {'x': 1.0, 'y': 1.0}, 0.0)
"""

from typing import Any

import torch
from torch import Tensor

from caunet.data import lookup
from caunet.data.pairs import PairSource
from caunet.progress import track

__all__ = ["FEATURELESS", "pair_statistics"]

FEATURELESS = 2.0  # gray levels of standard deviation below which a patch shows nothing to go by
_CHUNK = 4096


def pair_statistics(source: PairSource, limit: int | None = None, epoch: int = 0) -> dict[str, Any]:
    """Statistics of a source, or of ``limit`` of its pairs, evenly spread.

    Returns ``pairs`` (how many); ``z``: mean and variance of each parameter, and what a uniform draw expects;
    ``pixels``: mean and variance of x and y on the scale [-0.5, 0.5]; ``featureless``: the share of patches
    with a standard deviation below `FEATURELESS` gray levels; ``out_of_image_pixels``: the share of y's
    pixels that read outside the image's outline, and ``out_of_image_pairs``: that of pairs with any of them.
    """
    count = len(source) if limit is None else min(limit, len(source))
    if count < 1:
        raise ValueError(f"limit must be 1 or more, got {limit}")
    sums = _Sums(source)
    spread = torch.arange(count) * len(source) // count
    with track(count, f"counting {source.task.name} pairs", "pairs") as bar:
        for start in range(0, count, _CHUNK):
            sums.add(*source.bytes(epoch, spread[start : start + _CHUNK]))
            bar.advance(min(_CHUNK, count - start))
    return sums.result()


class _Sums:
    def __init__(self, source: PairSource) -> None:
        self.source = source
        self.count = 0
        self.outside_pixels = self.outside_pairs = 0
        self.flat = {"x": 0, "y": 0}
        self.pixels = {"x": torch.zeros(2, dtype=torch.float64), "y": torch.zeros(2, dtype=torch.float64)}
        self.z = torch.zeros(2, source.task.dim, dtype=torch.float64)

    def add(self, x: Tensor, y: Tensor, z: Tensor) -> None:
        self.count += len(z)
        middle = _expected(self.source)[0].to(z.device)
        shifted = z.double() - middle  # about the middle, so that the variance does not cancel
        self.z += torch.stack([shifted.sum(0), shifted.square().sum(0)]).cpu()
        for name, patch in (("x", x), ("y", y)):
            gray = patch.double()
            self.flat[name] += int((gray.flatten(1).std(1, correction=0) < FEATURELESS).sum())
            level = gray / 255 - 0.5
            self.pixels[name] += torch.stack([level.sum(), level.square().sum()]).cpu()
        outside = _outside(self.source, z)
        self.outside_pixels += int(outside.sum())
        self.outside_pairs += int(outside.flatten(1).any(1).sum())

    def result(self) -> dict[str, Any]:
        n, source = self.count, self.source
        area = n * source.patch**source.task.dimensions
        middle, variance = _expected(source)
        shift = self.z[0] / n
        pixels = {}
        for name, (first, second) in self.pixels.items():
            mean = float(first) / area
            pixels[name] = {"mean": mean, "variance": float(second) / area - mean**2}
        return {
            "task": source.task.name,
            "protocol": source.protocol,
            "pairs": n,
            "z": {
                "mean": (shift + middle).tolist(),
                "variance": (self.z[1] / n - shift.square()).tolist(),
                "expected_mean": middle.tolist(),
                "expected_variance": variance.tolist(),
            },
            "pixels": pixels,
            "featureless": {name: count / n for name, count in self.flat.items()},
            "out_of_image_pixels": self.outside_pixels / area,
            "out_of_image_pairs": self.outside_pairs / n,
        }


def _expected(source: PairSource) -> tuple[Tensor, Tensor]:
    # Mean and variance of a uniform draw: (b - a)^2 / 12, or (n^2 - 1) / 12 for n whole numbers in a row.
    low, high = (torch.tensor(v, dtype=torch.float64) for v in (source.task.low, source.task.high))
    width = high - low
    variance = ((width + 1) ** 2 - 1) / 12 if source.pair_protocol.whole else width**2 / 12
    return (low + high) / 2, variance


def _outside(source: PairSource, z: Tensor) -> Tensor:
    # Which pixels of y read outside the image's outline, which runs along pixel edges: (B, *patch_shape).
    outside = torch.zeros(len(z), *source.patch_shape, dtype=torch.bool, device=z.device)
    if source.pair_protocol.places:
        return outside
    on_canvas = lookup.positions(source.pair_protocol.pull(z), source.patch, source.size, reach=1)
    for place, length in zip(on_canvas, reversed(source.size), strict=True):
        outside |= (place < lookup.BORDER - 0.5) | (place > lookup.BORDER + length - 0.5)
    return outside
