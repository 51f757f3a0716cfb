"""The gradients written by hand: against loops, against the composition, and who gets which."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck

from caunet import functional as F
from caunet import low_rank
from tests.oracles import units as oracle
from tests.test_functional import SHAPES, draw

# torch itself still scripts some of its own functions when forward AD is first used.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.*:DeprecationWarning")


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [t.detach().clone().requires_grad_() for t in tensors]


def weighed(outputs: tuple[Tensor, ...], which: str) -> Tensor:
    """A number that depends on contrast (c), energy (e) and rows (r), whichever are wanted, unevenly."""
    parts = []
    for letter, y in zip("cer", outputs, strict=True):
        if letter in which:
            weight = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
            parts.append((weight * y * y).sum())
    return sum(parts)


@pytest.fixture
def custom(monkeypatch) -> list[int]:
    """Counts how often the custom gradients are used."""
    calls: list[int] = []
    original = low_rank._LowRankContrast.apply
    monkeypatch.setattr(low_rank._LowRankContrast, "apply", lambda *args: calls.append(1) or original(*args))
    return calls


class TestByHand:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_values_are_those_of_loops(self, shape, custom):
        a, b, _, u, v = draw(*shape)
        low = oracle.weight_of_factors(u.numpy(), v.numpy(), shape[-1])
        values = F.contrast_association_low_rank(a, b, u.requires_grad_(), v, shape[-1])
        relative = F.relative_contrast_low_rank(a, b, u, v, shape[-1], 0.2)
        assert len(custom) == 2
        close = {"rtol": 1e-12, "atol": 1e-12}
        expected = oracle.contrast_association(a.numpy(), b.numpy(), low)
        torch.testing.assert_close(values.detach(), torch.as_tensor(expected), **close)
        expected = oracle.relative_contrast(a.numpy(), b.numpy(), low, 0.2)
        torch.testing.assert_close(relative.detach(), torch.as_tensor(expected), **close)

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("constant", [True, False])
    @pytest.mark.parametrize("which", ["c", "e", "r", "ce", "cer"])
    def test_gradients_are_those_of_the_composition(self, shape, constant, which, custom):
        a, b, _, u, v = draw(*shape)
        ours, theirs = leaves(a, b, u, v), leaves(a, b, u, v)
        weighed(low_rank.contrast_and_energy(*ours, shape[-1], constant), which).backward()
        weighed(low_rank._composed(*theirs, shape[-1], constant), which).backward()
        assert custom
        for mine, other in zip(ours, theirs, strict=True):
            expected = torch.zeros_like(other) if other.grad is None else other.grad
            torch.testing.assert_close(mine.grad, expected, rtol=1e-11, atol=1e-12)

    @pytest.mark.parametrize("only", range(4))
    def test_for_one_input_alone(self, only):
        tensors = list(draw(3, 5, 4, 6, 2))
        del tensors[2]
        ours, theirs = ([t.clone() for t in tensors] for _ in range(2))
        for side, function in ((ours, low_rank.contrast_and_energy), (theirs, low_rank._composed)):
            side[only].requires_grad_()
            weighed(function(*side, 2, False), "ce").backward()
        torch.testing.assert_close(ours[only].grad, theirs[only].grad, rtol=1e-11, atol=1e-12)
        assert all(t.grad is None for i, t in enumerate(ours) if i != only)

    def test_batches_of_any_form_and_weights_that_lie_across(self):
        a, b, _, u, v = draw(6, 5, 4, 6, 2)
        flat = leaves(u, v)
        (expected := F.contrast_association_low_rank(a, b, *flat, 2)).square().sum().backward()
        across = leaves(u, v)
        turned = [t.t().contiguous().t() for t in across]
        assert not turned[0].is_contiguous()
        h = F.contrast_association_low_rank(a.reshape(2, 3, 5), b.reshape(2, 3, 4), *turned, 2)
        h.square().sum().backward()
        torch.testing.assert_close(h, expected.reshape(2, 3, 6))
        torch.testing.assert_close([t.grad for t in across], [t.grad for t in flat])
        single = F.contrast_association_low_rank(a[0], b[0], *leaves(u, v), 2)
        torch.testing.assert_close(single, expected[0])
        assert h.is_contiguous()  # as of any other layer: view() works

    def test_gradients_of_gradients(self, custom):
        a, b, _, u, v = draw(3, 5, 4, 2, 2)
        found = []
        for function in (low_rank.contrast_and_energy, low_rank._composed):
            tensors = leaves(a, b, u, v)
            first = torch.autograd.grad(
                weighed(function(*tensors, 2, False), "cer"), tensors, create_graph=True
            )
            found.append(torch.autograd.grad(sum(t.square().sum() for t in first), tensors))
        assert len(custom) == 1
        torch.testing.assert_close(*found, rtol=1e-11, atol=1e-12)

    def test_halves_stay_halves(self):
        a, b, _, u, v = draw(4, 7, 7, 3, 2, torch.bfloat16)
        tensors, exact = leaves(a, b, u, v), leaves(*(t.double() for t in (a, b, u, v)))
        F.contrast_association_low_rank(*tensors, 2).sum().backward()
        F.contrast_association_low_rank(*exact, 2).sum().backward()
        for mine, other in zip(tensors, exact, strict=True):
            assert mine.grad.dtype == torch.bfloat16
            torch.testing.assert_close(mine.grad.double(), other.grad, rtol=0.1, atol=0.3)

    def test_a_weight_changed_before_its_gradient_is_refused(self):
        a, b, _, u, v = draw(3, 5, 4, 2, 2)
        h = F.contrast_association_low_rank(a, b, u.requires_grad_(), v, 2)
        with torch.no_grad():
            u.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            h.sum().backward()


class TestWhoElse:
    """What a custom backward could not serve goes by the composition."""

    def tensors(self) -> list[Tensor]:
        a, b, _, u, v = draw(3, 5, 4, 2, 2)
        return leaves(a, b, u, v)

    def test_without_gradients(self, custom):
        with torch.no_grad():
            F.contrast_association_low_rank(*self.tensors(), 2)
        F.contrast_association_low_rank(*(t.detach() for t in self.tensors()), 2)
        assert not custom

    def test_broadcast_batches(self, custom):
        a, b, u, v = self.tensors()
        h = F.contrast_association_low_rank(a[0], b, u, v, 2)
        torch.testing.assert_close(h[1], F.contrast_association_low_rank(a[0], b[1], u, v, 2))
        assert len(custom) == 1  # the second, of one pair

    def test_functional_transforms(self, custom):
        a, b, u, v = (t.detach() for t in self.tensors())

        def total(u: Tensor) -> Tensor:
            return F.contrast_association_low_rank(a, b, u, v, 2).sum()

        expected = torch.autograd.grad(total(leaf := u.clone().requires_grad_()), leaf)[0]
        assert len(custom) == 1
        torch.testing.assert_close(torch.func.grad(total)(u), expected)
        torch.testing.assert_close(torch.func.jvp(total, (u,), (u,))[1], (expected * u).sum())
        assert len(custom) == 1

    def test_transforms_of_transforms(self, custom):
        """Second derivatives in every order of the modes, and gradients under vmap: of quadratics, so exact."""
        a, b, u, v = (t.detach() for t in self.tensors())

        def total(v: Tensor, u: Tensor = u) -> Tensor:
            return F.contrast_association_low_rank(a, b, u, v, 2).square().sum()

        expected = torch.autograd.functional.hessian(total, v)
        assert custom
        custom.clear()
        jacobians = (torch.func.jacfwd, torch.func.jacrev)
        for outer, inner in itertools.product(jacobians, jacobians):
            torch.testing.assert_close(outer(inner(total))(v), expected)
        several = torch.stack([u, 2 * u, 3 * u])
        each = torch.func.vmap(lambda u: torch.func.grad(total)(v, u))(several)
        for mine, u in zip(each, several, strict=True):
            torch.testing.assert_close(mine, torch.func.grad(total)(v, u))
        assert not custom

    def test_forward_mode(self, custom):
        a, b, u, v = self.tensors()
        assert gradcheck(
            lambda *t: F.contrast_association_low_rank(*t, 2),
            (a, b, u, v),
            check_forward_ad=True,
            check_backward_ad=False,
        )
        with forward_ad.dual_level():
            F.contrast_association_low_rank(a, b, forward_ad.make_dual(u, u.detach()), v, 2)
        assert custom  # only the undifferentiated calls of gradcheck

    def test_autocast(self, custom):
        a, b, u, v = (t.detach().float() for t in self.tensors())
        u.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            h = F.contrast_association_low_rank(a, b, u, v, 2)
        h.float().sum().backward()
        assert u.grad.dtype == torch.float32
        assert not custom

    def test_meta_tensors(self, custom):
        tensors = [t.detach().to("meta").requires_grad_() for t in self.tensors()]
        h = F.contrast_association_low_rank(*tensors, 2)
        h.sum().backward()
        assert (h.shape, h.is_meta) == ((3, 2), True)
        assert [t.grad.shape for t in tensors] == [t.shape for t in tensors]
        assert not custom

    @pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
    def test_traced(self, custom):
        a, b, u, v = (t.detach() for t in self.tensors())
        traced = torch.jit.trace(
            lambda u: F.contrast_association_low_rank(a, b, u, v, 2), (u.requires_grad_(),)
        )
        torch.testing.assert_close(traced(u), F.contrast_association_low_rank(a, b, u, v, 2))
        assert "_LowRankContrast" not in str(traced.graph)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pooled(size: int) -> None:
    h = torch.arange(24.0).reshape(2, 2, 6)
    expected = torch.stack([h[..., k : k + size].sum(-1) for k in range(0, 6, size)], -1)
    torch.testing.assert_close(low_rank.pooled(h, size), expected)
    assert low_rank.pooled(h[:0], size).shape == (0, 2, 6 // size)
