"""What a worker does: everything from the bytes of a request to the JSON of its answer."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from caunet import tasks
from caunet.errors import CaunetError
from caunet.estimation.estimator import Estimator
from caunet.web import infer_route, pictures, registration, stack_route, volume_route
from caunet.web.inference import infer
from caunet.web.networks import TASKS, Networks
from caunet.web.patches import PATCH, gray_photograph, photograph
from caunet.web.worker import Handler

__all__ = ["setup"]


def setup(weights: str | None = None, warm: bool = False) -> Handler:
    """Load what the routes need; ``warm`` also computes once, because the first computation is far slower.

    Args:
        weights: a folder of ``MODEL-TASK.safetensors``; the networks that come with the package if not given.
    """
    torch.set_num_threads(1)  # two computations of one thread each end sooner than two that share both cores
    networks = Networks(None if weights is None else Path(weights))
    if warm:
        with contextlib.suppress(CaunetError):  # a request that needs it gets the error
            _warm(networks)

    routes: dict[str, Callable[[str, bytes], dict[str, Any]]] = {
        "infer": lambda kind, body: infer_route.answer(kind, body, networks),
        "estimate": registration.answer,
        "stack": stack_route.answer,
        "picture": pictures.answer,
        "volumes": volume_route.answer,
        "volumes/example": volume_route.example,
    }

    def handler(name: str, kind: str, body: bytes) -> dict[str, Any]:
        return routes[name](kind, body)

    return handler


def _warm(networks: Networks) -> None:
    patch = torch.from_numpy(gray_photograph("astronaut")[:PATCH, :PATCH].copy()) / 255
    for task in TASKS:
        infer(networks, tasks.get(task), patch, patch)
    image = photograph("astronaut")[:128, :128]
    Estimator()(image, image)
