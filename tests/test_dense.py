"""A network slid over images must infer at every position what it infers from the two patches there."""

import dataclasses
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from caunet.models import DenseRelations, ModelSpec, RelationNetwork, create_model
from caunet.models.initialization import INITIALIZATIONS
from caunet.models.registry import build
from caunet.models.spec import LEARNING_RULES
from caunet.nn import COMPETITIONS, PARAMETRIZATIONS, RELATIONS, Window

PATCH = 3

# Values of every field that a spec has: an option that is added without its values here fails the next test.
OPTIONS: dict[str, list[Any]] = {
    "name": ["n"],
    "task": ["scaling"],
    "dim": [2],
    "patch": [PATCH],
    "inputs": [PATCH**2],
    "dimensions": [2],  # other numbers of dimensions have a test of their own
    "relation": list(RELATIONS),
    "units": [5],
    "rank": [2, 1, None],
    "hidden": [(4,), ()],
    "bias": [True, False],
    "initialization": list(INITIALIZATIONS),
    "competition": list(COMPETITIONS),
    "temperature": [1.0, 0.2],
    "learn_temperature": [0.0, 4.0],
    "contrast": [None, 0.4],
    "response_scale": [1.0, 30.0],
    "response_center": [False, True],
    "nonnegative": [False, True],
    "parametrization": list(PARAMETRIZATIONS),
    "learning_rule": list(LEARNING_RULES),
    "output_center": [None, (1.0, -2.0)],
    "output_scale": [None, (3.0, 0.5)],
    "features": [None, "standardize"],
    "relation_options": [{}, {"floor": 0.1}],
}


def test_every_field_of_a_spec_has_its_values() -> None:
    assert OPTIONS.keys() == {field.name for field in dataclasses.fields(ModelSpec)}


def _combinations() -> Iterator[dict[str, Any]]:
    """Every pair of values of two fields, the others being at their first; and random choices of all fields."""
    first = {name: values[0] for name, values in OPTIONS.items()}
    for relation, competition in itertools.product(OPTIONS["relation"], OPTIONS["competition"]):
        start = {**first, "relation": relation, "competition": competition}
        for one, other in itertools.combinations(OPTIONS, 2):
            if {"relation", "competition"} & {one, other}:
                continue
            for a, b in itertools.product(OPTIONS[one][1:], OPTIONS[other][1:]):
                yield {**start, one: a, other: b}
    rng = random.Random(0)
    for _ in range(1500):
        yield {name: rng.choice(values) for name, values in OPTIONS.items()}


def _specs() -> Iterator[ModelSpec]:
    seen = set()
    for fields in _combinations():
        try:
            spec = ModelSpec(**fields)
            build(spec)  # relation_options are for the units to refuse
        except (TypeError, ValueError):
            continue
        if (key := str(spec)) not in seen:
            seen.add(key)
            yield spec


def _patch_by_patch(model: RelationNetwork, a: Tensor, b: Tensor, stride: int) -> Tensor:
    """The field by a loop over positions: (dim, rows, columns)."""
    rows, columns = ((n - PATCH) // stride + 1 for n in a.shape)
    corners = [(r * stride, c * stride) for r in range(rows) for c in range(columns)]
    x, y = (torch.stack([t[r : r + PATCH, c : c + PATCH] for r, c in corners]) for t in (a, b))
    return model(x, y).T.reshape(-1, rows, columns)


def test_equals_the_patch_network_whatever_its_options() -> None:
    a, b = torch.rand(2, 6, 7, generator=torch.Generator().manual_seed(5), dtype=torch.float64) - 0.5
    tried: dict[str, set[str]] = {name: set() for name in OPTIONS}
    with torch.no_grad():
        for number, spec in enumerate(_specs()):
            model = build(spec, generator=torch.Generator().manual_seed(number)).double()
            for weight in model.decoder.parameters():
                weight.mul_(2)
            stride = 1 + number % 2
            field = DenseRelations(model)(a, b, stride=stride)
            expected = _patch_by_patch(model, a, b, stride)
            assert torch.allclose(field, expected, atol=1e-9, rtol=1e-9), spec
            for name in OPTIONS:
                tried[name].add(repr(getattr(spec, name)))
    for name, values in OPTIONS.items():
        missing = {repr(value) for value in values} - tried[name]
        assert not missing, f"no valid network has {name} in {missing}"
    assert number > 700


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("dimensions", [1, 3])
def test_signals_and_volumes(relation: str, dimensions: int) -> None:
    """A learned weight on a 3 x 3 x 3 patch: nothing but the patch's shape changes."""
    name = {"bilinear": "bln", "concatenation": "ctn"}.get(relation, "can")
    options = {"relative": True} if relation == "relative-contrast" else {}
    sizes = {"hidden": (6,)} if name == "ctn" else {"hidden": (6,), "units": 5}
    model = create_model(name, "scaling", PATCH, dimensions=dimensions, seed=1, **sizes, **options).double()
    assert model.relation.in_a == PATCH**dimensions
    shape = (6, 5, 7)[:dimensions]
    a, b = torch.rand(2, 2, *shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    with torch.no_grad():
        z = DenseRelations(model)(a, b)
        assert z.shape == (2, 2, *(n - PATCH + 1 for n in shape))
        for place in itertools.product(*(range(n - PATCH + 1) for n in shape)):
            window = (slice(None), *(slice(p, p + PATCH) for p in place))
            expected = model(a[window], b[window])
            torch.testing.assert_close(z[(slice(None), slice(None), *place)], expected)


def _network(name: str, options: dict[str, Any]) -> RelationNetwork:
    return create_model(name, "affine", 7, seed=3, **{"units": 20, "hidden": (10,), **options})


def _images(*shape: int) -> tuple[Tensor, Tensor]:
    a, b = torch.rand(2, *shape, generator=torch.Generator().manual_seed(5)) - 0.5
    return a, b


@pytest.mark.parametrize("name", ["can", "can-full", "bln"])
def test_bands_do_not_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _network(name, {})
    a, b = _images(30, 25)
    with torch.no_grad():
        at_once = DenseRelations(model)(a, b, stride=2)
        monkeypatch.setattr("caunet.models.dense._CHUNK", 1)
        torch.testing.assert_close(DenseRelations(model)(a, b, stride=2), at_once, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["can", "bln"])
def test_low_rank_units_slide_by_convolution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is what makes fields fast; patches are for units that have no such form."""
    patches: list[int] = []
    original = Window.patches
    monkeypatch.setattr(Window, "patches", lambda *args: patches.append(1) or original(*args))
    with torch.no_grad():
        DenseRelations(_network(name, {}))(*_images(9, 9))
        assert not patches
        DenseRelations(_network(name, {"rank": None}))(*_images(9, 9))
        assert patches


def test_offsets_far_from_zero_do_not_cost_precision() -> None:
    model = _network("can", {})
    a, b = _images(12, 12)
    with torch.no_grad():
        near = DenseRelations(model)(a, b)
        torch.testing.assert_close(DenseRelations(model)(a + 50, b + 50), near, atol=1e-3, rtol=1e-3)


def test_is_differentiable() -> None:
    model = _network("can", {}).double()
    a, b = (t.double().requires_grad_() for t in _images(8, 9))
    assert torch.autograd.gradcheck(lambda x, y: DenseRelations(model)(x, y), (a, b))


def test_bad_input_is_named() -> None:
    dense = DenseRelations(_network("can", {}))
    with pytest.raises(ValueError, match="a and b must have one shape"):
        dense(torch.zeros(9, 9), torch.zeros(9, 8))
    with pytest.raises(ValueError, match="at least 7 x 7"):
        dense(torch.zeros(6, 9), torch.zeros(6, 9))
    with pytest.raises(ValueError, match="stride must be"):
        dense(torch.zeros(9, 9), torch.zeros(9, 9), stride=0)
    with pytest.raises(TypeError, match="model must be a RelationNetwork"):
        DenseRelations(torch.nn.Identity())  # type: ignore[arg-type]
