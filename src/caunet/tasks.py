"""Tasks: the parameters z of a family of transformations, their ranges, and z -> H.

The paper's five are registered here, and `motion`, with which whole images are aligned; `register` adds
more (docs/tasks.md shows two). A task's H has its origin at the center of the patch, in pixels, with the
convention of `caunet.geometry`. A family in space would have a `build` that returns H (..., 4, 4).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from caunet import geometry

__all__ = ["Task", "get", "names", "register"]


@dataclass(frozen=True)
class Task:
    """A family of transformations with parameters z (..., dim), each uniform on [low, high].

    Args:
        name: what `get` finds it by.
        names: the parameters' names, in the order of z.
        low, high: the ranges, one number for each parameter.
        build: z (..., dim) -> H (..., 3, 3), origin at the patch center.
        read: the inverse, from an H (..., 3, 3) whose last entry is 1; it need not check the family.
        units: what each parameter is measured in; "" for none.

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

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return len(self.names)

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
        """z (..., dim) to H (..., 3, 3), origin at the center of the patch.

        >>> get("translation").homography(torch.tensor([2.0, -1.0]))
        tensor([[ 1.,  0.,  2.],
                [ 0.,  1., -1.],
                [ 0.,  0.,  1.]])
        """
        self._check_z("z", z)
        return self.build(z)

    def parameters(self, H: Tensor, tolerance: float | None = None) -> Tensor:
        """The z (..., dim) of H (..., 3, 3), which may carry any scale; the ranges are not asked for.

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


_REGISTRY: dict[str, Task] = {}


def register(task: Task, *, replace: bool = False) -> Task:
    """Make a task known by its name, and return it; an existing name is refused unless `replace`."""
    if task.name in _REGISTRY and not replace:
        raise ValueError(f"a task named {task.name!r} exists; pass replace=True to replace it")
    _REGISTRY[task.name] = task
    return task


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
        return _REGISTRY[name]
    close = difflib.get_close_matches(str(name), _REGISTRY, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(f"unknown task {name!r}{hint} Known tasks: {', '.join(_REGISTRY)}")


# Named functions rather than lambdas, so that a task can be pickled to worker processes.
def _entries(H: Tensor, *places: tuple[int, int]) -> Tensor:
    return torch.stack([H[..., row, column] for row, column in places], -1)


def _build_translation(z: Tensor) -> Tensor:
    return geometry.translate(z[..., 0], z[..., 1])


def _read_translation(H: Tensor) -> Tensor:
    return _entries(H, (0, 2), (1, 2))


def _build_rotation(z: Tensor) -> Tensor:
    return geometry.rotate(z[..., 0])


def _read_rotation(H: Tensor) -> Tensor:
    return torch.atan2(H[..., 1, 0], H[..., 0, 0]).rad2deg()[..., None]


def _build_scaling(z: Tensor) -> Tensor:
    return geometry.scale(z[..., 0], z[..., 1])


def _read_scaling(H: Tensor) -> Tensor:
    return _entries(H, (0, 0), (1, 1))


def _read_affine(H: Tensor) -> Tensor:
    return _entries(H, (0, 0), (0, 1), (1, 0), (1, 1)) - H.new_tensor([1.0, 0.0, 0.0, 1.0])


def _build_motion(z: Tensor) -> Tensor:
    return geometry.compose(geometry.translate(z[..., 0], z[..., 1]), geometry.affine(z[..., 2:]))


def _read_motion(H: Tensor) -> Tensor:
    return torch.cat([_read_translation(H), _read_affine(H)], -1)


def _read_projective(H: Tensor) -> Tensor:
    return torch.cat([_read_affine(H), _entries(H, (2, 0), (2, 1))], -1)


_SHIFTS = ("shift_x", "shift_y")
_SCALES = ("scale_x", "scale_y")
_LINEAR = ("a11", "a12", "a21", "a22")
_BENDS = ("p1", "p2")

for _task in (
    Task(
        "translation",
        _SHIFTS,
        (-5.0,) * 2,
        (5.0,) * 2,
        _build_translation,
        _read_translation,
        ("pixels",) * 2,
    ),
    Task("rotation", ("angle",), (-45.0,), (45.0,), _build_rotation, _read_rotation, ("degrees",)),
    Task("scaling", _SCALES, (0.5,) * 2, (2.0,) * 2, _build_scaling, _read_scaling),
    Task("affine", _LINEAR, (-0.5,) * 4, (0.5,) * 4, geometry.affine, _read_affine),
    Task(
        "projective",
        _LINEAR + _BENDS,
        (-0.5,) * 4 + (-0.01,) * 2,
        (0.5,) * 4 + (0.01,) * 2,
        geometry.projective,
        _read_projective,
        ("",) * 4 + ("1/pixel",) * 2,
    ),
    # What a small patch of two related images does: it shifts, and is a little distorted.
    Task(
        "motion",
        _SHIFTS + _LINEAR,
        (-5.0,) * 2 + (-0.25,) * 4,
        (5.0,) * 2 + (0.25,) * 4,
        _build_motion,
        _read_motion,
        ("pixels",) * 2 + ("",) * 4,
    ),
):
    register(_task)
