"""The optimizers as optimizers: values against the printed formulas, laws, and what they refuse."""

import copy
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import nn

from caunet.optim import MultiplicativeAdam, MultiplicativeUpdate, ProjectedAdam
from tests.oracles import updates

NONNEGATIVE = [
    MultiplicativeUpdate,
    MultiplicativeAdam,
    lambda params, **o: MultiplicativeAdam(params, mix=0.04, **o),
    ProjectedAdam,
]
IDS = ["multiplicative", "multiplicative-adam", "both", "projection"]
every_rule = pytest.mark.parametrize("make", NONNEGATIVE, ids=IDS)


def parameter(*shape, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return nn.Parameter((1 - torch.rand(*shape, generator=generator, dtype=torch.float64)).to(dtype))


def gradients(shape, steps, seed=1, dtype=torch.float32):
    """Gradients of all sizes from 1e-12 to 1e6 and both signs, some exactly 0."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((steps, *shape)) * 10.0 ** rng.uniform(-12, 6, (steps, *shape))
    values[rng.random(values.shape) < 0.05] = 0.0
    return [torch.tensor(v, dtype=dtype) for v in values]


def run(optimizer, params, grads):
    for grad in grads:
        for p in params:
            p.grad = grad.clone()
        optimizer.step()


class TestValues:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("lr", [0.005, 0.1])
    def test_one_multiplicative_step_is_the_papers(self, dtype, lr):
        w = parameter(40, 30, dtype=dtype)
        (g,) = gradients((40, 30), 1, dtype=dtype)
        expected = updates.multiplicative(w.detach().double().numpy(), g.double().numpy(), lr, 1e-20)
        run(MultiplicativeUpdate([w], lr=lr), [w], [g])
        np.testing.assert_allclose(w.detach().double().numpy(), expected, rtol=1e-6 if lr < 0.1 else 4e-6)

    @pytest.mark.parametrize("mix", [0.0, 0.04])
    @pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
    def test_adam_on_logarithms(self, mix, dtype, rtol):
        w = parameter(20, 10, dtype=dtype)
        grads = gradients((20, 10), 8, dtype=dtype)
        arrays = [g.double().numpy() for g in grads]
        expected = updates.multiplicative_adam(
            w.detach().double().numpy(), arrays, 0.05, (0.8, 0.99), 1e-12, mix
        )
        run(MultiplicativeAdam([w], lr=0.05, betas=(0.8, 0.99), mix=mix), [w], grads)
        np.testing.assert_allclose(w.detach().double().numpy(), expected, rtol=rtol)

    def test_projection_is_torch_adam_and_a_clamp(self):
        ours, theirs = parameter(20, 10), parameter(20, 10)
        reference = torch.optim.Adam([theirs], lr=0.2)
        optimizer = ProjectedAdam([ours], lr=0.2)
        for g in gradients((20, 10), 6):
            run(optimizer, [ours], [g])
            run(reference, [theirs], [g])
            theirs.data.clamp_(min=0)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
        assert (ours == 0).any()

    def test_zero_gradient_changes_nothing_and_zero_weight_stays(self):
        w = parameter(50)
        w.data[3] = 0.0
        before = w.detach().clone()
        run(MultiplicativeUpdate([w], lr=1.0), [w], [torch.zeros(50)])
        assert torch.equal(w, before)
        run(MultiplicativeUpdate([w], lr=1.0), [w], [-torch.ones(50)])
        assert w[3] == 0
        assert (w[4:] > before[4:]).all()

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @every_rule
    def test_half_precision_is_float32_rounded_once_a_step(self, make, dtype):
        half = parameter(64, dtype=dtype)
        full = nn.Parameter(half.detach().float())
        (g,) = gradients((64,), 1, dtype=torch.float32)
        g = g.clamp(-1e3, 1e3).to(dtype)
        run(make([half]), [half], [g])
        run(make([full]), [full], [g.float()])
        torch.testing.assert_close(half, full.to(dtype), rtol=0, atol=0)


class TestLaws:
    @settings(deadline=None, max_examples=12)
    @given(data=st.data())
    def test_weights_stay_positive_and_finite(self, data):
        make = data.draw(st.sampled_from(NONNEGATIVE[:3]))
        dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
        sizes = data.draw(st.lists(st.sampled_from([0.0, 1e-30, 1e-5, 1.0, 1e30]), min_size=1, max_size=4))
        drift = data.draw(st.sampled_from([-2.0, 0.0, 2.0]))
        generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
        w = parameter(8, dtype=dtype)
        optimizer = make([w], lr=data.draw(st.sampled_from([0.005, 0.5])))
        for step in range(1000):
            noise = torch.randn(8, generator=generator, dtype=torch.float64) + drift
            w.grad = (noise * sizes[step % len(sizes)]).to(dtype)
            optimizer.step()
            if step % 100 == 99:
                assert (w > 0).all()
                assert torch.isfinite(w).all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    @pytest.mark.parametrize("make", NONNEGATIVE[:3], ids=IDS[:3])
    def test_foreach_equals_single_tensor(self, make, dtype):
        shapes = [(7, 5), (3,), (1, 2, 4)]
        ours = [parameter(*s, dtype=dtype) for s in shapes]
        theirs = [parameter(*s, dtype=dtype) for s in shapes]
        pair = make(ours, foreach=True), make(theirs, foreach=False)
        for step in range(5):
            for params, optimizer in zip((ours, theirs), pair, strict=True):
                for p in params:
                    p.grad = gradients(p.shape, 1, seed=step, dtype=dtype)[0]
                optimizer.step()
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @every_rule
    def test_resumed_equals_uninterrupted(self, make, dtype):
        grads = gradients((6, 5), 10, dtype=torch.float32)
        straight, first = parameter(6, 5, dtype=dtype), parameter(6, 5, dtype=dtype)
        run(make([straight]), [straight], [g.to(dtype) for g in grads])
        optimizer = make([first])
        run(optimizer, [first], [g.to(dtype) for g in grads[:4]])
        file = io.BytesIO()
        torch.save({"w": first.detach(), "o": optimizer.state_dict()}, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        second = nn.Parameter(saved["w"])
        resumed = make([second])
        resumed.load_state_dict(saved["o"])
        run(resumed, [second], [g.to(dtype) for g in grads[4:]])
        assert torch.equal(second, straight)

    @every_rule
    def test_loading_does_not_share_memory(self, make):
        w = parameter(4)
        optimizer = make([w])
        run(optimizer, [w], gradients((4,), 1))
        state = copy.deepcopy(optimizer.state_dict())
        kept = copy.deepcopy(state)
        optimizer.load_state_dict(state)
        run(optimizer, [w], gradients((4,), 3))
        for a, b in zip(state["state"].values(), kept["state"].values(), strict=True):
            assert all(torch.equal(torch.as_tensor(a[k]), torch.as_tensor(b[k])) for k in a)

    @every_rule
    def test_non_contiguous_parameters(self, make):
        flat = parameter(6, 4)
        strided = nn.Parameter(torch.empty(4, 6).t().copy_(flat.detach()))
        assert not strided.is_contiguous()
        grads = gradients((6, 4), 3)
        run(make([flat]), [flat], grads)
        run(make([strided]), [strided], grads)
        torch.testing.assert_close(strided, flat, rtol=1e-6, atol=0)

    @every_rule
    def test_a_group_can_have_its_own_rate(self, make):
        alone, still, moving = parameter(5), parameter(5), parameter(5)
        grads = gradients((5,), 1)
        run(make([alone], lr=0.01), [alone], grads)
        run(make([{"params": [still], "lr": 0.0}, {"params": [moving]}], lr=0.01), [still, moving], grads)
        assert torch.equal(still, parameter(5))
        assert torch.equal(moving, alone)

    @every_rule
    def test_closure_and_parameters_without_gradient(self, make):
        w, idle = parameter(5), parameter(5)
        optimizer = make([w, idle])

        def closure():
            optimizer.zero_grad()
            loss = (w**2).sum()
            loss.backward()
            return loss

        first = optimizer.step(closure)
        assert optimizer.step(closure) < first
        assert torch.equal(idle, parameter(5))

    def test_nonnegative_least_squares(self):
        rng = np.random.default_rng(0)
        a = rng.standard_normal((40, 8))
        b = a @ np.maximum(rng.standard_normal(8), 0) + 0.3 * rng.standard_normal(40)
        solution, residual = nnls(a, b)
        best = residual**2
        assert (solution == 0).any()
        matrix, target = torch.tensor(a), torch.tensor(b)
        for make, lr in ((MultiplicativeUpdate, 0.005), (MultiplicativeAdam, 0.3), (ProjectedAdam, 0.05)):
            w = nn.Parameter(torch.full((8,), 0.5, dtype=torch.float64))
            optimizer = make([w], lr=lr)
            for _ in range(1500):
                optimizer.param_groups[0]["lr"] *= 0.996
                optimizer.zero_grad()
                loss = ((matrix @ w - target) ** 2).sum()
                loss.backward()
                optimizer.step()
            assert ((matrix @ w - target) ** 2).sum() <= 1.01 * best

    @every_rule
    def test_step_under_torch_compile(self, make):
        plain, traced = ([parameter(6, 5), parameter(3, seed=2)] for _ in range(2))
        reference, optimizer = make(plain), make(traced)
        compiled = torch.compile(optimizer.step, backend="aot_eager")
        for step in range(4):  # torch makes a symbol of a number that changes at the second call
            for params in (plain, traced):
                for p in params:
                    p.grad = gradients(p.shape, 1, seed=step)[0]
            reference.step()
            compiled()
        for p, q in zip(traced, plain, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)
        assert optimizer.state[traced[0]]["step"] == 4

    def test_step_compiled_for_real(self):
        plain, traced = ([parameter(6, 5), parameter(3, seed=2)] for _ in range(2))
        reference, optimizer = (MultiplicativeAdam(params, mix=0.04) for params in (plain, traced))
        compiled = torch.compile(optimizer.step)
        for step in range(4):
            for params in (plain, traced):
                for p in params:
                    p.grad = gradients(p.shape, 1, seed=step)[0]
            reference.step()
            compiled()
        for p, q in zip(traced, plain, strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)


class TestRefusals:
    @pytest.mark.parametrize("bad", [-1e-30, float("nan"), float("inf")])
    @every_rule
    def test_weights_that_are_not_nonnegative(self, make, bad):
        w = parameter(3)
        w.data[1] = bad
        with pytest.raises(ValueError, match=r"'layer.u' must be non-negative and finite"):
            make([("layer.u", w)])

    def test_a_bad_group_is_not_kept(self):
        optimizer = MultiplicativeUpdate([parameter(2)])
        with pytest.raises(ValueError, match="parameter 0 of group 1"):
            optimizer.add_param_group({"params": [nn.Parameter(-torch.ones(2))]})
        assert len(optimizer.param_groups) == 1

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    @every_rule
    def test_gradient_that_is_not_finite(self, make, bad):
        good, poor = parameter(4, seed=1), parameter(4, seed=2)
        optimizer = make([("good", good), ("poor", poor)])
        run(optimizer, [good, poor], gradients((4,), 2))
        weights = [good.detach().clone(), poor.detach().clone()]
        state = copy.deepcopy(optimizer.state_dict())
        good.grad, poor.grad = torch.ones(4), torch.tensor([1.0, bad, 1.0, -bad])
        with pytest.raises(FloatingPointError, match="gradient of parameter 'poor' is not finite"):
            optimizer.step()
        assert torch.equal(good, weights[0])
        assert torch.equal(poor, weights[1])
        after = optimizer.state_dict()
        for key, entry in state["state"].items():
            for name, value in entry.items():
                assert torch.equal(torch.as_tensor(after["state"][key][name]), torch.as_tensor(value))

    @pytest.mark.parametrize("size", [9, 30_000])  # added up together, and by itself
    @pytest.mark.parametrize("where", [0, -1])
    def test_gradient_that_is_not_finite_among_others(self, size, where):
        params = [parameter(size, seed=1), parameter(30_000, seed=2), parameter(3, seed=3)]
        before = [p.detach().clone() for p in params]
        grads = [torch.ones_like(p) for p in params]
        grads[0][where] = float("nan")
        with pytest.raises(FloatingPointError, match="gradient of parameter 0 of group 0"):
            MultiplicativeUpdate(params).apply_gradients(grads)
        assert all(torch.equal(p, old) for p, old in zip(params, before, strict=True))

    def test_gradients_that_are_handed_over(self):
        ours, theirs = ([parameter(4, seed=1), parameter(3, seed=2)] for _ in range(2))
        grads = gradients((4,), 1)
        MultiplicativeUpdate(ours).apply_gradients([*grads, None])
        theirs[0].grad = grads[0]
        MultiplicativeUpdate(theirs).step()
        assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))
        assert torch.equal(ours[1], parameter(3, seed=2))
        with pytest.raises(ValueError, match="grads must be one for each of 2 parameters, got 1"):
            MultiplicativeUpdate(ours).apply_gradients(grads)
        with pytest.raises(ValueError, match=r"grads\[1\] must have shape \(3,\), got \(4,\)"):
            MultiplicativeUpdate(ours).apply_gradients([*grads, *grads])

    def test_sum_of_gradients_may_overflow(self):
        w = parameter(4)
        run(MultiplicativeUpdate([w]), [w], [torch.full((4,), 3e38)])
        assert (w < parameter(4)).all()

    @every_rule
    def test_sparse_gradient(self, make):
        w = parameter(3)
        optimizer = make([("embedding", w)])
        w.grad = torch.ones(3).to_sparse()
        with pytest.raises(RuntimeError, match="does not take sparse gradients, and parameter 'embedding'"):
            optimizer.step()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"lr": -0.1}, "lr must be finite and >= 0, got -0.1"),
            ({"lr": float("nan")}, "lr must be finite"),
            ({"eps": 0.0}, "eps must be finite and > 0"),
            ({"eps": 1e-40}, r"eps must be at least 1.18e-38 for torch.float32 weights"),
        ],
    )
    def test_options(self, options, message):
        with pytest.raises(ValueError, match=message):
            MultiplicativeUpdate([parameter(2)], **options)

    def test_betas_and_integers(self):
        with pytest.raises(ValueError, match=r"betas must be two numbers in \[0, 1\)"):
            MultiplicativeAdam([parameter(2)], betas=(0.9, 1.0))
        with pytest.raises(TypeError, match="must be real floating point"):
            MultiplicativeUpdate([torch.ones(2, dtype=torch.int64)])

    def test_state_of_another_rule(self):
        saved = MultiplicativeUpdate([parameter(2)]).state_dict()
        with pytest.raises(
            ValueError, match="has rule 'multiplicative' where this optimizer has 'projection'"
        ):
            ProjectedAdam([parameter(2)]).load_state_dict(saved)
