"""What CAN's units prefer, so that they can be shown in an order in which one sees them compete."""

import functools
from typing import Any

import torch

from caunet.data import PairSource
from caunet.web.networks import Network
from caunet.web.patches import gray_photograph

__all__ = ["preferences"]

_PHOTOGRAPHS = ("astronaut", "coffee", "brick", "gravel")
_TILE, _ZOOM, _STEP = 32, 4, 16


@functools.cache
def preferences(network: Network, task: str) -> dict[str, Any]:
    """``order``: the units by the value of the first parameter that they prefer; ``usual``: their mean responses.

    Measured on pairs of the embedded photographs, once for each network.
    """
    source = PairSource(_tiles(), task, "text", pairs="fresh", per_image=4)
    x, y, z = source.batch(0, torch.arange(len(source)))
    with torch.inference_mode():
        responses = network.model.units(x, y).double()
    usual = responses.mean(0).clamp_min(1e-9)
    share = responses / usual
    preferred = (share**2 * z[:, :1]).sum(0) / (share**2).sum(0)
    return {"order": preferred.argsort().tolist(), "usual": usual.tolist()}


@functools.cache
def _tiles() -> torch.Tensor:
    """Bytes (N, 32, 32) of the embedded photographs, as small as the page shows patches."""
    parts = []
    for name in _PHOTOGRAPHS:
        gray = torch.from_numpy(gray_photograph(name)).float()[None]
        small = torch.nn.functional.avg_pool2d(gray, _ZOOM)[0].round().to(torch.uint8)
        parts.append(small.unfold(0, _TILE, _STEP).unfold(1, _TILE, _STEP).reshape(-1, _TILE, _TILE))
    return torch.cat(parts)
