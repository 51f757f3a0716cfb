"""Optimizers under FSDP2 and distributed checkpoints: two processes, on a CPU, do what one does."""

import multiprocessing
import socket
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from caunet.optim import HybridOptimizer

RULES: dict[str, dict[str, Any]] = {
    "multiplicative": {},
    "multiplicative-adam": {"rule": "multiplicative-adam", "mix": 0.04},
    "projection": {"rule": "projection", "adam_reset": True},
}
_SERVER = multiprocessing.get_context("forkserver")


class Gain(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((size,), 0.5))

    def nonnegative_parameters(self) -> Any:
        yield self.gain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), Gain(3), nn.Linear(3, 1))  # 3 and 1: unequal and empty shards


def _train(model: nn.Module, optimizer: HybridOptimizer, steps: range) -> None:
    for step in steps:
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
        optimizer.step()


def _expected(options: dict[str, Any], steps: int) -> list[torch.Tensor]:
    model = _network()
    _train(model, HybridOptimizer.for_model(model, **options), range(steps))
    return [p.detach() for p in model.parameters()]


def _join(rank: int, size: int, port: int, folder: Path, answers: "Queue[tuple[int, str]]") -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    try:
        for rule, options in RULES.items():
            _check_sharded(rule, options, size, folder)
        answers.put((rank, "good"))
    except BaseException as error:
        answers.put((rank, f"{type(error).__name__}: {error}"))
        raise
    finally:
        dist.destroy_process_group()


def _check_sharded(rule: str, options: dict[str, Any], size: int, folder: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))

    def make() -> tuple[nn.Module, HybridOptimizer]:
        model = _network()
        fully_shard(model, mesh=mesh)
        return model, HybridOptimizer.for_model(model, **options)

    model, optimizer = make()
    _train(model, optimizer, range(3))
    # Through a distributed checkpoint, into another optimizer, and on.
    state = {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
    }
    dcp.save(state, checkpoint_id=folder / rule)
    model, optimizer = make()
    state = {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
    }
    dcp.load(state, checkpoint_id=folder / rule)
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    _train(model, optimizer, range(3, 6))
    for p, q in zip(model.parameters(), _expected(options, 6), strict=True):
        torch.testing.assert_close(p.full_tensor(), q, rtol=1e-5, atol=1e-7)  # type: ignore[attr-defined]

    # A number that is not finite in the part of one process is seen by all.
    before = [p.full_tensor().clone() for p in model.parameters()]  # type: ignore[attr-defined]
    weight = model[0].weight  # type: ignore[index]
    if dist.get_rank() == 0:
        weight.grad.to_local()[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match=r"gradient of parameter '0.weight' is not finite"):
        optimizer.step()
    for p, q in zip(model.parameters(), before, strict=True):
        assert torch.equal(p.full_tensor(), q)  # type: ignore[attr-defined]


def test_sharded_parameters_learn_as_whole_ones(tmp_path: Path) -> None:
    size = 2
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers = _SERVER.Queue()
    processes = [
        _SERVER.Process(target=_join, args=(rank, size, port, tmp_path, answers)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        assert sorted(answers.get(timeout=120) for _ in processes) == [(rank, "good") for rank in range(size)]
        for process in processes:
            process.join(timeout=60)
    finally:
        for process in processes:
            process.kill()
