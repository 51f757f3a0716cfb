"""Networks by name: the paper's three, and the variants that test its sentences.

A name stands for a base network and what is changed in it. Another one is added by :func:`register_model`.
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from caunet import tasks
from caunet.models.features import BUILT_IN, built_in_name
from caunet.models.network import RelationNetwork, feature_count
from caunet.models.spec import ModelSpec
from caunet.nn import RELATIONS, Relation
from caunet.registry import Registry, check_choice

__all__ = ["build", "create_model", "describe_model", "list_models", "register_model"]


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """What a name stands for; ``options`` are all those that differ from a spec's defaults."""

    base: str
    changes: Mapping[str, Any]
    options: Mapping[str, Any]
    about: str


_MODELS: Registry[_Recipe] = Registry("model", "caunet.models")

# What may be changed in every network, and in those whose units compete or have weights.
_ALWAYS = frozenset({"hidden", "bias", "initialization", "contrast", "target_scale", "relation_options"})
_COMPETING = frozenset(
    {"competition", "temperature", "learn_temperature", "response_scale", "response_center"}
)
_WEIGHTED = frozenset({"learning_rule"})


def register_model(
    name: str, base: str | None = None, *, about: str = "", replace: bool = False, **changes: Any
) -> None:
    """Make a network known by ``name``: to :func:`create_model`, to training and to the command line.

    Args:
        name: what to call it.
        base: the network it is a variant of; without one, ``relation`` says which units it has.
        about: what it is for.
        replace: take the place of a network that has that name.
        **changes: what differs from the base, named as in :func:`create_model`; without a base, what differs from
            the defaults of :class:`caunet.models.ModelSpec`, with ``relation``.

    >>> register_model("can-small", "can", units=50, about="fewer units")
    >>> create_model("can-small", "rotation").relation
    ContrastAssociation(in_a=121, in_b=121, units=50, rank=4)
    >>> _MODELS.unregister("can-small")
    """
    if (base is None) == ("relation" not in changes):
        raise ValueError("give either base, a known network, or relation, the units of a new one")
    inherited = {} if base is None else dict(_MODELS.lookup(base).options)
    options = {**inherited, **changes}
    relation = RELATIONS.lookup(options["relation"])
    for change in changes.keys() - {"relation"}:
        check_choice(f"option of {name}", change, sorted(_overrides(relation)))
    recipe = _Recipe(base or name, {} if base is None else dict(changes), options, about)
    _MODELS.register(name, recipe, replace=replace)


# About 690,000 parameters, as CTN has, spent on rank rather than on units: see docs/learning-rule.md. (On volumes, with
# 343 inputs instead of 121, CTN has 1,225,000.)
_WIDE = {"units": 156, "rank": 16, "hidden": (300, 100, 100)}


def _register_the_papers() -> None:
    def variant(name: str, about: str, **changes: Any) -> None:
        register_model(name, name[:3], about=about, **changes)

    register_model(
        "ctn", relation="concatenation", hidden=(1200, 300, 100, 100), about="concatenation network, Table I"
    )
    register_model("bln", relation="bilinear", about="bilinear network, Table I")
    register_model("can", relation="contrast-association", about="contrast association network, Table I")
    variant("can-600", "CAN of about CTN's size", units=600)
    variant("bln-600", "BLN of about CTN's size", units=600)
    variant("can-wide", "CAN of CTN's size that ends in CTN's own layers", **_WIDE)
    variant("bln-wide", "BLN of CTN's size that ends in CTN's own layers", **_WIDE)
    variant("can-wide3", "can-wide for patches of 7 x 7 x 7 voxels", **{**_WIDE, "units": 105})
    variant("can-no-competition", "decoder reads the matching errors themselves", competition="none")
    variant("can-wta", "winner-take-all with softmin's gradient", competition="winner-take-all")
    variant("can-projection", "Adam, then negative weights set to zero", learning_rule="projection")
    variant("can-softplus", "weights softplus(theta), Adam on theta", parametrization="softplus")
    variant("can-exp", "weights exp(theta), Adam on theta", parametrization="exp")
    variant("bln-nonnegative", "BLN with non-negative weights", nonnegative=True)
    variant("bln-softmax", "BLN with softmax instead of l2 norm", competition="softmax")
    for base, units in (("can", "CAUs"), ("bln", "bilinear units")):
        for rank in (1, 2, 8, 16):
            variant(f"{base}-rank{rank}", f"{units} of rank {rank}", rank=rank)
        variant(f"{base}-full", f"{units} of full rank", rank=None)


def list_models() -> list[str]:
    """Names for :func:`create_model`, the paper's three first.

    >>> list_models()[:3]
    ['ctn', 'bln', 'can']
    """
    return list(_MODELS)


def describe_model(name: str) -> dict[str, Any]:
    """What ``name`` stands for: its base network, what it changes, and what it is for.

    >>> describe_model("can-600")
    {'name': 'can-600', 'base': 'can', 'changes': {'units': 600}, 'about': "CAN of about CTN's size"}
    """
    recipe = _MODELS.lookup(name)
    return {"name": name, "base": recipe.base, "changes": dict(recipe.changes), "about": recipe.about}


def create_model(
    name: str,
    task: str | tasks.Task,
    patch: int | None = None,
    *,
    dimensions: int | None = None,
    pretrained: bool = False,
    features: nn.Module | str | None = None,
    feature_size: int | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    **overrides: Any,
) -> RelationNetwork:
    """Build the network ``name`` for ``task``, with fresh weights (or those that come with the package).

    Args:
        name: one of :func:`list_models`.
        task: a task or its name; it gives dim(z).
        patch: side of the patches; default 11 pixels, for a task in space 7 voxels.
        dimensions: of a patch; default those of the task, 3 for volumes.
        pretrained: take the weights that come with the package (``caunet weights list`` names them), and with
            them everything the network is: nothing else can then be chosen but ``device`` and ``dtype``.
        features: f, from (B, 1, patch, patch) to (B, ...); default identity. Used as it is, not initialized.
            ``"standardize"`` is a built-in one (:mod:`caunet.models.features`), which files remember.
        feature_size: how many features f makes of an image; found by a run on zeros if not given.
        seed: makes the weights a function of this number alone, on every device, and leaves PyTorch's global
            random state untouched. ``generator`` (on the CPU) does the same, continuing from its state.
        device, dtype: of the network.
        **overrides: ``units, rank, hidden, bias, initialization, competition, temperature, learn_temperature,
            contrast, response_scale, response_center, nonnegative, parametrization, learning_rule,
            relation_options`` as in :class:`caunet.models.ModelSpec`; ``relative=True``: relative contrast instead of
            contrast association; ``target_scale=True``: outputs in units of half the task's range, about its middle.

    >>> model = create_model("can", "translation", units=50, rank=2, seed=1)
    >>> model.relation
    ContrastAssociation(in_a=121, in_b=121, units=50, rank=2)
    >>> create_model("can-ful", "translation")
    Traceback (most recent call last):
    ...
    ValueError: model must be one of ctn, bln, can, ...; got 'can-ful' (did you mean 'can-full'?)
    """
    if seed is not None and generator is not None:
        raise ValueError("give seed or generator, not both")
    task = tasks.get(task)
    patch = task.default_patch if patch is None else patch
    dimensions = task.dimensions if dimensions is None else dimensions
    if pretrained:
        chosen = {"features": features, "feature_size": feature_size, "seed": seed, "generator": generator}
        return _shipped(name, task, patch, chosen | overrides).to(device=device, dtype=dtype)
    known = type(features).__qualname__
    if isinstance(features, str):
        known = built_in_name(features)
        check_choice("features", known, BUILT_IN)
        features = BUILT_IN[known]()
    inputs = _input_size((patch,) * dimensions, features, feature_size)
    fields = _resolve(name, task, overrides)
    if features is not None:
        fields["features"] = known
    spec = ModelSpec(
        name=name, task=task.name, dim=task.dim, patch=patch, dimensions=dimensions, inputs=inputs, **fields
    )
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
    return build(spec, features, generator).to(device=device, dtype=dtype)


def _shipped(name: str, task: tasks.Task, patch: int, chosen: Mapping[str, Any]) -> RelationNetwork:
    """The network that comes with the package, if nothing was chosen that it does not have."""
    from caunet.models.pretrained import load_pretrained  # which builds its network here

    check_choice("model", name, _MODELS)
    given = [option for option, value in chosen.items() if value is not None]
    if given:
        raise ValueError(
            f"pretrained=True must be given without options of the network, got {', '.join(given)}"
        )
    model = load_pretrained(f"{name}-{task.name}")
    if model.model_spec.patch != patch:
        raise ValueError(
            f"patch must be {model.model_spec.patch}, on which {name}-{task.name} was trained, got {patch}"
        )
    return model


def build(
    spec: ModelSpec, features: nn.Module | None = None, generator: torch.Generator | None = None
) -> RelationNetwork:
    """The network of a spec. With a generator, the global random state stays as it was."""
    # Layers draw from the global generator when they are made, before we draw from ours.
    untouched = contextlib.nullcontext() if generator is None else torch.random.fork_rng(devices=[])
    if features is None and spec.features in BUILT_IN:
        features = BUILT_IN[spec.features]()
    with untouched:
        return RelationNetwork(spec, features, generator)


def _input_size(patch_shape: tuple[int, ...], features: nn.Module | None, feature_size: int | None) -> int:
    for side in patch_shape:
        if isinstance(side, bool) or not isinstance(side, int) or side < 1:
            raise ValueError(f"patch must be a whole number of at least 1, got {side!r}")
    if features is None:
        if feature_size is not None:
            raise ValueError(f"feature_size must not be given without features, got {feature_size}")
        return math.prod(patch_shape)
    if not isinstance(features, nn.Module):
        raise TypeError(f"features must be a torch.nn.Module, got {type(features).__name__}")
    return feature_count(features, patch_shape) if feature_size is None else feature_size


def _overrides(relation: type[Relation]) -> frozenset[str]:
    """What may be changed in a network with these units."""
    allowed = _ALWAYS | relation.spec_options
    if relation.smallest_wins is not None:
        allowed |= _COMPETING
    if relation.spec_options:
        allowed |= _WEIGHTED
    if relation in (RELATIONS.lookup(name) for name in _RELATIVE):
        allowed |= {"relative"}
    return allowed


# ``relative=True``, as committed settings call it: the same network with relative contrast.
_RELATIVE = {"contrast-association": "relative-contrast", "relative-contrast": "relative-contrast"}


def _resolve(name: str, task: tasks.Task, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec: the recipe of ``name``, changed by ``overrides``, its shorthands spelled out."""
    options = _MODELS.lookup(name).options
    relation = RELATIONS.lookup(options["relation"])
    for override in overrides:
        check_choice(f"override of {name}", override, sorted(_overrides(relation)))
    fields = {**options, **overrides}
    if _flag(fields, "relative"):
        fields["relation"] = _RELATIVE[fields["relation"]]
        relation = RELATIONS.lookup(fields["relation"])
    if "rank" not in relation.spec_options:
        fields["rank"] = None
    if _flag(fields, "target_scale"):
        fields["output_center"] = tuple((h + l) / 2 for l, h in zip(task.low, task.high, strict=True))
        fields["output_scale"] = tuple((h - l) / 2 for l, h in zip(task.low, task.high, strict=True))
    if "learning_rule" not in fields:
        # Weights that are parameters and must not be negative need the multiplicative update, others Adam.
        constrained = relation.nonnegative_weights or fields.get("nonnegative", False)
        direct = fields.get("parametrization", "direct") == "direct"
        fields["learning_rule"] = "multiplicative" if constrained and direct else "adam"
    return fields


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.pop(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return value


_register_the_papers()
