"""Every private door of torch, closed: one warning, and the public way gives the same results."""

import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
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


@pytest.fixture
def anew() -> Iterator[None]:
    """The other doors are tried anew in the test, and after it."""
    doors = (
        torch_private._fused_adam,
        torch_private.foreach_works,
        torch_private.has_triton,
        torch_private._tracer,
        torch_private._inductor,
    )
    for door in doors:
        door.cache_clear()
    yield
    for door in doors:
        door.cache_clear()


def _gone(*_: Any, **__: Any) -> None:
    raise TypeError("got an unexpected keyword argument 'lr'")


def _wrong(params: list[torch.Tensor], *_: Any, **__: Any) -> None:
    params[0].add_(1)


def _warned(caught: list[warnings.WarningMessage], name: str) -> int:
    return sum(f"no usable {name}" in str(w.message) for w in caught)


@pytest.mark.parametrize("fault", [None, _gone, _wrong])
def test_adam_without_the_fused_kernel(monkeypatch: pytest.MonkeyPatch, fault: Any, anew: None) -> None:
    from caunet.optim import HybridOptimizer

    made = []
    for broken in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = HybridOptimizer.for_model(model)
        if broken:
            torch_private._fused_adam.cache_clear()
            if fault is None:
                monkeypatch.delattr(torch, "_fused_adam_")
            else:
                monkeypatch.setattr(torch, "_fused_adam_", fault)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                model.zero_grad()
                model(torch.ones(4, 3)).square().sum().backward()
                optimizer.step()
        assert _warned(caught, "torch._fused_adam_") == broken
        made.append(model)
    for p, q in zip(*(model.parameters() for model in made), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["_foreach_mul_", "_foreach_lerp_"])
@pytest.mark.parametrize("rule", ["MultiplicativeUpdate", "MultiplicativeAdam"])
def test_lists_without_the_operations_on_lists(
    monkeypatch: pytest.MonkeyPatch, name: str, rule: str, anew: None
) -> None:
    from caunet import optim

    made = []
    for broken in (False, True):
        params = [nn.Parameter(torch.full((3,), 0.5)), nn.Parameter(torch.ones(2))]
        optimizer = getattr(optim, rule)(params, foreach=True)
        if broken:
            torch_private.foreach_works.cache_clear()
            monkeypatch.delattr(torch, name)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                for p in params:
                    p.grad = torch.full_like(p, 0.25)
                optimizer.step()
        assert _warned(caught, "torch._foreach_") == broken
        made.append(params)
    for p, q in zip(*made, strict=True):
        assert torch.equal(p, q)


def test_triton_cannot_be_asked_for(monkeypatch: pytest.MonkeyPatch, anew: None) -> None:
    import torch.utils._triton

    monkeypatch.delattr(torch.utils._triton, "has_triton")
    with pytest.warns(RuntimeWarning, match=r"no usable torch\.utils\._triton"):
        assert not torch_private.has_triton()
    assert not torch_private.has_triton()


@pytest.mark.parametrize("door", ["make_fx", "torch._inductor.compile"])
def test_updates_without_the_private_compiler(monkeypatch: pytest.MonkeyPatch, door: str, anew: None) -> None:
    """torch.compile takes over (here with a backend that generates no C++, which takes long)."""
    import torch._dynamo.backends.common  # torch's own users of the door take hold of it before it breaks
    import torch._inductor
    from torch.fx.experimental import proxy_tensor

    from caunet.models import create_model
    from caunet.optim import HybridOptimizer
    from caunet.training import Update

    original, options = torch.compile, []

    def quick(function: Any, **given: Any) -> Any:
        options.append(given)
        return original(function, backend="aot_eager", fullgraph=True, dynamic=False)

    monkeypatch.setattr(torch, "compile", quick)
    if door == "make_fx":
        monkeypatch.setattr(proxy_tensor, "make_fx", _gone)
    else:
        monkeypatch.delattr(torch._inductor, "compile")
    models = [create_model("can", "rotation", 3, units=4, seed=0, dtype=torch.float64) for _ in "ab"]
    x, y = torch.rand(2, 5, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for model, compiled in zip(models, (True, False), strict=True):
            update = Update(model, HybridOptimizer.for_model(model), compile=compiled)
            for _ in range(3):
                update(x, y, x[:, :1, 0])
    assert sum(door in str(w.message) for w in caught) == 1
    assert len(options) == 1
    assert options[0]["options"]["cpp_wrapper"]
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)
