"""The optimizers as a product: guard, maximize, differentiable, GradScaler's skipped steps."""

import warnings

import pytest
import torch

from caunet.nn import ContrastAssociation
from caunet.optim import HybridOptimizer, MultiplicativeAdam, MultiplicativeUpdate, guard
from caunet.training.update import Update

MAKERS = [MultiplicativeUpdate, MultiplicativeAdam]


def units() -> ContrastAssociation:
    torch.manual_seed(0)
    return ContrastAssociation(5, 5, units=3, rank=2)


def learn(module: ContrastAssociation, optimizer: torch.optim.Optimizer, steps: int) -> None:
    x, y = torch.rand(2, 20, 5, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        optimizer.zero_grad()
        module(x, y).sum().backward()
        optimizer.step()


class TestGuard:
    def test_adam_is_reported_before_and_when_it_does_it(self) -> None:
        module = units()
        with guard(module), pytest.warns(RuntimeWarning) as told:
            learn(module, torch.optim.Adam(module.parameters(), lr=0.1), 10)
        texts = [str(one.message) for one in told]
        assert texts[0].startswith("Adam does not keep weights non-negative, and is about to change u, v")
        assert any("weights in u negative" in text for text in texts)
        assert len(texts) == 3  # once for the optimizer, once for u, once for v

    def test_it_may_be_an_error_before_anything_changes(self) -> None:
        module = units()
        before = module.u.detach().clone()
        with guard(module, action="raise"), pytest.raises(RuntimeError, match="is about to change"):
            learn(module, torch.optim.SGD(module.parameters(), lr=0.1), 1)
        assert torch.equal(module.u, before)

    def test_who_keeps_signs_is_left_alone(self) -> None:
        module = units()
        with warnings.catch_warnings(), guard(module):
            warnings.simplefilter("error")
            learn(module, HybridOptimizer.for_model(module), 5)
            learn(module, MultiplicativeUpdate(module.parameters()), 5)
            other = torch.nn.Linear(2, 2)
            torch.optim.Adam(other.parameters()).step()

    def test_it_ends(self) -> None:
        module = units()
        watching = guard(module)
        watching.remove()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            learn(module, torch.optim.Adam(module.parameters(), lr=0.1), 3)

    def test_wrong_arguments(self) -> None:
        with pytest.raises(ValueError, match="action must be 'warn' or 'raise', got 'shout'"):
            guard(units(), action="shout")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="and has none"):
            guard(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("make", MAKERS)
class TestOptions:
    def test_maximize_is_descent_on_the_negative(self, make: type) -> None:
        up, down = (torch.nn.Parameter(torch.tensor([0.5, 1.0, 2.0])) for _ in range(2))
        climbing, falling = make([up], maximize=True), make([down])
        for _ in range(5):
            for weight, optimizer, sign in ((up, climbing, 1), (down, falling, -1)):
                optimizer.zero_grad()
                (sign * (weight**2 * torch.tensor([1.0, -2.0, 0.5]))).sum().backward()
                optimizer.step()
        assert torch.equal(up, down)
        assert up[0] > 0.5

    def test_maximize_is_refused_by_the_compiled_update(self, make: type) -> None:
        module = units()
        with pytest.raises(ValueError, match="optimizer must minimize"):
            Update(module, make(module.parameters(), maximize=True))

    def test_differentiable_is_refused(self, make: type) -> None:
        with pytest.raises(ValueError, match="differentiable must be False"):
            make([torch.nn.Parameter(torch.ones(2))], differentiable=True)

    def test_steps_that_a_scaler_skips(self, make: type) -> None:
        weight, plain = (torch.nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
        optimizer, reference = make([weight]), make([plain])
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)

        def step(factor: float) -> None:
            optimizer.zero_grad()
            scaler.scale((factor * weight).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

        step(1e10)  # overflows: nothing is to change, and nothing to be raised
        assert weight.tolist() == [1.0, 2.0]
        assert scaler.get_scale() == 2.0**119
        assert not optimizer.state
        scaler.update(2.0)
        step(3.0)
        (3.0 * plain).sum().backward()
        reference.step()
        assert torch.equal(weight, plain)
