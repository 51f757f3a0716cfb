"""What a run is: one dataclass, stored as JSON beside its results.

The defaults are the paper's settings (Section VI-D). A *profile* is where settings start from: ``paper`` is the paper's
schedule, ``quick`` the same schedule compressed into about a minute on two cores, ``best`` the settings under which
each network did best on validation images (docs/learning-rule.md).

>>> config = TrainConfig(task="translation", model="can", updates=1000)
>>> TrainConfig.from_json(config.to_json()) == config
True
>>> TrainConfig(protocol="texte")  # type: ignore[arg-type]
Traceback (most recent call last):
...
ValueError: protocol must be 'text' or 'release', got 'texte'
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

__all__ = ["BEST", "IN_SPACE", "PROFILES", "TrainConfig", "profile_settings"]

# The command line shows these as choices; configurations read from files are checked against them too.
Protocol = Literal["text", "release"]
PairKind = Literal["fixed", "fresh"]
Order = Literal["shuffled", "contiguous"]
Schedule = Literal["step", "cosine"]
Rule = Literal["auto", "multiplicative", "multiplicative-adam", "projection"]
Loss = Literal["mse", "range", "corners"]
Compile = Literal["auto", "always", "never"]
Precision = Literal["float32", "float64"]

_CHOICES = {
    "protocol": get_args(Protocol),
    "pairs": get_args(PairKind),
    "order": get_args(Order),
    "schedule": get_args(Schedule),
    "rule": get_args(Rule),
    "loss": get_args(Loss),
    "compile": get_args(Compile),
    "dtype": get_args(Precision),
}
_POSITIVE = (
    "per_image",
    "patch",
    "batch",
    "shards",
    "updates",
    "decay_every",
    "log_every",
    "test_every",
    "test_pairs",
)
_RATES = ("rate", "rate_multiplicative", "decay", "epsilon")


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one run; the defaults are the paper's."""

    task: str = "rotation"
    """What is to be inferred: translation, rotation, scaling, affine, projective; of volumes translation3, rotation3,
    scaling3, affine3, rigid3."""
    model: str = "can"
    """The network: ctn, bln, can or a variant (`caunet models` lists them)."""
    model_options: Mapping[str, Any] = field(default_factory=dict)
    """Overrides handed to `create_model`, such as {"bias": false}."""
    data: str = "photos"
    """Images: photos (embedded), cifar10 (after `caunet data fetch cifar10`), or a directory; for tasks of volumes
    shapes3 (made on the spot), or a directory of volumes."""
    skip_bad: bool = False
    """Leave out the images of a directory that cannot be read, instead of stopping."""
    split: str = "train"
    """The images trained on."""
    test_split: str = "test"
    """The images tested on."""
    protocol: Protocol = "text"
    """How pairs are made: as the paper writes (text) or as its authors' scripts did (release)."""
    pairs: PairKind = "fixed"
    """The paper's fixed set of pairs, or every pair new (fresh)."""
    per_image: int = 10
    """Pairs made from each image."""
    photometric: Mapping[str, Any] = field(default_factory=dict)
    """Changes of light in all pairs, as ranges: {"gain": [0.8, 1.2]}, also bias, noise, blur, gamma."""
    order: Order = "shuffled"
    """Batches drawn at random without replacement, or as contiguous runs of the stored order."""
    patch: int = 11
    """Side of a patch in pixels; for tasks of volumes 7 voxels are usual."""
    batch: int = 100
    """Pairs in an update (over all processes together)."""
    shards: int = 1
    """Parts of equal size that each batch's gradient is added up from, in order: a run on any number of processes
    that divides it then gives the same bits. Costs speed; 1 lets every process take its share at once."""
    updates: int = 200_000
    """Number of updates."""
    rate: float = 0.005
    """Adam's learning rate, for weights of either sign."""
    rate_multiplicative: float = 0.005
    """Learning rate of the rule for non-negative weights."""
    schedule: Schedule = "step"
    """How both rates fall: by decay steps (the paper's), or along half a cosine to zero at the last update."""
    decay: float = 0.95
    """Schedule step: both rates are multiplied by this ..."""
    decay_every: int = 500
    """... every so many updates."""
    epsilon: float = 1e-20
    """The epsilon of the multiplicative update."""
    rule: Rule = "auto"
    """Learning rule of non-negative weights; auto takes what the model asks for."""
    rule_options: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the rule, such as {"mix": 0.04} for multiplicative-adam."""
    loss: Loss = "mse"
    """Mean squared error of z in its own units (mse, the paper's) or in units of half each parameter's range (range);
    or the mean squared distance, in pixels, by which the patch's corners are misplaced (corners)."""
    prune: float = 0.0
    """Prune while learning, down to this share of the weights or, above 1, to so many non-zero numbers in all; 0
    prunes nothing. Weights go from a quarter to three quarters of the updates; then the rest is tuned."""
    adam_reset: bool = False
    """Reset Adam's moments at each update, as the authors' scripts did."""
    seed: int = 0
    """Seeds the pairs, their order and the initial weights."""
    log_every: int = 100
    """Updates between two lines of metrics.jsonl."""
    test_every: int = 2_000
    """Updates between two measurements on test pairs."""
    test_pairs: int = 10_000
    """Test pairs used while training (the final result uses all of them)."""
    checkpoint_every: int = 5_000
    """Updates between two checkpoints; 0 saves only the last state."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""
    dtype: Precision = "float32"
    """Precision of weights and pairs."""
    compile: Compile = "auto"
    """Compile the update: auto (when a C++ compiler is there and works), always, never."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                listed = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
                raise ValueError(f"{name} must be {listed}, got {getattr(self, name)!r}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.batch % self.shards:
            raise ValueError(f"shards must be a divisor of batch ({self.batch}), got {self.shards}")
        if not isinstance(self.checkpoint_every, int) or self.checkpoint_every < 0:
            raise ValueError(
                f"checkpoint_every must be a whole number of at least 0, got {self.checkpoint_every!r}"
            )
        for name in _RATES:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        whole = (
            self.prune < 1 or self.prune == int(self.prune) if isinstance(self.prune, int | float) else False
        )
        if isinstance(self.prune, bool) or not whole or not 0 <= self.prune < float("inf"):
            raise ValueError(
                f"prune must be a share below 1 or a whole number of weights, got {self.prune!r}"
            )
        if self.decay > 1:
            raise ValueError(f"decay must be a number in (0, 1], got {self.decay!r}")

    def rate_factor(self, step: int) -> float:
        """What both learning rates are multiplied by at update ``step``, counted from 0.

        >>> TrainConfig().rate_factor(500)
        0.95
        >>> TrainConfig(schedule="cosine", updates=1000).rate_factor(500)
        0.5
        """
        if self.schedule == "cosine":
            return 0.5 + 0.5 * math.cos(math.pi * step / self.updates)
        return float(self.decay ** (step // self.decay_every))

    def to_json(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        value: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "TrainConfig":
        """The settings from :meth:`to_json`'s object; an unknown field is an error."""
        known = {f.name for f in dataclasses.fields(cls)}
        unknown = sorted(set(value) - known)
        if unknown:
            raise ValueError(f"config has unknown fields: {', '.join(unknown)}")
        return cls(**value)

    def replace(self, **changes: Any) -> "TrainConfig":
        """A copy with some settings changed (and checked)."""
        return dataclasses.replace(self, **changes)


_SHARED: dict[str, Any] = {
    "pairs": "fresh",
    "updates": 20_000,
    "schedule": "cosine",
    "rate": 0.005,
    "test_every": 2_000,
    "checkpoint_every": 4_000,
}
# One setting a network, for all tasks; chosen on validation images, see docs/learning-rule.md.
BEST: dict[str, dict[str, Any]] = {
    "ctn": {**_SHARED, "rate": 0.002, "model_options": {"contrast": 1.0, "target_scale": True}},
    "bln": {**_SHARED, "model_options": {"contrast": 1.0, "target_scale": True}},
    "can": {
        **_SHARED,
        "rule": "multiplicative-adam",
        "rule_options": {"mix": 0.02},
        "rate_multiplicative": 0.05,
        "model_options": {
            "contrast": 1.0,
            "relative": True,
            "temperature": 1 / 3,
            "learn_temperature": 4.0,
            "response_center": True,
            "response_scale": 3.0,
            "target_scale": True,
        },
    },
}

IN_SPACE: dict[str, Any] = {"data": "shapes3", "patch": 7}
"""What the command line takes instead of the defaults, unless told otherwise, for a task of volumes."""

# The paper's schedule has all but stopped after 60,000 of its 200,000 updates (0.95 ** 120 = 0.002);
# a quick run goes through the same 120 decays.
PROFILES: dict[str, dict[str, Any]] = {
    "paper": {},
    "quick": {
        "updates": 12_000,
        "decay_every": 100,
        "test_every": 1_000,
        "checkpoint_every": 4_000,
        "test_pairs": 5_000,
    },
}


# Tasks whose parameters have different ranges, where a loss in units of those ranges is better. Not so on projective:
# perspective stays below what the networks see of a patch, and the other parameters suffer (recipe ``range``).
_MIXED_RANGES = ("rigid3",)


def profile_settings(profile: str, model: str = "can", task: str | None = None) -> dict[str, Any]:
    """The settings that ``profile`` gives ``model`` (on ``task``) instead of the defaults.

    >>> profile_settings("paper"), profile_settings("best", "can-600")["rule"]
    ({}, 'multiplicative-adam')
    >>> profile_settings("best", "can", "rigid3")["loss"]
    'range'
    """
    if profile == "best":
        base = model.partition("-")[0]
        if base not in BEST:
            raise ValueError(f"profile best knows {', '.join(BEST)} and their variants, got model {model!r}")
        return {**BEST[base], **({"loss": "range"} if task in _MIXED_RANGES else {})}
    if profile not in PROFILES:
        raise ValueError(f"profile must be one of {', '.join(sorted([*PROFILES, 'best']))}, got {profile!r}")
    return dict(PROFILES[profile])
