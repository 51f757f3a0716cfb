"""The networks that the server has: those that come with the package, or those in a folder."""

import functools
import json
from pathlib import Path
from typing import NamedTuple

import torch

from caunet import tasks
from caunet.data.protocols import rows_first
from caunet.errors import CheckpointError
from caunet.models import RelationNetwork, load_weights
from caunet.models.places import find_network, load_network
from caunet.models.pretrained import card, list_pretrained, load_pretrained
from caunet.web.patches import PATCH

__all__ = ["NETWORKS", "TASKS", "Network", "Networks"]

NETWORKS = ("ctn", "bln", "can")
TASKS = ("translation", "rotation", "scaling", "affine", "projective")


class Network(NamedTuple):
    """A network and the order of its z."""

    model: RelationNetwork
    rows_first: bool
    """Whether its translations are (rows, columns), as in the authors' release, instead of (x, y)."""


class Networks:
    """Networks by name and task, found and loaded on first use.

    ``available(task)`` lists the names for a task, ``get(name, task)`` is one of the networks.

    Args:
        folder: holds ``MODEL-TASK.safetensors``, or is the directory of a run; the package's own if not given. A
            run's network stands in the place of the package's for its task, beside the others.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder: Path | None = folder
        self.run: _Run | None = None
        if folder is not None and (folder / "weights.safetensors").exists():
            self.folder, self.run = None, _Run(folder)
        # Caches of the instance: those of a method would keep every instance alive.
        self.get = functools.cache(self._load)
        self.available = functools.cache(self._find)

    def _find(self, task: str) -> tuple[str, ...]:
        """Which of ctn, bln, can exist for ``task``."""
        if self.folder is None:
            names = set(list_pretrained())
        else:
            names = {path.stem for path in self.folder.glob("*.safetensors")}
        found = {name for name in NETWORKS if f"{name}-{task}" in names}
        if self.run is not None and self.run.task == task:
            found.add(self.run.name)
        return tuple(name for name in NETWORKS if name in found)

    def all_of(self, task: str) -> dict[str, Network]:
        """All networks for ``task``."""
        return {name: self.get(name, task) for name in self.available(task)}

    def _load(self, name: str, task: str) -> Network:
        full = f"{name}-{task}"
        if self.run is not None and (name, task) == (self.run.name, self.run.task):
            return self.run.network
        if self.folder is None:
            return Network(load_pretrained(full), rows_first(task, str(card(full).get("protocol"))))
        path = self.folder / f"{full}.safetensors"
        model = load_weights(path, dtype=torch.float32).eval()
        if model.model_spec.task != task or model.model_spec.dim != tasks.get(task).dim:
            raise CheckpointError(f"{path} was trained for {model.model_spec.task}, not for {task}")
        return Network(model, rows_first(task, str(_about(path.with_suffix(".json")).get("protocol"))))


class _Run:
    """The network of a finished run, shown as the one of the paper's three that it is a variant of."""

    def __init__(self, folder: Path) -> None:
        place = find_network(folder)
        model = load_network(folder, dtype=torch.float32)
        self.task = str(model.model_spec.task)
        self.name = str(model.model_spec.name).partition("-")[0]
        if self.name not in NETWORKS or self.task not in TASKS:
            raise CheckpointError(
                f"{folder} must hold a network of {', '.join(NETWORKS)} for one of {', '.join(TASKS)}, "
                f"got {model.model_spec.name} for {self.task}"
            )
        if model.model_spec.patch != PATCH:
            raise CheckpointError(
                f"{folder} must hold a network for patches of {PATCH}, got {model.model_spec.patch}"
            )
        self.network = Network(model.eval(), rows_first(self.task, str(place.settings.get("protocol"))))


def _about(path: Path) -> dict[str, object]:
    """What the file beside the weights says; nothing if there is none."""
    try:
        about = json.loads(path.read_bytes()) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(about, dict):
        raise CheckpointError(f"{path} must hold a JSON object")
    return about
