"""The losses beside the paper's: what they measure, their gradients, and that they can be traced."""

import itertools
from typing import Literal

import numpy as np
import pytest
import torch

from caunet import tasks
from caunet.models import create_model
from caunet.optim import HybridOptimizer
from caunet.training import TrainConfig
from caunet.training.loop import Loss, make_loss
from caunet.training.update import Update

TASKS = ("translation", "rotation", "scaling", "affine", "projective", "rigid3", "affine3")


def made(task: str, loss: Literal["range", "corners"]) -> Loss:
    found = make_loss(tasks.get(task), TrainConfig(task=task, loss=loss, patch=7))
    assert callable(found)
    return found


def draws(task: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    first, second = (tasks.get(task).sample(5, generator, dtype=torch.float64) for _ in range(2))
    return first, second


@pytest.mark.parametrize("task", TASKS)
def test_corners_by_hand(task: str) -> None:
    """Every corner pixel of a 7 x 7 patch is 3 pixels from its center along each axis."""
    estimate, z = draws(task)
    squares = []
    for a, b in zip(*(tasks.get(task).homography(one).numpy() for one in (estimate, z)), strict=True):
        for corner in itertools.product((-3, 3), repeat=tasks.get(task).dimensions):
            there, wanted = (H @ np.array([*corner, 1.0]) for H in (a, b))
            squares.append(np.sum((there[:-1] / there[-1] - wanted[:-1] / wanted[-1]) ** 2))
    assert made(task, "corners")(estimate, z).item() == pytest.approx(np.mean(squares), rel=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_ranges_by_hand(task: str) -> None:
    estimate, z = draws(task)
    low, high = np.array(tasks.get(task).low), np.array(tasks.get(task).high)
    wanted = np.mean(((estimate - z).numpy() / ((high - low) / 2)) ** 2)
    assert made(task, "range")(estimate, z).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("loss", ["range", "corners"])
def test_gradients(loss: Literal["range", "corners"]) -> None:
    estimate, z = draws("projective")
    assert torch.autograd.gradcheck(lambda e: made("projective", loss)(e, z), estimate.requires_grad_())


@pytest.mark.parametrize("loss", ["range", "corners"])
def test_traced_equals_eager(loss: Literal["range", "corners"], monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []
    monkeypatch.setattr(
        "caunet.training.update._generate", lambda graph, *rest: graphs.append(graph) or graph
    )
    # In double precision: the multiplicative update makes a full step of a gradient that is nothing but rounding.
    models = [
        create_model("can", "projective", patch=7, units=8, hidden=(6,), seed=0).double() for _ in range(2)
    ]
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 20, 7, 7, generator=generator, dtype=torch.float64)
    z = tasks.get("projective").sample(20, generator, dtype=torch.float64)
    found = []
    for model, compiled in zip(models, (True, False), strict=True):
        update = Update(model, HybridOptimizer.for_model(model), made("projective", loss), compile=compiled)
        found.append(torch.stack([update(x, y, z) for _ in range(4)]))
    assert len(graphs) == 1
    torch.testing.assert_close(*found, rtol=1e-5, atol=0)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
