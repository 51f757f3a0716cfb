"""Weights in files: safetensors, with the network's spec as JSON beside them. Nothing is ever unpickled."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from caunet.errors import CheckpointError
from caunet.files import atomic_write
from caunet.models.features import BUILT_IN
from caunet.models.network import RelationNetwork, dry_run
from caunet.models.registry import build
from caunet.models.spec import ModelSpec

__all__ = ["load_weights", "save_weights"]

_FORMAT = "caunet-weights-1"


def save_weights(model: RelationNetwork, path: str | os.PathLike[str]) -> None:
    """Write ``model``'s weights and spec to ``path`` (``*.safetensors``), whole or not at all.

    >>> import pathlib, tempfile
    >>> from caunet.models import create_model
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "can.safetensors"
    >>> save_weights(create_model("can", "rotation", seed=0), path)
    >>> load_weights(path).spec["task"]
    'rotation'
    """
    from safetensors.torch import save_file

    if not isinstance(model, RelationNetwork):
        raise TypeError(f"model takes a RelationNetwork, got {type(model).__name__}")
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    metadata = {"format": _FORMAT, "spec": json.dumps(model.spec, sort_keys=True)}
    try:
        with atomic_write(path) as temporary:
            save_file(tensors, temporary, metadata=metadata)
    except OSError as error:
        raise CheckpointError(f"cannot write weights to {path}: {error.strerror or error}") from error


def load_weights(
    path: str | os.PathLike[str],
    *,
    features: nn.Module | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> RelationNetwork:
    """The network kept at ``path``, in evaluation mode and in the precision it was saved in.

    A custom f is code: hand over a module of the same make as ``features``, and its weights are loaded.
    Raises :class:`caunet.errors.CheckpointError` for a file that is missing, damaged or someone else's.
    """
    path = Path(path)
    metadata, tensors = _read(path)
    spec = _spec(path, metadata)
    _check_features(path, spec, features)
    model = build(spec, features, torch.Generator())
    floating = next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.float32)
    model = model.to(dtype=floating)
    _fill(path, model, tensors)
    return model.to(device=device, dtype=dtype).eval()


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(f"no weights at {path}; train a network first, or check the path") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged or not a safetensors file ({error}); copy it again or take an earlier one"
        ) from error
    return metadata, tensors


def _spec(path: Path, metadata: dict[str, str]) -> ModelSpec:
    if metadata.get("format") != _FORMAT:
        found = metadata.get("format", "no format")
        raise CheckpointError(f"{path} holds no caunet weights ({found!r} instead of {_FORMAT!r})")
    try:
        value: Any = json.loads(metadata["spec"])
        return ModelSpec.from_json(value)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} has a model spec this version cannot read: {error}") from error


def _check_features(path: Path, spec: ModelSpec, features: nn.Module | None) -> None:
    if spec.features is None and features is not None:
        raise ValueError(f"features: the network in {path} works on pixels, it takes none")
    if spec.features is not None and spec.features not in BUILT_IN and features is None:
        raise ValueError(f"features: the network in {path} needs its {spec.features}, pass features=...")
    if features is not None and (size := dry_run(features, spec.patch)) != spec.inputs:
        raise ValueError(f"features makes {size} numbers of a patch, {path} takes {spec.inputs}")


def _fill(path: Path, model: RelationNetwork, tensors: dict[str, Tensor]) -> None:
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    found = {name: tuple(t.shape) for name, t in tensors.items()}
    if expected != found:
        wrong = sorted(n for n in expected.keys() | found.keys() if expected.get(n) != found.get(n))
        name = wrong[0]
        raise CheckpointError(
            f"{path} does not fit its own spec: {name} is {found.get(name, 'missing')}, "
            f"expected {expected.get(name, 'nothing of that name')} ({len(wrong)} such)"
        )
    model.load_state_dict(tensors)
