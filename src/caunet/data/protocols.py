"""The two ways of making a pair: `text`, as the paper says, and `release`, as its authors did.

A protocol turns uniform numbers into z and into the two places to read: where the first patch lies, and the
*pull* that says where in the same image each pixel of the second patch reads (see `caunet.data.lookup`).
Convention as in `caunet.geometry`: y(p') = x(p) with p' = H p, so the pull is H^-1; x right, y down; the
origin of H is the center of the patch. docs/pairs.md has the details.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from caunet import geometry
from caunet.tasks import Task

__all__ = ["PROTOCOLS", "Crops", "PairProtocol", "Release", "Text", "get", "rows_first"]

RELEASE_TASKS = ("translation", "rotation", "scaling", "affine", "projective")


class Crops(NamedTuple):
    """Two patches that need no interpolation: their first pixels (row, column), (B, 2) int64 each."""

    first: Tensor
    second: Tensor


class PairProtocol(Protocol):
    """What `PairSource` asks of a protocol."""

    name: str
    interpolation: str
    corner: tuple[int, ...]  # first pixel ([slice,] row, column) of the patch at the image's center
    whole: bool  # whether z are whole numbers
    places: bool  # whether patches lie at random places and are cut out; else the second is warped
    rows_first: bool  # whether z is (rows, columns); see `rows_first`

    def parameters(self, u: Tensor) -> Tensor:
        """Uniform numbers (B, dim) to z (B, dim) float32."""

    def crops(self, z: Tensor, u: Tensor) -> Crops:
        """If patches have `places`: z (B, dim) and uniform numbers (B, 2) to the places of both patches."""

    def pull(self, z: Tensor) -> Tensor:
        """If not: z (B, dim) to where the second patch reads, (B, d+1, d+1) float64. The first is at `corner`."""

    def homography(self, z: Tensor) -> Tensor:
        """z (..., dim), in this protocol's order, to H (..., d+1, d+1)."""


def rows_first(task: str, protocol: str) -> bool:
    """Whether z is (rows, columns), y before x, as the authors' scripts have it: translations of the release.

    The one place that knows. A `PairSource` has it as an attribute; the card of a network has both arguments.

    >>> rows_first("translation", "release"), rows_first("translation", "text"), rows_first("scaling", "release")
    (True, False, False)
    """
    return task == "translation" and protocol == "release"


def get(name: str, task: Task, size: tuple[int, ...], patch: int) -> PairProtocol:
    """The protocol called ``name`` for a task, images or volumes of ``size`` and patches of equal sides."""
    if len(size) != task.dimensions:
        wanted = {2: "images (height, width)", 3: "volumes (depth, height, width)"}[task.dimensions]
        raise ValueError(f"images must be {wanted} for the task {task.name}, got a size of {_times(size)}")
    if patch < 1 or patch > min(size):
        raise ValueError(f"patch must be 1 to {min(size)} for images of {_times(size)}, got {patch}")
    if name not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {name!r}")
    return PROTOCOLS[name](task, size, patch)


def _times(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size))


class Text:
    """The paper as written: z continuous, warp about the center of the patch, linear, patch at the center.

    In space it is the same with one more axis.

    >>> from caunet import tasks
    >>> protocol = Text(tasks.get("translation"), (32, 32), 11)
    >>> protocol.pull(torch.tensor([[2.0, 0.0]]))[0]  # reads two to the left of (11, 11)
    tensor([[ 1., 0., 9.],
            [ 0., 1., 11.],
            [ 0., 0., 1.]], dtype=torch.float64)
    """

    name = "text"
    interpolation = "bilinear"
    whole = False
    places = False
    rows_first = False

    def __init__(self, task: Task, size: tuple[int, ...], patch: int) -> None:
        self.task, self.patch = task, patch
        self.corner = tuple(side // 2 - patch // 2 for side in size)

    def parameters(self, u: Tensor) -> Tensor:
        # Not task.from_uniform: lerp rounds differently in the tail of a batch than in its middle.
        low, high = u.new_tensor(self.task.low), u.new_tensor(self.task.high)
        return (u * (high - low) + low).to(torch.float32)

    def crops(self, z: Tensor, u: Tensor) -> Crops:
        raise NotImplementedError("protocol 'text' always warps")

    def pull(self, z: Tensor) -> Tensor:
        half = (self.patch - 1) / 2
        offset = z.new_full((len(z), len(self.corner)), -half, dtype=torch.float64)
        return _pull(self.homography(z.double()), offset, self.origin)

    def homography(self, z: Tensor) -> Tensor:
        return self.task.homography(z)

    @property
    def origin(self) -> tuple[float, ...]:
        """The center of the first patch, (x, y[, z]) in the image: where H has its origin."""
        return geometry.center_of((self.patch,) * len(self.corner), self.corner[::-1])


class Release:
    """What the authors ran. Only their five tasks: other tasks have no release to follow.

    Translation: whole pixels, no interpolation, z = (rows, columns), first patch at a random place such that
    both patches lie inside. Rotation: whole degrees, bicubic. The rest: continuous, bilinear. All but
    translation: the output is the bounding box of the warped image, and the second patch is taken
    around pixel floor(S / 2) of each of its axes, as the first is in the image.
    """

    name = "release"

    def __init__(self, task: Task, size: tuple[int, ...], patch: int) -> None:
        if task.name not in RELEASE_TASKS:
            known = ", ".join(RELEASE_TASKS)
            raise ValueError(
                f"task must be one of {known} for protocol 'release', got {task.name!r}; use 'text' for it"
            )
        self.task, self.size, self.patch = task, size, patch
        self.whole = task.name in ("translation", "rotation")
        self.places = task.name == "translation"
        self.rows_first = rows_first(task.name, self.name)
        self.interpolation = {"translation": "none", "rotation": "bicubic"}.get(task.name, "bilinear")
        self.text = Text(task, size, patch)
        self.corner = self.text.corner
        reach = max(task.high) if task.name == "translation" else 0
        if min(size) - patch < reach:
            raise ValueError(f"patch must be at most {min(size) - int(reach)} here: both patches must fit")
        if task.name == "projective":
            self._check_horizon()

    def parameters(self, u: Tensor) -> Tensor:
        if not self.whole:
            return self.text.parameters(u)
        low, high = u.new_tensor(self.task.low), u.new_tensor(self.task.high)
        return ((u * (high - low + 1.0)).floor() + low).to(torch.float32)

    def crops(self, z: Tensor, u: Tensor) -> Crops:
        # The content moves by z, so the second patch begins z before the first: 0 <= first - z <= room.
        room = torch.tensor([n - self.patch for n in self.size], device=z.device)
        shift = z.to(torch.int64)
        places = room + 1 - shift.abs()
        first = shift.clamp(min=0) + (u * places).floor().to(torch.int64)
        return Crops(first, first - shift)

    def pull(self, z: Tensor) -> Tensor:
        H = self.text.homography(z.double())
        return _pull(H, self._box_offset(H), self.text.origin)

    def homography(self, z: Tensor) -> Tensor:
        return self.task.homography(z.flip(-1) if self.rows_first else z)

    def _box_offset(self, H: Tensor) -> Tensor:
        # Of the second patch's first pixel, (x, y) in H's coordinates. (B, 2)
        x0, y0 = self.text.origin
        height, width = self.size
        # Of the image's outline, which is made of pixel edges. (4, 2)
        outline = geometry.corners((height + 1, width + 1), like=H) - 0.5 - H.new_tensor([x0, y0])
        box = geometry.apply(H, outline)  # (B, 4, 2)
        low, high = box.amin(1), box.amax(1)
        # Whole pixels, shared out on both sides of the box. The slack keeps rounding from adding a pixel.
        length = (high - low - 1e-9).ceil()
        middle = (length / 2).floor() - length / 2 + 0.5  # pixel floor(S/2) from the box's center: 0 or 1/2
        return (low + high) / 2 + middle - self.patch // 2

    def _check_horizon(self) -> None:
        x0, y0 = self.text.origin
        far = max(x0 + 0.5, y0 + 0.5, self.size[1] - 0.5 - x0, self.size[0] - 0.5 - y0)
        slant = sum(max(-a, b) for a, b in zip(self.task.low[4:], self.task.high[4:], strict=True))
        if far * slant >= 1:
            raise ValueError(
                f"protocol 'release' cannot warp whole images of {self.size[0]}x{self.size[1]} projectively: "
                "the horizon may cross them and the bounding box has no end; use smaller images or 'text'"
            )


PROTOCOLS: dict[str, type[Text] | type[Release]] = {"text": Text, "release": Release}


def _pull(H: Tensor, offset: Tensor, origin: tuple[float, ...]) -> Tensor:
    """translate(origin) H^-1 translate(offset), float64 (B, d+1, d+1); not finite where H is singular.

    All of it elementwise, so that every pair gets the same bits alone and in a batch.
    """
    adjugate, determinant = geometry.adjugate(H)
    return geometry.with_shifts(adjugate / determinant[:, None, None], offset, H.new_tensor(origin))
