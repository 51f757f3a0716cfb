"""Motions of small patches, as the relation network sees them.

A patch of a is compared with b's pixels at the places that the current H gives for it, so the network sees only the
motion that is left. The pair is given to it in both orders: the two answers must be opposite, and how far they are
from it tells how reliable a motion is.
"""

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from caunet.geometry import Matrix
from caunet.geometry.grids import grid_places, read_grid
from caunet.models import RelationNetwork, load_pretrained

__all__ = ["Motions", "measure", "raster", "seen", "space_network"]

_FAINT = 0.02  # contrast (standard deviation of gray levels) at which a patch has half of its weight
_AGREE = 1.0  # disagreement in pixels at which a motion has half of its weight


class Motions(NamedTuple):
    """Of patches centered at ``points`` (N, 2): the ``motion`` (N, 2) that is left, and its ``weight`` (N,), 0 to 1.

    All in pixels of the level; a's content at ``points`` is found in b at H (points + motion).
    """

    points: Tensor
    motion: Tensor
    weight: Tensor


def raster(size: tuple[int, int], patch: int, count: int, device: torch.device) -> Tensor:
    """Centers (N, 2) of about ``count`` patches spread evenly over an image, all of them inside it."""
    height, width = size
    half = patch // 2
    room_y, room_x = max(height - patch, 0), max(width - patch, 0)
    step = max(((room_y + 1) * (room_x + 1) / count) ** 0.5, 1.0)
    rows = torch.linspace(0, room_y, max(round(room_y / step) + 1, 1), device=device).round() + half
    columns = torch.linspace(0, room_x, max(round(room_x / step) + 1, 1), device=device).round() + half
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    return torch.stack([x, y], -1).reshape(-1, 2)


def measure(
    network: RelationNetwork,
    a: Tensor,
    b: Tensor,
    H: Matrix,
    points: Tensor,
    mask_a: Tensor | None = None,
    mask_b: Tensor | None = None,
) -> Motions:
    """The motions left at ``points`` (N, 2), whole pixels, between a (H, W) and b (H, W) under ``H`` (3, 3).

    Patches have less weight the less of them lies in the masks (H, W), and none if that is less than half.
    """
    side = network.model_spec.patch
    line = torch.arange(side, device=a.device, dtype=a.dtype) - side // 2
    x, y = points[:, :1, None] + line, points[:, 1:, None] + line[:, None]  # (N, 1, side), (N, side, 1)
    columns, rows = x.long().clamp_(0, a.shape[1] - 1), y.long().clamp_(0, a.shape[0] - 1)
    place = (rows * a.shape[1] + columns).reshape(-1)
    first = a.reshape(-1)[place].view(len(points), -1)
    grid, inside = grid_places(H, x, y, (b.shape[0], b.shape[1]))
    second = read_grid(b, grid).view(len(points), -1)
    if mask_a is not None:
        inside &= mask_a.reshape(-1)[place].view(inside.shape)
    if mask_b is not None:
        inside &= read_grid(mask_b.to(a.dtype), grid) > 0.99
    share = inside.view(len(points), -1).to(a.dtype).mean(1)
    return Motions(points, *seen(network, first, second, share))


@functools.cache
def space_network(device: torch.device) -> RelationNetwork:
    """The network for patches of volumes that comes with the package, `motion3`, read once."""
    return load_pretrained("motion3", device=device).eval()


def seen(network: RelationNetwork, first: Tensor, second: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Motions (N, d) and weights (N,) of patches (N, inputs) with values 0 to 1, of which a ``share`` (N,) counts."""
    d = network.model_spec.dimensions
    first, second = first - 0.5, second - 0.5  # as in training
    z = network(torch.cat([first, second]), torch.cat([second, first]))[:, :d]
    forward, backward = z.view(2, -1, d)
    disagreement = (forward + backward).norm(dim=1)
    contrast = torch.minimum(first.std(1), second.std(1))
    texture = contrast.square() / (contrast.square() + _FAINT**2)
    agreement = 1 / (1 + disagreement.square() / _AGREE**2)
    weight = texture * agreement * (share * 2 - 1).clamp_min(0)
    return 0.5 * (forward - backward), weight
