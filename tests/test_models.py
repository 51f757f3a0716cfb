"""Networks: Table I's sizes and values, variants, initial weights, files."""

import itertools
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from caunet import functional, tasks
from caunet.models import (
    ModelSpec,
    RelationNetwork,
    create_model,
    describe_model,
    list_models,
    load_weights,
    save_weights,
)
from tests.oracles import networks as oracle

DIMS = {"translation": 2, "rotation": 1, "scaling": 2, "affine": 4, "projective": 6}


def _patches(
    n: int, side: int, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.rand(2, n, side, side, generator=generator, dtype=dtype) - 0.5
    return x, y


def _dense(widths: list[int], bias: bool) -> int:
    """Weights of linear layers with one PReLU slope between each two."""
    products = sum(a * b for a, b in itertools.pairwise(widths))
    return products + (sum(widths[1:]) if bias else 0) + len(widths) - 2


@pytest.mark.parametrize(("task", "dim"), DIMS.items())
@pytest.mark.parametrize("bias", [True, False])
def test_parameter_counts_are_table_one(task: str, dim: int, bias: bool) -> None:
    expected = {
        "ctn": _dense([242, 1200, 300, 100, 100, dim], bias),
        "bln": 2 * 1200 * 121 + _dense([300, 100, 100, dim], bias),
        "can": 2 * 1200 * 121 + _dense([300, 100, 100, dim], bias),
    }
    assert {name: create_model(name, task, bias=bias).parameter_count() for name in expected} == expected


def test_the_sizes_the_paper_calls_equal() -> None:
    ctn, can = (create_model(name, "rotation", bias=False).parameter_count() for name in ("ctn", "can"))
    # The paper's table without biases: 690,500 and 330,500 weights, and the slopes of the PReLUs.
    assert (ctn, can) == (690_504, 330_502)
    large = create_model("can-600", "rotation").parameter_count()
    assert abs(large / create_model("ctn", "rotation").parameter_count() - 1) < 0.07


def test_multiply_adds_by_hand() -> None:
    decoder = 300 * 100 + 100 * 100 + 100
    assert (
        create_model("ctn", "rotation").multiply_adds()
        == 242 * 1200 + 1200 * 300 + 300 * 100 + 100 * 100 + 100
    )
    assert create_model("bln", "rotation").multiply_adds() == 1200 * 242 + 1200 + decoder
    # One vector a unit for each image's squares, not one a rank-one term.
    assert create_model("can", "rotation").multiply_adds() == 1200 * 242 + 1200 + 300 * 242 + decoder
    assert create_model("can-full", "rotation").multiply_adds() == 121 * 121 * 301 + decoder


@pytest.mark.parametrize("name", ["ctn", "bln", "can"])
@pytest.mark.parametrize("task", ["translation", "projective"])
def test_forward_equals_plain_numpy(name: str, task: str) -> None:
    sizes = {"hidden": (7, 5)} if name == "ctn" else {"units": 6, "rank": 3, "hidden": (7, 5)}
    model = create_model(name, task, 4, seed=3, dtype=torch.float64, **sizes)
    with torch.no_grad():
        for p in model.decoder.parameters():
            p.mul_(2)  # so that slopes differ from their first value
    x, y = _patches(5, 4, dtype=torch.float64)
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    forward = {"ctn": oracle.ctn, "bln": lambda *a: oracle.bln(*a, 3), "can": lambda *a: oracle.can(*a, 3)}[
        name
    ]
    expected = np.stack([forward(state, one.numpy(), other.numpy()) for one, other in zip(x, y, strict=True)])
    np.testing.assert_allclose(model(x, y).detach().numpy(), expected, rtol=1e-11, atol=1e-12)
    assert torch.equal(model(x.flatten(1), y.flatten(1)), model(x, y))


@pytest.mark.parametrize("name", list_models())
def test_every_name_builds_infers_and_learns(name: str) -> None:
    small = {} if name.startswith("ctn") else {"units": 8}
    model = create_model(name, "affine", 5, seed=0, **small)
    x, y = _patches(3, 5)
    loss = model(x, y).square().sum()
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    # Everything hears of the error, even below winner-take-all.
    assert all(bool(p.grad.any()) for p in model.relation.parameters() if p.grad is not None)
    assert describe_model(name)["base"] == name[:3]


RULES = {
    "ctn": "adam",
    "bln": "adam",
    "can": "multiplicative",
    "can-projection": "projection",
    "can-exp": "adam",
    "can-softplus": "adam",
    "bln-nonnegative": "multiplicative",
    "can-full": "multiplicative",
}


@pytest.mark.parametrize(("name", "rule"), RULES.items())
def test_learning_rule_and_nonnegative_weights_agree(name: str, rule: str) -> None:
    from caunet.optim import split_parameters

    model = create_model(name, "rotation", 5, seed=0)
    constrained, free = split_parameters(model)
    assert model.learning_rule == rule
    assert bool(constrained) == (rule != "adam")
    assert sum(p.numel() for p in [*constrained, *free]) == model.parameter_count()
    assert all(bool((p > 0).all()) for p in constrained)


def test_overrides_reach_the_network() -> None:
    model = create_model(
        "can", "rotation", 5, units=10, rank=None, temperature=0.5, response_scale=30.0, seed=0
    )
    x, y = _patches(4, 5)
    h = model.relate(x, y)
    assert model.relation.weight.shape == (10, 25, 25)
    torch.testing.assert_close(model.units(x, y), torch.softmax(-2 * h, -1))
    torch.testing.assert_close(model(x, y), model.decoder(30 * torch.softmax(-2 * h, -1)))


@pytest.mark.parametrize("rank", [None, 3])
def test_relative_contrast_and_a_learned_temperature(rank: int | None, tmp_path: Path) -> None:
    model = create_model(
        "can",
        "rotation",
        5,
        units=6,
        rank=rank,
        relative=True,
        temperature=0.5,
        learn_temperature=4.0,
        seed=0,
    )
    x, y = _patches(4, 5)
    relation = model.relation
    weight = relation.weight if rank is None else torch.einsum(
        "gri,grj->gij", relation.u.unflatten(0, (-1, 3)), relation.v.unflatten(0, (-1, 3))
    )  # fmt: skip
    h = model.relate(x, y)
    torch.testing.assert_close(h, functional.relative_contrast(x.flatten(1), y.flatten(1), weight))
    with torch.no_grad():
        model.competition.theta.fill_(0.25)  # exp(-1) of the first temperature
    torch.testing.assert_close(model.units(x, y), torch.softmax(-h / (0.5 / math.e), -1))
    plain = create_model("can", "rotation", 5, units=6, rank=rank)
    assert model.parameter_count() == plain.parameter_count() + 1
    save_weights(model, tmp_path / "relative.safetensors")
    assert torch.equal(load_weights(tmp_path / "relative.safetensors")(x, y), model(x, y))


@pytest.mark.parametrize("competition", ["softmin", "winner-take-all"])
def test_centered_responses(competition: str, tmp_path: Path) -> None:
    options = {"units": 8, "competition": competition, "response_scale": 3.0, "response_center": True}
    model = create_model("can", "rotation", 5, seed=0, **options)
    x, y = _patches(6, 5)
    responses = model.units(x, y)
    torch.testing.assert_close(responses.mean(1), torch.full((6,), 1 / 8))  # which is what is taken off
    torch.testing.assert_close(model(x, y), model.decoder(3 * (responses - responses.mean(1, keepdim=True))))
    save_weights(model, tmp_path / "centered.safetensors")
    assert torch.equal(load_weights(tmp_path / "centered.safetensors")(x, y), model(x, y))


def test_competitions_and_normalizations() -> None:
    x, y = _patches(6, 5)
    bare = create_model("can-no-competition", "rotation", 5, seed=0)
    assert torch.equal(bare.units(x, y), bare.relate(x, y))
    winner = create_model("can-wta", "rotation", 5, seed=0)
    assert torch.equal(winner.units(x, y).argmax(1), winner.relate(x, y).argmin(1))
    assert torch.equal(winner.units(x, y).sort(1).values[:, -2:], torch.tensor([[0.0, 1.0]]).expand(6, 2))
    soft = create_model("bln-softmax", "rotation", 5, seed=0)
    torch.testing.assert_close(soft.units(x, y), torch.softmax(soft.relate(x, y), -1))
    norm = create_model("bln", "rotation", 5, seed=0).units(x, y).norm(dim=1)
    torch.testing.assert_close(norm, torch.ones(6))


@pytest.mark.parametrize("variant", ["can-exp", "can-softplus"])
@pytest.mark.parametrize("options", [{}, {"relative": True}])
def test_parametrised_weights_start_as_the_plain_ones(variant: str, options: dict[str, object]) -> None:
    plain, other = (create_model(name, "rotation", 5, seed=4, **options) for name in ("can", variant))
    torch.testing.assert_close(other.relation.u, plain.relation.u)
    x, y = _patches(4, 5)
    torch.testing.assert_close(other(x, y), plain(x, y))
    assert not list(getattr(other.relation, "nonnegative_parameters", lambda: [])())


def test_parametrised_full_rank_bilinear() -> None:
    model = create_model(
        "bln", "rotation", 3, units=4, rank=None, nonnegative=True, parametrization="exp", seed=0
    )
    x, y = _patches(2, 3)
    expected = torch.einsum("bi,kij,bj->bk", x.flatten(1), model.relation.weight, y.flatten(1))
    torch.testing.assert_close(model.relate(x, y), expected)


def test_scale_of_h_does_not_grow_with_the_rank() -> None:
    x, y = _patches(200, 11)
    means = {
        r: create_model("can", "rotation", rank=r, seed=0).relate(x, y).mean().item()
        for r in (1, 2, 4, 8, 16, None)
    }
    assert means[8] == pytest.approx(means[4], rel=0.05)
    assert means[16] == pytest.approx(means[4], rel=0.05)
    assert all(mean <= 1.05 * means[4] for mean in means.values())


def test_first_weights_have_the_stated_distributions() -> None:
    model = create_model("can", "rotation", seed=0)
    u = model.relation.u
    assert u.min() > 0
    assert u.max() <= 1 / 11
    assert u.mean().item() == pytest.approx(1 / 22, rel=0.01)
    layer = model.decoder[0]
    bound = 1 / math.sqrt(300)
    assert layer.weight.abs().max() <= bound
    assert layer.bias.abs().max() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    v = create_model("bln", "rotation", seed=0).relation.v
    assert v.abs().max() <= 1 / 11
    assert abs(v.mean().item()) < 1e-3
    assert model.decoder[1].weight.item() == 0.25


@pytest.mark.parametrize(
    ("name", "reach", "bias_reach", "slope"),
    [
        # Of a layer of 242 inputs and 1200 outputs; a uniform distribution of standard deviation s reaches s √3.
        ("fan-in", 242**-0.5, 242**-0.5, 0.25),
        ("xavier", math.sqrt(3 * 2 / 1442), 0.0, 0.25),
        ("kaiming", math.sqrt(3 * 4 / 1442), 0.0, 0.25),
        ("uniform", 0.08, 0.08, None),
    ],
)
def test_first_weights_are_uniform_and_reach_as_far_as_they_should(
    name: str, reach: float, bias_reach: float, slope: float | None
) -> None:
    decoder = create_model("ctn", "affine", seed=0, initialization=name).decoder
    layer, activation = decoder[0], decoder[1]
    assert isinstance(layer, nn.Linear)
    assert isinstance(activation, nn.PReLU)
    weight = layer.weight.detach()
    # 290,400 draws: the extremes of a uniform distribution are all but reached, its deviation is reach / √3
    assert 0.9999 * reach < weight.abs().max() <= reach
    assert weight.std().item() == pytest.approx(reach / math.sqrt(3), rel=0.01)
    assert 0.99 * bias_reach <= layer.bias.abs().max() <= bias_reach
    value = activation.weight.item()
    assert value == slope if slope is not None else 0 < abs(value) <= 0.08


def test_first_weights_of_another_name_are_refused() -> None:
    with pytest.raises(ValueError, match="initialization must be one of fan-in, xavier, kaiming, uniform"):
        create_model("ctn", "affine", initialization="orthogonal")


def test_weights_are_a_function_of_the_seed_and_leave_the_global_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = create_model("can", "rotation", seed=7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(10)
    other = create_model("can", "rotation", generator=torch.Generator().manual_seed(7))
    third = create_model("can", "rotation", seed=8)
    for a, b, c in zip(one.parameters(), other.parameters(), third.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.numel() == 1 or not torch.equal(a, c)  # slopes begin alike


@pytest.mark.parametrize("name", ["ctn", "bln", "can"])
def test_contrast_takes_out_a_common_gain_and_offset_and_nothing_else(name: str) -> None:
    plain, equal = (create_model(name, "rotation", 5, seed=0, contrast=c).double() for c in (None, 0.3))
    x, y = torch.rand(2, 7, 25, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(equal(x, y), equal(0.25 * x - 0.4, 0.25 * y - 0.4), rtol=1e-3, atol=1e-5)
    assert (
        equal.relate(x, y) - equal.relate(x, 0.25 * y)
    ).abs().max() > 1e-3  # a gain of one patch is still seen
    # By hand: both patches of a pair about their 50 pixels' mean, times 0.3 over their 50 pixels' deviation.
    both = np.concatenate([x.numpy(), y.numpy()], axis=1)
    brought = 0.3 * (both - both.mean(1, keepdims=True)) / np.sqrt(both.var(1, keepdims=True) + 1e-6)
    a, b = torch.from_numpy(brought).split(25, dim=1)
    torch.testing.assert_close(equal(x, y), plain(a, b), rtol=1e-9, atol=1e-12)


def test_contrast_leaves_flat_pairs_finite() -> None:
    model = create_model("can", "rotation", 5, seed=0, contrast=0.3)
    assert model(torch.full((1, 25), 0.2), torch.full((1, 25), 0.2)).isfinite().all()
    with pytest.raises(ValueError, match="contrast must be a positive number, got 0"):
        create_model("can", "rotation", contrast=0)


def test_target_scale_puts_outputs_in_the_task_s_range() -> None:
    plain, scaled = (create_model("can", "scaling", 5, seed=0, target_scale=flag) for flag in (False, True))
    x, y = _patches(3, 5)
    torch.testing.assert_close(scaled(x, y), 1.25 + 0.75 * plain(x, y))
    assert scaled.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("name", ["ctn", "bln-softmax", "can-wta", "can-exp", "can-softplus"])
def test_networks_are_captured_whole_by_the_compiler(name: str) -> None:
    small = {} if name == "ctn" else {"units": 6, "response_scale": 30.0}
    model = create_model(name, "affine", 5, seed=0, target_scale=True, **small)
    compiled = torch.compile(model, fullgraph=True, backend="eager")  # capture, without generating code
    x, y = _patches(3, 5)
    torch.testing.assert_close(compiled(x, y), model(x, y))


@pytest.mark.filterwarnings("ignore:.torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("name", list_models())
def test_networks_are_traced(name: str) -> None:
    """As torch.jit.trace records them, they answer any number of pairs."""
    small = {} if name == "ctn" else {"units": 6, "hidden": (5,)}
    model = create_model(name, "affine", 5, seed=0, contrast=0.5, target_scale=True, **small)
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)  # a size that was taken for a constant
        traced = torch.jit.trace(model, _patches(3, 5))
    for count in (1, 7):
        x, y = _patches(count, 5, seed=1)
        torch.testing.assert_close(traced(x, y), model(x, y))


class _Convolutions(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3, stride=2))


def test_standardized_patches_hide_gain_and_bias_and_files_remember_it(tmp_path: Path) -> None:
    model = create_model("can", "translation", features="standardize", seed=0)
    x, y = torch.rand(2, 20, 11, 11, generator=torch.Generator().manual_seed(1)) - 0.5
    flat = y.flatten(1)
    by_hand = (
        0.25 * (flat - flat.mean(1, keepdim=True)) / (flat.var(1, correction=0, keepdim=True) + 6.4e-5) ** 0.5
    )
    plain = create_model("can", "translation", seed=0)
    torch.testing.assert_close(model.features(y[:, None]).flatten(1), by_hand)
    torch.testing.assert_close(model(x, y), plain(model.features(x[:, None])[:, 0], by_hand))
    torch.testing.assert_close(model(x, y), model(x, 3.0 * y + 0.4), atol=2e-3, rtol=0)
    save_weights(model, tmp_path / "w.safetensors")
    again = load_weights(tmp_path / "w.safetensors")
    torch.testing.assert_close(again(x, y), model(x, y), atol=0, rtol=0)
    with pytest.raises(ValueError, match="features must be one of standardize; got 'standardized'"):
        create_model("can", "translation", features="standardized")
    spelled = create_model("can", "translation", features="standardise")  # as the card of `motion` has it
    assert spelled.model_spec.features == "standardize"


def test_features_can_be_a_small_conv_net(tmp_path: Path) -> None:
    f = _Convolutions()
    model = create_model("can", "rotation", 9, features=f, units=5, seed=0)
    assert model.relation.in_a == 2 * 3 * 3
    x, y = _patches(4, 9)
    expected = model.relation(f(x[:, None]).flatten(1), f(y[:, None]).flatten(1))
    torch.testing.assert_close(model.relate(x, y), expected)
    model(x, y).sum().backward()
    assert bool(f[0].weight.grad.any())
    convolutions = 7 * 7 * 3 * 9 + 3 * 3 * 2 * 27
    rest = 20 * 36 + 20 + 5 * 36 + 5 * 100 + 100 * 100 + 100
    assert model.multiply_adds() == 2 * convolutions + rest

    save_weights(model, tmp_path / "w.safetensors")
    again = load_weights(tmp_path / "w.safetensors", features=_Convolutions())
    assert torch.equal(again(x, y), model(x, y))
    with pytest.raises(ValueError, match="needs its _Convolutions"):
        load_weights(tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"must make 18 numbers of a patch for .*, got 81"):
        load_weights(tmp_path / "w.safetensors", features=nn.Identity())


def test_explicit_feature_size() -> None:
    model = create_model("can", "rotation", 4, features=nn.Linear(4, 2), feature_size=8)
    assert model.spec["inputs"] == 8
    assert model(*_patches(2, 4)).shape == (2, 1)


@pytest.mark.parametrize("name", ["ctn", "can-exp", "can-full", "bln-nonnegative"])
def test_saved_and_loaded_are_the_same(name: str, tmp_path: Path) -> None:
    small = {} if name == "ctn" else {"units": 6, "response_scale": 30.0}
    model = create_model(name, "affine", 5, seed=0, target_scale=True, **small)
    save_weights(model, tmp_path / "w.safetensors")
    state = torch.get_rng_state()
    again = load_weights(tmp_path / "w.safetensors")
    assert torch.equal(torch.get_rng_state(), state)
    x, y = _patches(3, 5)
    assert torch.equal(again(x, y), model(x, y))
    assert again.spec == model.spec
    assert not again.training
    assert (
        load_weights(tmp_path / "w.safetensors", dtype=torch.float64)(x.double(), y.double()).dtype
        == torch.float64
    )


def test_a_registered_task_needs_no_registry_to_load(tmp_path: Path) -> None:
    rotation = tasks.get("rotation")
    own = tasks.Task("spin", ("angle",), (-10.0,), (10.0,), rotation.build, rotation.read)
    save_weights(create_model("can", own, 5, units=4), tmp_path / "w.safetensors")
    assert load_weights(tmp_path / "w.safetensors").spec["task"] == "spin"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "cann"}, "model must be one of ctn, bln, can, .*did you mean 'can'"),
        ({"task": "rotatoin"}, "rotation"),
        ({"patch": 0}, "patch must be a whole number"),
        ({"unitz": 3}, "override of can must be one of .*did you mean 'units'"),
        ({"nonnegative": True}, "override of can must be one of"),
        (
            {"competition": "softmax"},
            "competition of contrast-association units must be one of softmin, winner-take-all, none; got",
        ),
        ({"units": 0}, "units must be a whole number"),
        ({"rank": True}, "rank must be a whole number"),
        ({"hidden": 100}, "hidden must be a sequence"),
        ({"hidden": (100, -1)}, "each width"),
        ({"temperature": 0.0}, "temperature must be a positive number"),
        ({"learn_temperature": -1.0}, "learn_temperature must be a number of at least 0, got -1.0"),
        (
            {"learn_temperature": 1.0, "competition": "none"},
            "learn_temperature must be 0 unless the competition learns",
        ),
        ({"relative": 1}, "relative must be True or False, got 1"),
        ({"response_center": 1}, "response_center must be True or False, got 1"),
        (
            {"response_center": True, "competition": "none"},
            "response_center must be False unless responses sum to one",
        ),
        ({"name": "bln", "response_center": True}, "response_center must be False unless"),
        ({"bias": "no"}, "bias must be True or False"),
        ({"name": "bln", "parametrization": "exp"}, "either sign"),
        ({"feature_size": 4}, "feature_size must not be given without features"),
        ({"seed": 1, "generator": torch.Generator()}, "not both"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_model(**{"name": "can", "task": "rotation", **arguments})  # type: ignore[arg-type]


def test_wrong_inputs_are_named() -> None:
    model = create_model("can", "rotation", 5, units=4)
    x, _ = _patches(2, 5)
    with pytest.raises(ValueError, match=r"y must have the shape \(B, 5, 5\) or \(B, 25\), got \(2, 4, 5\)"):
        model(x, x[:, 1:])
    with pytest.raises(TypeError, match=r"features must be a torch.nn.Module"):
        create_model("can", "rotation", features=len)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown fields: color"):
        ModelSpec.from_json({**model.spec, "color": "red"})
    assert isinstance(model, RelationNetwork)
