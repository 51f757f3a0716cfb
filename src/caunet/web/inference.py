"""What the networks infer from a pair of patches, as the page shows it."""

import time
from typing import Any, TypeVar

import torch
from torch import Tensor

from caunet import geometry, refinement, tasks
from caunet.metrics import corner_error
from caunet.nn import UnitView
from caunet.web.certainty import certainty, explained
from caunet.web.networks import Network, Networks
from caunet.web.patches import PATCH
from caunet.web.units import preferences

__all__ = ["infer"]

_NOTHING: dict[str, Any] = {"responses": [], "winner": None, "order": [], "usual": []}
T = TypeVar("T", float, list[list[float]])


def infer(
    networks: Networks,
    task: tasks.Task,
    first: Tensor,
    second: Tensor,
    truth: Tensor | None = None,
    refine: bool = False,
) -> dict[str, Any]:
    """The answers of all networks there are for ``task``, and a look inside CAN.

    Args:
        first, second: patches (11, 11), values 0..1.
        truth: the z (dim,) that made the second of the first, if it is known.
        refine: also say what least squares on the two patches make of each answer.

    Returns:
        JSON data as documented in :mod:`caunet.web.schemas`.
    """
    started = time.perf_counter()
    known = networks.all_of(task.name)
    with torch.inference_mode():
        answers = {name: _ask(network, first, second) for name, network in known.items()}
        # A network whose numbers overflow has no answer.
        answers = {name: z for name, z in answers.items() if bool(z.isfinite().all())}
        inside = _inside(known["can"], task.name, first, second) if "can" in answers else _NOTHING
        seen = _compare(task, answers, truth)
        better = _refined(task, answers, first, second) if refine else {}
        at = _compare(task, better, truth)["networks"]
        for name, said in seen["networks"].items():
            said["refined"] = at.get(name)
        confidence = _confidence(task, first, second, answers)
    return {
        "task": task.name,
        "truth": None if truth is None else truth.tolist(),
        "first": _rows(first),
        "second": _rows(second),
        **seen,
        **inside,
        "confidence": confidence,
        "milliseconds": (time.perf_counter() - started) * 1000,
    }


def _ask(network: Network, first: Tensor, second: Tensor) -> Tensor:
    z: Tensor = network.model(first[None] - 0.5, second[None] - 0.5)[0].double()
    return z.flip(-1) if network.rows_first else z


def _refined(
    task: tasks.Task, answers: dict[str, Tensor], first: Tensor, second: Tensor
) -> dict[str, Tensor]:
    """What least squares make of all answers, together."""
    if not answers:
        return {}
    z = torch.stack(list(answers.values()))
    x, y = (patch.expand(len(z), -1, -1) for patch in (first, second))
    return dict(zip(answers, refinement.refine(x, y, z, task), strict=True))


def _compare(task: tasks.Task, answers: dict[str, Tensor], truth: Tensor | None) -> dict[str, Any]:
    """All answers and the truth as quadrilaterals, and how far they are apart.

    Corners are those of the first patch, mapped into the second: (x, y) in pixels from the center of its first pixel.
    """
    every = [*answers.values(), *([] if truth is None else [truth.double()])]
    if not every:
        return {"networks": {}, "truth_corners": None}
    H = task.homography(torch.stack(every))
    patch = geometry.corners((PATCH, PATCH), centered=True)
    corners = [_finite(c.tolist()) for c in geometry.apply(H, patch) + (PATCH - 1) / 2]
    errors: list[float | None] = [None] * len(every)
    if truth is not None:
        errors = [_finite(e) for e in corner_error(H, H[-1:].expand_as(H), PATCH).tolist()]
    rows = zip(answers.items(), corners, errors, strict=False)
    return {
        "networks": {name: {"z": z.tolist(), "corners": c, "error": e} for (name, z), c, e in rows},
        "truth_corners": None if truth is None else corners[-1],
    }


def _inside(network: Network, task: str, first: Tensor, second: Tensor) -> dict[str, Any]:
    """The competition of CAN's units, and the weights of the winner."""
    model = network.model
    responses = model.units(first[None] - 0.5, second[None] - 0.5)[0]
    index = int(responses.argmax())
    winner = {"index": index, **_compares(model.relation.view(index))}
    return {
        "responses": responses.double().round(decimals=6).tolist(),
        "winner": winner,
        **preferences(network, task),
    }


def _compares(view: UnitView | None) -> dict[str, Any]:
    """Which pixels a unit compares: W's sums over the other patch, and its rank-one terms, largest 1 each."""
    if view is None:
        return {"u": [], "v": [], "terms": []}
    terms = zip(view.terms_a, view.terms_b, strict=True)
    return {
        "u": _unit_rows(view.a),
        "v": _unit_rows(view.b),
        "terms": [{"u": _unit_rows(a), "v": _unit_rows(b)} for a, b in terms],
    }


def _confidence(task: tasks.Task, first: Tensor, second: Tensor, answers: dict[str, Tensor]) -> float:
    """Of CAN's answer; without CAN of the first other. Without any network nothing was inferred: 0."""
    if not answers:
        return 0.0
    z = answers.get("can", next(iter(answers.values())))
    return certainty(first, task) * explained(first, second, task.homography(z))


def _unit_rows(values: Tensor) -> list[list[float]]:
    return _rows((values / values.max().clamp(min=1e-12)).reshape(PATCH, PATCH))


def _rows(values: Tensor) -> list[list[float]]:
    return values.double().round(decimals=4).tolist()


def _finite(value: T) -> T | None:
    """Numbers that JSON has; a network may infer a transformation that sends a corner to infinity."""
    return value if bool(torch.tensor(value).isfinite().all()) else None
