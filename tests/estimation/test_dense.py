"""A network slid over pictures must say at every position what it says of the two patches there."""

from typing import Any

import pytest
import torch
from torch import Tensor

from caunet.estimation import DenseRelations
from caunet.models import RelationNetwork, create_model

MADE: list[tuple[str, dict[str, Any]]] = [
    ("can", {}),
    ("can", {"rank": 1, "response_scale": 30.0}),
    ("can", {"rank": None, "units": 6}),
    ("can", {"target_scale": True, "competition": "winner-take-all"}),
    ("can", {"features": "standardise"}),
    ("can", {"contrast": 0.25}),
    ("can", {"relative": True, "temperature": 0.3, "learn_temperature": 4.0}),
    ("can-softplus", {}),
    ("bln", {"bias": False}),
    ("bln-softmax", {"response_scale": 3.0}),
    ("ctn", {"hidden": (30, 10), "target_scale": True}),
    ("ctn", {"hidden": (30, 10), "bias": False}),
]


def _network(name: str, options: dict[str, Any]) -> RelationNetwork:
    small = {} if name == "ctn" else {"units": 20, "hidden": (10,)}
    return create_model(name, "affine", 7, seed=3, **{**small, **options})


def _pictures(*shape: int) -> tuple[Tensor, Tensor]:
    a, b = torch.rand(2, *shape, generator=torch.Generator().manual_seed(5)) - 0.5
    return a, b


@pytest.mark.parametrize(("name", "options"), MADE, ids=lambda value: str(value))
@pytest.mark.parametrize("stride", [1, 3])
def test_equals_the_patch_network_everywhere(name: str, options: dict[str, Any], stride: int) -> None:
    model = _network(name, options)
    a, b = _pictures(2, 19, 24)
    with torch.no_grad():
        z = DenseRelations(model)(a, b, stride=stride)
        assert z.shape == (2, 4, (19 - 7) // stride + 1, (24 - 7) // stride + 1)
        for row in range(z.shape[2]):
            for column in range(z.shape[3]):
                y, x = row * stride, column * stride
                patches = (t[:, y : y + 7, x : x + 7] for t in (a, b))
                torch.testing.assert_close(z[:, :, row, column], model(*patches), atol=1e-5, rtol=1e-5)


def test_bands_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _network("can", {})
    a, b = _pictures(30, 25)
    with torch.no_grad():
        at_once = DenseRelations(model)(a, b, stride=2)
        monkeypatch.setattr("caunet.estimation.dense._CHUNK", 1)
        torch.testing.assert_close(DenseRelations(model)(a, b, stride=2), at_once, atol=1e-6, rtol=0)


def test_offsets_far_from_zero_do_not_cost_precision() -> None:
    model = _network("can", {})
    a, b = _pictures(12, 12)
    with torch.no_grad():
        near = DenseRelations(model)(a, b)
        torch.testing.assert_close(DenseRelations(model)(a + 50, b + 50), near, atol=1e-3, rtol=1e-3)


def test_is_differentiable() -> None:
    model = _network("can", {}).double()
    a, b = (t.double().requires_grad_() for t in _pictures(8, 9))
    assert torch.autograd.gradcheck(lambda x, y: DenseRelations(model)(x, y), (a, b))


def test_bad_input_is_named() -> None:
    dense = DenseRelations(_network("can", {}))
    with pytest.raises(ValueError, match="one shape"):
        dense(torch.zeros(9, 9), torch.zeros(9, 8))
    with pytest.raises(ValueError, match="at least 7 x 7"):
        dense(torch.zeros(6, 9), torch.zeros(6, 9))
    with pytest.raises(ValueError, match="stride takes"):
        dense(torch.zeros(9, 9), torch.zeros(9, 9), stride=0)
    with pytest.raises(TypeError, match="model takes a RelationNetwork"):
        DenseRelations(torch.nn.Identity())  # type: ignore[arg-type]
