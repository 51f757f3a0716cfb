"""Add a finished run to the networks that come with the package: half precision, measured, with a card."""

import copy
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from caunet.errors import CheckpointError
from caunet.files import sha256, write_json
from caunet.models.network import RelationNetwork
from caunet.models.weights import load_weights, save_weights
from caunet.shipped import weights_folder

__all__ = ["LOSS", "Measure", "Precision", "pack", "remeasure"]

LOSS = 0.01
"""How much of its accuracy a network may lose by rounding: 1 %."""

Precision = Literal["float16", "float32"]
Measure = Callable[[RelationNetwork], Mapping[str, Any]]
"""Errors of a network on its test pairs: ``parameter_error``, ``corner_error`` and more; ``count`` of the pairs."""

_SAME = 0.1  # share by which an error may come out otherwise on other test pairs: few pairs make much of it
_ERRORS = ("parameter_error", "transformation_error", "corner_error")


def pack(
    run_dir: Path,
    name: str,
    measure: Measure,
    *,
    command: str,
    precision: Precision = "float16",
    folder: Path | None = None,
    note: str = "",
) -> dict[str, Any]:
    """Write ``name.safetensors`` and ``name.json`` from a finished run; returns the card.

    Args:
        run_dir: holds config.json, result.json and weights.safetensors.
        name: what to call it.
        measure: how the network is measured, in full precision and as packed.
        command: the command that trains it.
        precision: what is stored. A network that loses more than 1 % by float16 is refused.
        folder: where to write; the package's own by default.
        note: a sentence for the card.
    """
    config, result = (_object(run_dir / file) for file in ("config.json", "result.json"))
    model = load_weights(run_dir / "weights.safetensors", dtype=torch.float32)
    model.relation.balance_()
    if not name or not all(c.isalnum() or c in "-_." for c in name):
        raise ValueError(f"name must be letters, digits and - _ . only, got {name!r}")
    dtype: torch.dtype = getattr(torch, precision)
    rounded = _rounded(model, dtype)
    metrics = {"float32": _errors(measure(model)), precision: _errors(measure(rounded))}
    _check_loss(name, metrics["float32"], metrics[precision], precision)
    path = (folder or weights_folder()) / f"{name}.safetensors"
    save_weights(rounded.to(dtype), path)
    content = path.read_bytes()
    card = {
        "name": name,
        "model": config["model"],
        "task": config["task"],
        "data": config["data"],
        "protocol": config["protocol"],
        "updates": config["updates"],
        "command": command,
        "commit": result.get("commit", "unknown"),
        "metrics": metrics,
        "parameters": model.parameter_count(),
        "nonzero": model.nonzero_count(),
        "multiply_adds": model.multiply_adds(sparse=True),
        "precision": precision,
        "bytes": len(content),
        "sha256": sha256(content),
        "seconds": result.get("seconds"),
        "environment": result.get("environment", {}),
        "config": config,
        **({"note": note} if note else {}),
    }
    write_json(path.with_suffix(".json"), card)
    return card


def remeasure(
    name: str, measure: Measure, folder: Path | None = None, refined: Measure | None = None
) -> dict[str, Any]:
    """Measure a packed network again and put what its card lacks into it; returns the card.

    ``refined`` measures the network with its answers refined (:func:`caunet.refined`), for a part of its own.

    Cards from before errors of each parameter were kept, and counts of weights that are not zero, get them. The errors
    that a card has must come out again, within what another draw of test pairs changes: else CheckpointError, and the
    card stays.
    """
    place = folder or weights_folder()
    card = _object(place / f"{name}.json")
    model = load_weights(place / f"{name}.safetensors", dtype=torch.float32)
    found, known = _errors(measure(model)), card["metrics"][card["precision"]]
    if not math.isclose(found["parameter_error"], known["parameter_error"], rel_tol=_SAME):
        raise CheckpointError(
            f"{name}: its card says parameter error {known['parameter_error']:.5g}, measured now "
            f"{found['parameter_error']:.5g}"
        )
    more = {"per_parameter": found["per_parameter"], "per_parameter_pairs": found["pairs"]}
    card["metrics"][card["precision"]] = known | more
    if refined is not None:
        card["metrics"]["refined"] = _errors(refined(model))
    card |= {"nonzero": model.nonzero_count(), "multiply_adds": model.multiply_adds(sparse=True)}
    write_json(place / f"{name}.json", card)
    return card


def _rounded(model: RelationNetwork, dtype: torch.dtype) -> RelationNetwork:
    """A copy with weights rounded to ``dtype``; CheckpointError if they are too large for it."""
    rounded = copy.deepcopy(model).to(dtype).to(torch.float32)
    if not all(bool(weight.isfinite().all()) for weight in rounded.parameters()):
        raise CheckpointError(f"weights are too large for {str(dtype).removeprefix('torch.')}; keep float32")
    return rounded


def _errors(found: Mapping[str, Any]) -> dict[str, Any]:
    """One number per error (the mean of corner errors) and how many pairs."""
    errors = {name: found[name] for name in _ERRORS}
    corner = errors["corner_error"]
    if isinstance(corner, Mapping):
        errors["corner_error"] = corner["mean"]
        errors["corner_error_median"] = corner["median"]
    if "per_parameter" in found:
        errors["per_parameter"] = {
            name: {"error": one["error"], "r2": one["r2"]} for name, one in found["per_parameter"].items()
        }
    return {**errors, "pairs": found["count"]}


def _check_loss(name: str, full: Mapping[str, Any], packed: Mapping[str, Any], precision: str) -> None:
    before, after = full["parameter_error"], packed["parameter_error"]
    if before is None or after is None or after > before * (1 + LOSS):
        raise CheckpointError(
            f"{name}: parameter error {before} becomes {after} in {precision}, "
            f"more than {LOSS:.0%} worse; pack it with --precision float32"
        )


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"no {path}; only a finished run can be packed") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value
