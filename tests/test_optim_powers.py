"""The written-out powers against float64, over the whole range they are used in."""

import numpy as np
import pytest
import torch

from caunet.optim.kernels import multiplicative_
from caunet.optim.powers import exp2_float32, limited_float32, log2_float32
from tests.oracles import updates


def test_log2():
    x = torch.logspace(-37, 38, 200_001, dtype=torch.float64).to(torch.float32)
    exact = np.log2(x.double().numpy())
    error = np.abs(log2_float32(x).double().numpy() - exact)
    # Half a unit in the last place of the result, and the polynomial's error.
    assert (error <= 2e-7 + 1.2e-7 * np.abs(exact)).all()
    assert log2_float32(torch.tensor([1.0, 0.5, 1024.0])).tolist() == [0.0, -1.0, 10.0]


def test_exp2():
    x = torch.linspace(-126, 127, 200_001)
    exact = np.exp2(x.double().numpy())
    np.testing.assert_allclose(exp2_float32(x).double().numpy(), exact, rtol=2.5e-7)
    assert exp2_float32(torch.tensor([0.0, -1.0, 10.0])).tolist() == [1.0, 0.5, 1024.0]
    far = exp2_float32(torch.tensor([1e9, 300.25, -300.25, -1e9]))
    assert far.tolist() == pytest.approx([2.0**127, 2.0**127.25, 2.0**-126.25, 2.0**-126])


def test_limits():
    """Against the same in floating point: every pair of sizes from nothing to infinity."""
    limits = torch.finfo(torch.float32)
    values = [0.0, 1e-45, 1e-39, limits.tiny, 1e-20, 1.0, 1e20, limits.max]
    weight, scaled = torch.cartesian_prod(torch.tensor(values), torch.tensor([*values, torch.inf])).T
    expected = torch.maximum(scaled.clamp(max=limits.max), weight.clamp(max=limits.tiny))
    assert torch.equal(limited_float32(scaled, weight), expected)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e30])
def test_a_traced_update_is_the_papers(size):
    generator = torch.Generator().manual_seed(0)
    weight = 1 - torch.rand(50, generator=generator)
    grad = torch.randn(50, generator=generator) * size
    grad[0] = 0.0
    expected = updates.multiplicative(weight.double().numpy(), grad.double().numpy(), 0.005, 1e-20)
    first = weight[0].item()
    traced = torch.compile(multiplicative_, backend="aot_eager", fullgraph=True)
    traced(weight, grad, lr=torch.tensor(0.005), eps=1e-20)
    np.testing.assert_allclose(weight.double().numpy(), expected, rtol=1e-6)
    assert weight[0].item() == first
