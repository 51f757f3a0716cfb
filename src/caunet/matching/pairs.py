"""Pairs of patches that show the same place: a function of (seed, step), made in one batch.

An image of 32 x 32 pixels in color (CIFAR-10) is a scene, and its blobs are the places. Each is looked at twice,
and beside it another place of the same scene, a near relative among the wrong candidates. The two looks at one place
differ as two images do: in what a detector errs (place, scale, orientation), in viewpoint (stretch), in color filter,
tone curve, light, sharpness, noise and blocks; and part of one look may be covered.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, avg_pool2d, grid_sample, interpolate

from caunet.images.gray import WEIGHTS
from caunet.matching.network import PATCH, REACH
from caunet.matching.points import AROUND, dominant_angle, extrema

__all__ = ["PatchPairs"]

_GRAY = tuple(weight / 10_000 for weight in WEIGHTS)
_SIGMA = 1.15  # of the smallest blobs that are looked for
_MARGIN = 6  # pixels next to the border without places


class PatchPairs:
    """Batches of pairs from color images (N, 3, 32, 32) uint8.

    >>> draw = torch.Generator().manual_seed(0)
    >>> images = torch.randint(0, 256, (9, 3, 32, 32), generator=draw, dtype=torch.uint8)
    >>> a, b = PatchPairs(images, count=4, seed=0)(step=7)
    >>> a.shape, bool((a == PatchPairs(images, count=4, seed=0)(step=7)[0]).all())
    (torch.Size([4, 32, 32]), True)
    """

    def __init__(self, images: Tensor, count: int, seed: int = 0) -> None:
        if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
            raise ValueError(f"images must be uint8 (N, 3, H, W), got {images.dtype} {tuple(images.shape)}")
        if count < 2 or count % 2:
            raise ValueError(f"count must be even and at least 2, got {count}")
        self.images, self.count, self.seed = images, count, seed
        self.image, self.place, self.scale, self.angle = _places(images)
        if len(self.image) < 2:
            raise ValueError(f"images must show at least two places, got {len(self.image)}")

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Patches a and b, (count, 32, 32) each: row i of both shows the same place."""
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        first = torch.randint(len(self.image) - 1, (self.count // 2,), generator=draw)
        index = torch.cat([first, first + 1])  # places are ordered by image: the next is a relative
        scenes = self.images[self.image[index]].float().div_(255)  # (count, 3, H, W)
        where = self.place[index], self.scale[index], self.angle[index]
        return self._look(scenes, *where, draw), self._look(scenes, *where, draw)

    def _look(
        self, scenes: Tensor, place: Tensor, scale: Tensor, turn: Tensor, draw: torch.Generator
    ) -> Tensor:
        n = self.count
        gray = torch.einsum("nchw,nc->nhw", scenes, _filters(n, draw))[:, None]
        angle = turn + 0.18 * torch.randn(n, generator=draw)
        size = scale * (0.13 * torch.randn(n, generator=draw)).exp()
        stretch = (_uniform(draw, n, -1, 1) * _uniform(draw, n, 0, 0.42)).exp()
        # Rotation after a stretch along a random direction, which is what a change of viewpoint does.
        across = _uniform(draw, n, 0, math.pi)
        shape = (
            _rotation(angle) @ _rotation(across) @ torch.diag_embed(torch.stack([stretch, 1 / stretch], 1))
        )
        shape = shape @ _rotation(-across) * size[:, None, None]
        center = place + 0.05 * size[:, None] * torch.randn(n, 2, generator=draw)
        grid = affine_grid(
            torch.cat([shape, center[..., None]], 2), [n, 1, PATCH, PATCH], align_corners=False
        )
        patch = grid_sample(gray, grid, padding_mode="reflection", align_corners=False)
        return self._light(self._cover(self._sharpness(patch, draw), draw), draw)[:, 0]

    def _sharpness(self, patch: Tensor, draw: torch.Generator) -> Tensor:
        """Blurred by up to two pixels, or a little sharper; some in blocks as strong compression leaves them."""
        blurred = _smooth(_smooth(patch))
        share = _uniform(draw, self.count, -0.4, 1.0)[:, None, None, None]
        patch = torch.lerp(patch, torch.where(share > 0.5, _smooth(_smooth(blurred)), blurred), share)
        blocks = interpolate(avg_pool2d(patch, 4), scale_factor=4)
        share = (_uniform(draw, self.count, -2.0, 0.7)).clamp_min(0)[:, None, None, None]
        return torch.lerp(patch, blocks, share)

    def _cover(self, patch: Tensor, draw: torch.Generator) -> Tensor:
        """In one of eight, what lies beyond a line through the patch shows something else."""
        n = self.count
        angle = _uniform(draw, n, 0, 2 * math.pi)
        offset = _uniform(draw, n, 0.0, 0.8)
        hidden = torch.rand(n, generator=draw) < 1 / 8
        line = torch.linspace(-1, 1, PATCH)
        beyond = angle.cos()[:, None, None] * line + angle.sin()[:, None, None] * line[:, None]
        mask = ((beyond > offset[:, None, None]) & hidden[:, None, None])[:, None]
        return torch.where(mask, patch.roll(n // 4 + 1, 0), patch)

    def _light(self, patch: Tensor, draw: torch.Generator) -> Tensor:
        """A tone curve, a ramp of light, a highlight that is cut off, and noise of pixels and of clouds."""
        n = self.count
        low, high = patch.amin((2, 3), keepdim=True), patch.amax((2, 3), keepdim=True)
        spread = (high - low).clamp_min(0.02)
        level = ((patch - low) / spread).clamp(1e-4, 1)
        level = level ** _uniform(draw, n, -0.9, 0.9).exp()[:, None, None, None]
        bend = _uniform(draw, n, -0.35, 0.35)[:, None, None, None]
        level = level + bend * torch.sin(2 * math.pi * level) / math.pi
        line = torch.linspace(-1, 1, PATCH)
        slope = 0.35 * torch.randn(n, 2, 1, 1, 1, generator=draw)
        level = level * (1 + slope[:, 0] * line + slope[:, 1] * line[:, None]).clamp_min(0.1)
        level = torch.minimum(level, _uniform(draw, n, 0.55, 3.0)[:, None, None, None])
        # As strong as the scene is flat: the gray levels of a camera.
        grain = (_uniform(draw, n, 0, 0.02)[:, None, None, None] / spread).clamp_max(0.15)
        noise = torch.randn(n, 1, PATCH, PATCH, generator=draw)
        clouds = interpolate(
            torch.randn(n, 1, 6, 6, generator=draw), PATCH, mode="bilinear", align_corners=False
        )
        return level + grain * noise + _uniform(draw, n, 0, 0.08)[:, None, None, None] * clouds


def _places(images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Which image (M,), center (M, 2) and half side (M,) in units of half an image, and orientation (M,)."""
    parts = []
    half = images.shape[-1] / 2
    for k, part in enumerate(torch.split(images, 1000)):
        gray = torch.einsum("nchw,c->nhw", part.float() / 255, torch.tensor(_GRAY))
        image, xy, sigma, _ = extrema(gray, 0.5, _MARGIN, _SIGMA)
        order = image.argsort(stable=True)
        image, xy, sigma = image[order], (xy[order] + 0.5) / half - 1, sigma[order] / half
        size = torch.diag_embed((AROUND / 4 * sigma)[:, None].expand(-1, 2))
        grid = affine_grid(
            torch.cat([size, xy[..., None]], 2), [len(image), 1, AROUND, AROUND], align_corners=False
        )
        around = grid_sample(gray[image][:, None], grid, padding_mode="reflection", align_corners=False)
        parts.append((image + 1000 * k, xy, REACH * sigma, dominant_angle(around[:, 0])))
    image, place, scale, angle = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return image, place, scale, angle


def _filters(n: int, draw: torch.Generator) -> Tensor:
    """Weights (n, 3) of red, green, blue: gray, a single channel, or any mixture, even one with a negative part."""
    kind = torch.rand(n, 1, generator=draw)
    single = torch.eye(3)[torch.randint(3, (n,), generator=draw)]
    mixed = torch.rand(n, 3, generator=draw)
    mixed = mixed / mixed.sum(1, keepdim=True)
    beyond = 1.5 * single - 0.5 * single.roll(1, 0)
    gray = torch.tensor(_GRAY).expand(n, 3)
    return torch.where(
        kind < 0.45, gray, torch.where(kind < 0.65, single, torch.where(kind < 0.92, mixed, beyond))
    )


def _uniform(draw: torch.Generator, n: int, low: float, high: float) -> Tensor:
    return low + (high - low) * torch.rand(n, generator=draw)


def _rotation(angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)


def _smooth(patch: Tensor) -> Tensor:
    """The filter (1, 2, 1) / 4 along rows and columns, by shifted sums: cheaper than a convolution of one channel."""
    for axis in (2, 3):
        size = patch.shape[axis]
        wide = torch.cat([patch.narrow(axis, 0, 1), patch, patch.narrow(axis, size - 1, 1)], axis)
        outer = wide.narrow(axis, 0, size) + wide.narrow(axis, 2, size)
        patch = outer.mul_(0.25).add_(patch, alpha=0.5)
    return patch
