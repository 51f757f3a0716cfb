"""A network by any name: one that comes with the package, the directory of a run, or a file of weights."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch

from caunet.errors import CheckpointError
from caunet.models.network import RelationNetwork
from caunet.models.pretrained import card, list_pretrained, load_pretrained
from caunet.models.weights import load_weights
from caunet.registry import nearest

__all__ = ["Place", "find_network", "load_network"]


class Place(NamedTuple):
    """Where a network is, and what is known of it."""

    name: str | None
    """Its name, if it comes with the package."""
    path: Path | None
    """Its file, if it does not."""
    settings: dict[str, Any]
    """Of its run, or of its card; empty for a file alone."""


def find_network(network: str | os.PathLike[str]) -> Place:
    """Where ``network`` is: what exists as a path is taken as one, anything else as a name.

    >>> find_network("can-rotation").settings["task"]
    'rotation'
    >>> find_network("can-rotatoin")
    Traceback (most recent call last):
    ...
    caunet.errors.CheckpointError: there is no file, run or shipped network 'can-rotatoin' (did you mean ...'?)
    """
    path = Path(network)
    if path.is_dir():
        return Place(None, *_run(path))
    if path.exists():
        return Place(None, path, {})
    name = os.fspath(network)
    if name in list_pretrained():
        return Place(name, None, card(name))
    hint = nearest(name, list_pretrained())
    raise CheckpointError(f"there is no file, run or shipped network {name!r}{hint}")


def load_network(
    network: str | os.PathLike[str],
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> RelationNetwork:
    """The network of that name (:func:`list_pretrained`), of that run's directory, or in that file of weights.

    >>> load_network("can-rotation").spec["task"]
    'rotation'
    """
    place = find_network(network)
    if place.name is not None:
        return load_pretrained(place.name, device, dtype)
    assert place.path is not None
    return load_weights(place.path, device=device, dtype=dtype)


def _run(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The weights of a run, and its settings."""
    weights, settings = folder / "weights.safetensors", folder / "config.json"
    if not weights.exists():
        hint = (
            "the run is not finished; continue it with --resume"
            if settings.exists()
            else "it is no run directory"
        )
        raise CheckpointError(f"{folder} holds no weights.safetensors: {hint}")
    try:
        config = json.loads(settings.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return weights, {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {settings}: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{settings} is not a run's configuration")
    return weights, config
