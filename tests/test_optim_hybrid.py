"""One optimizer for a whole network: equal to its parts, steered by any scheduler, saved as one."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from caunet.optim import (
    HybridOptimizer,
    MultiplicativeAdam,
    MultiplicativeUpdate,
    ProjectedAdam,
    split_parameters,
)

RULES = {
    "multiplicative": (MultiplicativeUpdate, {"eps": 1e-18}),
    "multiplicative-adam": (MultiplicativeAdam, {"mix": 0.04}),
    "projection": (ProjectedAdam, {"betas": (0.8, 0.99)}),
}


class Gain(nn.Module):
    """Knows nothing of caunet, but says which of its weights must stay non-negative."""

    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.full((size,), 0.5))
        self.shift = nn.Parameter(torch.zeros(size))

    def nonnegative_parameters(self):
        yield self.gain

    def forward(self, x):
        return x * self.gain + self.shift


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), Gain(6), nn.Linear(6, 1))


def train(model, optimizer, steps, start=0, scheduler=None):
    for step in range(start, start + steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 4, generator=generator)
        for o in optimizer if isinstance(optimizer, list) else [optimizer]:
            o.zero_grad()
        ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
        for o in optimizer if isinstance(optimizer, list) else [optimizer]:
            o.step()
        if scheduler is not None:
            scheduler.step()
    return model


def assert_same(a, b, **tolerance):
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, **tolerance)


class TestSplit:
    def test_every_parameter_once(self):
        model = network()
        nonnegative, free = split_parameters(model)
        assert [id(p) for p in nonnegative] == [id(model[1].gain)]
        assert {id(p) for p in free} == {id(p) for p in model.parameters()} - {id(model[1].gain)}

    def test_shared_and_nested(self):
        class Outer(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = Gain(3)
                self.b = self.a

            def nonnegative_parameters(self):  # says again what the inner module said
                yield from self.a.nonnegative_parameters()

        nonnegative, free = split_parameters(Outer(), named=True)
        assert [name for name, _ in nonnegative] == ["a.gain"]
        assert [name for name, _ in free] == ["a.shift"]


class TestHybrid:
    @pytest.mark.parametrize("rule", RULES)
    def test_equals_its_parts(self, rule):
        make, options = RULES[rule]
        together, apart = network(), network()
        nonnegative, free = split_parameters(apart)
        parts = [make(nonnegative, lr=0.01, **options), torch.optim.Adam(free, lr=0.02)]
        hybrid = HybridOptimizer(*split_parameters(together), rule=rule, lr=0.01, free_lr=0.02, **options)
        train(together, hybrid, 12)
        train(apart, parts, 12)
        assert_same(together, apart, rtol=1e-5, atol=1e-7)
        assert (together[1].gain >= 0).all()

    def test_adam_reset_is_a_fresh_adam_each_step(self):
        ours, theirs = network(), network()
        train(ours, HybridOptimizer.for_model(ours, adam_reset=True), 6)
        nonnegative, free = split_parameters(theirs)
        for step in range(6):
            fresh = [MultiplicativeUpdate(nonnegative), torch.optim.Adam(free, lr=0.005)]
            train(theirs, fresh, 1, start=step)
        assert_same(ours, theirs, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("adam_reset", [False, True])
    def test_resumed_equals_uninterrupted(self, rule, adam_reset):
        options = {"rule": rule, "adam_reset": adam_reset}
        straight = network()
        train(straight, HybridOptimizer.for_model(straight, **options), 10)
        first = network()
        optimizer = HybridOptimizer.for_model(first, **options)
        train(first, optimizer, 4)
        second = network(seed=1)
        second.load_state_dict(first.state_dict())
        resumed = HybridOptimizer.for_model(second, **options)
        resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        train(second, resumed, 6, start=4)
        assert_same(straight, second, rtol=0, atol=0)

    @pytest.mark.parametrize(
        ("schedule", "expected"),
        [
            (lambda o: lr_scheduler.StepLR(o, 2, gamma=0.5), 0.25),
            (lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)), 0.2),
            (lambda o: lr_scheduler.CosineAnnealingLR(o, 4), 0.0),
        ],
    )
    def test_schedulers_reach_every_group(self, schedule, expected):
        model = network()
        optimizer = HybridOptimizer.for_model(model, lr=0.01, free_lr=0.02)
        train(model, optimizer, 4, scheduler=schedule(optimizer))
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == pytest.approx([0.01 * expected, 0.02 * expected], abs=1e-12)

    def test_one_cycle_and_plateau(self):
        model = network()
        optimizer = HybridOptimizer.for_model(model)
        cycle = lr_scheduler.OneCycleLR(optimizer, max_lr=[0.1, 0.2], total_steps=10)
        train(model, optimizer, 5, scheduler=cycle)
        assert [g["betas"][0] for g in optimizer.param_groups] != [0.9, 0.9]
        optimizer = HybridOptimizer.for_model(model, lr=0.01, free_lr=0.02)
        plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
        for _ in range(2):
            plateau.step(1.0)
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.001, 0.002])

    def test_a_rate_of_zero_holds_the_weights(self):
        model, before = network(), network()
        train(model, HybridOptimizer.for_model(model, lr=0.0, free_lr=0.0), 3)
        assert_same(model, before, rtol=0, atol=0)

    def test_a_network_without_nonnegative_weights(self):
        optimizer = HybridOptimizer.for_model(nn.Linear(2, 1))
        assert [group["rule"] for group in optimizer.param_groups] == ["adam"]

    def test_one_bad_gradient_holds_all_weights(self):
        model, before = network(), network()
        optimizer = HybridOptimizer.for_model(model)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        model[2].bias.grad[0] = float("nan")
        with pytest.raises(FloatingPointError, match=r"parameter '2.bias'"):
            optimizer.step()
        assert_same(model, before, rtol=0, atol=0)

    def test_unnamed_parameters_are_told_by_their_place(self):
        model = network()
        optimizer = HybridOptimizer(*split_parameters(model))
        model[2].bias.grad = torch.tensor([float("inf")])
        with pytest.raises(FloatingPointError, match=r"parameter 4 of group 1 \(shape \(1,\)\)"):
            optimizer.step()

    def test_wrong_arguments(self):
        model = network()
        with pytest.raises(ValueError, match=r"rule must be one of 'multiplicative', .* got 'adam'"):
            HybridOptimizer.for_model(model, rule="adam")
        with pytest.raises(TypeError, match="rule 'multiplicative' has no option mix"):
            HybridOptimizer.for_model(model, mix=0.1)
        with pytest.raises(ValueError, match="rule must be one of"):
            HybridOptimizer.for_model(model).add_param_group(
                {"params": [("extra", nn.Parameter(torch.ones(1)))], "rule": "sgd"}
            )

    def test_a_later_group_takes_the_defaults_of_its_rule(self):
        optimizer = HybridOptimizer.for_model(network())
        extra = nn.Parameter(torch.ones(1))
        optimizer.add_param_group({"params": [("extra", extra)], "rule": "multiplicative-adam"})
        assert optimizer.param_groups[-1]["betas"] == (0.9, 0.999)
        extra.grad = torch.ones(1)
        optimizer.step()
        assert 0 < extra < 1

    def test_a_later_group_without_a_rule_learns_by_adam(self):
        optimizer = HybridOptimizer.for_model(network(), free_lr=0.02, rule="multiplicative-adam", mix=0.04)
        bias = nn.Parameter(torch.zeros(3))
        optimizer.add_param_group({"params": [bias]})
        group = optimizer.param_groups[-1]
        assert (group["rule"], group["lr"], group["eps"]) == ("adam", 0.02, 1e-8)
        bias.grad = torch.ones(3)
        optimizer.step()
        torch.testing.assert_close(bias.detach(), torch.full((3,), -0.02))
        gain = nn.Parameter(torch.ones(3))
        optimizer.add_param_group({"params": gain, "rule": "multiplicative-adam", "lr": 0.1})
        assert [optimizer.param_groups[-1][key] for key in ("lr", "mix")] == [0.1, 0.04]

    def test_later_parameters_of_the_model_are_divided(self):
        model = network()
        optimizer = HybridOptimizer.for_model(model, lr=0.01, free_lr=0.02)
        model.append(Gain(1))
        optimizer.add_param_group({"params": [("gain", model[3].gain), ("shift", model[3].shift)]})
        added = optimizer.param_groups[2:]
        assert [(g["rule"], g["lr"], g["param_names"]) for g in added] == [
            ("multiplicative", 0.01, ["gain"]),
            ("adam", 0.02, ["shift"]),
        ]
        twin = copy.deepcopy(optimizer)
        twin.add_param_group({"params": [("more", nn.Parameter(torch.zeros(1)))]})
        assert twin.param_groups[-1]["lr"] == 0.02

    def test_a_later_group_is_added_whole_or_not_at_all(self):
        model = network()
        optimizer = HybridOptimizer.for_model(model)
        model.append(Gain(1))
        with pytest.raises(ValueError, match="betas must be two numbers"):
            optimizer.add_param_group({"params": list(model[3].named_parameters()), "betas": (0.9, 1.5)})
        assert len(optimizer.param_groups) == 2
        with pytest.raises(ValueError, match="appear in more than one"):
            optimizer.add_param_group({"params": list(model[0].named_parameters())})

    def test_hooks_reach_the_moments(self):
        model = network()
        optimizer = HybridOptimizer.for_model(model)
        train(model, optimizer, 3)
        saved = copy.deepcopy(optimizer.state_dict())
        seen = []

        def halve(optimizer, state_dict):
            state = {
                key: {name: v / 2 if isinstance(v, torch.Tensor) else v for name, v in entry.items()}
                for key, entry in state_dict["state"].items()
            }
            return {**state_dict, "state": state}

        def look(optimizer):
            seen.append(optimizer.state[model[0].weight]["exp_avg"].clone())

        optimizer.register_load_state_dict_pre_hook(halve)
        optimizer.register_load_state_dict_post_hook(look)
        optimizer.load_state_dict(saved)
        key = saved["param_groups"][1]["params"][0]
        expected = saved["state"][key]["exp_avg"] / 2
        assert torch.equal(optimizer.state[model[0].weight]["exp_avg"], expected)
        assert torch.equal(seen[0], expected)

    def test_copies_and_pickles(self):
        model = network()
        optimizer = HybridOptimizer.for_model(model)
        train(model, optimizer, 2)
        twin = copy.deepcopy(optimizer)
        assert repr(twin) == repr(optimizer)
        twin.step()
