"""Weights that come with the package, each with a card that says what it is and how accurate.

``weights/NAME.safetensors`` holds a network in half precision (loaded to float32), ``weights/NAME.json`` its card:
data, recipe, command, commit, errors in full and in half precision, size, SHA-256. Names are ``MODEL-TASK`` for the
paper's networks, and ``motion`` for the one that aligns images.
"""

from collections.abc import Mapping
from typing import Any

import torch

from caunet.models.network import RelationNetwork
from caunet.models.weights import network_from_bytes
from caunet.registry import nearest
from caunet.shipped import read_card, read_shipped, shipped_names
from caunet.tables import Table

__all__ = ["card", "cards_table", "list_pretrained", "load_pretrained"]

_MATCHER = "match"  # compares patches: not a RelationNetwork, loaded by caunet.matching


def list_pretrained() -> list[str]:
    """Names for :func:`load_pretrained`, in alphabetical order."""
    return [name for name in shipped_names() if name != _MATCHER]


def card(name: str) -> dict[str, Any]:
    """What is known of the shipped network ``name``: a JSON object."""
    _check(name)
    return read_card(name)


def load_pretrained(
    name: str, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> RelationNetwork:
    """The shipped network ``name``, in evaluation mode; float32 unless another ``dtype`` is given.

    Each call makes a new network, which may be changed or trained further. A file that is not the one of its card is
    refused: every shipped network is loaded here.
    """
    _check(name)
    return network_from_bytes(read_shipped(name), name).to(device=device, dtype=dtype or torch.float32)


def cards_table() -> str:
    """The shipped networks as a Markdown table."""
    heads = (
        "name",
        "network",
        "trained on",
        "updates",
        "parameters",
        "parameter error",
        "corner error (px)",
        "R² of each parameter",
        "refined: corner error (px)",
        "refined: R²",
        "size",
    )
    rows = []
    for name in list_pretrained():
        known = card(name)
        errors, refined = known["metrics"]["float32"], known["metrics"].get("refined", {})
        rows.append(
            [
                f"`{name}`",
                f"`{known['model']}`, {known['task']}",
                f"{known['data']}, `{known['protocol']}`",
                f"{known['updates']:,}",
                f"{known['parameters']:,}",
                f"{errors['parameter_error']:.4g}",
                f"{errors['corner_error']:.3g}",
                _explained(known["metrics"][known["precision"]]),
                f"{refined['corner_error']:.2g}" if refined else "–",
                _explained(refined),
                f"{known['bytes'] / 1e6:.1f} MB",
            ]
        )
    return Table(heads, "lllrrrrlrlr", rows).markdown()


def _explained(errors: Mapping[str, Any]) -> str:
    """R² of each parameter, in the order of z; what every card of the package has."""
    return (
        ", ".join(f"{round(one['r2'], 2) + 0:.2f}" for one in errors.get("per_parameter", {}).values()) or "–"
    )


def _check(name: str) -> None:
    names = list_pretrained()
    if name not in names:
        shipped = f"there are {', '.join(names)}" if names else "this package has none at all"
        raise ValueError(f"no weights named {name!r} are shipped; {shipped}{nearest(name, names)}")
