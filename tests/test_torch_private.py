"""Every private door of torch, closed: one warning, and the public way gives the same results."""

import warnings
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import forward_ad

from caunet import functional, low_rank, torch_private
from tests.test_functional import draw

# What a torch without the door looks like from torch_private: torch itself needs its own private names.
LATER = SimpleNamespace(__version__="9.9", _C=SimpleNamespace())
DOORS = {
    "_are_functorch_transforms_active": ("torch", LATER, torch_private._transforms),
    "_current_level": ("forward_ad", SimpleNamespace(), torch_private._forward_mode),
}


@pytest.fixture(params=DOORS)
def closed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One door after the other is gone, as it may be in a later torch."""
    module, without, door = DOORS[request.param]
    door.cache_clear()
    monkeypatch.setattr(torch_private, module, without)
    yield request.param
    door.cache_clear()


def test_a_closed_door_is_one_warning_and_the_same_gradients(
    closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _, u, v = draw(3, 5, 4, 2, 2)
    used: list[int] = []
    original = low_rank._LowRankContrast.apply
    monkeypatch.setattr(low_rank._LowRankContrast, "apply", lambda *args: used.append(1) or original(*args))
    u.requires_grad_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [
            torch.autograd.grad(functional.contrast_association_low_rank(a, b, u, v, 2).sum(), u)[0]
            for _ in range(3)
        ]
    assert [str(w.message).split(" (")[0].split(".")[-1] for w in caught] == [closed]
    assert not used, "the composition is always right, so that is what must be used"
    whole = sum(u[k::2, :, None] * v[k::2, None] for k in range(2))
    (expected,) = torch.autograd.grad(functional.contrast_association(a, b, whole).sum(), u)
    for gradient in found:
        torch.testing.assert_close(gradient, expected)


def test_open_doors_know() -> None:
    assert not torch_private.transforms_active()
    assert not torch_private.forward_mode_active()
    seen: list[bool] = []
    torch.func.vmap(lambda x: seen.append(torch_private.transforms_active()) or x)(torch.ones(2))
    with forward_ad.dual_level():
        seen.append(torch_private.forward_mode_active())
    assert seen == [True, True]
