"""The paper's equations against loops over scalars, their derivatives, and what they promise."""

import shutil
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from caunet import functional as F
from tests.oracles import units as oracle

# torch itself still scripts some of its own functions when forward AD or inductor are first used.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")

SHAPES = [  # batch, I, J, units, rank
    (3, 5, 5, 4, 2),
    (7, 4, 9, 6, 3),
    (2, 8, 3, 1, 1),
    (0, 5, 4, 3, 2),
    (1, 1, 1, 1, 4),
]


def draw(
    batch: int, i: int, j: int, units: int, rank: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """a, b, weight, u, v."""
    generator = torch.Generator().manual_seed(batch + 10 * i + 100 * j + 1000 * units)
    a = torch.randn(batch, i, generator=generator, dtype=torch.float64)
    b = torch.randn(batch, j, generator=generator, dtype=torch.float64)
    shapes = [(units, i, j), (units * rank, i), (units * rank, j)]
    return [t.to(dtype) for t in (a, b, *(torch.rand(s, generator=generator, dtype=a.dtype) for s in shapes))]


def matrix_form(a: Tensor, b: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Equation (15) to the letter."""
    return 0.5 * (v.sum(1) * (a**2 @ u.T) + u.sum(1) * (b**2 @ v.T)) - (a @ u.T) * (b @ v.T)


# The relations by name, each of (a, b, weights...), for the laws that hold for all of them.
RELATIONS: dict[str, tuple[Callable[..., Tensor], slice]] = {
    "concatenate": (F.concatenate, slice(0, 0)),
    "bilinear": (F.bilinear, slice(2, 3)),
    "bilinear_low_rank": (lambda a, b, u, v: F.bilinear_low_rank(a, b, u, v, 2), slice(3, 5)),
    "contrast": (F.contrast_association, slice(2, 3)),
    "contrast_rank_one": (F.contrast_association_low_rank, slice(3, 5)),
    "contrast_low_rank": (lambda a, b, u, v: F.contrast_association_low_rank(a, b, u, v, 2), slice(3, 5)),
    "relative": (lambda a, b, w: F.relative_contrast(a, b, w, 0.1), slice(2, 3)),
    "relative_low_rank": (lambda a, b, u, v: F.relative_contrast_low_rank(a, b, u, v, 2, 0.1), slice(3, 5)),
}
relations = pytest.mark.parametrize("name", RELATIONS)


def relation(name: str, tensors: list[Tensor]) -> tuple[Callable[..., Tensor], list[Tensor]]:
    function, weights = RELATIONS[name]
    return function, [*tensors[:2], *tensors[weights]]


class TestAgainstLoops:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_relations(self, shape: tuple[int, ...]) -> None:
        a, b, weight, u, v = draw(*shape)
        rank = shape[-1]
        na, nb, nw, nu, nv = (t.numpy() for t in (a, b, weight, u, v))
        low = oracle.weight_of_factors(nu, nv, rank)
        expected = {
            F.concatenate(a, b): oracle.concatenate(na, nb),
            F.bilinear(a, b, weight): oracle.bilinear(na, nb, nw),
            F.bilinear_low_rank(a, b, u, v, rank): oracle.bilinear(na, nb, low),
            F.contrast_association(a, b, weight): oracle.contrast_association(na, nb, nw),
            F.contrast_association_low_rank(a, b, u, v, rank): oracle.contrast_association(na, nb, low),
            F.relative_contrast(a, b, weight): oracle.relative_contrast(na, nb, nw, 1e-3),
            F.relative_contrast_low_rank(a, b, u, v, rank, 0.2): oracle.relative_contrast(na, nb, low, 0.2),
        }
        for ours, loops in expected.items():
            assert ours.shape == loops.shape
            np.testing.assert_allclose(ours.numpy(), loops, rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("shape", [(4, 6), (0, 6), (3, 1)])
    def test_competition_and_pooling(self, shape: tuple[int, int]) -> None:
        h = 3 * torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        close = {"rtol": 1e-12, "atol": 1e-12}
        np.testing.assert_allclose(F.softmin(h).numpy(), oracle.softmin(h.numpy()), **close)
        np.testing.assert_allclose(F.softmin(h, 0.3).numpy(), oracle.softmin(h.numpy(), 0.3), **close)
        np.testing.assert_array_equal(F.winner_take_all(h).numpy(), oracle.winner_take_all(h.numpy()))
        for size in (1, shape[1]):
            np.testing.assert_allclose(F.sum_pool(h, size).numpy(), oracle.sum_pool(h.numpy(), size), **close)

    @settings(deadline=None, max_examples=40)
    @given(st.lists(st.integers(-2, 2), min_size=1, max_size=8))
    def test_first_of_equal_minima_alone_wins(self, values: list[int]) -> None:
        won = F.winner_take_all(torch.tensor(values, dtype=torch.float32))
        assert won.sum() == 1
        assert won.argmax() == values.index(min(values))


class TestDerivatives:
    @relations
    def test_first_and_second(self, name: str) -> None:
        function, tensors = relation(name, draw(2, 3, 4, 2, 2))
        inputs = [t.requires_grad_() for t in tensors]
        assert gradcheck(function, inputs, check_forward_ad=True)
        assert gradgradcheck(function, inputs)

    @pytest.mark.parametrize(
        "function",
        [F.softmin, lambda h: F.softmin(h, 0.5), lambda h: F.sum_pool(h, 2)],
        ids=["1", "0.5", "pool"],
    )
    def test_competition_and_pooling(self, function: Callable[[Tensor], Tensor]) -> None:
        h = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
        assert gradcheck(function, h)
        assert gradgradcheck(function, h)

    def test_softmin_of_its_temperature(self) -> None:
        h = torch.tensor([0.2, 0.1, 0.9], dtype=torch.float64, requires_grad=True)
        temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        assert gradcheck(F.softmin, (h, temperature))
        assert gradgradcheck(F.softmin, (h, temperature))

    def test_winner_take_all_is_flat(self) -> None:
        h = torch.tensor([0.3, 0.1, 0.2], dtype=torch.float64, requires_grad=True)
        won = F.winner_take_all(h)
        assert not won.requires_grad
        for k in range(3):
            nudged = h.detach() + 1e-6 * torch.eye(3, dtype=h.dtype)[k]
            assert torch.equal(F.winner_take_all(nudged), won)

    def test_appendix_full_rank(self) -> None:
        a, b, weight, *_ = draw(1, 4, 6, 3, 1)
        a, b = a[0], b[0]
        by_a, by_b, by_w = torch.func.jacrev(F.contrast_association, (0, 1, 2))(a, b, weight)
        da, db, dw = oracle.contrast_gradients(a.numpy(), b.numpy(), weight.numpy())
        np.testing.assert_allclose(by_a, da, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(by_b, db, rtol=1e-12, atol=1e-12)
        for k, l in np.ndindex(3, 3):  # a unit depends on its own matrix alone
            np.testing.assert_allclose(by_w[k, l], dw if k == l else 0 * dw, rtol=1e-12, atol=1e-12)

    def test_appendix_rank_one(self) -> None:
        a, b, _, u, v = draw(1, 4, 6, 3, 1)
        a, b = a[0], b[0]
        by_u, by_v = torch.func.jacrev(F.contrast_association_low_rank, (2, 3))(a, b, u, v)
        du, dv = oracle.rank_one_gradients(a.numpy(), b.numpy(), u.numpy(), v.numpy())
        for k, l in np.ndindex(3, 3):
            np.testing.assert_allclose(by_u[k, l], du[k] if k == l else 0 * du[k], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(by_v[k, l], dv[k] if k == l else 0 * dv[k], rtol=1e-12, atol=1e-12)


class TestLaws:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_full_rank_equals_low_rank(self, shape: tuple[int, ...]) -> None:
        a, b, _, u, v = draw(*shape)
        rank = shape[-1]
        weight = torch.einsum("gri,grj->gij", u.unflatten(0, (-1, rank)), v.unflatten(0, (-1, rank)))
        for low, full in (
            (F.bilinear_low_rank, F.bilinear),
            (F.contrast_association_low_rank, F.contrast_association),
            (F.relative_contrast_low_rank, F.relative_contrast),
        ):
            torch.testing.assert_close(low(a, b, u, v, rank), full(a, b, weight), rtol=1e-12, atol=1e-12)

    def test_rank_is_pooling_of_the_matrix_form(self) -> None:
        a, b, _, u, v = draw(5, 6, 7, 4, 3)
        pooled = F.sum_pool(matrix_form(a, b, u, v), 3)
        torch.testing.assert_close(
            F.contrast_association_low_rank(a, b, u, v, 3), pooled, rtol=1e-12, atol=1e-12
        )

    @settings(deadline=None, max_examples=50)
    @given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 2, 4]))
    def test_nonnegative(self, seed: int, i: int, j: int, rank: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        a = torch.randn(4, i, generator=generator).exp()
        b = a[:, :1] + 1e-3 * torch.randn(4, j, generator=generator)
        u, v = (torch.rand(3 * rank, n, generator=generator) for n in (i, j))
        weight = torch.rand(3, i, j, generator=generator)
        assert (F.contrast_association(a, b, weight) >= 0).all()
        # The low-rank form subtracts; what is left of its rounding is small beside what was subtracted.
        low = F.contrast_association_low_rank(a, b, u, v, rank)
        size = rank * i * j * (a.amax(-1) - a.amin(-1) + 1e-2).square()
        assert (low >= -1e-6 * size[:, None]).all()

    @pytest.mark.parametrize("rank", [1, 4])
    def test_offset_in_float32(self, rank: int) -> None:
        generator = torch.Generator().manual_seed(3)
        a, b = (1e3 + 1e-2 * torch.randn(20, 121, generator=generator) for _ in range(2))
        u, v = (torch.rand(12, 121, generator=generator) for _ in range(2))
        exact = F.contrast_association_low_rank(*(t.double() for t in (a, b, u, v)), rank)
        ours = F.contrast_association_low_rank(a, b, u, v, rank)
        weight = torch.einsum("gri,grj->gij", u.unflatten(0, (-1, rank)), v.unflatten(0, (-1, rank)))
        literal = F.sum_pool(matrix_form(a, b, u, v), rank)

        def error(h: Tensor) -> float:
            return float(((h - exact) / exact).abs().max())

        assert error(ours) < 1e-3
        assert error(F.contrast_association(a, b, weight)) < 1e-3
        assert error(literal) > 1  # nothing is left of it

    @pytest.mark.parametrize("name", ["contrast", "contrast_low_rank"])
    def test_offset_changes_no_gradient(self, name: str) -> None:
        function, (a, b, *weights) = relation(name, draw(3, 5, 4, 2, 2))
        for weight in weights:
            weight.requires_grad_()
        here = torch.autograd.grad(function(a, b, *weights).sum(), weights)
        there = torch.autograd.grad(function(a + 100, b + 100, *weights).sum(), weights)
        for one, other in zip(here, there, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)

    @settings(deadline=None, max_examples=50)
    @given(st.integers(0, 2**31), st.floats(0.01, 100), st.floats(-100, 100), st.floats(0.01, 100))
    def test_relative_contrast_knows_neither_gain_nor_offset_nor_size(
        self, seed: int, gain: float, offset: float, size: float
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(4, n, generator=generator, dtype=torch.float64) for n in (5, 3))
        u, v = (torch.rand(6, n, generator=generator, dtype=torch.float64) for n in (5, 3))
        relative = F.relative_contrast_low_rank(a, b, u, v, 2, 0.0)
        assert (relative >= 0).all()
        assert (relative <= 2 + 1e-12).all()
        changed = F.relative_contrast_low_rank(
            gain * a + offset, gain * b + offset, size * u, v * size, 2, 0.0
        )
        torch.testing.assert_close(changed, relative, rtol=1e-6, atol=1e-8)

    def test_relative_contrast_of_equal_opposite_unrelated_and_blank(self) -> None:
        generator = torch.Generator().manual_seed(0)
        a, other = torch.randn(2, 500, generator=generator, dtype=torch.float64)
        a, other = a - a.mean(), other - other.mean()
        same = torch.eye(500, dtype=torch.float64)[None]
        assert F.relative_contrast(a, a, same, 0.0) == 0
        assert F.relative_contrast(a, -a, same, 0.0).item() == pytest.approx(2)
        assert F.relative_contrast(a, other, same, 0.0).item() == pytest.approx(1, abs=0.15)
        assert F.relative_contrast(0 * a, 0 * a, same) == 0

    def test_softmin_approaches_winner_take_all(self) -> None:
        h = torch.tensor([[0.3, 0.1, 0.2], [5.0, 7.0, 6.0]])
        torch.testing.assert_close(F.softmin(h, 1e-3), F.winner_take_all(h))

    def test_softmin_of_large_values_stays_finite(self) -> None:
        torch.testing.assert_close(F.softmin(torch.tensor([1e30, 2e30])), torch.tensor([1.0, 0.0]))


class TestSettings:
    @relations
    def test_leading_dimensions_broadcast(self, name: str) -> None:
        function, (a, b, *weights) = relation(name, draw(6, 5, 4, 2, 2))
        one_to_many = function(a[0], b.reshape(2, 3, 4), *weights)
        torch.testing.assert_close(one_to_many, function(a[:1].expand(6, 5), b, *weights).reshape(2, 3, -1))
        torch.testing.assert_close(function(a[0], b[0], *weights), one_to_many[0, 0])

    @relations
    def test_vmap(self, name: str) -> None:
        function, (a, b, *weights) = relation(name, draw(6, 5, 4, 2, 2))
        rows = torch.func.vmap(function, (0, 0, *(None for _ in weights)))(a, b, *weights)
        torch.testing.assert_close(rows, function(a, b, *weights))
        many = [torch.stack((w, 2 * w)) for w in weights]  # an ensemble of weights
        if many:
            stacked = torch.func.vmap(function, (None, None, *(0 for _ in many)))(a, b, *many)
            torch.testing.assert_close(stacked[0], rows)

    @relations
    def test_per_sample_gradients(self, name: str) -> None:
        function, (a, b, *weights) = relation(name, draw(3, 5, 4, 2, 2))
        gradient = torch.func.grad(lambda a, b: function(a, b, *weights).square().sum(), (0, 1))
        by_a, by_b = torch.func.vmap(gradient)(a, b)
        for n in range(3):
            torch.testing.assert_close((by_a[n], by_b[n]), gradient(a[n], b[n]))

    def test_competition_under_vmap(self) -> None:
        h = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
        for function in (F.softmin, F.winner_take_all, lambda h: F.sum_pool(h, 2)):
            torch.testing.assert_close(torch.func.vmap(function)(h), function(h))

    @relations
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-6), (torch.bfloat16, 2e-2)])
    def test_dtype(self, name: str, dtype: torch.dtype, tolerance: float) -> None:
        """docs/equations.md documents the tolerance: of the largest value, inputs of size 1."""
        function, tensors = relation(name, draw(8, 121, 121, 4, 2, dtype))
        exact = function(*(t.double() for t in tensors))
        ours = function(*tensors)
        assert ours.dtype == dtype
        assert float((ours.double() - exact).abs().max()) < tolerance * float(exact.abs().max())

    def test_non_contiguous(self) -> None:
        a, b, weight, u, v = draw(3, 5, 4, 2, 2)
        strided = [torch.stack((t, t), -1)[..., 0] for t in (a, b, u, v)]
        assert not strided[2].is_contiguous()
        torch.testing.assert_close(
            F.contrast_association_low_rank(*strided, 2), F.contrast_association_low_rank(a, b, u, v, 2)
        )
        other = weight.mT.contiguous().mT
        torch.testing.assert_close(F.contrast_association(a, b, other), F.contrast_association(a, b, weight))


def contrasts(a: Tensor, b: Tensor, weight: Tensor, u: Tensor, v: Tensor) -> Tensor:
    low = F.softmin(F.contrast_association_low_rank(a, b, u, v, 2), 0.5)
    low = low + F.relative_contrast_low_rank(a, b, u, v, 2)
    return low * (1 - F.winner_take_all(F.contrast_association(a, b, weight)))


def everything(a: Tensor, b: Tensor, weight: Tensor, u: Tensor, v: Tensor) -> Tensor:
    pair = (
        F.bilinear(a, b, weight) * F.bilinear_low_rank(a, b, u, v, 2) * F.contrast_association(a, b, weight)
    )
    return torch.cat((contrasts(a, b, weight, u, v), F.sum_pool(pair, 2), F.concatenate(a, b)), dim=-1)


# inductor writes C++, which takes its time: what the networks run on is enough for it.
@pytest.mark.parametrize(("backend", "network"), [("aot_eager", everything), ("inductor", contrasts)])
def test_compiles_without_a_break(backend: str, network: Callable[..., Tensor]) -> None:
    if backend == "inductor" and not shutil.which("c++"):
        pytest.skip("inductor needs a C++ compiler")
    torch.compiler.reset()
    compiled = torch.compile(network, fullgraph=True, backend=backend)
    results = []
    for function in (network, compiled):
        tensors = [t.requires_grad_() for t in draw(4, 5, 3, 2, 2)]
        out = function(*tensors)
        gradients = torch.autograd.grad(out.square().sum(), tensors, materialize_grads=True)
        results.append((out.detach(), *gradients))
    for eager, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-10, atol=1e-10)


class LiveBytes(TorchDispatchMode):
    """The greatest number of bytes alive at once in storages that were made under this mode."""

    def __init__(self, known: list[Tensor]) -> None:
        super().__init__()
        self.known = {t.untyped_storage().data_ptr() for t in known}
        self.alive: dict[int, tuple[object, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in self.known:
                storage = tensor.untyped_storage()
                reference = torch.multiprocessing.reductions.StorageWeakRef(storage)
                self.alive[storage.data_ptr()] = (reference, storage.nbytes())
        self.alive = {p: (r, n) for p, (r, n) in self.alive.items() if not r.expired()}  # type: ignore[attr-defined]
        self.peak = max(self.peak, sum(n for _, n in self.alive.values()))
        return out


@pytest.mark.parametrize("function", [F.contrast_association, F.bilinear])
def test_full_rank_adds_at_most_three_copies_of_its_weights(function: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(100, 121, generator=generator, requires_grad=True) for _ in range(2))
    weight = torch.rand(300, 121, 121, generator=generator, requires_grad=True)
    with LiveBytes([a, b, weight]) as live:
        function(a, b, weight).sum().backward()
    copy = weight.numel() * weight.element_size()
    assert weight.grad is not None
    assert copy < live.peak <= 3 * copy  # it saw at least the gradient itself


class TestBadInput:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (
                lambda: F.relative_contrast(torch.ones(3), torch.ones(3), torch.ones(1, 3, 3), -1.0),
                r"floor must be at least 0, got -1.0",
            ),
            (lambda: F.concatenate(torch.ones(2, 3), torch.ones(3, 3)), r"leading dimensions of a and b"),
            (lambda: F.concatenate(torch.tensor(1.0), torch.ones(3)), r"a and b need at least one dimension"),
            (
                lambda: F.bilinear(torch.ones(3), torch.ones(4), torch.ones(2, 4, 3)),
                r"weight must be \(K, 3, 4\)",
            ),
            (
                lambda: F.contrast_association(torch.ones(3), torch.ones(3), torch.ones(3, 3)),
                r"weight must be",
            ),
            (lambda: low_rank(u=torch.ones(4, 5)), r"u must be \(K, 3\).*\(4, 5\)"),
            (lambda: low_rank(v=torch.ones(4)), r"v must be \(K, 2\)"),
            (lambda: low_rank(v=torch.ones(5, 2)), r"u and v must have as many rows, got 4 and 5"),
            (
                lambda: low_rank(rank=3),
                r"rank must be a positive divisor of the rows of u and v \(4\), got 3",
            ),
            (lambda: low_rank(rank=0), r"rank must be a positive divisor"),
            (lambda: F.sum_pool(torch.ones(2, 5), 2), r"size must be a positive divisor .* h \(5\), got 2"),
            (lambda: F.winner_take_all(torch.ones(2, 0)), r"h must hold at least one unit"),
            (lambda: F.softmin(torch.tensor(1.0)), r"h must hold at least one unit"),
            (lambda: F.softmin(torch.ones(2), temperature=0.0), r"temperature must be positive, got 0.0"),
            (lambda: F.softmin(torch.ones(2), temperature=float("nan")), r"temperature must be positive"),
        ],
    )
    def test_names_the_argument(self, call: Callable[[], Tensor], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            call()


def low_rank(**wrong: object) -> Tensor:
    right = {"a": torch.ones(3), "b": torch.ones(2), "u": torch.ones(4, 3), "v": torch.ones(4, 2), "rank": 2}
    return F.contrast_association_low_rank(**{**right, **wrong})  # type: ignore[arg-type]
