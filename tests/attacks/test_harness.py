"""The harness itself: it must notice what it is there to notice."""

import os
import time

from tests.attacks.harness import attack, cases, mutations


def misbehave(content: bytes) -> None:
    match content:
        case b"refuse":
            raise ValueError("no")
        case b"escape":
            raise KeyError("oh")
        case b"memory":
            bytearray(1 << 31)
        case b"hidden memory":
            try:
                bytearray(1 << 31)
            except MemoryError as error:
                raise ValueError("no") from error
        case b"time":
            time.sleep(60)
        case b"crash":
            os.abort()
        case b"print":
            os.write(1, b"noise")


def test_every_outcome_is_told_apart() -> None:
    kinds = ["fine", "refuse", "escape", "memory", "hidden memory", "time", "crash", "print", "fine"]
    found = attack(
        "harness", misbehave, [kind.encode() for kind in kinds], allowed=(ValueError,), seconds=1.0
    )
    assert found.counts == {
        "accepted": 3,
        "refused": 1,
        "escaped": 1,
        "memory": 2,
        "timeout": 1,
        "crashed": 1,
    }
    assert len(found.failures) == 5
    assert "KeyError" in found.failures[0]


def test_mutations_are_a_function_of_the_seed(monkeypatch) -> None:
    monkeypatch.delenv("CAUNET_ATTACK_SEED", raising=False)
    content = bytes(range(256)) * 4
    first, again, other = (list(mutations(content, 200, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert sum(data != content for data in first) > 190


def test_the_environment_gives_the_number_of_cases(monkeypatch) -> None:
    monkeypatch.delenv("CAUNET_ATTACK_CASES", raising=False)
    assert cases(7) == 7
    monkeypatch.setenv("CAUNET_ATTACK_CASES", "10000")
    assert cases(7) == 10_000
