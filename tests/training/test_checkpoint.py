"""Checkpoints give back what they were given, and say so when they cannot."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from caunet.errors import CheckpointError
from caunet.training import checkpoint
from caunet.training.checkpoint import Checkpoint


def _state(step: int = 3) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    weight = torch.rand(4, 3, generator=generator)
    group = {
        "params": [0],
        "lr": torch.tensor(0.0042875),
        "betas": [0.9, 0.999],
        "rule": "adam",
        "name": None,
    }
    optimizer: dict[str, Any] = {
        "state": {0: {"mean": weight.t(), "step": 7}, 1: {}},
        "param_groups": [group],
    }
    return Checkpoint(
        step, {"u": weight, "u_again": weight}, optimizer, {"task": "rotation"}, {"window": [0.1, 3.0]}
    )


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    state = _state()
    loaded = checkpoint.load(checkpoint.save(tmp_path, state))
    assert loaded.step == 3
    assert loaded.config == state.config
    assert loaded.extra == state.extra
    assert torch.equal(loaded.model["u"], state.model["u"])
    assert torch.equal(loaded.model["u_again"], state.model["u"])
    assert torch.equal(loaded.optimizer["state"][0]["mean"], state.model["u"].t())
    assert loaded.optimizer["state"][0]["step"] == 7
    assert loaded.optimizer["state"][1] == {}
    assert loaded.optimizer["param_groups"][0]["lr"] == pytest.approx(0.0042875, rel=1e-7)


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 15, 120):
        checkpoint.save(tmp_path, _state(step))
    assert [path.name for path in checkpoint.find(tmp_path)] == [
        "step-000000120.safetensors",
        "step-000000015.safetensors",
    ]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_named(tmp_path: Path, share: float) -> None:
    path = checkpoint.save(tmp_path, _state())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CheckpointError, match=r"step-000000003\.safetensors is not a whole checkpoint"):
        checkpoint.load(path)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, _state())
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(CheckpointError, match="checksum"):
        checkpoint.load(path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "step-000000001.safetensors"
    save_file({"u": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match="not a caunet checkpoint"):
        checkpoint.load(path)
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        checkpoint.load(path)
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        checkpoint.load(tmp_path / "missing.safetensors")


def test_digest_sees_bits_types_and_names() -> None:
    base = {"w": torch.tensor([1.0, 2.0])}
    others = [
        {"w": torch.tensor([1.0, 2.0000002])},
        {"w": torch.tensor([1.0, 2.0], dtype=torch.float64)},
        {"w": torch.tensor([[1.0, 2.0]])},
        {"v": torch.tensor([1.0, 2.0])},
        {"w": torch.tensor([1.0, 2.0]), "x": torch.tensor(0)},
    ]
    digests = {json.dumps(checkpoint.tensor_digest(tensors)) for tensors in [base, *others]}
    assert len(digests) == 6
