"""Checkpoints give back what they were given, and say so when they cannot."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from caunet import tensor_files
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


def test_equal_content_is_equal_bytes(tmp_path: Path) -> None:
    state = _state()
    turned = Checkpoint(
        state.step,
        dict(reversed(state.model.items())),
        dict(reversed(state.optimizer.items())),
        dict(reversed(state.config.items())),
        state.extra,
    )
    files = [checkpoint.save(tmp_path / name, s) for name, s in (("a", state), ("b", turned))]
    assert files[0].read_bytes() == files[1].read_bytes()
    again = checkpoint.save(tmp_path / "c", checkpoint.load(files[0]))
    assert again.read_bytes() == files[0].read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_named(tmp_path: Path, share: float) -> None:
    path = checkpoint.save(tmp_path, _state())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CheckpointError, match=r"step-000000003\.safetensors is damaged"):
        checkpoint.load(path)


def test_no_bit_can_be_flipped(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, _state())
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(bytes(damaged))
        with pytest.raises(CheckpointError, match=r"step-000000003\.safetensors"):
            checkpoint.load(path)


def test_an_edited_step_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, _state(400))
    other = tmp_path / "step-000000100.safetensors"
    edited = path.read_bytes().replace(rb"\"step\":400", rb"\"step\":100")
    assert edited != path.read_bytes()
    other.write_bytes(edited)
    with pytest.raises(CheckpointError, match="does not match its SHA-256"):
        checkpoint.load(other)
    path.rename(other)
    with pytest.raises(CheckpointError, match="was renamed: it holds the state after 400 updates"):
        checkpoint.load(other)


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"step": "3", "config": {}, "extra": {}, "optimizer": {"param_groups": [], "scalars": {}}},
        {"step": -3, "config": {}, "extra": {}, "optimizer": {"param_groups": [], "scalars": {}}},
        {"step": 3, "config": [], "extra": {}, "optimizer": {"param_groups": [], "scalars": {}}},
        {"step": 3, "config": {}, "extra": {}, "optimizer": {"param_groups": [3], "scalars": {}}},
        {"step": 3, "config": {}, "extra": {}, "optimizer": {"param_groups": [], "scalars": {"a": {}}}},
        {"step": 3, "config": {}, "extra": {}, "optimizer": {"param_groups": [], "scalars": []}},
        {"step": 3, "config": {}, "extra": {}, "optimizer": None},
    ],
)
def test_a_right_checksum_does_not_make_a_checkpoint(tmp_path: Path, meta: dict[str, Any]) -> None:
    path = tmp_path / "step-000000003.safetensors"
    tensor_files.write(path, {"optimizer.0.mean": torch.ones(2)}, meta, checkpoint._FORMAT)
    with pytest.raises(CheckpointError, match="not a checkpoint that this version can read"):
        checkpoint.load(path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "step-000000001.safetensors"
    save_file({"u": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match="must be of the format 'caunet-checkpoint-2', got None"):
        checkpoint.load(path)
    save_file({"u": torch.ones(2)}, path, metadata={"format": "caunet-checkpoint-1"})
    with pytest.raises(CheckpointError, match="got 'caunet-checkpoint-1'"):
        checkpoint.load(path)
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="damaged or not a safetensors file"):
        checkpoint.load(path)
    with pytest.raises(CheckpointError, match="cannot read"):
        checkpoint.load(tmp_path / "missing.safetensors")
