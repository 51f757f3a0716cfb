"""Files of weights in the first format, rewritten in the present one: the same tensors, bit for bit, and a checksum."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from caunet import tensor_files
from caunet.errors import CheckpointError
from caunet.files import sha256, write_json
from caunet.models.features import built_in_name
from caunet.models.spec import ModelSpec
from caunet.models.weights import FORMAT, SPARSE_FORMAT, check_shapes, read_weights

__all__ = ["upgrade_weights"]


def upgrade_weights(path: Path) -> bool:
    """Rewrite the file ``path`` in the present format, and the hash in its card if one stands beside it.

    Returns whether there was anything to do. A file of neither format is refused.
    """
    data = read_weights(path)
    if tensor_files.format_of(data) in (FORMAT, SPARSE_FORMAT):
        return False
    tensors, spec = _read_first_format(data, path)
    check_shapes(path, spec, {name: t for name, t in tensors.items() if not name.startswith("features.")})
    card = path.with_suffix(".json")
    known = _card(card)
    if known is not None and known.get("sha256") != sha256(data):
        raise CheckpointError(f"{path} is not the file of its card {card}")
    tensor_files.write(path, tensors, {"spec": spec.to_json()}, FORMAT)
    if known is not None:
        written = path.read_bytes()
        write_json(card, {**known, "bytes": len(written), "sha256": sha256(written)})
    return True


def _read_first_format(data: bytes, path: Path) -> tuple[dict[str, Tensor], ModelSpec]:
    from safetensors.torch import load

    try:
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        if metadata["format"] != "caunet-weights-1":
            raise ValueError(f"its format is {metadata['format']!r}")
        spec = ModelSpec.from_json(_present_names(json.loads(metadata["spec"])))
        return {_present_tensor(name): tensor for name, tensor in load(data).items()}, spec
    except Exception as error:  # JSON's, safetensors' and the spec's own
        raise CheckpointError(f"{path} is not a file of weights that can be upgraded: {error}") from error


def _present_names(old: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a spec of the first format under the names and in the form they have now."""
    spec = dict(old)
    normalization = spec.pop("normalisation", "l2")
    spec["parametrization"] = spec.pop("parametrisation", "direct")
    if spec["relation"] == "bilinear":
        spec["competition"] = normalization
    elif spec["relation"] == "concatenation":
        spec["competition"] = "none"
        spec["rank"] = None
    if spec.pop("relative", False):
        spec["relation"] = "relative-contrast"
    if spec.get("features") is not None:
        spec["features"] = built_in_name(spec["features"])
    return spec


def _present_tensor(name: str) -> str:
    """theta_u of softplus and exp weights is kept by torch's own parametrizations now."""
    start, middle, weight = name.partition("relation.theta_")
    return f"relation.parametrizations.{weight}.original" if middle and not start else name


def _card(path: Path) -> dict[str, Any] | None:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) and "sha256" in known else None
