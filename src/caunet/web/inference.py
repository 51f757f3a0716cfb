"""What the networks make of a pair of patches, as the page shows it."""

import time
from typing import Any

import torch
from torch import Tensor

from caunet import geometry, tasks
from caunet.metrics import corner_error
from caunet.web.certainty import certainty, explained, patch_corners
from caunet.web.networks import Network, Networks

__all__ = ["infer"]


def infer(
    networks: Networks, task: tasks.Task, first: Tensor, second: Tensor, truth: Tensor | None = None
) -> dict[str, Any]:
    """The answers of all networks there are for ``task``, and a look inside CAN.

    Args:
        first, second: patches (11, 11), values 0..1.
        truth: the z (dim,) that made the second of the first, if it is known.

    Returns:
        JSON data as documented in :mod:`caunet.web.schemas`.
    """
    started = time.perf_counter()
    known = networks.all_of(task.name)
    with torch.inference_mode():
        answers = {name: _ask(network, first, second) for name, network in known.items()}
        inside = _inside(known["can"], first, second) if "can" in known else {"responses": [], "winner": None}
        confidence = _confidence(task, first, second, answers)
    return {
        "task": task.name,
        "truth": None if truth is None else truth.tolist(),
        "first": _rows(first),
        "second": _rows(second),
        "networks": {name: _describe(task, z, truth) for name, z in answers.items()},
        "truth_corners": None if truth is None else _corners(task, truth),
        **inside,
        "confidence": confidence,
        "milliseconds": (time.perf_counter() - started) * 1000,
    }


def _ask(network: Network, first: Tensor, second: Tensor) -> Tensor:
    z: Tensor = network.model(first[None] - 0.5, second[None] - 0.5)[0].double()
    return z.flip(-1) if network.rows_first else z


def _describe(task: tasks.Task, z: Tensor, truth: Tensor | None) -> dict[str, Any]:
    error = None
    if truth is not None:
        inferred, true = (task.homography(v.double())[None] for v in (z, truth))
        error = float(corner_error(inferred, true, 11))
    return {"z": z.tolist(), "corners": _corners(task, z), "error": _finite(error)}


def _corners(task: tasks.Task, z: Tensor) -> list[list[float]] | None:
    """Where the corners of the first patch lie in the second, (x, y) in pixels from its first pixel's centre."""
    corners = geometry.apply(task.homography(z.double()), patch_corners(11)) + 5.0
    return corners.tolist() if bool(corners.isfinite().all()) else None


def _inside(network: Network, first: Tensor, second: Tensor) -> dict[str, Any]:
    """The competition of CAN's units, and what its winner looks for."""
    model = network.model
    responses = model.units(first[None] - 0.5, second[None] - 0.5)[0]
    index = int(responses.argmax())
    winner = {"index": index, **_factors(model.relation, index)}
    return {"responses": [round(float(r), 6) for r in responses], "winner": winner}


def _factors(relation: Any, index: int) -> dict[str, Any]:
    """Which pixels the unit compares: W's sums over the other patch, and its rank-one terms, largest 1 each."""
    if relation.rank is None:
        weight = relation.weight[index]
        return {"u": _unit_rows(weight.sum(1)), "v": _unit_rows(weight.sum(0)), "terms": []}
    some = slice(index * relation.rank, (index + 1) * relation.rank)
    u, v = relation.u[some], relation.v[some]
    return {
        "u": _unit_rows((u * v.sum(1, keepdim=True)).sum(0)),
        "v": _unit_rows((v * u.sum(1, keepdim=True)).sum(0)),
        "terms": [{"u": _unit_rows(a), "v": _unit_rows(b)} for a, b in zip(u, v, strict=True)],
    }


def _confidence(task: tasks.Task, first: Tensor, second: Tensor, answers: dict[str, Tensor]) -> float:
    """Of CAN's answer; without CAN of the first other. Without any network nothing was inferred: 0."""
    if not answers:
        return 0.0
    z = answers.get("can", next(iter(answers.values())))
    return certainty(first, task) * explained(first, second, task.homography(z))


def _unit_rows(values: Tensor) -> list[list[float]]:
    return _rows((values / values.max().clamp(min=1e-12)).reshape(11, 11))


def _rows(values: Tensor) -> list[list[float]]:
    return [[round(v, 4) for v in row] for row in values.double().tolist()]


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < 1e9 else None
