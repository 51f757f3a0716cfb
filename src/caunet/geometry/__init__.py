"""Homographies, points and warping: one direction, one pixel convention.

Convention (used everywhere in caunet)
    - H (..., 3, 3) maps points of the FIRST image to the SECOND: p' = H p, so y(p') = x(p).
    - Points are (x, y), in pixels: x to the right, y down, pixel centres at integers, so that an image of
      (height, width) spans 0..width-1 and 0..height-1. Sizes are (height, width), as tensors have them.
    - Positive angles turn x towards y: clockwise on the screen.
    - A task's H has its origin at the centre of the patch; `center` carries it into pixels of an image.
    - H and any non-zero multiple of it are the same homography.
    - Outside the image is `fill`. There is no align_corners: coordinates are pixels, never normalised.

Products of 3x3 matrices are written out elementwise: a matrix product of the library changes its last bits
with the size of the batch and with the matmul precision in force, and a pair must not.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from caunet.geometry.sampling import MODES, Mode, sample

__all__ = [
    "affine",
    "apply",
    "center",
    "compose",
    "invert",
    "normalise",
    "projective",
    "rotate",
    "scale",
    "translate",
    "warp",
]

Number = float | Tensor

HORIZON = 1e-6  # the smallest third coordinate that counts as in front, that of the image's centre being 1
FLOAT32_SIDE = 512  # up to this size float32 coordinates are good to 1e-4 of a pixel


def translate(tx: Number, ty: Number) -> Tensor:
    """H that moves by tx to the right and ty down: numbers or tensors (...) to (..., 3, 3).

    >>> apply(translate(2.0, -1.0), torch.tensor([[0.0, 0.0]]))
    tensor([[ 2., -1.]])
    """
    return _matrix(1.0, 0.0, tx, 0.0, 1.0, ty, 0.0, 0.0, 1.0)


def rotate(degrees: Number) -> Tensor:
    """H that turns about the origin, x towards y: a number or tensor (...) to (..., 3, 3).

    >>> apply(rotate(90.0), torch.tensor([[1.0, 0.0]])).round()
    tensor([[-0., 1.]])
    """
    angle = torch.as_tensor(degrees, dtype=None if isinstance(degrees, Tensor) else torch.get_default_dtype())
    angle = angle * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    return _matrix(cos, -sin, 0.0, sin, cos, 0.0, 0.0, 0.0, 1.0)


def scale(sx: Number, sy: Number | None = None) -> Tensor:
    """H that stretches by sx along x and sy (sx if not given) along y: (...) to (..., 3, 3).

    >>> apply(scale(2.0, 0.5), torch.tensor([[1.0, 1.0]]))
    tensor([[2.0000, 0.5000]])
    """
    return _matrix(sx, 0.0, 0.0, 0.0, sx if sy is None else sy, 0.0, 0.0, 0.0, 1.0)


def affine(z: Tensor) -> Tensor:
    """The paper's affine H, without translation: z (..., 4) to [[1+z1, z2, 0], [z3, 1+z4, 0], [0, 0, 1]].

    >>> affine(torch.tensor([0.5, 0.25, 0.0, -0.5]))
    tensor([[1.5000, 0.2500, 0.0000],
            [0.0000, 0.5000, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """
    _last_axis("z", z, 4)
    z1, z2, z3, z4 = z.unbind(-1)
    return _matrix(1 + z1, z2, 0.0, z3, 1 + z4, 0.0, 0.0, 0.0, 1.0)


def projective(z: Tensor) -> Tensor:
    """The paper's projective H: z (..., 6) to [[1+z1, z2, 0], [z3, 1+z4, 0], [z5, z6, 1]].

    >>> projective(torch.tensor([0., 0., 0., 0., 0.25, 0.]))[2]
    tensor([0.2500, 0.0000, 1.0000])
    """
    _last_axis("z", z, 6)
    z1, z2, z3, z4, z5, z6 = z.unbind(-1)
    return _matrix(1 + z1, z2, 0.0, z3, 1 + z4, 0.0, z5, z6, 1.0)


def compose(*H: Tensor) -> Tensor:
    """The product of homographies, as formulas have it: ``compose(A, B)`` is A B, and B acts first.

    >>> apply(compose(scale(2.0), translate(1.0, 0.0)), torch.tensor([[0.0, 0.0]]))
    tensor([[2., 0.]])
    """
    if not H:
        raise ValueError("compose takes at least one homography, got none")
    product = H[0]
    _check_shape("H[0]", product)
    for k, factor in enumerate(H[1:], start=1):
        _check_shape(f"H[{k}]", factor)
        terms = [product[..., :, i, None] * factor[..., None, i, :] for i in range(3)]
        product = terms[0] + terms[1] + terms[2]
    return product


def invert(H: Tensor) -> Tensor:
    """The inverse homography (..., 3, 3); refuses a singular or non-finite H by its index.

    >>> invert(translate(3.0, -2.0))
    tensor([[ 1.,  0., -3.],
            [ 0.,  1.,  2.],
            [ 0.,  0.,  1.]])
    """
    check(H)
    adjugate, determinant = _adjugate(H.double())
    return (adjugate / determinant[..., None, None] + 0.0).to(H.dtype)  # + 0 turns -0 into 0


def normalise(H: Tensor) -> Tensor:
    """The same homography scaled so that its last entry is 1; refuses one whose last entry is 0.

    >>> normalise(2 * translate(3.0, 0.0))[0]
    tensor([1., 0., 3.])
    """
    _check_shape("H", H)
    last = H[..., 2, 2]
    _refuse("H", last == 0, "sends the origin to infinity (its last entry is 0) and cannot be normalised")
    return H / last[..., None, None]


def apply(H: Tensor, points: Tensor) -> Tensor:
    """Points p (..., N, 2) carried to p' = H p (..., N, 2), the third coordinate divided out.

    H is (..., 3, 3) with leading shapes that broadcast. A point that H sends to infinity becomes inf or nan.

    >>> apply(projective(torch.tensor([0., 0., 0., 0., 0.5, 0.])), torch.tensor([[2.0, 4.0]]))
    tensor([[1., 2.]])
    """
    _check_shape("H", H)
    _last_axis("points", points, 2)
    column = H[..., None, :, :].unbind(-1)  # three of (..., 1, 3)
    q = points[..., :1] * column[0] + points[..., 1:] * column[1] + column[2]
    return q[..., :2] / q[..., 2:]


def center(H: Tensor, size: tuple[int, int], origin: tuple[float, float] = (0.0, 0.0)) -> Tensor:
    """H with its origin at the centre of an image, rewritten in the pixel coordinates of that image.

    `size` is (height, width); the centre is ((width - 1) / 2, (height - 1) / 2), plus `origin` (x0, y0) when
    the patch of that size lies elsewhere in a larger image. The result is T(c) H T(-c), (..., 3, 3).

    >>> apply(center(rotate(180.0), (11, 11)), torch.tensor([[0.0, 10.0]])).round()
    tensor([[10., 0.]])
    """
    _check_shape("H", H)
    height, width = _check_size("size", size)
    cx, cy = origin[0] + (width - 1) / 2, origin[1] + (height - 1) / 2
    return compose(translate(cx, cy).to(H), H, translate(-cx, -cy).to(H))


def warp(
    images: Tensor,
    H: Tensor,
    size: tuple[int, int] | None = None,
    mode: Mode = "bilinear",
    fill: float = 0.0,
    *,
    origin: tuple[float, float] = (0.0, 0.0),
    index: Tensor | None = None,
    checked: bool = True,
) -> Tensor:
    """Images carried by H: y with y(p') = x(H^-1 p'), one homography an image, differentiable in both.

    Args:
        images: (B, C, height, width) or (B, height, width), floating or bytes.
        H: (B, 3, 3), or (3, 3) for all images, in pixels (see `center`).
        size: (height, width) of the output; that of the images if not given.
        mode: "bilinear", "bicubic" (a = -0.75, as OpenCV and PyTorch) or "nearest" (ties to even).
        fill: the value of everything outside the image, and of points behind the horizon of H.
        origin: (x0, y0), where the output's first pixel lies in the second image; only this crop is computed.
            The same crop is ``warp(images, compose(translate(-x0, -y0), H), size)``.
        index: (B,) which image each H takes; without it the images are taken in order.
        checked: False skips the search for singular or non-finite H (it waits for the device).

    Returns:
        (B, C, *size) or (B, *size), in the dtype of the images (float32 for byte images). The front of H is
        the side on which it leaves the centre of the image, so H and -H warp alike.

    >>> image = torch.tensor([[[1., 2., 3.]]])
    >>> warp(image, translate(1.0, 0.0))
    tensor([[[0., 1., 2.]]])
    >>> warp(image, translate(1.0, 0.0), size=(1, 2), origin=(2, 0))
    tensor([[[2., 3.]]])
    """
    H, base = _check_warp(images, H, mode, fill, index)
    if checked:
        check(H)
    height, width = images.shape[-2:]
    if size is None:
        size = (height, width)
    narrow = torch.float64 not in (images.dtype, H.dtype) and max(height, width, *size) <= FLOAT32_SIDE
    dtype = torch.float32 if narrow else torch.float64
    x, y = _sources(H, (height, width), _check_size("size", size), origin, dtype)
    if images.ndim == 4:
        channels = torch.arange(images.shape[1], device=H.device) * (height * width)
        base = (base[:, None] + channels).reshape(-1)
        x, y = (c.repeat_interleave(images.shape[1], 0) for c in (x, y))
    values = sample(images, x, y, base, mode, fill)
    return values.reshape(*H.shape[:1], *images.shape[1:-2], *size)


def check(H: Tensor, name: str = "H") -> None:
    """Raise ValueError if any of H (..., 3, 3) is not finite or is singular, naming the first one.

    Singular means: the determinant vanishes to the precision of H's dtype once rows and columns have been
    brought to a common size, so neither a far translation nor a small multiple of H is refused.

    >>> check(torch.zeros(3, 3))
    Traceback (most recent call last):
        ...
    ValueError: H is singular: it takes invertible homographies
    """
    _check_shape(name, H)
    if torch.compiler.is_compiling():
        return
    wide = H.detach().double()
    _refuse(name, ~wide.isfinite().all(-1).all(-1), "is not finite: it takes finite homographies")
    for _ in range(3):
        size = wide.abs()
        size = (size.amax(-1, keepdim=True) * size.amax(-2, keepdim=True)).sqrt()
        wide = wide / size.clamp_min(torch.finfo(torch.float64).tiny)
    _, determinant = _adjugate(wide)
    limit = 16 * torch.finfo(H.dtype).eps
    _refuse(name, determinant.abs() <= limit, "is singular: it takes invertible homographies")


def _sources(
    H: Tensor, inside: tuple[int, int], size: tuple[int, int], origin: tuple[float, float], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Where each output pixel (B, *size) lies in the first image: x and y, in `dtype`.

    What is done once a homography is done in float64; what is done once a pixel, in `dtype`.
    """
    wide = H.double()
    # Scaled so that the image's centre has w = 1: H and -H have the same front, and w a known size.
    middle = wide[:, 2, 0] * ((inside[1] - 1) / 2) + wide[:, 2, 1] * ((inside[0] - 1) / 2) + wide[:, 2, 2]
    adjugate, determinant = _adjugate(wide / torch.where(middle == 0, 1.0, middle)[:, None, None])
    right, down, corner = (adjugate / determinant[:, None, None]).unbind(-1)
    start = right * origin[0] + down * origin[1] + corner
    right, down, start = (part.mT[..., None].to(dtype) for part in (right, down, start))  # (3, B, 1)
    place = torch.arange(size[0] * size[1], device=H.device)
    columns, rows = (place % size[1]).to(dtype), (place // size[1]).to(dtype)
    x, y, w = (right * columns + (down * rows + start)).reshape(3, len(H), *size)
    # Behind the horizon w is not positive: such a pixel is sent far outside (without a slow `where`).
    far = (HORIZON - w).clamp_min(0) * 1e20
    w = w.clamp_min(HORIZON)
    return x / w + far, y / w


def _adjugate(H: Tensor) -> tuple[Tensor, Tensor]:
    """The adjugate (..., 3, 3), det(H) H^-1 in closed form, and the determinant (...).

    Exact for the identity and for translations, which a general inverse need not be.
    """
    a, b, c = H.unbind(-2)
    adjugate = torch.stack([b.cross(c, dim=-1), c.cross(a, dim=-1), a.cross(b, dim=-1)], -1)
    x, y, z = (a * adjugate[..., 0]).unbind(-1)
    return adjugate, x + y + z


def _matrix(*entries: Number) -> Tensor:
    """Nine numbers or tensors (...), row by row, as (..., 3, 3)."""
    like = next((e for e in entries if isinstance(e, Tensor)), torch.empty(()))
    if not like.is_floating_point():
        like = like.to(torch.get_default_dtype())
    parts = [torch.as_tensor(e, dtype=like.dtype, device=like.device) for e in entries]
    shape = torch.broadcast_shapes(*(part.shape for part in parts))  # type: ignore[no-untyped-call]
    return torch.stack([part.expand(shape) for part in parts], -1).reshape(*shape, 3, 3)


def _check_shape(name: str, H: Tensor) -> None:
    if not isinstance(H, Tensor) or not H.is_floating_point():
        got = getattr(H, "dtype", type(H).__name__)
        raise TypeError(f"{name} takes a floating tensor (..., 3, 3), got {got}")
    if H.shape[-2:] != (3, 3):
        raise ValueError(f"{name} takes shape (..., 3, 3), got {tuple(H.shape)}")


def _last_axis(name: str, tensor: Tensor, length: int) -> None:
    if tensor.ndim < 1 or tensor.shape[-1] != length:
        raise ValueError(f"{name} takes shape (..., {length}), got {tuple(tensor.shape)}")


def _check_size(name: str, size: tuple[int, int]) -> tuple[int, int]:
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"{name} takes (height, width) of at least 1, got {tuple(size)}")
    return size


def _check_warp(
    images: Tensor, H: Tensor, mode: Mode, fill: float, index: Tensor | None
) -> tuple[Tensor, Tensor]:
    """H as (B, 3, 3) and the offset (B,) of each image in the flattened images."""
    if images.ndim not in (3, 4) or images.numel() == 0:
        raise ValueError(f"images takes (B, C, height, width) or (B, height, width), got {[*images.shape]}")
    if mode not in MODES:
        raise ValueError(f"mode takes one of {', '.join(MODES)}, got {mode!r}")
    if not math.isfinite(fill):
        raise ValueError(f"fill takes a finite number, got {fill}")
    _check_shape("H", H)
    count = len(images) if index is None else len(index)
    if H.ndim == 2:
        H = H.expand(count, 3, 3)
    if H.ndim != 3 or len(H) != count:
        raise ValueError(f"H takes shape ({count}, 3, 3), one an image, got {tuple(H.shape)}")
    rows = torch.arange(count, device=images.device) if index is None else index
    return H, rows * images[0].numel()


def _refuse(name: str, bad: Tensor, why: str) -> None:
    """Raise ValueError naming the first of `name` for which `bad` (...) is true."""
    if torch.compiler.is_compiling() or not bool(bad.any()):
        return
    place = ", ".join(str(int(i)) for i in bad.nonzero()[0])
    raise ValueError(f"{name}[{place}] {why}" if place else f"{name} {why}")
