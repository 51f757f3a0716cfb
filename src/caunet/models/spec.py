"""What a network is, as plain data: enough to build it again, and nothing else.

The defaults of the three networks are Table I of the paper:

========== ==================== ============== ===========================
network    relation             then           decoder g (PReLU between)
========== ==================== ============== ===========================
CTN        concatenation, 242   -              1200, 300, 100, 100, dim(z)
BLN        bilinear, 4 x 300    l2 norm        100, 100, dim(z)
CAN        CAU, 4 x 300         softmin        100, 100, dim(z)
========== ==================== ============== ===========================
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from caunet.models.initialization import INITIALIZATIONS
from caunet.nn import COMPETITIONS, PARAMETRIZATIONS, RELATIONS, Competition, Relation
from caunet.registry import check_choice

__all__ = ["LEARNING_RULES", "ModelSpec"]

LEARNING_RULES = ("multiplicative", "projection", "adam")

_MOST_LAYERS = 100  # of a decoder: a file must not make a loader build millions of them

# What relation_options must not decide: the spec's own fields, and where tensors are.
_RESERVED = frozenset({"in_a", "in_b", "units", "rank", "nonnegative", "device", "dtype"})


@dataclass(frozen=True)
class ModelSpec:
    """A network as JSON-able data. ``inputs``: features of each image (121 for 11 x 11 pixels).

    >>> spec = ModelSpec("can", "contrast-association", "rotation", dim=1, patch=11, inputs=121)
    >>> ModelSpec.from_json(spec.to_json()) == spec
    True
    >>> spec.competition, spec.patch_shape
    ('softmin', (11, 11))
    >>> dataclasses.replace(spec, rank=0)
    Traceback (most recent call last):
    ...
    ValueError: rank must be a whole number of at least 1 (None for full rank), got 0
    """

    name: str
    relation: str
    """Relation units by name: one of :data:`caunet.nn.RELATIONS`."""
    task: str
    dim: int
    patch: int
    """Side of a patch in pixels."""
    inputs: int
    dimensions: int = 2
    """Of a patch: 2 for an image, 3 for a volume, 1 for a signal."""
    units: int = 300
    """Relation units, after pooling."""
    rank: int | None = 4
    """Rank-one terms in a unit; None is full rank."""
    hidden: tuple[int, ...] = (100, 100)
    """Widths of the decoder's hidden layers."""
    bias: bool = True
    """Biases in the decoder."""
    initialization: str = "fan-in"
    """What the decoder's first weights are drawn from: one of :data:`caunet.models.initialization.INITIALIZATIONS`."""
    competition: str = "default"
    """What the units go through: one of :data:`caunet.nn.COMPETITIONS`; by default what suits the relation."""
    # Committed results and cards hold the next two under these names; caunet.nn.Softmin calls them
    # initial_temperature and rate_factor.
    temperature: float = 1.0
    """Of a softmin or softmax; small is hard."""
    learn_temperature: float = 0.0
    """Softmin: how fast its temperature is learned, starting from ``temperature``; 0 keeps it."""
    contrast: float | None = None
    """Standard deviation that each pair is scaled to, both patches by the same factor and about the same mean;
    None leaves pixels as they are."""
    response_scale: float = 1.0
    """Multiplies the responses before the decoder sees them."""
    response_center: bool = False
    """Competitions whose responses sum to one: the decoder sees responses minus their mean, which is 1 / units."""
    nonnegative: bool = False
    """Bilinear units: weights kept at or above zero. (Those of contrast association always are.)"""
    parametrization: str = "direct"
    """Non-negative weights are the parameters themselves, or softplus or exp of them."""
    learning_rule: str = "adam"
    """How the non-negative weights are to be trained: multiplicative, projection, or adam where there are none."""
    output_center: tuple[float, ...] | None = None
    """With ``output_scale``: z = center + scale * g(h), the decoder working in units of the task's range."""
    output_scale: tuple[float, ...] | None = None
    features: str | None = None
    """The name of a built-in f, or the class of a custom one for the record; None is the identity."""
    relation_options: dict[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    """Options that only this kind of relation unit has, such as ``floor`` of relative contrast."""

    def __post_init__(self) -> None:
        for field in ("name", "task"):
            if not isinstance(getattr(self, field), str):
                raise ValueError(f"{field} must be a string, got {getattr(self, field)!r}")
        if self.features is not None and not isinstance(self.features, str):
            raise ValueError(f"features must be a string or None, got {self.features!r}")
        relation = self.relation_class
        if self.competition == "default":
            object.__setattr__(self, "competition", relation.default_competition)
        check_choice("parametrization", self.parametrization, PARAMETRIZATIONS)
        check_choice("learning_rule", self.learning_rule, LEARNING_RULES)
        check_choice("initialization", self.initialization, INITIALIZATIONS)
        for field in ("dim", "patch", "inputs", "dimensions", "units"):
            _check_whole(field, getattr(self, field))
        if self.dimensions > 3:
            raise ValueError(f"dimensions must be 1, 2 or 3, got {self.dimensions}")
        if self.features is None and self.inputs != math.prod(self.patch_shape):
            raise ValueError(
                f"inputs must be {math.prod(self.patch_shape)}, the pixels of a patch, got {self.inputs}"
            )
        if self.rank is not None:
            _check_whole("rank", self.rank, " (None for full rank)")
        for field in ("bias", "nonnegative", "response_center"):
            if not isinstance(getattr(self, field), bool):
                raise ValueError(f"{field} must be True or False, got {getattr(self, field)!r}")
        for field in ("temperature", "response_scale", "contrast"):
            value = getattr(self, field)
            if not (_is_number(value) and value > 0) and not (field == "contrast" and value is None):
                raise ValueError(f"{field} must be a positive number, got {value!r}")
        object.__setattr__(self, "hidden", _widths(self.hidden))
        self._check_outputs()
        self._check_options(relation)
        self._check_competition(relation, self.competition_class)

    def _check_outputs(self) -> None:
        if (self.output_center is None) != (self.output_scale is None):
            raise ValueError("output_center and output_scale must be given together")
        for field in ("output_center", "output_scale"):
            value = getattr(self, field)
            if value is None:
                continue
            if not isinstance(value, Sequence) or len(value) != self.dim or not all(map(_is_number, value)):
                raise ValueError(f"{field} must be {self.dim} finite numbers, got {value!r}")
            object.__setattr__(self, field, tuple(map(float, value)))

    def _check_options(self, relation: type[Relation]) -> None:
        if self.nonnegative and "nonnegative" not in relation.spec_options:
            raise ValueError(
                f"nonnegative must be False for {self.relation} units, which have no such choice"
            )
        if self.parametrization != "direct" and not (
            self.constrained and "parametrization" in relation.spec_options
        ):
            raise ValueError("parametrization must be 'direct' where weights may be of either sign")
        options = self.relation_options
        if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
            raise ValueError(f"relation_options must be a mapping of names to values, got {options!r}")
        for name, value in options.items():
            if name in _RESERVED or not (value is None or isinstance(value, str | bool) or _is_number(value)):
                raise ValueError(
                    f"relation_options must hold plain options of the units, got {name}={value!r}"
                )
        object.__setattr__(self, "relation_options", dict(options))

    def _check_competition(self, relation: type[Relation], competition: type[Competition]) -> None:
        if competition.smallest_wins not in (None, relation.smallest_wins):
            fitting = [
                name
                for name in COMPETITIONS
                if COMPETITIONS.lookup(name).smallest_wins in (None, relation.smallest_wins)
            ]
            check_choice(f"competition of {self.relation} units", self.competition, fitting)
        rate = self.learn_temperature
        if not (_is_number(rate) and rate >= 0):
            raise ValueError(f"learn_temperature must be a number of at least 0, got {rate!r}")
        if rate and not competition.learns_temperature:
            raise ValueError(
                "learn_temperature must be 0 unless the competition learns its temperature, as 'softmin' does; "
                f"got {rate} with {self.competition!r}"
            )
        if self.response_center and not competition.sums_to_one:
            raise ValueError(
                "response_center must be False unless responses sum to one: without that their mean is not "
                f"known; got {self.response_center} with competition {self.competition!r}"
            )

    @property
    def patch_shape(self) -> tuple[int, ...]:
        """The shape of a patch: (11, 11), or (7, 7, 7) of a volume."""
        return (self.patch,) * self.dimensions

    @property
    def relation_class(self) -> type[Relation]:
        """The class of the relation units."""
        return RELATIONS.lookup(self.relation)

    @property
    def competition_class(self) -> type[Competition]:
        """The class of the competition."""
        return COMPETITIONS.lookup(self.competition)

    @property
    def constrained(self) -> bool:
        """Whether the relation's weights must stay at or above zero."""
        return self.relation_class.nonnegative_weights or self.nonnegative

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON's own types."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ModelSpec":
        """The spec from :meth:`to_json`'s dict; unknown fields are refused."""
        unknown = sorted(set(value) - {f.name for f in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"model spec has unknown fields: {', '.join(unknown)}")
        return cls(**value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_whole(field: str, value: object, note: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{field} must be a whole number of at least 1{note}, got {value!r}")


def _widths(value: object) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"hidden must be a sequence of layer widths, got {value!r}")
    if len(value) > _MOST_LAYERS:
        raise ValueError(f"hidden must be at most {_MOST_LAYERS} layer widths, got {len(value)}")
    for width in value:
        _check_whole("hidden (each width)", width)
    return tuple(value)
