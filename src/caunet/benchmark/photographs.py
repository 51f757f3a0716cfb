"""The photographs inside scikit-image's package, divided: what is measured on was never tuned on.

No photograph is in two groups (nor are two of one scene: both motorcycles are in one), and none of them is used in
training: the registration network learns from CIFAR-10.
"""

import functools
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from caunet.images import photograph

__all__ = ["GROUPS", "Group", "colored", "photographs"]

Group = Literal["bench", "calibration", "test"]

# Only files that are in the wheel itself. Left out: drawings (horse, color, phantom, chessboards), and `text`,
# `microaneurysms` and the faces, which are too small to cut an image and its neighbor from.
GROUPS: dict[Group, tuple[str, ...]] = {
    "bench": (
        "astronaut.png",
        "brick.png",
        "camera.png",
        "coffee.png",
        "coins.png",
        "gravel.png",
        "hubble_deep_field.jpg",
        "moon.png",
        "rocket.jpg",
    ),
    "calibration": (
        "cell.png",
        "clock_motion.png",
        "grass.png",
        "ihc.png",
        "motorcycle_left.png",
        "motorcycle_right.png",
        "retina.jpg",
    ),
    "test": ("chelsea.png", "page.png"),
}


def photographs(group: Group) -> dict[str, Tensor]:
    """The photographs of a group by name, in the order of names: gray (H, W) float32 from 0 to 1.

    >>> {name: tuple(photo.shape) for name, photo in photographs("test").items()}
    {'chelsea': (300, 451), 'page': (191, 384)}
    """
    if group not in GROUPS:
        raise ValueError(f"group must be one of {', '.join(get_args(Group))}, got {group!r}")
    return {Path(name).stem: _photograph(name) for name in GROUPS[group]}


@functools.cache
def _photograph(name: str) -> Tensor:
    return torch.from_numpy(photograph(name)).to(torch.float32) / 255


def colored(group: Group) -> dict[str, Tensor]:
    """The same photographs with their colors: (3, H, W), or (H, W) where there are none; float32 from 0 to 1.

    >>> {name: tuple(photo.shape) for name, photo in colored("test").items()}
    {'chelsea': (3, 300, 451), 'page': (191, 384)}
    """
    found = {}
    for name in GROUPS[group]:
        gray = photographs(group)[Path(name).stem]
        rgb = torch.from_numpy(photograph(name, rgb=True)).permute(2, 0, 1).to(torch.float32) / 255
        found[Path(name).stem] = gray if bool((rgb == rgb[:1]).all()) else rgb
    return found
