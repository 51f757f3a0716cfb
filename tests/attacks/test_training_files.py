"""Damaged files of a run: checkpoints are refused or unchanged, metrics are read as far as they go."""

import functools
import tempfile
from pathlib import Path

import torch

from caunet.errors import CheckpointError
from caunet.training import checkpoint
from caunet.training.checkpoint import Checkpoint
from caunet.training.metrics_log import read_metrics, scalars
from tests.attacks.harness import attack, cases, mutations

METRICS = b"".join(
    b'{"step": %d, "loss": 0.%d, "rates": [0.005, 0.00475], "seconds": 1.5}\n'
    b'{"step": %d, "test": {"parameter_error": 0.25, "transformation_error": 0.5, "corner_error": null}}\n'
    % (step, step, step)
    for step in range(100, 600, 100)
)


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp())


@functools.cache
def valid_checkpoint() -> bytes:
    """Equal content is equal bytes: every process makes the same."""
    weight = torch.arange(12.0).reshape(4, 3)
    group = {"params": [0], "lr": 0.005, "betas": [0.9, 0.999], "rule": "adam", "param_names": ["u"]}
    optimizer = {"state": {0: {"exp_avg": weight, "step": 7}}, "param_groups": [group]}
    state = Checkpoint(400, {"u": weight}, optimizer, {"task": "rotation"}, {"window": [0.1, 3.0]})
    return checkpoint.save(_folder() / "valid", state).read_bytes()


def load_checkpoint(content: bytes) -> None:
    """A checkpoint that loads must be the one that was saved."""
    path = _folder() / "step-000000400.safetensors"
    path.write_bytes(content)
    checkpoint.load(path)
    assert content == valid_checkpoint()


def load_metrics(content: bytes) -> None:
    """Whatever the file holds, what is read can be drawn and shown; all other lines are counted as damaged."""
    path = _folder() / "metrics.jsonl"
    path.write_bytes(content)
    damaged: list[int] = []
    lines = read_metrics(path, damaged)
    for line in lines:
        assert line["step"] >= 0
        if "loss" in line:
            float(line["loss"])
        if "test" in line:
            float(line["test"]["parameter_error"] or 0)
        if "rates" in line:
            list(scalars(line))
    assert len(lines) + len(damaged) in (content.count(b"\n"), content.count(b"\n") + 1)


def test_damaged_checkpoints() -> None:
    inputs = mutations(valid_checkpoint(), cases(300), seed=14)
    report = attack("checkpoint", load_checkpoint, inputs, allowed=(CheckpointError,)).check()
    assert report.counts["refused"] > 0.9 * sum(report.counts.values())


def test_damaged_metrics() -> None:
    inputs = mutations(METRICS, cases(200), seed=15)
    attack("metrics", load_metrics, inputs, allowed=()).check()
