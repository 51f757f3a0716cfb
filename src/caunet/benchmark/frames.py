"""Where in a photograph the two pictures of a pair lie, and how they are taken.

A picture is taken as a camera takes it: every pixel is the mean of the photograph over the pixel's own square,
by 4 x 4 bicubic samples. Both pictures are taken from the photograph, at places off its grid, so that neither is an
interpolated copy of the other and no method's own interpolation is favored.
"""

import math

import torch
from torch import Tensor

from caunet import geometry
from caunet.geometry.grids import grid_of, read_grid

__all__ = ["FINEST", "blurred", "draw_homography", "place", "quad_homography", "take", "uniform"]

FINE = 4  # samples along each side of a pixel's square
COARSEST, FINEST = 2.5, 0.35  # pixels of the photograph to a pixel of the picture
TILT = 8.0  # degrees that a picture is turned at most, besides whole quarters
EDGE = 2.0  # pixels kept between the pictures and the photograph's edge, for the interpolation


def uniform(generator: torch.Generator, low: float, high: float) -> float:
    """A number from the generator, uniform on [low, high)."""
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def quad_homography(source: Tensor, target: Tensor) -> Tensor:
    """The H (3, 3) that takes four points (4, 2) to four others, by its eight equations; its last entry is 1.

    >>> square = geometry.corners((5, 5))
    >>> quad_homography(square, square + 2.0).round()[:2]
    tensor([[1., 0., 2.],
            [0., 1., 2.]], dtype=torch.float64)
    """
    rows, values = [], []
    for (x, y), (u, v) in zip(source.tolist(), target.tolist(), strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    system = torch.tensor(rows, dtype=torch.float64), torch.tensor(values, dtype=torch.float64)
    return torch.cat([torch.linalg.solve(*system), torch.ones(1, dtype=torch.float64)]).reshape(3, 3)


def draw_homography(motion: float, side: int, generator: torch.Generator) -> Tensor:
    """H (3, 3): each corner moves uniformly by up to ± ``motion`` of the side in x and in y; no folded quads."""
    if not 0 <= motion <= 0.45:
        raise ValueError(f"motion takes a share of the side from 0 to 0.45, got {motion}")
    corners = geometry.corners((side, side))
    while True:
        moved = 2 * torch.rand(4, 2, generator=generator, dtype=torch.float64) - 1
        target = corners + motion * side * moved
        if _upright(target, side):
            return quad_homography(corners, target)


def _upright(quad: Tensor, side: int) -> bool:
    """Whether the quadrangle is convex, not mirrored, and no corner of it nearly flat."""
    edge = quad.roll(-1, 0) - quad
    turn = edge[:, 0] * edge.roll(-1, 0)[:, 1] - edge[:, 1] * edge.roll(-1, 0)[:, 0]
    return bool((turn > 0.1 * side * side).all())


def place(
    size: tuple[int, int], points: Tensor, generator: torch.Generator, finest: float = FINEST
) -> Tensor:
    """A frame (3, 3): coordinates of the first picture to a photograph's pixels, with all ``points`` inside.

    The first picture is turned by whole quarters and a little more, enlarged or reduced, and put anywhere the
    ``points`` (N, 2) of its coordinates (its own corners and those of the second) stay in the photograph of ``size``.
    A photograph that would have to be enlarged beyond ``finest`` of its pixels to one of the picture's is refused.
    """
    quarter = int(torch.randint(4, (), generator=generator))
    angle = 90.0 * quarter + uniform(generator, -TILT, TILT)
    turn = geometry.rotate(torch.tensor(angle, dtype=torch.float64))
    turned = geometry.apply(turn, points)
    low, extent = turned.amin(0), turned.amax(0) - turned.amin(0)
    room = torch.tensor([size[1], size[0]], dtype=torch.float64) - 1 - 2 * EDGE
    fits = float((room / extent).min())
    if fits < finest:
        raise ValueError(
            f"photo of {size[0]} x {size[1]} is too small for pictures that reach over {extent.tolist()}"
        )
    scale = uniform(generator, min(1.0, fits), min(COARSEST, fits))
    slack = (room - scale * extent).clamp_min(0) * torch.rand(2, generator=generator, dtype=torch.float64)
    x, y = (EDGE + slack - scale * low).unbind()
    return geometry.compose(geometry.translate(x, y), geometry.scale(torch.tensor(scale).double()), turn)


def take(photo: Tensor, frame: Tensor, size: tuple[int, int], fine: int = FINE) -> Tensor:
    """The picture (*size) of ``photo`` (H, W) through ``frame``, picture to photograph: float32, not rounded.

    With ``fine=1`` pixels are points. Beyond the photograph its edge goes on.
    """
    y, x = (((torch.arange(fine * n, dtype=torch.float64) + 0.5) / fine - 0.5) for n in size)
    u, v, w = (row[0] * x + (row[1] * y[:, None] + row[2]) for row in frame)
    # In float32 places are good to 1e-4 of a pixel at these sizes.
    grid = grid_of(u / w, v / w, (photo.shape[0], photo.shape[1])).to(photo.dtype)
    return torch.nn.functional.avg_pool2d(read_grid(photo, grid, "bicubic"), fine)[0]


def blurred(picture: Tensor, sigma: float) -> Tensor:
    """The picture (H, W) through a Gaussian of ``sigma`` pixels, mirrored at its edges."""
    radius = max(1, math.ceil(4 * sigma))
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (offsets / sigma) ** 2)
    weights = (weights / weights.sum()).to(picture.dtype)
    for _ in range(2):  # along rows, turn, along rows again, turn back
        padded = torch.nn.functional.pad(picture[None, None], (radius, radius, 0, 0), mode="reflect")[0, 0]
        picture = padded.unfold(1, 2 * radius + 1, 1).matmul(weights).T.contiguous()
    return picture
