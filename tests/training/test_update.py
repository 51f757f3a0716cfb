"""The fast update: compiled equals eager, runs repeat to the bit, and nothing is hidden in it."""

import copy

import pytest
import torch
from torch import nn

from caunet.errors import TrainingError
from caunet.models import create_model
from caunet.nn import ContrastAssociation, Softmin
from caunet.optim import HybridOptimizer
from caunet.training.update import Update, can_compile

RULES = {
    "multiplicative": {},
    "multiplicative-adam": {"rule": "multiplicative-adam", "mix": 0.04},
    "projection": {"rule": "projection"},
    "adam-reset": {"adam_reset": True},
}
needs_compiler = pytest.mark.skipif(not can_compile(), reason="no C++ compiler")


class Network(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.relation = ContrastAssociation(9, 9, units=6, rank=2, dtype=dtype)
        self.decoder = nn.Sequential(Softmin(), nn.Linear(6, 5), nn.PReLU(), nn.Linear(5, 1)).to(dtype)

    def forward(self, x, y):
        return self.decoder(self.relation(x, y))


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x, y):
        return self.gain * (x + y)


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return Network(dtype)


def batch(step, dtype=torch.float32, size=8):
    generator = torch.Generator().manual_seed(step)
    x, y = torch.rand(2, size, 9, generator=generator, dtype=dtype) - 0.5
    return x, y, (x * y).sum(1, keepdim=True)


def run(update, start, stop, dtype=torch.float32):
    return torch.stack([update(*batch(step, dtype)) for step in range(start, stop)])


def assert_same(a, b, **tolerance):
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


@pytest.fixture
def traced(monkeypatch):
    """Trace, but run the graph as it is without generating C++, which takes long."""
    graphs = []

    def quick(graph, inputs, threads):
        graphs.append(graph)
        return graph

    monkeypatch.setattr("caunet.training.update._generate", quick)
    return graphs


class TestEager:
    def test_does_what_the_loop_of_torch_does(self):
        ours, theirs = network(), network()
        update = Update(ours, HybridOptimizer.for_model(ours), compile=False)
        optimizer = HybridOptimizer.for_model(theirs)
        for step in range(4):
            x, y, z = batch(step)
            optimizer.zero_grad()
            loss = ((theirs(x, y) - z) ** 2).mean()
            loss.backward()
            optimizer.step()
            result = update(x, y, z)
            torch.testing.assert_close(result, loss.detach())
            assert not result.requires_grad
        assert_same(ours, theirs, rtol=0, atol=0)

    def test_loss_can_be_a_function(self):
        model = network()
        update = Update(model, HybridOptimizer.for_model(model), nn.functional.l1_loss, compile=False)
        x, y, z = batch(0)
        expected = (model(x, y) - z).abs().mean().detach()
        torch.testing.assert_close(update(x, y, z), expected)

    def test_gradients_then_apply_is_the_update(self):
        whole, halves = network(), network()
        Update(whole, HybridOptimizer.for_model(whole), compile=False)(*batch(0))
        update = Update(halves, HybridOptimizer.for_model(halves), compile=False)
        update.gradients(*batch(0))
        assert_same(halves, network(), rtol=0, atol=0)
        update.apply()
        assert_same(halves, whole, rtol=0, atol=0)

    def test_refuses(self):
        model = network()
        optimizer = HybridOptimizer.for_model(model)
        with pytest.raises(ValueError, match="loss must be 'mse' or a function, got 'mae'"):
            Update(model, optimizer, loss="mae")
        with pytest.raises(ValueError, match="compile must be True, False or 'auto', got 'yes'"):
            Update(model, optimizer, compile="yes")
        with pytest.raises(ValueError, match="optimizer must hold parameters of model"):
            Update(network(), optimizer)

    def test_refuses_a_target_that_would_be_broadcast(self):
        model = network()
        update = Update(model, HybridOptimizer.for_model(model), compile=False)
        x, y, z = batch(0)
        shapes = rf"z must have the shape of the estimate, \({len(z)}, {z.shape[1]}\), got \({len(z)},\)"
        with pytest.raises(ValueError, match=shapes):
            update(x, y, z[:, 0])

    def test_leaves_the_gradients_of_its_owner_alone(self):
        model = network()
        kept = [torch.full_like(p, 7.0) for p in model.parameters()]
        for p, grad in zip(model.parameters(), kept, strict=True):
            p.grad = grad
        Update(model, HybridOptimizer.for_model(model), compile=False)(*batch(0))
        twin = network()
        Update(twin, HybridOptimizer.for_model(twin), compile=False)(*batch(0))
        assert_same(model, twin, rtol=0, atol=0)
        assert all(p.grad is grad for p, grad in zip(model.parameters(), kept, strict=True))

    def test_auto_without_a_compiler_is_eager(self, monkeypatch):
        monkeypatch.setenv("CXX", "no-such-compiler")
        model = network()
        assert not Update(model, HybridOptimizer.for_model(model)).compiled

    def test_a_compiler_that_fails_is_one_warning_for_auto_and_an_error_for_always(self, monkeypatch):
        def broken(graph, inputs, threads):
            raise RuntimeError("CppCompileError: C++ compile error\n" + "/tmp/x.cpp:1: error\n" * 5000)

        monkeypatch.setattr("caunet.training.update._generate", broken)
        monkeypatch.setattr("caunet.training.update.can_compile", lambda device: True)
        tried, plain = network(), network()
        update = Update(tried, HybridOptimizer.for_model(tried))
        assert update.compiled
        with pytest.warns(RuntimeWarning, match=r"could not be compiled \(CppCompileError.*without") as said:
            first = update(*batch(0))
        assert [len(str(w.message).splitlines()) for w in said] == [1]
        assert not update.compiled
        assert not update.compiling
        run(update, 1, 3)
        expected = run(Update(plain, HybridOptimizer.for_model(plain), compile=False), 0, 3)
        assert torch.equal(first, expected[0])
        assert_same(tried, plain, rtol=0, atol=0)
        update = Update(tried, HybridOptimizer.for_model(tried))
        with pytest.warns(RuntimeWarning, match="could not be compiled"):
            update.gradients(*batch(0))
        update = Update(tried, HybridOptimizer.for_model(tried), compile=True)
        with pytest.raises(TrainingError, match=r"^cannot compile the update \(CppCompileError") as refused:
            update(*batch(0))
        assert len(str(refused.value)) < 300

    def test_a_fault_of_the_model_is_shown_as_it_is(self, traced):
        model = network()
        x, y, z = batch(0)
        for compiled in ("auto", True, False):
            with pytest.raises(ValueError, match="z must have the shape of the estimate"):
                Update(model, HybridOptimizer.for_model(model), compile=compiled)(x, y, z[:, 0])


class TestTraced:
    @pytest.mark.parametrize(
        ("rule", "dtype"),
        [*((rule, torch.float32) for rule in RULES), ("multiplicative-adam", torch.float64)],
    )
    def test_equals_eager(self, rule, dtype, traced):
        models = network(dtype), network(dtype)
        losses = [
            run(Update(m, HybridOptimizer.for_model(m, **RULES[rule]), compile=c), 0, 5, dtype)
            for m, c in zip(models, (True, False), strict=True)
        ]
        torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
        assert_same(*models, rtol=1e-5, atol=1e-7)
        assert len(traced) == 1

    @pytest.mark.parametrize("name", ["can", "can-softplus", "can-exp", "can-wta", "can-full", "bln", "ctn"])
    def test_networks_equal_eager(self, name, traced):
        small = {} if name.startswith("ctn") else {"units": 4}
        relative = {"relative": True, "learn_temperature": 4.0} if name in ("can", "can-softplus") else {}
        made = [
            create_model(name, "rotation", 3, seed=0, dtype=torch.float64, **small, **relative) for _ in "ab"
        ]
        for model, compiled in zip(made, (True, False), strict=True):
            rule = {"rule": model.learning_rule} if model.learning_rule != "adam" else {}
            run(
                Update(model, HybridOptimizer.for_model(model, **rule), compile=compiled), 0, 3, torch.float64
            )
        assert_same(*made, rtol=1e-9, atol=1e-9)

    def test_padded_products_are_the_same_numbers(self, traced):
        models = [create_model("can", "rotation", 7, units=8, seed=0, dtype=torch.float64) for _ in "ab"]
        x, y = torch.rand(2, 8, 7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        for model, compiled in zip(models, (True, False), strict=True):
            update = Update(model, HybridOptimizer.for_model(model), compile=compiled)
            for _ in range(3):
                update(x, y, x[:, :1, 0])
        assert_same(*models, rtol=1e-9, atol=1e-9)
        padded = traced[0].graph.find_nodes(op="call_function", target=torch.ops.aten.constant_pad_nd.default)
        assert len(padded) == 4  # those of u, v and the sums of their rows; 49 columns
        assert {tuple(node.args[1]) for node in padded} == {(0, 15)}

    def test_rates_are_read_at_each_step_without_compiling_again(self, traced):
        models = network(), network()
        for model, compiled in zip(models, (True, False), strict=True):
            optimizer = HybridOptimizer.for_model(model)
            update = Update(model, optimizer, compile=compiled)
            for step in range(4):
                for group in optimizer.param_groups:
                    group["lr"] *= 0.5
                run(update, step, step + 1)
        assert_same(*models, rtol=1e-5, atol=1e-7)
        assert len(traced) == 1

    def test_other_options_and_batches_compile_again(self, traced):
        model = network()
        optimizer = HybridOptimizer.for_model(model)
        update = Update(model, optimizer, compile=True)
        update(*batch(0))
        update(*batch(0, size=5))
        optimizer.param_groups[0]["eps"] = 1e-10
        update(*batch(0))
        update(*batch(1))
        assert len(traced) == 3

    def test_batches_in_another_layout(self, traced):
        models = network(), network()
        for model, compiled in zip(models, (True, False), strict=True):
            update = Update(model, HybridOptimizer.for_model(model), compile=compiled)
            x, y, z = batch(0)
            update(x, y, z)
            update(x.t().contiguous().t(), y, z)
        assert_same(*models, rtol=1e-5, atol=1e-7)

    def test_compiled_and_eager_steps_share_their_state(self, traced):
        mixed, plain = network(), network()
        optimizer = HybridOptimizer.for_model(mixed, rule="multiplicative-adam")
        run(Update(mixed, optimizer, compile=True), 0, 2)
        run(Update(mixed, optimizer, compile=False), 2, 4)
        run(Update(plain, HybridOptimizer.for_model(plain, rule="multiplicative-adam"), compile=False), 0, 4)
        assert_same(mixed, plain, rtol=1e-5, atol=1e-7)

    def test_a_sum_of_gradients_that_overflows_is_no_fault(self, traced):
        def loss(estimate, z):
            return nn.functional.mse_loss(estimate, z) * 1e37

        model, before = network(), network()
        Update(model, HybridOptimizer.for_model(model), loss, compile=True)(*batch(0))
        assert not torch.equal(model.relation.u, before.relation.u)
        assert all(torch.isfinite(p).all() for p in model.parameters())

    def test_networks_alike_in_shape_are_not_confused(self, traced):
        for activation in (nn.ReLU(), nn.Tanh()):
            models = network(), network()
            for model, compiled in zip(models, (True, False), strict=True):
                model.decoder[2] = activation
                run(Update(model, HybridOptimizer.for_model(model), compile=compiled), 0, 2)
            assert_same(*models, rtol=1e-5, atol=1e-7)

    def test_many_networks_in_one_process(self, traced):
        x = torch.ones(1, 1)
        for _ in range(10):
            model = Scale()
            update = Update(model, HybridOptimizer.for_model(model), compile=True)
            torch.testing.assert_close(update(x, x, 3 * x), torch.tensor(1.0))
        assert len(traced) == 10

    def test_running_statistics_are_kept(self, traced):
        models = []
        for compiled in (True, False):
            torch.manual_seed(0)
            f = nn.Sequential(nn.Conv2d(1, 2, 2, bias=False), nn.BatchNorm2d(2))
            model = create_model("can", "rotation", 3, units=4, features=f, seed=0, dtype=torch.float64)
            run(Update(model, HybridOptimizer.for_model(model), compile=compiled), 0, 3, torch.float64)
            models.append(model)
        assert_same(*models, rtol=1e-9, atol=1e-9)
        for mine, eager in zip(*(model.buffers() for model in models), strict=True):
            torch.testing.assert_close(mine, eager, rtol=1e-9, atol=1e-9)
        assert models[0].features[1].num_batches_tracked == 6  # x and y of three batches

    def test_buffers_are_read_at_each_step(self, traced):
        class Shifted(Scale):
            def __init__(self):
                super().__init__()
                self.register_buffer("shift", torch.zeros(1))

            def forward(self, x, y):
                return super().forward(x, y) + self.shift

        model, x = Shifted(), torch.ones(1, 1)
        update = Update(model, HybridOptimizer.for_model(model, free_lr=0.0), compile=True)
        assert update(x, x, 2 * x).item() == 0
        model.shift.fill_(1)
        assert update(x, x, 2 * x).item() == 1
        model.shift = torch.full((1,), 3.0)  # as moving a module does
        assert update(x, x, 2 * x).item() == 9
        assert len(traced) == 1

    def test_frozen_parameters_stay(self, traced):
        model = network()
        model.decoder[1].weight.requires_grad_(False)
        before = copy.deepcopy(model)
        run(Update(model, HybridOptimizer.for_model(model), compile=True), 0, 2)
        assert torch.equal(model.decoder[1].weight, before.decoder[1].weight)
        assert not torch.equal(model.decoder[1].bias, before.decoder[1].bias)


@needs_compiler
def test_compiled_for_real():
    """All that needs generated code, in one test: it is compiled once."""
    models = [network() for _ in range(3)]
    options = RULES["multiplicative-adam"]
    updates = [
        Update(model, HybridOptimizer.for_model(model, **options), compile=compiled)
        for model, compiled in zip(models, ("auto", False, True), strict=True)
    ]
    # Equal to eager, up to rounding.
    losses = [run(update, 0, 5) for update in updates[:2]]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
    assert_same(*models[:2], rtol=1e-5, atol=1e-7)

    # Resumed from a saved state: the same bits as uninterrupted, in the same function and in another.
    saved = copy.deepcopy((models[0].state_dict(), updates[0].optimizer.state_dict()))
    uninterrupted = run(updates[0], 5, 8)
    end = copy.deepcopy(models[0])
    for model, update in ((models[0], updates[0]), (models[2], updates[2])):
        model.load_state_dict(saved[0])
        update.optimizer.load_state_dict(saved[1])
        assert torch.equal(run(update, 5, 8), uninterrupted)
        assert_same(model, end, rtol=0, atol=0)

    # A gradient that is not finite changes nothing and is named.
    state = copy.deepcopy(updates[0].optimizer.state_dict()["state"])
    x, y, z = batch(9)
    x[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match=r"'relation.u'.* no weight was changed"):
        updates[0](x, y, z)
    assert_same(models[0], end, rtol=0, atol=0)
    for key, entry in updates[0].optimizer.state_dict()["state"].items():
        assert all(torch.equal(torch.as_tensor(v), torch.as_tensor(state[key][k])) for k, v in entry.items())

    # Gradients alone, for several processes.
    loss = updates[0].gradients(*batch(10))
    compiled = [p.grad.clone() for p in models[0].parameters()]
    expected = Update(models[0], updates[0].optimizer, compile=False).gradients(*batch(10))
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    for gradient, p in zip(compiled, models[0].parameters(), strict=True):
        torch.testing.assert_close(gradient, p.grad, rtol=1e-4, atol=1e-8)
