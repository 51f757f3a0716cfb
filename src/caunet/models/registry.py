"""Networks by name: the paper's three, and the variants that test its sentences.

A name stands for a base network and what is changed in it. Adding one is one line in ``_VARIANTS``.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from caunet import tasks
from caunet.models.features import BUILT_IN
from caunet.models.network import RelationNetwork, dry_run
from caunet.models.spec import ModelSpec, one_of

__all__ = ["create_model", "describe_model", "list_models"]

_BASES: dict[str, dict[str, Any]] = {
    "ctn": {"relation": "concatenation", "hidden": (1200, 300, 100, 100), "learning_rule": "adam"},
    "bln": {"relation": "bilinear", "learning_rule": "adam"},
    "can": {"relation": "contrast-association", "learning_rule": "multiplicative"},
}

# About 690,000 parameters, as CTN has, spent on rank rather than on units: see docs/learning-rule.md.
_WIDE = {"units": 156, "rank": 16, "hidden": (300, 100, 100)}

# name: (base, changes, what it is for)
_VARIANTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "ctn": ("ctn", {}, "concatenation network, Table I"),
    "bln": ("bln", {}, "bilinear network, Table I"),
    "can": ("can", {}, "contrast association network, Table I"),
    "can-600": ("can", {"units": 600}, "CAN of about CTN's size"),
    "bln-600": ("bln", {"units": 600}, "BLN of about CTN's size"),
    "can-wide": ("can", _WIDE, "CAN of CTN's size that ends in CTN's own layers"),
    "bln-wide": ("bln", _WIDE, "BLN of CTN's size that ends in CTN's own layers"),
    "can-no-competition": ("can", {"competition": "none"}, "decoder reads the matching errors themselves"),
    "can-wta": ("can", {"competition": "winner-take-all"}, "winner-take-all with softmin's gradient"),
    "can-projection": ("can", {"learning_rule": "projection"}, "Adam, then negative weights set to zero"),
    "can-softplus": ("can", {"parametrisation": "softplus"}, "weights softplus(theta), Adam on theta"),
    "can-exp": ("can", {"parametrisation": "exp"}, "weights exp(theta), Adam on theta"),
    "bln-nonnegative": ("bln", {"nonnegative": True}, "BLN with non-negative weights"),
    "bln-softmax": ("bln", {"normalisation": "softmax"}, "BLN with softmax instead of l2 norm"),
    **{f"can-rank{r}": ("can", {"rank": r}, f"CAUs of rank {r}") for r in (1, 2, 8, 16)},
    "can-full": ("can", {"rank": None}, "CAUs of full rank"),
    **{f"bln-rank{r}": ("bln", {"rank": r}, f"bilinear units of rank {r}") for r in (1, 2, 8, 16)},
    "bln-full": ("bln", {"rank": None}, "bilinear units of full rank"),
}

_OVERRIDES: dict[str, frozenset[str]] = {
    "ctn": frozenset({"hidden", "bias", "contrast", "target_scale"}),
    "bln": frozenset(
        {"units", "rank", "hidden", "bias", "normalisation", "temperature", "response_scale", "nonnegative"}
        | {"parametrisation", "learning_rule", "contrast", "target_scale"}
    ),
    "can": frozenset(
        {"units", "rank", "hidden", "bias", "competition", "temperature", "response_scale", "parametrisation"}
        | {"learning_rule", "contrast", "relative", "learn_temperature", "target_scale", "response_center"}
    ),
}


def list_models() -> list[str]:
    """Names that :func:`create_model` takes, the paper's three first.

    >>> list_models()[:3]
    ['ctn', 'bln', 'can']
    """
    return list(_VARIANTS)


def describe_model(name: str) -> dict[str, Any]:
    """What ``name`` stands for: its base network, what it changes, and why it is there.

    >>> describe_model("can-600")
    {'name': 'can-600', 'base': 'can', 'changes': {'units': 600}, 'about': "CAN of about CTN's size"}
    """
    one_of("model", name, _VARIANTS)
    base, changes, about = _VARIANTS[name]
    return {"name": name, "base": base, "changes": dict(changes), "about": about}


def create_model(
    name: str,
    task: str | tasks.Task,
    patch: int = 11,
    *,
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
        patch: side of the patches in pixels.
        pretrained: take the weights that come with the package (``caunet weights list`` names them), and with
            them everything the network is: nothing else can then be chosen but ``device`` and ``dtype``.
        features: f, from (B, 1, patch, patch) to (B, ...); default identity. Used as it is, not initialised.
            ``"standardise"`` is a built-in one (:mod:`caunet.models.features`), which files remember.
        feature_size: how many features f makes of an image; found by a run on zeros if not given.
        seed: makes the weights a function of this number alone, on every device, and leaves PyTorch's global
            random state untouched. ``generator`` (on the CPU) does the same from where it stands.
        device, dtype: of the network.
        **overrides: ``units, rank, hidden, bias, competition, temperature, learn_temperature, contrast, relative,
            response_scale, response_center, normalisation, nonnegative, parametrisation, learning_rule`` as in
            :class:`caunet.models.ModelSpec`, and ``target_scale=True``: outputs in units of half the task's range,
            about its middle.

    >>> model = create_model("can", "translation", units=50, rank=2, seed=1)
    >>> model.relation
    ContrastAssociation(in_a=121, in_b=121, units=50, rank=2)
    >>> create_model("can-ful", "translation")
    Traceback (most recent call last):
    ...
    ValueError: model takes one of ctn, bln, can, ...; got 'can-ful' (did you mean 'can-full'?)
    """
    if seed is not None and generator is not None:
        raise ValueError("give seed or generator, not both")
    task = tasks.get(task)
    if pretrained:
        chosen = {"features": features, "feature_size": feature_size, "seed": seed, "generator": generator}
        return _shipped(name, task, patch, chosen | overrides).to(device=device, dtype=dtype)
    known = type(features).__qualname__
    if isinstance(features, str):
        one_of("features", features, BUILT_IN)
        known, features = features, BUILT_IN[features]()
    inputs = _input_size(patch, features, feature_size)
    spec = _resolve(name, task, patch, inputs, overrides)
    if features is not None:
        spec = dataclasses.replace(spec, features=known)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
    return build(spec, features, generator).to(device=device, dtype=dtype)


def _shipped(name: str, task: tasks.Task, patch: int, chosen: Mapping[str, Any]) -> RelationNetwork:
    """The network that comes with the package, if nothing was chosen that it does not have."""
    from caunet.models.pretrained import load_pretrained  # which builds its network here

    one_of("model", name, _VARIANTS)
    given = [option for option, value in chosen.items() if value is not None]
    if given:
        raise ValueError(f"pretrained=True takes the network as it was trained, without {', '.join(given)}")
    model = load_pretrained(f"{name}-{task.name}")
    if model.model_spec.patch != patch:
        raise ValueError(f"patch: {name}-{task.name} was trained on {model.model_spec.patch}, got {patch}")
    return model


def build(
    spec: ModelSpec, features: nn.Module | None = None, generator: torch.Generator | None = None
) -> RelationNetwork:
    """The network of a spec. With a generator, the global random state is left as it was."""
    # Layers draw from the global generator when they are made, before we draw from ours.
    untouched = contextlib.nullcontext() if generator is None else torch.random.fork_rng(devices=[])
    if features is None and spec.features in BUILT_IN:
        features = BUILT_IN[spec.features]()
    with untouched:
        return RelationNetwork(spec, features, generator)


def _input_size(patch: int, features: nn.Module | None, feature_size: int | None) -> int:
    if isinstance(patch, bool) or not isinstance(patch, int) or patch < 1:
        raise ValueError(f"patch takes a whole number of at least 1, got {patch!r}")
    if features is None:
        if feature_size is not None:
            raise ValueError("feature_size goes with features; the identity makes patch * patch of them")
        return patch * patch
    if not isinstance(features, nn.Module):
        raise TypeError(f"features takes a torch.nn.Module, got {type(features).__name__}")
    return dry_run(features, patch) if feature_size is None else feature_size


def _resolve(name: str, task: tasks.Task, patch: int, inputs: int, overrides: Mapping[str, Any]) -> ModelSpec:
    one_of("model", name, _VARIANTS)
    base, changes, _ = _VARIANTS[name]
    for override in overrides:
        one_of(f"override of {name}", override, sorted(_OVERRIDES[base]))
    fields = {**_BASES[base], **changes, **overrides}
    if "learning_rule" not in {**changes, **overrides}:
        fields["learning_rule"] = _rule(fields)
    if fields.pop("target_scale", False):
        fields["output_center"] = tuple((h + l) / 2 for l, h in zip(task.low, task.high, strict=True))
        fields["output_scale"] = tuple((h - l) / 2 for l, h in zip(task.low, task.high, strict=True))
    return ModelSpec(name=name, task=task.name, dim=task.dim, patch=patch, inputs=inputs, **fields)


def _rule(fields: Mapping[str, Any]) -> str:
    """Weights that are parameters and must not be negative want the multiplicative update, others Adam."""
    constrained = fields["relation"] == "contrast-association" or fields.get("nonnegative", False)
    direct = fields.get("parametrisation", "direct") == "direct"
    return "multiplicative" if constrained and direct else "adam"
