"""The long form adds up what the attacks report, and passes only if something was tried and nothing got through."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import torture


def _pretend(monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], code: int = 0) -> list[dict[str, str]]:
    """Let every round of tests report these counts for one format; returns the environments they were given."""
    given: list[dict[str, str]] = []

    def run(command: list[str], env: dict[str, str], **_: Any) -> SimpleNamespace:
        given.append(env)
        line = {"name": "image, PNG", "counts": counts, "seconds": 0.1}
        Path(env["CAUNET_ATTACK_REPORT"]).write_text(json.dumps(line) + "\n")
        return SimpleNamespace(returncode=code, stdout="1 failed" if code else "1 passed")

    monkeypatch.setattr(torture.subprocess, "run", run)
    return given


def test_rounds_have_other_seeds_and_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given = _pretend(monkeypatch, {"accepted": 50, "refused": 150})
    (found,) = torture.attacks(seconds=60, cases=1000, seed=7)
    assert len(given) > 1
    assert sum(int(env["CAUNET_ATTACK_CASES"]) for env in given) == 1000
    assert len({env["CAUNET_ATTACK_SEED"] for env in given}) == len(given)
    assert (found["count"], found["failures"]) == (200 * len(given), 0)
    assert torture.passed([found])


def test_what_gets_through_is_counted_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, {"accepted": 198, "escaped": 1, "memory": 1}, code=1)
    found, failed = torture.attacks(seconds=60, cases=200, seed=0)
    assert (found["failures"], failed["note"]) == (2, "1 failed")
    assert not torture.passed([found, failed])
    assert not torture.passed([])


def test_the_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _pretend(monkeypatch, {"accepted": 200})
    monkeypatch.setattr(sys, "argv", ["torture", "--parts", "attacks", "--cases", "200", "--seed", "3"])
    assert torture.main() == 0
    said = capsys.readouterr().out
    assert "image, PNG" in said
    assert "seed 3: passed" in said
