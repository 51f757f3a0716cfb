"""Files of weights that come with the package, each checked against its card: the one way to read them.

``weights/NAME.safetensors`` holds a network, ``weights/NAME.json`` its card, which states the SHA-256 of the file.
"""

import json
from pathlib import Path
from typing import Any

from caunet.errors import CheckpointError
from caunet.files import sha256

__all__ = ["read_card", "read_shipped", "shipped_names", "weights_folder"]


def weights_folder() -> Path:
    """Where the package keeps its weights."""
    return Path(__file__).parent / "weights"


def shipped_names() -> list[str]:
    """Names of all files that have a card, in alphabetical order."""
    found = weights_folder().glob("*.safetensors")
    return sorted(path.stem for path in found if path.with_suffix(".json").exists())


def read_card(name: str) -> dict[str, Any]:
    """The card of the shipped file ``name``: a JSON object."""
    path = weights_folder() / f"{name}.json"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; install caunet again") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a model card; install caunet again")
    return value


def read_shipped(name: str) -> bytes:
    """The bytes of the shipped file ``name``; CheckpointError if they are not those that its card states.

    >>> len(read_shipped("can-rotation")) == read_card("can-rotation")["bytes"]
    True
    """
    path = weights_folder() / f"{name}.safetensors"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror or error}; install caunet again"
        ) from error
    if (found := sha256(data)) != read_card(name).get("sha256"):
        raise CheckpointError(
            f"{path} is not the file of its card (SHA-256 {found[:12]}); install caunet again"
        )
    return data
