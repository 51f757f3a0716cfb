"""What a motion model is, and the registry of them.

A motion model says how two images, or two volumes, may be related. All that estimation asks of one stands in its class:
its name, degrees of freedom, generators, fit in closed form, what a search may try, its parameters and its words.
"""

from __future__ import annotations

import difflib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import numpy as np
from torch import Tensor

from caunet import geometry
from caunet.estimation.decomposition import decompose
from caunet.geometry import Matrix

__all__ = [
    "MotionModel",
    "create_motion_model",
    "motion_model_class",
    "motion_model_names",
    "register_motion_model",
]

Rows = list[tuple[str, str]]
Model = TypeVar("Model", bound="type[MotionModel]")


class MotionModel(ABC):
    """A group of transforms of the first image, and the transform from the first to the second that it starts from.

    Every member of the family is ``initial @ member of the group``; so what is fitted may be composed with what was
    there. Keyword arguments of a class's constructor are its options (a focal length, say); options that have no
    default must be given. :func:`register_motion_model` makes a class known by its name.
    """

    name: str
    freedom: int
    """Degrees of freedom; half as many motions of points determine a member (in space a third as many)."""
    dimensions: int = 2
    """2 in the plane, where H is (3, 3) and points are (x, y); 3 in space, where H is (4, 4) and points (x, y, z)."""
    search_angles: int = 24
    """How many angles, evenly around, a search tries."""
    search_scales: tuple[float, ...] = (1.0,)
    """By which factors a search enlarges the first image."""
    simpler: tuple[str, ...] = ()
    """Models to fit first where this one is led astray by few motions, in the order to try them."""

    @property
    def options(self) -> dict[str, Any]:
        """The options that it was made with, as JSON has them; those left at their defaults are left out."""
        return {}

    def for_images(self, size_a: tuple[int, int], size_b: tuple[int, int]) -> Self:
        """The model for two images of these sizes (height, width); most do not depend on them."""
        return self

    def in_coordinates(self, T: Matrix) -> Self:
        """The model for points T p of both images, T (3, 3) a shift and a scale; most are the same in all of them."""
        return self

    def initial(self, size_a: tuple[int, int], size_b: tuple[int, int]) -> Matrix:
        """The H (3, 3) of no motion, in pixels: the centers of both images coincide."""
        (xa, ya), (xb, yb) = geometry.center_of(size_a), geometry.center_of(size_b)
        return np.array([[1.0, 0.0, xb - xa], [0.0, 1.0, yb - ya], [0.0, 0.0, 1.0]])

    def nearest(self, H: Matrix) -> Matrix:
        """A member of the family near H (3, 3), for guesses that come from elsewhere; most families hold those."""
        return H

    @abstractmethod
    def generators(self) -> Matrix:
        """(freedom, 8): each generator of the group as the first eight entries of a 3 x 3 matrix whose last is 0.

        In space (freedom, 12): the upper three rows of a 4 x 4 matrix.
        """

    @abstractmethod
    def fit(self, source: Matrix, target: Matrix, weight: Matrix, prior: float = 0.0) -> Matrix:
        """The member (3, 3) of the group that takes ``source`` (N, 2) nearest to ``target`` (N, 2), weighted squares.

        Coordinates should be of the order of 1. ``prior`` holds linear and perspective terms to those of the
        identity, as about this many motions of weight one would, where the model has so many that it needs it.
        """

    def parameters(self, matrix: Tensor, size_a: tuple[int, int]) -> dict[str, float]:
        """The matrix (3, 3) in numbers; all models have those of :func:`caunet.estimation.decomposition.decompose`."""
        return decompose(matrix, size_a)

    @classmethod
    @abstractmethod
    def describe(cls, parameters: Mapping[str, float]) -> Rows:
        """Names and values in words, as many as the model has."""

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({options})"


_REGISTRY: dict[int, dict[str, type[MotionModel]]] = {2: {}, 3: {}}


def register_motion_model(model: Model, *, replace: bool = False) -> Model:
    """Make the class ``model`` known by its name, and return it (so it serves as a decorator)."""
    known = _REGISTRY[model.dimensions]
    if model.name in known and not replace:
        raise ValueError(f"a motion model named {model.name!r} exists; pass replace=True to replace it")
    known[model.name] = model
    return model


def motion_model_names(*, without_options: bool = False, dimensions: int = 2) -> tuple[str, ...]:
    """The names of all motion models, simplest first; ``without_options`` leaves out those that need an option.

    >>> motion_model_names(without_options=True)[:5]
    ('translation', 'euclidean', 'similarity', 'affine', 'projective')
    >>> motion_model_names(dimensions=3)
    ('translation', 'rigid', 'similarity', 'affine')
    """
    return tuple(
        name
        for name, model in _REGISTRY[dimensions].items()
        if not (without_options and any(_options(model).values()))
    )


def motion_model_class(name: str, dimensions: int = 2) -> type[MotionModel]:
    """The class of that name.

    >>> motion_model_class("affin")
    Traceback (most recent call last):
    ...
    ValueError: model must be one of translation, ..., got 'affin'; did you mean 'affine'?
    """
    known = _REGISTRY[dimensions]
    if isinstance(name, str) and name in known:
        return known[name]
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"model must be one of {', '.join(known)}, got {name!r}{hint}")


def create_motion_model(name: str | MotionModel, *, dimensions: int = 2, **options: Any) -> MotionModel:
    """The motion model of that name with these options (an instance is returned as it is).

    >>> create_motion_model("camera-rotation", focal=800)
    CameraRotation(focal=800.0)
    >>> create_motion_model("affine", focal=800)
    Traceback (most recent call last):
    ...
    TypeError: focal is no option of the motion model 'affine', which has none
    """
    model = name if isinstance(name, MotionModel) else motion_model_class(name, dimensions)
    if isinstance(model, MotionModel) and model.dimensions != dimensions:
        raise ValueError(f"model must be one of {dimensions} dimensions, got {model!r} of {model.dimensions}")
    known = {} if isinstance(model, MotionModel) else _options(model)
    for option in options:
        if option not in known:
            has = f"which has {', '.join(known)}" if known else "which has none"
            raise TypeError(f"{option} is no option of the motion model {model.name!r}, {has}")
    if isinstance(model, MotionModel):
        return model
    missing = [option for option, needed in known.items() if needed and options.get(option) is None]
    if missing:
        raise ValueError(f"{missing[0]} must be given for the motion model {model.name!r}, got none")
    return model(**options)


def _options(model: type[MotionModel]) -> dict[str, bool]:
    """The names of a class's options, and whether each must be given."""
    if model.__init__ is object.__init__:
        return {}
    parameters = inspect.signature(model).parameters.values()
    return {parameter.name: parameter.default is parameter.empty for parameter in parameters}
