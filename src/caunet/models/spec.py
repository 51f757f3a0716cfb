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
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["ModelSpec", "near", "one_of"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "relation": ("concatenation", "bilinear", "contrast-association"),
    "competition": ("softmin", "winner-take-all", "none"),
    "normalisation": ("l2", "softmax", "none"),
    "parametrisation": ("direct", "softplus", "exp"),
    "learning_rule": ("multiplicative", "projection", "adam"),
}


@dataclass(frozen=True)
class ModelSpec:
    """A network as JSON-able data. ``inputs``: features of each image (121 for 11 x 11 pixels).

    >>> spec = ModelSpec("can", "contrast-association", "rotation", dim=1, patch=11, inputs=121)
    >>> ModelSpec.from_json(spec.to_json()) == spec
    True
    >>> dataclasses.replace(spec, rank=0)
    Traceback (most recent call last):
    ...
    ValueError: rank takes a whole number of at least 1 (None for full rank), got 0
    """

    name: str
    relation: str
    task: str
    dim: int
    patch: int
    inputs: int
    units: int = 300
    """Relation units, after pooling."""
    rank: int | None = 4
    """Rank-one terms in a unit; None is full rank."""
    hidden: tuple[int, ...] = (100, 100)
    """Widths of the decoder's hidden layers."""
    bias: bool = True
    """Biases in the decoder."""
    competition: str = "softmin"
    """What contrast association units go through: softmin, winner-take-all (straight-through), none."""
    temperature: float = 1.0
    """Of the softmin; small is hard."""
    learn_temperature: float = 0.0
    """Contrast association with softmin: how fast its temperature is learned, from ``temperature`` on; 0 keeps it."""
    relative: bool = False
    """Contrast association in proportion to the contrast that a unit sees (:class:`caunet.nn.RelativeContrast`)."""
    normalisation: str = "l2"
    """What bilinear units go through: l2, softmax, none."""
    contrast: float | None = None
    """Standard deviation that each pair is brought to, both patches by the same factor and about the same mean;
    None leaves pixels as they are."""
    response_scale: float = 1.0
    """Multiplies what the competition (or normalisation) yields before the decoder sees it."""
    response_center: bool = False
    """Contrast association with a competition: the decoder sees responses less their mean, which is 1 / units."""
    nonnegative: bool = False
    """Bilinear units: weights kept at or above zero. (Those of contrast association always are.)"""
    parametrisation: str = "direct"
    """Non-negative weights are the parameters themselves, or softplus or exp of them."""
    learning_rule: str = "adam"
    """What the non-negative weights want: multiplicative, projection, or adam where there are none."""
    output_center: tuple[float, ...] | None = None
    """With ``output_scale``: z = center + scale * g(h), the decoder working in units of the task's range."""
    output_scale: tuple[float, ...] | None = None
    features: str | None = None
    """The name of a built-in f, or the class of a custom one for the record; None is the identity."""

    def __post_init__(self) -> None:
        for field, choices in _CHOICES.items():
            one_of(field, getattr(self, field), choices)
        for field in ("dim", "patch", "inputs", "units"):
            _whole(field, getattr(self, field))
        if self.rank is not None:
            _whole("rank", self.rank, " (None for full rank)")
        object.__setattr__(self, "hidden", _widths(self.hidden))
        for field in ("output_center", "output_scale"):
            value = getattr(self, field)
            object.__setattr__(self, field, None if value is None else tuple(map(float, value)))
        for field in ("temperature", "response_scale", "contrast"):
            value = getattr(self, field)
            if field == "contrast" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ValueError(f"{field} takes a positive number, got {value!r}")
        for field in ("bias", "nonnegative", "relative", "response_center"):
            if not isinstance(getattr(self, field), bool):
                raise ValueError(f"{field} takes True or False, got {getattr(self, field)!r}")
        if self.parametrisation != "direct" and not self.constrained:
            raise ValueError("parametrisation takes 'direct' where weights may be of either sign")
        rate = self.learn_temperature
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < float("inf"):
            raise ValueError(f"learn_temperature takes a number of at least 0, got {rate!r}")
        if self.learn_temperature and self.competition != "softmin":
            raise ValueError(
                f"learn_temperature goes with competition 'softmin' alone, got {self.competition!r}"
            )
        if self.response_center and (self.relation != "contrast-association" or self.competition == "none"):
            raise ValueError(
                "response_center goes with a competition: responses have no known mean without one"
            )

    @property
    def constrained(self) -> bool:
        """Whether the relation's weights must stay at or above zero."""
        return self.relation == "contrast-association" or (self.relation == "bilinear" and self.nonnegative)

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


def one_of(field: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a ``value`` that is not among ``choices``, naming them and the nearest."""
    choices = list(choices)
    if value in choices:
        return
    raise ValueError(f"{field} takes one of {', '.join(choices)}; got {value!r}{near(value, choices)}")


def near(value: object, choices: Iterable[str]) -> str:
    """A hint at the choice that ``value`` is most like, or nothing."""
    found = difflib.get_close_matches(str(value), list(choices), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _whole(field: str, value: object, note: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{field} takes a whole number of at least 1{note}, got {value!r}")


def _widths(value: object) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"hidden takes a sequence of layer widths, got {value!r}")
    for width in value:
        _whole("hidden (each width)", width)
    return tuple(value)
