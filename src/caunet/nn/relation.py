"""What every relation unit has: the base class, and the registry in which units are found by name.

A unit is a class in a file of its own. All that the rest of the package needs to know about it is asked of that class:
how it is built from a spec, its equation, its weights and their signs, how it slides over images, what it costs, how it
is rescaled, balanced, pruned and drawn. ``docs/own-unit.md`` adds one from outside.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar, overload

import torch
from torch import Tensor, nn

from caunet.low_rank import is_tracing
from caunet.nn.window import Window
from caunet.registry import Registry, register_class

__all__ = ["RELATIONS", "Relation", "UnitView", "register_relation"]


@dataclass(frozen=True)
class UnitView:
    """What one unit compares, for figures and pages: its matrix W, and the terms that W is a sum of.

    >>> view = UnitView(torch.eye(2), torch.eye(2), torch.eye(2))
    >>> view.a.tolist(), len(view.terms_a)
    ([1.0, 1.0], 2)
    """

    matrix: Tensor
    """W, (in_a, in_b)."""
    terms_a: Tensor
    """The left vectors of W's rank-one terms, (rank, in_a); (0, in_a) at full rank."""
    terms_b: Tensor
    """The right vectors, (rank, in_b)."""

    @property
    def a(self) -> Tensor:
        """How much the unit sees of each feature of a: W 1, (in_a,)."""
        return self.matrix.sum(1)

    @property
    def b(self) -> Tensor:
        """How much the unit sees of each feature of b: W^T 1, (in_b,)."""
        return self.matrix.sum(0)


Columns = Callable[[Tensor, Tensor], Tensor]


class Relation(nn.Module):
    """Relation units h = R(a, b): ``(..., in_a), (..., in_b) -> (..., outputs)``.

    A subclass gives ``forward``. Everything else has a default that is right for units without weights, which slide
    patch by patch. Units with one weight matrix each begin with :class:`caunet.nn.PairRelation` instead.

    Args:
        in_a: features of the first image.
        in_b: features of the second image.
        outputs: length of h.
    """

    spec_options: ClassVar[frozenset[str]] = frozenset()
    """The options of a spec that these units have: of units, rank, nonnegative, parametrization."""
    nonnegative_weights: ClassVar[bool] = False
    """Whether the weights must never be negative."""
    smallest_wins: ClassVar[bool | None] = None
    """Whether a small h means a good match (True), a large one (False), or neither (None: nothing to compete for)."""
    default_competition: ClassVar[str] = "none"
    """The competition of a network that names none."""

    def __init__(self, in_a: int, in_b: int, outputs: int) -> None:
        super().__init__()
        for name, value in (("in_a", in_a), ("in_b", in_b), ("units", outputs)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.in_a, self.in_b, self.outputs = in_a, in_b, outputs

    @classmethod
    def create(cls, in_a: int, in_b: int, options: Mapping[str, Any], **own: Any) -> Self:
        """The units for a network.

        Args:
            in_a, in_b: features of the two images.
            options: the options of a spec; those in ``spec_options`` are passed to the constructor.
            **own: options that only this kind of unit has (``relation_options`` of a spec).
        """
        return cls(
            in_a, in_b, **{name: options[name] for name in sorted(cls.spec_options & options.keys())}, **own
        )

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """``(..., in_a), (..., in_b) -> (..., outputs)``."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def check_inputs(self, a: Tensor, b: Tensor) -> None:
        """Refuse inputs of another size or kind than these units were made for; called by ``forward``.

        >>> import caunet.nn
        >>> caunet.nn.ContrastAssociation(121, 121, units=3)(torch.rand(5, 64), torch.rand(5, 121))
        Traceback (most recent call last):
        ...
        ValueError: a must be (..., 121), got (5, 64)
        """
        if is_tracing():
            return
        for name, value, size in (("a", a, self.in_a), ("b", b, self.in_b)):
            if value.ndim == 0 or value.shape[-1] != size:
                raise ValueError(f"{name} must be (..., {size}), got {tuple(value.shape)}")
            if not value.is_floating_point():
                raise TypeError(f"{name} must be a floating tensor, got {value.dtype}")

    def reset_parameters(
        self, generator: torch.Generator | None = None, reference_rank: int | None = None
    ) -> None:
        """Draw every weight anew.

        Args:
            generator: where the numbers come from; PyTorch's global generator if not given.
            reference_rank: draw units of a higher rank smaller, so that h is as large as it is at this rank.
        """

    def nonnegative_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that must stay non-negative: all of the module's own if ``nonnegative_weights``."""
        return self.parameters(recurse=False) if self.nonnegative_weights else iter(())

    def slide(self, a: Tensor, b: Tensor, window: Window) -> Tensor | None:
        """h (positions, outputs) at every position of ``window`` on two images (1, 1, ...), or None.

        None says that there is no form faster than the patches themselves, which are then given to ``forward``.
        """
        return None

    def sparse(self) -> "Columns | None":
        """h from the non-zero weights alone, as they are now: a function from a (in_a, P) and b (in_b, P), a pair in
        each column, to h (outputs, P), without gradients. None says that there is no such form."""
        return None

    def working_size(self) -> int:
        """How many numbers are held for one pair at once, beside the pair itself: it bounds how many go together."""
        return self.outputs

    def multiply_adds(self) -> int:
        """Multiply-adds for one pair, counting linear maps and products, not what depends on weights alone."""
        return 0

    def sparse_multiply_adds(self) -> int:
        """The same without those with a weight of zero."""
        return self.multiply_adds()

    def rescale_(self) -> None:
        """Remove from the weights whatever size means nothing; no response changes."""

    def balance_(self) -> None:
        """Bring the weights into the range of half precision, as far as no bit of any response changes."""

    def prunable(self) -> dict[str, Tensor]:
        """The weights that may be set to zero: the name of each parameter, and how much each of its entries counts.

        Entries of all units and parameters are to be compared with each other: the smallest go first.
        """
        return {}

    def view(self, unit: int) -> UnitView | None:
        """What unit number ``unit`` compares, without gradients; None if there is nothing to draw."""
        return None

    def extra_repr(self) -> str:
        return f"in_a={self.in_a}, in_b={self.in_b}"


R = TypeVar("R", bound=type[Relation])

RELATIONS: Registry[type[Relation]] = Registry("relation", "caunet.relations")
"""Relation units by the name that a spec knows them by."""


@overload
def register_relation(name: str, cls: None = None, *, replace: bool = False) -> Callable[[R], R]: ...


@overload
def register_relation(name: str, cls: R, *, replace: bool = False) -> R: ...


def register_relation(name: str, cls: R | None = None, *, replace: bool = False) -> R | Callable[[R], R]:
    """Make relation units known by ``name``, for specs and :func:`caunet.models.register_model`.

    Args:
        name: how a spec calls them.
        cls: a subclass of :class:`Relation`; without it, this is a decorator.
        replace: take the place of units that have that name.
    """
    return register_class(RELATIONS, Relation, name, cls, replace)
