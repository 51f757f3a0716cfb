"""Weights in files: safetensors with the network's spec, under a SHA-256 over every byte. Nothing is ever unpickled.

What a file claims is checked before anything is built from it: its hash, its spec, the shapes that the spec implies
against those in the file, then finiteness and signs. Whatever a file holds, loading it either gives the network that
was saved or raises :class:`caunet.errors.CheckpointError`.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from caunet import tensor_files
from caunet.errors import CheckpointError, FeaturesError
from caunet.models.features import BUILT_IN
from caunet.models.network import RelationNetwork, feature_count
from caunet.models.registry import build
from caunet.models.sparse_files import compress, expand
from caunet.models.spec import ModelSpec

__all__ = ["FORMAT", "check_shapes", "load_weights", "network_from_bytes", "read_weights", "save_weights"]

FORMAT = "caunet-weights-2"
# The same, with tensors that are mostly zeros stored by their other entries.
SPARSE_FORMAT = "caunet-weights-2-sparse"
_EARLIER = "caunet-weights-1"


def save_weights(model: RelationNetwork, path: str | os.PathLike[str]) -> None:
    """Write ``model``'s weights and spec to ``path`` (``*.safetensors``), whole or not at all.

    Equal networks give equal files. Weights that could not be loaded again (not finite, or negative where they must
    not be) raise :class:`caunet.errors.CheckpointError`. Of a pruned network, only non-zero weights are stored.

    >>> import pathlib, tempfile
    >>> from caunet.models import create_model
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "can.safetensors"
    >>> save_weights(create_model("can", "rotation", seed=0), path)
    >>> load_weights(path).spec["task"]
    'rotation'
    """
    if not isinstance(model, RelationNetwork):
        raise TypeError(f"model must be a RelationNetwork, got {type(model).__name__}")
    tensors = model.state_dict()
    _check_finite(path, tensors)
    _check_signs(path, model)
    try:
        stored, shapes = compress(tensors)
        if shapes:
            tensor_files.write(path, stored, {"spec": model.spec, "sparse": shapes}, SPARSE_FORMAT)
        else:
            tensor_files.write(path, tensors, {"spec": model.spec}, FORMAT)
    except OSError as error:
        raise CheckpointError(f"cannot write weights to {path}: {error.strerror or error}") from error


def load_weights(
    path: str | os.PathLike[str],
    *,
    features: nn.Module | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> RelationNetwork:
    """The network saved at ``path``, in evaluation mode and in the precision it was saved in.

    A custom f is code: pass a module of the same architecture as ``features``, and its weights are loaded.
    Raises :class:`caunet.errors.CheckpointError` for a file that is missing, damaged or someone else's.
    """
    return network_from_bytes(read_weights(path), path, features).to(device=device, dtype=dtype)


def read_weights(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file of weights, not yet checked."""
    try:
        return tensor_files.read_bytes(path)
    except FileNotFoundError:
        raise CheckpointError(f"no weights at {path}; train a network first, or check the path") from None
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        raise CheckpointError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def network_from_bytes(data: bytes, source: object, features: nn.Module | None = None) -> RelationNetwork:
    """The network whose file has the content ``data``, in evaluation mode; ``source`` names the file in messages."""
    found = tensor_files.format_of(data)
    if found == _EARLIER:
        raise CheckpointError(
            f"{source} has the format {found!r}, which carries no checksum; convert it with "
            f"`caunet weights upgrade {source}`"
        )
    tensors, meta = tensor_files.unpack(data, SPARSE_FORMAT if found == SPARSE_FORMAT else FORMAT, source)
    try:
        if found == SPARSE_FORMAT:
            tensors = expand(source, tensors, meta.get("sparse"))
        spec = _read_spec(source, meta)
        _check_features(source, spec, features)
        check_shapes(source, spec, tensors, features)
        _check_finite(source, tensors)
        model = build(spec, features, torch.Generator())
        floating = next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.float32)
        model = model.to(dtype=floating)
        model.load_state_dict(tensors)
        _check_signs(source, model)
        return model.eval()
    except CheckpointError:
        raise
    except Exception as error:  # a hostile spec can make torch raise nearly anything
        raise CheckpointError(f"{source} holds no network that can be built: {error}") from error


def check_shapes(
    source: object, spec: ModelSpec, tensors: Mapping[str, Tensor], features: nn.Module | None = None
) -> None:
    """Compare the tensors of a file with those of its spec, before anything of the spec's size is allocated."""
    with torch.device("meta"):
        skeleton = build(spec, generator=torch.Generator())
    expected: dict[str, Tensor] = dict(skeleton.state_dict())
    if features is not None:
        expected |= {f"features.{name}": value for name, value in features.state_dict().items()}
    wrong = sorted(
        name
        for name in expected.keys() | tensors.keys()
        if _form(expected.get(name)) != _form(tensors.get(name))
    )
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"{source} does not fit its own spec: {name} must be {_form(expected.get(name))}, "
            f"got {_form(tensors.get(name))} ({len(wrong)} such)"
        )


def _form(tensor: Tensor | None) -> str:
    """Shape and kind of a tensor; the precision of floating-point numbers is free."""
    if tensor is None:
        return "missing"
    kind = "float" if tensor.is_floating_point() else str(tensor.dtype).removeprefix("torch.")
    return f"{kind} {tuple(tensor.shape)}"


def _read_spec(source: object, meta: Mapping[str, Any]) -> ModelSpec:
    try:
        return ModelSpec.from_json(meta["spec"])
    except Exception as error:
        raise CheckpointError(
            f"{source} has a model spec that cannot be read: {error}; if it names units, a competition or features "
            "of your own, import what registers them first"
        ) from error


def _check_features(source: object, spec: ModelSpec, features: nn.Module | None) -> None:
    if spec.features is None and features is not None:
        raise FeaturesError(f"features must be None: the network in {source} works on pixels")
    if spec.features is not None and spec.features not in BUILT_IN and features is None:
        raise FeaturesError(f"features must be given: the network in {source} needs its {spec.features}")
    if features is not None and (size := feature_count(features, spec.patch_shape)) != spec.inputs:
        raise FeaturesError(f"features must make {spec.inputs} numbers of a patch for {source}, got {size}")


def _check_finite(source: object, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{source}: weights must be finite, got NaN or infinity in {name}")


def _check_signs(source: object, model: nn.Module) -> None:
    for name, module in model.named_modules():
        nonnegative = getattr(module, "nonnegative_parameters", None)
        least = min((float(w.detach().min()) for w in nonnegative()), default=0.0) if nonnegative else 0.0
        if least < 0:
            raise CheckpointError(f"{source}: weights of {name} must not be negative, got {least}")
