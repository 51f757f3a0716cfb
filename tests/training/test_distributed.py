"""Several processes make the updates that one would make, and fail together."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file

from caunet.cli import main
from caunet.errors import DataError
from caunet.training.distributed import World, _fresh
from caunet.training.metrics_log import read_metrics
from tests.training import small

ROOT = Path(__file__).parents[2]
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.training.small"])


def _torchrun(*command: str, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*launcher, f"--max-restarts={restarts}", "-m", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def _losses(folder: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]


@given(batch=st.integers(1, 60), size=st.integers(1, 9))
@settings(deadline=None, max_examples=30)
def test_shares_cover_the_batch_once(batch: int, size: int) -> None:
    source, _ = small.sources(small.config())
    if batch < size:
        with pytest.raises(ValueError, match="rank must satisfy 0 <= rank < world <= batch"):
            next(source.stream(0, 1, batch, world=size))
        return
    whole = next(source.stream(0, 1, batch))
    shares = [next(source.stream(0, 1, batch, rank=rank, world=size)) for rank in range(size)]
    assert max(len(share.z) for share in shares) - min(len(share.z) for share in shares) <= 1
    for name in ("x", "y", "z"):
        assert torch.equal(torch.cat([getattr(share, name) for share in shares]), getattr(whole, name))


def test_alone_a_failure_is_what_it_was() -> None:
    with pytest.raises(DataError, match="gone"), World().all_or_none():
        raise DataError("gone")
    with pytest.raises(ZeroDivisionError):
        World().on_rank0(lambda: 1 // 0)


def test_what_a_former_life_left_in_the_store_is_not_found() -> None:
    """torchrun keeps its store when it restarts: addresses of dead processes are in it, under the same keys."""
    store, found = dist.HashStore(), {}  # type: ignore[attr-defined]

    def live(rank: int, life: str) -> None:
        mine = _fresh(store, rank, 3)
        mine.set(f"address/{rank}", f"{life}/{rank}")
        found[life, rank] = [mine.get(f"address/{other}").decode() for other in range(3)]

    store.set("caunet/name/2", "somebody who died before he was met")
    for life in ("first", "second"):
        threads = [threading.Thread(target=live, args=(rank, life)) for rank in range(3)]
        threads[0].start()
        threads[0].join(0.3)  # whoever leads looks for the others before they are there
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(found[life, rank] == [f"{life}/{other}" for other in range(3)] for rank in range(3))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    small.run(folder, updates=200, dtype="float64", checkpoint_every=20)
    return folder


def test_two_processes_learn_as_one(tmp_path: Path, alone: Path) -> None:
    assert small.run_two(tmp_path / "two") == [("finished", "200")] * 2
    one, two = _losses(alone), _losses(tmp_path / "two")
    assert len(one) == len(two) == 20
    assert two == pytest.approx(one, rel=1e-5)
    results = [json.loads((folder / "result.json").read_text()) for folder in (alone, tmp_path / "two")]
    assert results[1]["parameter_error"] == pytest.approx(results[0]["parameter_error"], rel=1e-4)


@pytest.mark.parametrize("shards", [2, 4])
def test_in_ordered_parts_two_processes_give_the_bits_of_one(tmp_path: Path, shards: int) -> None:
    changes = {"shards": shards, "updates": 200, "dtype": "float32"}
    assert small.run_two(tmp_path / "two", **changes) == [("finished", "200")] * 2
    small.run(tmp_path / "one", **changes)
    assert _losses(tmp_path / "two") == _losses(tmp_path / "one")
    one, two = (load_file(tmp_path / name / "weights.safetensors") for name in ("one", "two"))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_ordered_parts_are_the_same_gradient(tmp_path: Path, alone: Path) -> None:
    small.run(tmp_path / "run", updates=200, dtype="float64", checkpoint_every=20, shards=5)
    assert _losses(tmp_path / "run") == pytest.approx(_losses(alone), rel=1e-5)


def test_parts_must_divide(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shards must be a divisor of batch \(20\), got 3"):
        small.config(shards=3)
    ends = small.run_two(tmp_path / "run", shards=5)
    assert ends[0] == ("ValueError", "shards must be a multiple of the number of processes (2), got 5")


def test_a_killed_process_is_restarted_and_the_run_goes_on(tmp_path: Path, alone: Path) -> None:
    done = _torchrun("tests.training.small", str(tmp_path / "killed"), "200", "47", restarts=1)
    assert done.returncode == 0, done.stderr
    assert "exitcode: -9" in done.stderr
    assert _losses(tmp_path / "killed") == pytest.approx(_losses(alone), rel=1e-5)


@pytest.mark.parametrize(
    ("fault", "speaks", "says"),
    [
        ("checkpoint", 0, "cannot save a checkpoint in .*: No space left on device"),
        ("metrics", 0, "cannot write metrics to .*: No space left on device"),
        ("images", 1, "process 1 of 2: no such images"),
        ("batch", 0, "training stopped at update 1: .* not finite"),
    ],
)
def test_a_failure_in_one_process_ends_both(tmp_path: Path, fault: str, speaks: int, says: str) -> None:
    ends = small.run_two(tmp_path / "run", fault)
    assert ends[speaks][0] == ("DivergenceError" if fault == "batch" else "TrainingError")
    assert ends[1 - speaks][0] == "PeerError"
    assert re.search(says, ends[speaks][1]), ends[speaks][1]


def test_the_command_under_torchrun(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (12, 12, 12), dtype=np.uint8)
    (tmp_path / "images").mkdir()
    for number, image in enumerate(noise):
        large = Image.fromarray(image).resize((64, 64), Image.Resampling.BICUBIC)
        large.save(tmp_path / "images" / f"{number}.png")
    words = [
        "train",
        "--model",
        "can",
        "--task",
        "rotation",
        "--data",
        str(tmp_path / "images"),
        "--batch",
        "21",
    ]
    words += [
        "--model-options",
        '{"units": 8}',
        "--compile",
        "never",
        "--dtype",
        "float64",
        "--log-every",
        "5",
    ]
    words += ["--test-every", "20", "--test-pairs", "50", "--out"]
    done = _torchrun("caunet.cli", *words, str(tmp_path / "two"), "--updates", "20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("parameter error") == 1
    done = _torchrun("caunet.cli", *words, str(tmp_path / "two"), "--updates", "40", "--resume")
    assert done.returncode == 0, done.stderr
    assert main([*words, str(tmp_path / "one"), "--updates", "40"]) == 0
    assert _losses(tmp_path / "two") == pytest.approx(_losses(tmp_path / "one"), rel=1e-9)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_one_process_says_what_is_wrong(
    rank: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", rank)
    assert main(["train", "--protocol", "text", "--task", "rotatoin", "--out", str(tmp_path / "run")]) == 2
    assert ("rotation" in capsys.readouterr().err) == (rank == "0")
