"""Damaged and hostile files of weights: each is refused as a CheckpointError, within bounds of time and memory."""

import json
import random
from collections.abc import Iterator
from typing import Any

import torch

from caunet import tensor_files
from caunet.errors import CheckpointError
from caunet.models import create_model
from caunet.models.weights import FORMAT, network_from_bytes
from tests.attacks.harness import attack, cases, mutations


def _whole() -> bytes:
    model = create_model("can", "rotation", 3, units=4, rank=2, hidden=(5,), relative=True, seed=0)
    return tensor_files.pack(model.state_dict(), {"spec": model.spec}, FORMAT)


WHOLE = _whole()


def load(content: bytes) -> None:
    """Loads what is whole, refuses what is not; a changed network must not get through."""
    network_from_bytes(content, "memory")
    assert content == WHOLE, "a damaged file was loaded"


def load_hostile(content: bytes) -> None:
    """A right hash and a spec of the attacker's choice: it may load if the spec fits the tensors, and no memory is
    taken that the file does not hold."""
    network_from_bytes(content, "memory")


def test_damaged_files() -> None:
    report = attack(
        "weights", load, mutations(WHOLE, cases(400), seed=3), allowed=(CheckpointError,), memory=1 << 28
    ).check()
    assert report.counts["refused"] > 0.9 * sum(report.counts.values())


def test_hostile_specs_under_a_right_hash() -> None:
    attack(
        "weights with a forged spec",
        load_hostile,
        _forged(cases(300)),
        allowed=(CheckpointError,),
        memory=1 << 28,
    ).check()


ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    10**6,
    10**9,
    10**18,
    10**400,
    0.5,
    -0.0,
    float("1e308"),
    "",
    "can",
    "bilinear",
    "softmax",
    "l2",
    "exp",
    [],
    [1] * 1000,
    [10**9, 10**9],
    {},
    {"floor": 1e9},
    {"device": "cpu"},
    {"units": 10**6},
    [[[[]]]],
    "\x00",
]


def _forged(count: int) -> Iterator[bytes]:
    """The same tensors with specs that make a loader allocate, recurse or stumble, or with other tensors."""
    tensors, meta = tensor_files.unpack(WHOLE, FORMAT, "memory")
    generator = random.Random(5)
    yield tensor_files.pack(tensors, {"spec": {**meta["spec"], "units": 10**6}}, FORMAT)
    deep: Any = []
    for _ in range(600):
        deep = [deep]
    yield tensor_files.pack(tensors, {"spec": deep}, FORMAT)
    yield tensor_files.pack({}, {}, FORMAT)
    for _ in range(count):
        spec, some = dict(meta["spec"]), dict(tensors)
        for _ in range(generator.choice((1, 1, 2, 3))):
            spec[generator.choice(list(spec))] = generator.choice(ODD)
        if generator.random() < 0.3:
            name = generator.choice(list(some))
            some[name] = generator.choice(
                [
                    some[name] * float("nan"),
                    -some[name] - 1,
                    some[name].long(),
                    some[name].to(torch.float8_e4m3fn),
                    some[name].flatten()[:1],
                ]
            )
        text = json.dumps(spec)
        yield tensor_files.pack(some, {"spec": json.loads(text)}, FORMAT)
