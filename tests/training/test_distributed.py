"""Several processes make the updates that one would make."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caunet.training.distributed import World
from caunet.training.records import read_metrics
from tests.training import small

ROOT = Path(__file__).parents[2]


def _torchrun(folder: Path, *arguments: str, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, f"--max-restarts={restarts}", "-m", "tests.training.small", str(folder), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def _losses(folder: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]


@given(batch=st.integers(1, 300), size=st.integers(1, 9))
@settings(deadline=None, max_examples=50)
def test_shares_cover_the_batch_once(batch: int, size: int) -> None:
    taken = [i for rank in range(size) for i in range(batch)[World(rank, size).share(batch)]]
    assert taken == list(range(batch))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    small.run(folder, updates=200, dtype="float64", checkpoint_every=20)
    return folder


def test_two_processes_learn_as_one(tmp_path: Path, alone: Path) -> None:
    done = _torchrun(tmp_path / "two", "200")
    assert done.returncode == 0, done.stderr
    one, two = _losses(alone), _losses(tmp_path / "two")
    assert len(one) == len(two) == 20
    assert two == pytest.approx(one, rel=1e-5)
    results = [json.loads((folder / "result.json").read_text()) for folder in (alone, tmp_path / "two")]
    assert results[1]["parameter_error"] == pytest.approx(results[0]["parameter_error"], rel=1e-4)


def test_a_killed_process_is_restarted_and_the_run_goes_on(tmp_path: Path, alone: Path) -> None:
    done = _torchrun(tmp_path / "killed", "200", "47", restarts=1)
    assert done.returncode == 0, done.stderr
    assert "Signal 9" in done.stderr or "exitcode: -9" in done.stderr or "SIGKILL" in done.stderr
    assert _losses(tmp_path / "killed") == pytest.approx(_losses(alone), rel=1e-5)
