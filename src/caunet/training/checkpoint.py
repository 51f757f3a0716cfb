"""Checkpoints: one safetensors file each, its JSON inside, whole or not there.

A checkpoint carries the weights, the optimizer's state and the step. Tensors and JSON share one file (the JSON
is safetensors' metadata), because two files cannot be renamed at once and a run killed between the two would be
left with halves of different steps. A SHA-256 over the tensors tells a flipped bit from a good file.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from caunet.errors import CheckpointError
from caunet.files import atomic_write, sha256

__all__ = ["Checkpoint", "find", "load", "save", "tensor_digest"]

_FORMAT = "caunet-checkpoint-1"
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
    """Write ``checkpoint`` into ``folder`` and keep the last two; the previous ones survive any failure."""
    path = folder / f"step-{checkpoint.step:09d}.safetensors"
    tensors = {f"model.{name}": _plain(value) for name, value in checkpoint.model.items()}
    state, scalars = _split_state(checkpoint.optimizer["state"])
    tensors.update(state)
    meta = {
        "step": checkpoint.step,
        "config": checkpoint.config,
        "extra": checkpoint.extra,
        "optimizer": {"param_groups": _jsonable(checkpoint.optimizer["param_groups"]), "scalars": scalars},
        "digest": tensor_digest(tensors),
    }
    with atomic_write(path) as temporary:
        save_file(tensors, temporary, metadata={"format": _FORMAT, "caunet": json.dumps(meta)})
    for old in find(folder)[_KEEP:]:
        old.unlink(missing_ok=True)
    return path


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; anything but a whole one of ours is a :class:`CheckpointError` that names the file."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a whole checkpoint ({error})") from error
    if metadata.get("format") != _FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but not a caunet checkpoint")
    meta = json.loads(metadata["caunet"])
    if tensor_digest(tensors) != meta["digest"]:
        raise CheckpointError(f"{path} is damaged: its tensors do not match their checksum")
    return Checkpoint(
        step=meta["step"],
        model={name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")},
        optimizer=_join_state(tensors, meta["optimizer"]),
        config=meta["config"],
        extra=meta["extra"],
    )


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bits of ``tensors``, whatever their order.

    >>> a = {"w": torch.ones(2), "b": torch.zeros(1)}
    >>> tensor_digest(a) == tensor_digest(dict(reversed(a.items())))
    True
    """
    parts = []
    for name in sorted(tensors):
        value = _plain(tensors[name]).cpu()
        head = f"{name} {value.dtype} {tuple(value.shape)} "
        parts.append(head + sha256(value.flatten().view(torch.uint8).numpy().data))
    return sha256("\n".join(parts).encode())


def _plain(value: Tensor) -> Tensor:
    # safetensors refuses views and tensors that share memory; a checkpoint is a copy anyway.
    return value.detach().contiguous().clone()


def _jsonable(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
                tensors[f"optimizer.{index}.{name}"] = _plain(value)
            else:
                scalars[str(index)][name] = value
    return tensors, scalars


def _join_state(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> dict[str, Any]:
    state: dict[int, dict[str, Any]] = {
        int(index): dict(entries) for index, entries in meta["scalars"].items()
    }
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            state[int(index)][name] = value
    return {"state": state, "param_groups": meta["param_groups"]}
