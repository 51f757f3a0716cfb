"""What stands still on both images while the scene moves: a watermark, a date, the dust on a sensor.

Such marks agree exactly if nothing moves, so no motion looks like an answer. They betray themselves: between them
there is texture that it does not explain. Without them the images can be related once more; the answer under which
more of both images, marks included, agrees is the better one.
"""

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from caunet.images.masks import fill
from caunet.images.pyramid import smooth

__all__ = ["standing", "without"]

_AROUND = 2  # pixels: gradients are compared within this distance
_SAME = 0.7  # share of the gradients that must be the same
_FAINT = 1e-5  # squared gradient that is noise
_REACH = 2  # pixels by which the marks are widened: as far as the smoothing carries their edges
_MOST = 0.7  # share of the images that marks may cover; what covers more is the scene


def standing(a: Tensor, b: Tensor) -> Tensor:
    """(H, W) bool: where a and b (H, W) have the same edges at the same place.

    >>> generator = torch.Generator().manual_seed(0)
    >>> a, b = torch.rand(2, 60, 80, generator=generator)
    >>> a[20:24, 10:70] = b[20:24, 10:70] = 3.0
    >>> found = standing(a, b)
    >>> bool(found[19:25, 10:70].all()), float(found[40:].float().mean()) < 0.05
    (True, True)
    """
    a_x, a_y, b_x, b_y = (slope for image in (smooth(a), smooth(b)) for slope in _gradient(image))
    products = torch.stack([a_x * a_x + a_y * a_y, b_x * b_x + b_y * b_y, a_x * b_x + a_y * b_y])
    own, other, both = avg_pool2d(products[:, None], 2 * _AROUND + 1, 1, _AROUND, count_include_pad=False)[
        :, 0
    ]
    same = both > _SAME * (torch.maximum(own, other) + _FAINT)
    near = max_pool2d(same.to(a.dtype)[None, None], 2 * _REACH + 1, 1, _REACH)[0, 0]
    return near > 0


def without(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
    """Both images, marks that stand still replaced by what is around them; None where they cover too much."""
    marks = standing(a, b)
    if float(marks.to(a.dtype).mean()) > _MOST:
        return None
    return fill(a, ~marks), fill(b, ~marks)


def _gradient(image: Tensor) -> tuple[Tensor, Tensor]:
    """The change to the right and downwards, for each pixel; none at the edges."""
    x, y = image.new_zeros(2, *image.shape).unbind()
    x[:, 1:-1] = 0.5 * (image[:, 2:] - image[:, :-2])
    y[1:-1] = 0.5 * (image[2:] - image[:-2])
    return x, y
