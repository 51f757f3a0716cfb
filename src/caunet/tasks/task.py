"""What a task is, and the registry that finds tasks by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from caunet import geometry
from caunet.registry import Registry

__all__ = ["Task", "entries", "get", "names", "register"]

_PATCHES = {2: 11, 3: 7}


@dataclass(frozen=True)
class Task:
    """A family of transformations with parameters z (..., dim), each uniform on [low, high].

    Args:
        name: what `get` finds it by.
        names: the parameters' names, in the order of z.
        low, high: the ranges, one number for each parameter.
        build: z (..., dim) -> H (..., 3, 3), or (..., 4, 4) in space, origin at the patch center.
        read: the inverse, from an H whose last entry is 1; it need not check the family.
        units: what each parameter is measured in; "" for none.
        dimensions: 2 for transformations of the plane, 3 for those of space.

    >>> task = get("rotation")
    >>> task.names, task.low, task.high
    (('angle',), (-45.0,), (45.0,))
    >>> z = task.sample(4, torch.Generator().manual_seed(0))
    >>> torch.allclose(task.parameters(task.homography(z)), z, atol=1e-4)
    True
    """

    name: str
    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    build: Callable[[Tensor], Tensor] = field(repr=False)
    read: Callable[[Tensor], Tensor] = field(repr=False)
    units: tuple[str, ...] = ()
    dimensions: int = 2

    def __post_init__(self) -> None:
        if not self.units:
            object.__setattr__(self, "units", ("",) * len(self.names))
        for part in ("low", "high", "units"):
            got = len(getattr(self, part))
            if got != len(self.names):
                raise ValueError(f"{part} must have one entry for each of {self.names}, got {got}")
        if not self.names:
            raise ValueError("names must hold at least one parameter, got ()")
        if not all(a < b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError(f"low must be below high for every parameter, got {self.low} and {self.high}")
        if self.dimensions not in (2, 3):
            raise ValueError(f"dimensions must be 2 (the plane) or 3 (space), got {self.dimensions!r}")

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return len(self.names)

    @property
    def default_patch(self) -> int:
        """The side of a patch where none is asked for: 11 pixels, or 7 voxels.

        >>> get("rotation").default_patch, get("rotation3").default_patch
        (11, 7)
        """
        return _PATCHES[self.dimensions]

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """n draws of z, uniform over the ranges: (n, dim). Drawn in float64, so the same for every dtype."""
        where = device if generator is None else generator.device
        u = torch.rand(n, self.dim, generator=generator, dtype=torch.float64, device=where)
        return self.from_uniform(u).to(dtype=dtype, device=device)

    def from_uniform(self, u: Tensor) -> Tensor:
        """u (..., dim) in [0, 1) stretched to the ranges, in u's dtype.

        >>> get("scaling").from_uniform(torch.tensor([0.0, 0.5]))
        tensor([0.5000, 1.2500])
        """
        self._check_z("u", u)
        return u.new_tensor(self.low).lerp(u.new_tensor(self.high), u)

    def homography(self, z: Tensor) -> Tensor:
        """z (..., dim) to H (..., 3, 3), in space (..., 4, 4), origin at the center of the patch.

        >>> get("translation").homography(torch.tensor([2.0, -1.0]))
        tensor([[ 1.,  0.,  2.],
                [ 0.,  1., -1.],
                [ 0.,  0.,  1.]])
        """
        self._check_z("z", z)
        return self.build(z)

    def corners(self, z: Tensor, patch: int) -> Tensor:
        """Where z (..., dim) carries the corner pixels of a patch of that side: (..., 4, 2), in space (..., 8, 3).

        Measured in pixels from the center of the patch.

        >>> get("translation").corners(torch.tensor([2.0, -1.0]), 11)
        tensor([[-3., -6.],
                [ 7., -6.],
                [ 7.,  4.],
                [-3.,  4.]])
        """
        places = geometry.corners((patch,) * self.dimensions, centered=True, like=z)
        return geometry.apply(self.homography(z), places)

    def parameters(self, H: Tensor, tolerance: float | None = None) -> Tensor:
        """The z (..., dim) of H (..., 3, 3) or (..., 4, 4), of any scale; the ranges are not asked for.

        Refuses an H that is no member of the family: one that differs from ``homography(z)`` by more than
        `tolerance` (the square root of the dtype's precision) times its largest entry.

        >>> get("rotation").parameters(2 * geometry.rotate(30.0)).round(decimals=4)
        tensor([30.])
        >>> get("rotation").parameters(geometry.scale(2.0))
        Traceback (most recent call last):
            ...
        ValueError: H is not of the task 'rotation' (off by 1)
        """
        H = geometry.normalize(H)
        if (d := geometry.dimension(H)) != self.dimensions:
            n = self.dimensions + 1
            raise ValueError(
                f"H must have shape (..., {n}, {n}) for {self.name}, got {d + 1} x {d + 1} matrices"
            )
        z = self.read(H)
        with torch.no_grad():
            off = (self.build(z) - H).abs().flatten(-2).amax(-1)
            limit = torch.finfo(H.dtype).eps ** 0.5 if tolerance is None else tolerance
            bad = ~(off <= limit * H.abs().flatten(-2).amax(-1))
        if bool(bad.any()):
            first = bad.nonzero()[0]
            place = f"[{', '.join(str(int(i)) for i in first)}]" if len(first) else ""
            distance = float(off[tuple(first)])
            raise ValueError(f"H{place} is not of the task {self.name!r} (off by {distance:.3g})")
        return z

    def describe(self) -> str:
        """One line for people.

        >>> get("rotation").describe()
        'rotation: angle in [-45, 45] degrees'
        """
        ranges = zip(self.names, self.low, self.high, self.units, strict=True)
        return f"{self.name}: " + ", ".join(f"{n} in [{a:g}, {b:g}] {u}".rstrip() for n, a, b, u in ranges)

    def _check_z(self, name: str, z: Tensor) -> None:
        if z.ndim < 1 or z.shape[-1] != self.dim:
            raise ValueError(
                f"{name} must have shape (..., {self.dim}) for {self.name}, got {tuple(z.shape)}"
            )
        if not z.is_floating_point():
            raise TypeError(f"{name} must be a floating tensor, got {z.dtype}")


_REGISTRY: Registry[Task] = Registry("task", "caunet.tasks")


def register(task: Task, *, replace: bool = False) -> Task:
    """Make a task known by its name, and return it; an existing name is refused unless `replace`."""
    return _REGISTRY.register(task.name, task, replace=replace)


def names() -> tuple[str, ...]:
    """The names of all registered tasks, the paper's five first.

    >>> names()[:5]
    ('translation', 'rotation', 'scaling', 'affine', 'projective')
    """
    return tuple(_REGISTRY)


def get(name: str | Task) -> Task:
    """The task of that name (a Task is returned as it is).

    >>> get("rotatoin")
    Traceback (most recent call last):
        ...
    ValueError: unknown task 'rotatoin'; did you mean 'rotation'? Known tasks: ...
    """
    if isinstance(name, Task):
        return name
    if name in _REGISTRY:
        return _REGISTRY.lookup(name)
    close = difflib.get_close_matches(str(name), list(_REGISTRY), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(f"unknown task {name!r}{hint} Known tasks: {', '.join(_REGISTRY)}")


def entries(H: Tensor, *places: tuple[int, int]) -> Tensor:
    """Some entries of H (..., n, n), side by side: what a `read` is made of.

    >>> entries(geometry.translate(2.0, -1.0), (0, 2), (1, 2))
    tensor([ 2., -1.])
    """
    return torch.stack([H[..., row, column] for row, column in places], -1)
