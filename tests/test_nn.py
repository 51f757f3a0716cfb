"""The modules: the functions they stand for, their weights, and how they behave in a larger model."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from caunet import functional as F
from caunet.nn import (
    Bilinear,
    Concatenation,
    ContrastAssociation,
    Relation,
    RelativeContrast,
    Softmin,
    Window,
    WinnerTakeAll,
    reparametrize,
)

Units = type[Bilinear] | type[ContrastAssociation]
both = pytest.mark.parametrize("units", [Bilinear, ContrastAssociation, RelativeContrast])


def inputs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 5, generator=generator).to(dtype), torch.randn(3, 4, generator=generator).to(dtype)


class TestForward:
    def test_is_the_function(self) -> None:
        a, b = inputs()
        full, low = Bilinear(5, 4, 3), Bilinear(5, 4, 3, rank=2)
        assert torch.equal(full(a, b), F.bilinear(a, b, full.weight))
        assert torch.equal(low(a, b), F.bilinear_low_rank(a, b, low.u, low.v, 2))
        cau, thin = ContrastAssociation(5, 4, 3), ContrastAssociation(5, 4, 3, rank=2)
        assert torch.equal(cau(a, b), F.contrast_association(a, b, cau.weight))
        assert torch.equal(thin(a, b), F.contrast_association_low_rank(a, b, thin.u, thin.v, 2))
        relative, small = RelativeContrast(5, 4, 3), RelativeContrast(5, 4, 3, rank=2, floor=0.5)
        assert torch.equal(relative(a, b), F.relative_contrast(a, b, relative.weight, 1e-3))
        assert torch.equal(small(a, b), F.relative_contrast_low_rank(a, b, small.u, small.v, 2, 0.5))
        assert torch.equal(Concatenation(5, 4)(a, b), torch.cat((a, b), -1))
        assert torch.equal(Softmin(0.5)(a), F.softmin(a, 0.5))
        assert torch.equal(WinnerTakeAll()(a), F.winner_take_all(a))

    def test_learned_temperature(self) -> None:
        h = inputs()[0]
        softmin = Softmin(0.5, rate_factor=4.0)
        torch.testing.assert_close(softmin(h), F.softmin(h, 0.5))
        (by_theta,) = torch.autograd.grad(softmin(h)[0, 0], [*softmin.parameters()])
        # T = 0.5 exp(-4 theta), by central differences
        up, down = (F.softmin(h.double(), 0.5 * math.exp(-4 * t))[0, 0] for t in (1e-5, -1e-5))
        assert by_theta.item() == pytest.approx((up - down).item() / 2e-5, rel=1e-3)
        with torch.no_grad():
            softmin.theta.fill_(math.log(5) / 4)
        assert softmin.temperature == pytest.approx(0.1)
        torch.testing.assert_close(softmin(h), F.softmin(h, 0.1))
        assert not [*Softmin(0.5).parameters()]

    @pytest.mark.parametrize("rank", [None, 2])
    def test_rescaling_changes_no_response(self, rank: int | None) -> None:
        a, b = inputs(torch.float64)
        units = RelativeContrast(5, 4, 3, rank=rank, dtype=torch.float64)
        with torch.no_grad():
            for weight in units.parameters():
                weight.mul_(1e6)
        before = units(a, b)
        units.rescale_()
        torch.testing.assert_close(units(a, b), before, rtol=1e-12, atol=1e-12)
        whole = units.weight if rank is None else (units.u[:, :, None] * units.v[:, None]).view(3, 2, 5, 4)
        torch.testing.assert_close(whole.reshape(3, -1).sum(1), torch.full((3,), 20.0**0.5).double())

    def test_straight_through(self) -> None:
        """Forward exactly winner-take-all, backward exactly softmin."""
        h, to = inputs()[0].requires_grad_(), torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
        won = WinnerTakeAll(straight_through=True, temperature=0.7)(h)
        assert torch.equal(won, F.winner_take_all(h))
        (through,) = torch.autograd.grad(won, h, to)
        (soft,) = torch.autograd.grad(F.softmin(h, 0.7), h, to)
        assert torch.equal(through, soft)
        assert not WinnerTakeAll()(h).requires_grad

    def test_learns_in_a_model(self) -> None:
        """A plain Adam over everything: the gradients of units and decoder reach their weights."""
        generator = torch.Generator().manual_seed(0)
        a = torch.randn(64, 6, generator=generator)
        z = torch.randint(-1, 2, (64,), generator=generator)
        b = torch.stack([row.roll(int(shift)) for row, shift in zip(a, z, strict=True)])
        units, compete, decode = ContrastAssociation(6, 6, 8, rank=None), Softmin(), nn.Linear(8, 1)
        units.reset_parameters(generator)
        decoder_generator = torch.Generator().manual_seed(2)
        nn.init.uniform_(decode.weight, -0.3, 0.3, generator=decoder_generator)
        optimizer = torch.optim.Adam([*units.parameters(), *decode.parameters()], lr=0.05)
        losses = []
        for _ in range(60):
            loss = (decode(compete(units(a, b))).squeeze(-1) - z).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < 0.3 * losses[0]


class TestWeights:
    @both
    @pytest.mark.parametrize("rank", [None, 1, 3])
    def test_shapes_device_dtype(self, units: Units, rank: int | None) -> None:
        module = units(5, 4, 2, rank=rank, device="meta", dtype=torch.float64)
        shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        if rank is None:
            assert shapes == {"weight": (2, 5, 4)}
        else:
            assert shapes == {"u": (2 * rank, 5), "v": (2 * rank, 4)}
        assert {(p.dtype, p.device.type) for p in module.parameters()} == {(torch.float64, "meta")}

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("rank", [None, 4])
    def test_initialization_of_nonnegative(self, rank: int | None, dtype: torch.dtype) -> None:
        module = ContrastAssociation(20, 30, 50, rank=rank, dtype=dtype)
        module.reset_parameters(torch.Generator().manual_seed(0))
        for name, p in module.named_parameters():
            bound = 1 / math.sqrt({"weight": 600, "u": 20, "v": 30}[name])
            values = p.detach().double()
            assert values.min() > 0
            assert values.max() <= bound * (1 + 2**-8)
            # Uniform: mean and variance within five standard errors (and the rounding of the dtype).
            error = 5 * bound / math.sqrt(12 * p.numel()) + bound * 2**-8 * (dtype == torch.bfloat16)
            assert abs(values.mean() - bound / 2) < error
            assert values.std() == pytest.approx(bound / math.sqrt(12), rel=0.05)

    def test_initialization_of_free(self) -> None:
        module = Bilinear(20, 30, 50)
        module.reset_parameters(torch.Generator().manual_seed(0))
        p = module.weight.detach()
        bound = 1 / math.sqrt(600)
        assert -bound <= p.min() < -0.99 * bound
        assert 0.99 * bound < p.max() <= bound
        assert abs(p.mean()) < 5 * 2 * bound / math.sqrt(12 * p.numel())

    def test_never_zero(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever the generator gives, its ends included."""
        monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, **_: self.zero_())
        assert all((p == 1 / math.sqrt(4)).all() for p in ContrastAssociation(4, 4, 2, rank=1).parameters())
        monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, **_: self.fill_(1))  # rounded up
        assert all((p > 0).all() for p in ContrastAssociation(4, 4, 2, rank=1).parameters())

    @both
    def test_reset_follows_the_generator(self, units: Units) -> None:
        one, other = units(5, 4, 2, rank=3), units(5, 4, 2, rank=3)
        assert not torch.equal(one.u, other.u)
        for module in (one, other):
            module.reset_parameters(torch.Generator().manual_seed(7))
        assert torch.equal(one.u, other.u)
        assert torch.equal(one.v, other.v)
        state = torch.get_rng_state()
        one.reset_parameters(torch.Generator().manual_seed(7))
        assert torch.equal(torch.get_rng_state(), state)  # the global generator was left alone

    def test_nonnegative_parameters(self) -> None:
        cau = ContrastAssociation(5, 4, 2, rank=3)
        assert [id(p) for p in cau.nonnegative_parameters()] == [id(cau.u), id(cau.v)]
        full = ContrastAssociation(5, 4, 2)
        assert [id(p) for p in full.nonnegative_parameters()] == [id(full.weight)]
        assert not [
            *Bilinear(5, 4, 2).nonnegative_parameters(),
            *Concatenation(5, 4).nonnegative_parameters(),
        ]
        kept = Bilinear(5, 4, 2, nonnegative=True)
        assert [id(p) for p in kept.nonnegative_parameters()] == [id(kept.weight)]
        assert (kept.weight > 0).all()

    def test_reparametrised_weights_are_free(self) -> None:
        """exp(theta) is positive whatever theta is: no parameter is left that must stay non-negative."""

        class Exp(nn.Module):
            def forward(self, theta: torch.Tensor) -> torch.Tensor:
                return theta.exp()

            def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
                return weight.log()

        module = ContrastAssociation(5, 4, 2, rank=3)
        before = module(*inputs())
        parametrize.register_parametrization(module, "u", Exp())
        torch.testing.assert_close(module(*inputs()), before)
        assert [id(p) for p in module.nonnegative_parameters()] == [id(module.v)]

    @both
    @pytest.mark.parametrize("rank", [None, 2])
    def test_state_dict_and_copy(self, units: Units, rank: int | None) -> None:
        one, other = units(5, 4, 3, rank=rank), units(5, 4, 3, rank=rank)
        other.load_state_dict(one.state_dict())
        for module in (other, copy.deepcopy(one), one.to(torch.float32)):
            assert torch.equal(module(*inputs()), one(*inputs()))
        with pytest.raises(RuntimeError, match="size mismatch"):
            units(5, 4, 2, rank=rank).load_state_dict(one.state_dict())


def test_repr() -> None:
    assert repr(Concatenation(3, 4)) == "Concatenation(in_a=3, in_b=4)"
    assert repr(Bilinear(3, 4, 2)) == "Bilinear(in_a=3, in_b=4, units=2, rank=None)"
    assert repr(Bilinear(3, 4, 2, rank=1, nonnegative=True)).endswith("rank=1, nonnegative=True)")
    assert repr(ContrastAssociation(3, 4, 2, 5)) == "ContrastAssociation(in_a=3, in_b=4, units=2, rank=5)"
    assert repr(RelativeContrast(3, 4, 2)).endswith("units=2, rank=None, floor=0.001)")
    assert repr(Softmin()) == "Softmin(temperature=1.0)"
    assert repr(WinnerTakeAll()) == "WinnerTakeAll(straight_through=False)"
    assert repr(WinnerTakeAll(True, 0.5)) == "WinnerTakeAll(straight_through=True, temperature=0.5)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ContrastAssociation(0, 3, 2), "in_a must be at least 1, got 0"),
        (lambda: Bilinear(3, -1, 2), "in_b must be at least 1, got -1"),
        (lambda: Bilinear(3, 3, 0), "units must be at least 1, got 0"),
        (
            lambda: ContrastAssociation(3, 3, 2, rank=0),
            "rank must be at least 1, or None for full rank, got 0",
        ),
        (lambda: RelativeContrast(3, 3, 2, floor=-0.1), "floor must be at least 0, got -0.1"),
        (lambda: Softmin(rate_factor=-1.0), "rate_factor must be at least 0, got -1.0"),
        (lambda: Softmin(0.0), "initial_temperature must be positive, got 0.0"),
        (lambda: WinnerTakeAll(temperature=-1.0), "temperature must be positive, got -1.0"),
        (
            lambda: ContrastAssociation(3, 3, 2, rank=1)(torch.ones(4), torch.ones(3)),
            r"a must be \(..., 3\), got \(4,\)",
        ),
    ],
)
def test_bad_input_names_the_argument(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("rank", [None, 2])
def test_compiles_without_a_break(rank: int | None) -> None:
    torch.compiler.reset()
    units, compete = ContrastAssociation(5, 4, 3, rank=rank), WinnerTakeAll(straight_through=True)
    weights = list(units.parameters())

    def respond(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        h = units(a, b)
        return compete(h) + Softmin(0.5)(h)

    compiled = torch.compile(respond, fullgraph=True, backend="aot_eager")
    for function in (respond, compiled):
        out = function(*inputs())
        result = (out.detach(), *torch.autograd.grad(out.square().sum(), weights))
        if function is respond:
            eager = result
    torch.testing.assert_close(result, eager)


class TestHooks:
    """What a unit knows beyond its equation, against the matrices W themselves."""

    @pytest.mark.parametrize("units", [Bilinear, ContrastAssociation, RelativeContrast])
    @pytest.mark.parametrize("rank", [None, 2])
    def test_view_is_the_matrix(self, units: Units, rank: int | None) -> None:
        module = units(5, 4, 3, rank=rank)
        view = module.view(1)
        matrix = module.weight[1] if rank is None else module.u[2:4].T @ module.v[2:4]
        torch.testing.assert_close(view.matrix, matrix)
        torch.testing.assert_close((view.a, view.b), (matrix.sum(1), matrix.sum(0)))
        assert view.terms_a.shape == (rank or 0, 5)
        assert view.terms_b.shape == (rank or 0, 4)
        assert not view.matrix.requires_grad
        assert Concatenation(5, 4).view(0) is None

    @pytest.mark.parametrize("units", [Bilinear, ContrastAssociation, RelativeContrast])
    def test_prunable_is_what_goes_from_the_matrices(self, units: Units) -> None:
        """The size of a weight is what its removal takes from the sum of |u||v|^T (of a unit's share of it)."""
        module = units(5, 4, 3, rank=2, dtype=torch.float64)
        sizes = module.prunable()
        assert {name: size.shape for name, size in sizes.items()} == {"u": (6, 5), "v": (6, 4)}

        def mass() -> torch.Tensor:
            u, v = module.u.detach().abs(), module.v.detach().abs()
            return (u.sum(1) * v.sum(1)).view(3, 2).sum(1)

        before = mass()
        for name, row, column in (("u", 3, 2), ("v", 0, 1)):
            with torch.no_grad():
                weight = getattr(module, name)
                kept = weight[row, column].item()
                weight[row, column] = 0
                lost = (before - mass())[row // 2] / (before[row // 2] if units is RelativeContrast else 1)
                weight[row, column] = kept
            assert sizes[name][row, column].item() == pytest.approx(lost.item())
        full = units(5, 4, 3).prunable()["weight"]
        assert full.shape == (3, 5, 4)
        if units is RelativeContrast:
            torch.testing.assert_close(full.sum((1, 2)), torch.ones(3))
        assert not Concatenation(5, 4).prunable()
        assert not reparametrize(ContrastAssociation(5, 4, 3, rank=2), "exp").prunable()

    def test_balance_keeps_every_bit_and_brings_factors_together(self) -> None:
        a, b = inputs()
        module = ContrastAssociation(5, 4, 3, rank=2)
        before = module(a, b)
        with torch.no_grad():
            module.u.mul_(2.0**30)
            module.v.mul_(2.0**-30)
        module.balance_()
        assert torch.equal(module(a, b), before)
        assert module.u.max() < 10
        thetas = reparametrize(ContrastAssociation(5, 4, 3, rank=2), "softplus")
        before = thetas(a, b)
        thetas.balance_()
        assert torch.equal(thetas(a, b), before)

    @pytest.mark.parametrize("units", [Bilinear, ContrastAssociation, RelativeContrast])
    @pytest.mark.parametrize("rank", [None, 2])
    def test_slide_is_forward_of_the_patches(self, units: Units, rank: int | None) -> None:
        module = units(6, 6, 3, rank=rank, dtype=torch.float64)
        a, b = torch.rand(2, 1, 1, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        window = Window((2, 3), stride=2)
        h = module.slide(a, b, window)
        if h is None:
            assert rank is None or units is RelativeContrast
        else:
            torch.testing.assert_close(h, module(window.patches(a), window.patches(b)))

    def test_patches_of_a_window(self) -> None:
        image = torch.arange(60.0).reshape(1, 1, 3, 4, 5)
        window = Window((2, 2, 3), stride=1)
        found = window.patches(image).reshape(*window.positions((3, 4, 5)), 2, 2, 3)
        for z, y, x in ((0, 0, 0), (1, 2, 2), (0, 1, 2)):
            assert torch.equal(found[z, y, x], image[0, 0, z : z + 2, y : y + 2, x : x + 3])

    def test_a_unit_without_an_equation_says_so(self) -> None:
        with pytest.raises(NotImplementedError, match="Relation must define forward"):
            Relation(2, 2, 1)(torch.ones(2), torch.ones(2))
