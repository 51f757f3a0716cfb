"""Which pixels of an image show the scene: not its frame, nor what lies around a round aperture.

Scans, microscopes, endoscopes and resampled photographs come with borders of one gray level. Those borders move with
the camera and not with the scene, and an edge that is the same in two images is strong evidence for a motion of zero.
"""

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

__all__ = ["erode", "fill", "find_border", "halve_mask", "mask_pyramid"]

_LEVELS = 3.5 / 255  # pixels of a border differ by no more: what compression adds to one gray level
_LEAST = 0.02  # share of the image that must lie around an aperture for it to be one
_MOST = 0.9  # share beyond which there would be no scene left


def find_border(image: Tensor) -> Tensor | None:
    """Where ``image`` (H, W) shows the scene: (H, W) bool, or ``None`` if it has no border.

    A border is made of whole rows and columns of one gray level at the edges of the image, and of what is left of that
    level around a convex opening, seen from all four corners of it.

    >>> image = torch.rand(40, 50, generator=torch.Generator().manual_seed(0)) / 2 + 0.2
    >>> find_border(image) is None
    True
    >>> image[:3], image[:, 45:] = 0.0, 0.0
    >>> find_border(image).nonzero().amin(0).tolist(), find_border(image).nonzero().amax(0).tolist()
    ([3, 0], [39, 44])
    """
    top, bottom, left, right = _bars(image)
    height, width = image.shape
    scene = torch.zeros(height, width, dtype=torch.bool, device=image.device)
    inner = image[top:bottom, left:right]
    if inner.numel() <= (1 - _MOST) * image.numel():
        return None  # all of one level: there is no scene to frame
    opening = _opening(inner)
    scene[top:bottom, left:right] = True if opening is None else opening
    return None if bool(scene.all()) else scene


def _bars(image: Tensor) -> tuple[int, int, int, int]:
    """First and last row and column of the scene, by whole rows and columns of one level at the edges."""
    top, bottom, left, right = 0, image.shape[0], 0, image.shape[1]
    while True:  # a frame of another level may lie within a frame
        before = (top, bottom, left, right)
        inner = image[top:bottom, left:right]
        if inner.numel() == 0:
            return before
        above, below = _run(inner), _run(inner.flip(0) if _flat(inner[-1:]) else inner[-1:])
        if above + below >= bottom - top:
            return top, top, left, left
        top, bottom = top + above, bottom - below
        inner = image[top:bottom, left:right]
        turned = inner.mT
        before_left = _run(turned)
        after_right = _run(turned.flip(0) if _flat(turned[-1:]) else turned[-1:])
        if before_left + after_right >= right - left:
            return top, top, left, left
        left, right = left + before_left, right - after_right
        if (top, bottom, left, right) == before:
            return before


def _run(image: Tensor) -> int:
    """How many rows from the first on are flat and of the first one's level."""
    if not _flat(image[:1]):  # as in nearly all images: the other rows need not be looked at
        return 0
    same = ((image.amax(1) - image.amin(1)) <= _LEVELS) & ((image[:, 0] - image[0, 0]).abs() <= _LEVELS)
    return _length(same)


def _flat(row: Tensor) -> bool:
    return float(row.amax() - row.amin()) <= _LEVELS


def _opening(image: Tensor) -> Tensor | None:
    """The convex part within a surrounding of one level that has all four corners, if there is one."""
    corners = torch.stack([image[0, 0], image[0, -1], image[-1, 0], image[-1, -1]])
    if float(corners.amax() - corners.amin()) > _LEVELS:
        return None
    middle = corners.median()
    # A surrounding reaches along every edge from both of its corners; a dark sky does not.
    edges = [(edge - middle).abs() <= _LEVELS for edge in (image[0], image[-1], image[:, 0], image[:, -1])]
    if min(min(_length(edge), _length(edge.flip(0))) for edge in edges) < 2:
        return None
    level = (image - middle).abs() <= _LEVELS
    # Reached in a straight line from one of the edges without leaving the level.
    around = torch.zeros_like(level)
    for dim in (0, 1):
        ahead = level.to(torch.uint8).cumprod(dim, dtype=torch.uint8) > 0
        back = level.flip(dim).to(torch.uint8).cumprod(dim, dtype=torch.uint8).flip(dim) > 0
        around |= ahead | back
    share = float(around.float().mean())
    return ~around if _LEAST <= share <= _MOST else None


def _length(edge: Tensor) -> int:
    return int(edge.long().cumprod(0).sum())


def erode(mask: Tensor, radius: int) -> Tensor:
    """``mask`` (..., H, W) without what is nearer than ``radius`` pixels (in x or y) to a false pixel.

    Beyond the image counts as true: an image may be used up to its edge.

    >>> erode(torch.tensor([[True, True, True, False]]), 1)
    tensor([[ True,  True, False, False]])
    """
    if radius < 1:
        return mask
    out = (~mask).to(torch.float32).reshape(-1, 1, *mask.shape[-2:])
    near = max_pool2d(out, 2 * radius + 1, 1, radius)
    return (near == 0).reshape(mask.shape)


def halve_mask(mask: Tensor) -> Tensor:
    """``mask`` (H, W) for :func:`caunet.images.pyramid.halve` of its image: true where all that is averaged is.

    >>> halve_mask(torch.tensor([[True, True, True, True, False, True]]))
    tensor([[ True, False, False]])
    """
    outside = (~mask).to(torch.float32)[None, None]
    padded = torch.nn.functional.pad(outside, (1, 2, 1, 2), mode="replicate")
    rows, columns = -(-mask.shape[0] // 2), -(-mask.shape[1] // 2)
    return max_pool2d(padded, 4, 2)[0, 0, :rows, :columns] == 0


def mask_pyramid(mask: Tensor | None, levels: int) -> list[Tensor | None]:
    """``mask`` and ``levels`` - 1 smaller ones, for :func:`caunet.images.pyramid.pyramid` of its image."""
    masks = [mask]
    for _ in range(levels - 1):
        masks.append(None if masks[-1] is None else halve_mask(masks[-1]))
    return masks


def fill(image: Tensor, mask: Tensor) -> Tensor:
    """``image`` (H, W) with what is outside of ``mask`` replaced by a smooth continuation of what is inside.

    Averages over larger and larger squares are taken until every pixel has something to average: no edge is made
    where the mask ends.
    """
    if bool(mask.all()) or not bool(mask.any()):
        return image
    weight = mask.to(image.dtype)
    levels: list[tuple[Tensor, Tensor]] = [(image * weight, weight)]
    while max(levels[-1][0].shape) > 1 and bool((levels[-1][1] == 0).any()):
        value, known = levels[-1]
        levels.append((_pool(value), _pool(known)))
    value, known = levels[-1]
    smooth = value / known  # nothing is unknown here
    for value, known in reversed(levels[:-1]):
        larger = torch.nn.functional.interpolate(
            smooth[None, None], value.shape, mode="bilinear", align_corners=False
        )[0, 0]
        smooth = torch.where(known > 0, value / known.clamp_min(1e-6), larger)
    return torch.where(mask, image, smooth)


def _pool(plane: Tensor) -> Tensor:
    return torch.nn.functional.avg_pool2d(plane[None, None], 2, ceil_mode=True)[0, 0]
