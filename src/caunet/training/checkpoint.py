"""Checkpoints: one file each with the weights, the optimizer's state, the step and the settings; whole or not there.

Tensors and JSON share one file, because two files cannot be renamed at once and a run killed between the two would be
left with halves of different steps. Its SHA-256 covers every byte (:mod:`caunet.tensor_files`): what was changed in
any way is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from caunet import tensor_files
from caunet.errors import CheckpointError

__all__ = ["Checkpoint", "find", "load", "save"]

_FORMAT = "caunet-checkpoint-2"
_NAME = re.compile(r"step-(\d{9})\.safetensors")
_KEEP = 2


@dataclass(frozen=True)
class Checkpoint:
    """A run's state after ``step`` updates.

    ``model`` is the network's ``state_dict``, ``optimizer`` the optimizer's, ``extra`` any JSON.
    """

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    config: dict[str, Any]
    extra: dict[str, Any]


def find(folder: Path) -> list[Path]:
    """The checkpoints in ``folder``, newest first."""
    found = [path for path in folder.glob("step-*.safetensors") if _NAME.fullmatch(path.name)]
    return sorted(found, reverse=True)


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` into ``folder`` and keep the last two; the previous ones survive any failure.

    Raises:
        OSError: it cannot be written, for want of space or permission.
    """
    path = folder / f"step-{checkpoint.step:09d}.safetensors"
    tensors = {f"model.{name}": value for name, value in checkpoint.model.items()}
    state, scalars = _split_state(checkpoint.optimizer["state"])
    meta = {
        "step": checkpoint.step,
        "config": checkpoint.config,
        "extra": checkpoint.extra,
        "optimizer": {
            "param_groups": _plain_groups(checkpoint.optimizer["param_groups"]),
            "scalars": scalars,
        },
    }
    tensor_files.write(path, tensors | state, meta, _FORMAT)
    for old in find(folder)[_KEEP:]:
        old.unlink(missing_ok=True)
    return path


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; anything but a whole one is a :class:`CheckpointError` that names the file."""
    try:
        data = tensor_files.read_bytes(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    tensors, meta = tensor_files.unpack(data, _FORMAT, path)
    try:
        checkpoint = _assemble(tensors, meta)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a checkpoint that this version can read ({error!r})") from error
    named = _NAME.fullmatch(path.name)
    if named and int(named[1]) != checkpoint.step:
        raise CheckpointError(f"{path} was renamed: it holds the state after {checkpoint.step} updates")
    return checkpoint


def _assemble(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Checkpoint:
    step, config, extra = meta["step"], meta["config"], meta["extra"]
    if type(step) is not int or step < 0 or not isinstance(config, dict) or not isinstance(extra, dict):
        raise ValueError("step, config and extra must be a whole number and two objects")
    return Checkpoint(
        step=step,
        model={name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")},
        optimizer=_join_state(tensors, meta["optimizer"]),
        config=config,
        extra=extra,
    )


def _plain_groups(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # Learning rates may live in 0-d tensors (so that a compiled step does not recompile); JSON wants numbers.
    return [
        {key: value.item() if isinstance(value, Tensor) else value for key, value in group.items()}
        for group in groups
    ]


def _split_state(state: Mapping[Any, Any]) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, dict[str, Any]] = {}
    for index, entries in state.items():
        scalars[str(index)] = {}
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            else:
                scalars[str(index)][name] = value
    return tensors, scalars


def _join_state(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> dict[str, Any]:
    groups = meta["param_groups"]
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ValueError("param_groups must be a list of objects")
    state: dict[int, dict[str, Any]] = {
        int(index): dict(entries) for index, entries in meta["scalars"].items()
    }
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            state[int(index)][name] = value
    return {"state": state, "param_groups": groups}
