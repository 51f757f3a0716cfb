"""The runs behind the tables: one function per recipe, each returning settings or cells.

``written``
    the paper as its text has it: continuous z, true Adam, shuffled batches, biases everywhere.
``released``
    what the authors' scripts did: integer or box-cropped pairs, Adam reset at each update,
    contiguous batches, no biases in BLN and CAN.
``claims``
    the paper's sentences put to the test: variants of ``written``, on rotation and translation.
``control``
    CAN on rotation, as written, with the paper's full 200,000 updates.
``best``
    every network at its best: fresh pairs of equal contrast, the combined learning rule for CAN; with Table I's
    layers and at equal size (docs/learning-rule.md).
``sparse``
    larger networks, at their best, pruned while they learn to the size of Table I's CAN: at most 331,000 non-zero
    weights and 404,000 multiply-adds a pair.
``range``, ``corners``
    the projective networks of ``best`` under a loss in units of each parameter's range, which sees perspective, too;
    under one of the distances by which the patch's corners are misplaced.
``ablation``
    what makes the paper's ranking: ``written`` with one of the four things changed that ``released`` does otherwise,
    on rotation and translation.
``initialization``
    CTN on affine maps and translation, ``released``, from the other first weights that were usual in the library of
    the authors' scripts.
``space``
    the paper's next step: the same networks and settings on tasks of volumes (docs/space.md).

>>> released("rotation", "can").adam_reset, dict(released("rotation", "can").model_options)
(True, {'bias': False})
>>> [cell.label for cell in cells(["written"], tasks=["rotation"])]
['ctn', 'bln', 'can']
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from caunet.training.config import IN_SPACE, TrainConfig, profile_settings

__all__ = [
    "CLAIM_TASKS",
    "MODELS",
    "RECIPES",
    "SIZES",
    "SPACE_TASKS",
    "TASKS",
    "VARIANTS",
    "Cell",
    "best",
    "cells",
    "demo",
    "released",
    "space",
    "written",
]

TASKS = ("translation", "rotation", "scaling", "affine", "projective")
MODELS = ("ctn", "bln", "can")
CLAIM_TASKS = ("translation", "rotation")

# The networks of the claims: the paper's three, and the variants they are compared with.
VARIANTS = (*MODELS, "can-no-competition", "can-wta", "can-projection", "bln-nonnegative", "bln-softmax")

# Both size classes of the recipe best: Table I's layers; and CTN's number of parameters, in more units and in CTN's own
# last layers. On translation, where four rank-one terms cannot represent a shift, CAN is also tried at a larger rank.
SIZES = {"ctn": ("ctn",), "bln": ("bln", "bln-wide"), "can": ("can", "can-wide")}
HIGHER_RANK = "can-rank16"

# The recipe sparse: what each network begins as, and how many non-zero numbers are left. With those of rank 16 the
# multiply-adds decide, which for contrast association are more than the weights. On translation and rotation, where
# rank counts most, there are more terms to begin with.
SPARSE: dict[str, tuple[str, ...]] = {"ctn": ("ctn",), "bln": ("bln-wide",), "can": ("can-wide",)}
SPARSE_RANK: dict[str, dict[str, tuple[str, ...]]] = {
    "translation": {"can": (HIGHER_RANK,)},
    "rotation": {"bln": ("bln-wide", "bln-rank16"), "can": ("can-wide", HIGHER_RANK)},
}
SPARSE_SIZE = 320_000
# The mean error of whole shifts is that of a few pairs in a thousand, and falls for long. All networks get the time.
SPARSE_UPDATES = {("translation", "release"): 40_000}

# What released does otherwise than written, one thing at a time.
ABLATIONS: dict[str, dict[str, Any]] = {
    "pairs": {"protocol": "release"},
    "order": {"order": "contiguous"},
    "bias": {"model_options": {"bias": False}},
    "reset": {"adam_reset": True},
}

# What CTN is begun with beside nn.Linear's own, and where: the rows in which it is worse than the paper's.
INITIALIZATIONS = ("xavier", "kaiming", "uniform")
INITIALIZED_TASKS = ("translation", "affine")

SPACE_TASKS = ("translation3", "rotation3", "scaling3", "affine3", "rigid3")
SPACE_SIZES = {"ctn": ("ctn",), "bln": ("bln",), "can": ("can", "can-wide3")}


@dataclass(frozen=True)
class Cell:
    """One run of a grid: the recipe it belongs to, what it is called in the tables, and its settings."""

    recipe: str
    label: str
    config: TrainConfig

    @property
    def may_diverge(self) -> bool:
        """Whether divergence is a finding: of projection, of CAUs that do not compete, and of what Adam does when it is
        reset at each update."""
        return self.label in ("can-projection", "can-no-competition") or self.config.adam_reset

    @functools.cached_property  # the grid asks for it all the time
    def name(self) -> str:
        """The run's folder: readable, and different for different settings.

        The recipe is left out, so a run that two recipes ask for is made once.

        >>> Cell("written", "can", written("rotation", "can")).name
        'rotation-can-text-200000-seed0-...'
        """
        c = self.config
        return f"{c.task}-{self.label}-{c.protocol}-{c.updates}-seed{c.seed}-{fingerprint(c)}"

    @property
    def pairs(self) -> tuple[object, ...]:
        """Cells with the same value train on the same pairs."""
        c = self.config
        return (
            c.data,
            c.split,
            c.test_split,
            c.task,
            c.protocol,
            c.pairs,
            json.dumps(dict(c.photometric), sort_keys=True),
            c.per_image,
            c.patch,
            c.seed,
            c.dtype,
        )


def fingerprint(config: TrainConfig) -> str:
    """Eight hexadecimal digits that name the settings.

    Only settings that differ from the defaults count, so a setting added to the package later
    does not orphan the runs made before it. What a variant changes in its network counts, too: a variant
    that comes to mean something else has other runs.
    """
    # Imports torch, which takes seconds; a worker is sent cells that have their names already.
    from caunet.models import describe_model

    default = TrainConfig().to_json()
    changed = {name: value for name, value in config.to_json().items() if value != default.get(name)}
    if variant := describe_model(config.model)["changes"]:
        changed["variant"] = variant
    return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:8]


def written(task: str, model: str, seed: int = 0, **changes: Any) -> TrainConfig:
    """The paper as written: ``text`` pairs, fixed and shuffled, true Adam."""
    config = TrainConfig(task=task, model=model, seed=seed, data="cifar10", protocol="text")
    return config.replace(**changes)


def released(task: str, model: str, seed: int = 0, **changes: Any) -> TrainConfig:
    """What the authors' scripts did: ``release`` pairs, contiguous batches, Adam reset at each update."""
    options = {} if model == "ctn" else {"bias": False}
    config = TrainConfig(
        task=task,
        model=model,
        model_options=options,
        seed=seed,
        data="cifar10",
        protocol="release",
        order="contiguous",
        adam_reset=True,
    )
    return config.replace(**changes)


def best(task: str, model: str, seed: int = 0, **changes: Any) -> TrainConfig:
    """A network at its best: the settings of the profile ``best``, on CIFAR-10."""
    config = TrainConfig(
        task=task, model=model, seed=seed, data="cifar10", **profile_settings("best", model, task)
    )
    return config.replace(**changes)


def space(task: str, model: str, seed: int = 0, **changes: Any) -> TrainConfig:
    """A network at its best on a task of volumes: the settings of the profile ``best``, on ``shapes3``."""
    config = TrainConfig(
        task=task, model=model, seed=seed, **profile_settings("best", model, task), **IN_SPACE
    )
    return config.replace(**changes)


def demo(updates: int, data: str = "photos") -> list[Cell]:
    """The three networks of ``caunet demo``: integer translation, each at its best, with Table I's layers.

    They are tested a dozen times, for a curve.
    """
    changes: dict[str, Any] = {
        "protocol": "release",
        "updates": updates,
        "data": data,
        "test_every": max(1, updates // 12),
    }
    return [Cell("demo", model, best("translation", model, **changes)) for model in MODELS]


def _table(recipe: str, make: Callable[..., TrainConfig]) -> Callable[..., list[Cell]]:
    def build(tasks: Sequence[str], models: Sequence[str], seed: int, changes: dict[str, Any]) -> list[Cell]:
        return [Cell(recipe, model, make(task, model, seed, **changes)) for task in tasks for model in models]

    return build


def _claims(tasks: Sequence[str], models: Sequence[str], seed: int, changes: dict[str, Any]) -> list[Cell]:
    chosen = [name for name in VARIANTS if name in models or name.partition("-")[0] in models]
    return [
        Cell("claims", name, written(task, name, seed, **changes))
        for task in CLAIM_TASKS
        if task in tasks
        for name in chosen
    ]


def _control(tasks: Sequence[str], models: Sequence[str], seed: int, changes: dict[str, Any]) -> list[Cell]:
    if "rotation" not in tasks or "can" not in models:
        return []
    return [Cell("control", "can", written("rotation", "can", seed, **(changes | {"updates": 200_000})))]


def _best(tasks: Sequence[str], models: Sequence[str], seed: int, changes: dict[str, Any]) -> list[Cell]:
    kept = {name: value for name, value in changes.items() if name in ("updates", "data")}
    found = []
    for task, protocol in _rows(tasks, changes):
        labels = [label for model in models for label in SIZES.get(model, (model,))]
        labels += [HIGHER_RANK] if task == "translation" and "can" in models else []
        found += [Cell("best", label, best(task, label, seed, protocol=protocol, **kept)) for label in labels]
    return found


def _rows(tasks: Sequence[str], changes: dict[str, Any]) -> list[tuple[str, str]]:
    """Tasks and protocols of networks at their best: translation has both, unless one is asked for."""
    wanted = changes.get("protocol")
    both = {"translation": ("release", "text")}
    return [(t, p) for t in tasks for p in both.get(t, ("text",)) if wanted in (None, p)]


def _sparse(tasks: Sequence[str], models: Sequence[str], seed: int, changes: dict[str, Any]) -> list[Cell]:
    kept = {name: value for name, value in changes.items() if name in ("updates", "data")}
    found = []
    for task, protocol in _rows(tasks, changes):
        begun = SPARSE | SPARSE_RANK.get(task, {})
        for label in [label for model in models for label in begun.get(model, (model,))]:
            config = best(task, label, seed, protocol=protocol, **kept).replace(prune=SPARSE_SIZE)
            if "updates" not in changes:
                config = config.replace(updates=SPARSE_UPDATES.get((task, protocol), config.updates))
            found.append(Cell("sparse", label, config))
    return found


def _loss(name: str) -> Callable[..., list[Cell]]:
    def build(tasks: Sequence[str], models: Sequence[str], seed: int, changes: dict[str, Any]) -> list[Cell]:
        wanted = [cell for cell in _best(tasks, models, seed, changes) if cell.config.task == "projective"]
        return [Cell(name, c.label, c.config.replace(loss=name)) for c in wanted if c.label in MODELS]

    return build


def _ablation(tasks: Sequence[str], models: Sequence[str], seed: int, changes: dict[str, Any]) -> list[Cell]:
    # What nothing is changed in, and everything, are written and released: their curves pass through these updates.
    return [
        Cell("ablation", f"{model}-{name}", written(task, model, seed, **changes).replace(**change))
        for task in CLAIM_TASKS
        if task in tasks
        for model in models
        for name, change in ABLATIONS.items()
        if not (name == "bias" and model == "ctn")  # which has its biases in released, too
    ]


def _initialization(
    tasks: Sequence[str], models: Sequence[str], seed: int, changes: dict[str, Any]
) -> list[Cell]:
    return [
        Cell(
            "initialization",
            f"ctn-{name}",
            released(task, "ctn", seed, **changes).replace(model_options={"initialization": name}),
        )
        for task in INITIALIZED_TASKS
        if task in tasks and "ctn" in models
        for name in INITIALIZATIONS
    ]


def _space(tasks: Sequence[str], models: Sequence[str], seed: int, changes: dict[str, Any]) -> list[Cell]:
    kept = {name: value for name, value in changes.items() if name in ("updates", "data")}
    labels = [label for model in models for label in SPACE_SIZES[model]]
    return [Cell("space", label, space(task, label, seed, **kept)) for task in tasks for label in labels]


RECIPES: dict[str, Callable[..., list[Cell]]] = {
    "released": _table("released", released),
    "written": _table("written", written),
    "claims": _claims,
    "control": _control,
    "best": _best,
    "sparse": _sparse,
    "range": _loss("range"),
    "corners": _loss("corners"),
    "ablation": _ablation,
    "initialization": _initialization,
    "space": _space,
}
_AT_THEIR_BEST = ("best", "sparse", "range", "corners", "space")


def schedule(profile: str, updates: int | None = None) -> dict[str, Any]:
    """The settings of a profile, at another length if asked.

    ``paper`` keeps the paper's schedule and stops early; ``quick`` compresses its 120 decays into the run.

    >>> schedule("paper", 60_000)
    {'updates': 60000}
    >>> schedule("quick", 6_000)["decay_every"]
    50
    """
    if updates is not None and updates < 1:
        raise ValueError(f"updates must be a whole number of at least 1, got {updates}")
    settings = {} if profile == "best" else profile_settings(profile)
    if updates is not None:
        settings["updates"] = updates
        if "decay_every" in settings:
            settings["decay_every"] = max(1, updates // 120)
    return settings


def cells(
    recipes: Iterable[str],
    *,
    tasks: Sequence[str] = TASKS,
    models: Sequence[str] = MODELS,
    seeds: int = 1,
    profile: str = "paper",
    updates: int | None = None,
    protocol: str | None = None,
    data: str | None = None,
) -> list[Cell]:
    """The grid: every recipe x task x network x seed, in the order of the tables.

    ``updates``, ``protocol`` and ``data`` replace what the profile and the recipe say.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be a whole number of at least 1, got {seeds}")
    changes = schedule(profile, updates)
    changes |= {} if protocol is None else {"protocol": protocol}
    changes |= {} if data is None else {"data": data}
    found: list[Cell] = []
    for recipe in recipes:
        if recipe not in RECIPES:
            raise ValueError(f"recipe must be one of {', '.join(RECIPES)}, got {recipe!r}")
        if (profile == "best") != (recipe in _AT_THEIR_BEST):
            raise ValueError(
                f"recipes {', '.join(_AT_THEIR_BEST)} must be used with profile best, and no others; "
                f"got recipe {recipe!r}, profile {profile!r}"
            )
        in_space = set(SPACE_TASKS) & set(tasks)
        if bool(in_space) != (recipe == "space"):
            wanted = SPACE_TASKS if recipe == "space" else TASKS
            raise ValueError(f"tasks must be of {', '.join(wanted)} for {recipe}, got {', '.join(tasks)}")
        for seed in range(seeds):
            found += RECIPES[recipe](tasks, models, seed, dict(changes))
    return found


def same_run(config: TrainConfig, stored: dict[str, Any]) -> bool:
    """Whether stored settings (as in result.json) are these; settings added since count as their defaults."""
    known = {f.name for f in dataclasses.fields(TrainConfig)}
    if not isinstance(stored, dict) or set(stored) - known:
        return False
    try:
        return TrainConfig.from_json(stored) == config
    except (TypeError, ValueError):
        return False
