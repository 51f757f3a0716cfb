"""How a run is stopped by signals, kept from a second one, and protected from other images and damaged metrics."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from caunet.data import PairSource
from caunet.errors import CheckpointError, RunBusyError
from caunet.training import TrainConfig, checkpoint, train
from caunet.training.metrics_log import parse_line, read_metrics
from caunet.training.signals import stop_on_signals
from tests.training import small

ROOT = Path(__file__).parents[2]
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.training.small"])


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for number in range(4):
        coarse = generator.integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC).save(folder / f"{number}.png")
    return folder


def _command(images: Path, out: Path, *more: str) -> list[str]:
    words = ["train", "--data", str(images), "--out", str(out), "--model-options", '{"units": 8}']
    words += ["--batch", "10", "--log-every", "1", "--updates", "1000000", *more]
    return [sys.executable, "-m", "caunet.cli", *words]


def _wait_for(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def _under_way(out: Path) -> bool:
    return len(read_metrics(out / "metrics.jsonl")) > 3


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_what_schedulers_send_saves_and_says_so(tmp_path: Path, images: Path, name: str) -> None:
    number = getattr(signal, name)
    out = tmp_path / "run"
    command = _command(images, out, "--compile", "never")
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    _wait_for(lambda: _under_way(out))
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "saved. To continue:" in said
    (newest,) = checkpoint.find(out / "checkpoints")
    assert checkpoint.load(newest).step == read_metrics(out / "metrics.jsonl")[-1]["step"]


def test_a_signal_to_one_of_two_processes_stops_both(tmp_path: Path) -> None:
    ends = small.run_two(tmp_path / "run", "sigterm", updates=100_000, log_every=5)
    assert [end[0] for end in ends] == ["stopped by 15", "stopped by 15"]
    (newest,) = checkpoint.find(tmp_path / "run" / "checkpoints")[:1]
    assert checkpoint.load(newest).step == int(ends[0][1]) > 0


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_ctrl_c_while_compiling_is_a_few_lines(tmp_path: Path, images: Path) -> None:
    out = tmp_path / "run"
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    process = subprocess.Popen(
        _command(images, out, "--compile", "always"),
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    said = ""
    while "compiling" not in said:
        said += process.stderr.readline()
    time.sleep(4)  # until a C++ compiler runs
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the compiler, too
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130, rest
    assert len((said + rest).splitlines()) < 8
    assert "Interrupted after 0 updates; saved." in rest
    assert checkpoint.load(*checkpoint.find(out / "checkpoints")).step == 0


def test_signals_are_given_back_and_nohup_is_respected() -> None:
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with stop_on_signals(lambda: False) as request:
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.signal == signal.SIGTERM
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGTERM)
        assert ended.value.code == 143
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert request.signal == signal.SIGTERM
    with stop_on_signals(lambda: True), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert {s: signal.getsignal(s) for s in before} == before
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals(lambda: False) as request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert request.signal == 0
    finally:
        signal.signal(signal.SIGHUP, before[signal.SIGHUP])


def test_a_second_run_in_one_directory_is_refused_at_once(tmp_path: Path) -> None:
    """Before the first checkpoint, and again after the first run was killed."""
    folder = tmp_path / "run"
    process = _SERVER.Process(
        target=small.run, args=(folder,), kwargs={"updates": 10**6, "checkpoint_every": 0}
    )
    process.start()
    try:
        _wait_for(lambda: _under_way(folder))
        for resume in (False, "auto", True):
            with pytest.raises(RunBusyError, match=f"in use by process {process.pid}: wait") as refused:
                small.run(folder, resume)
            assert refused.value.owner == process.pid
        seen = []

        def other_thread() -> None:
            with pytest.raises(RunBusyError):
                small.run(folder)
            seen.append(True)

        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join()
        assert seen
    finally:
        process.kill()
        process.join()
    assert small.run(folder, False, updates=10).finished


def _exchanged(part: str) -> Any:
    def sources(config: TrainConfig) -> tuple[PairSource, PairSource]:
        training, testing = small.sources(config)
        chosen = training if part == "training" else testing
        other = PairSource(255 - chosen._pixels, config.task, config.protocol)
        return (other, testing) if part == "training" else (training, other)

    return sources


@pytest.mark.parametrize("part", ["training", "test"])
def test_other_images_are_not_continued_on(tmp_path: Path, part: str) -> None:
    result = small.run(tmp_path / "run", updates=20).result
    assert result is not None
    training, testing = small.sources(small.config())
    assert result["images"] == {"training": training.fingerprint, "test": testing.fingerprint}
    with pytest.raises(
        CheckpointError, match=f"trained on other images: the fingerprint of its {part} images"
    ):
        train(small.config(), tmp_path / "run", resume=True, progress=False, sources=_exchanged(part))
    assert small.run(tmp_path / "run", True).finished


def test_two_processes_must_have_the_same_images(tmp_path: Path) -> None:
    ends = small.run_two(tmp_path / "run", "other images")
    assert ends[1] == ("TrainingError", "process 1 of 2: its images are not those of process 0")
    assert ends[0][0] == "PeerError"


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff",
        b"[" * 100_000,
        b'{"step": "7"}',
        b'{"step": 7, "loss": NaN}',
        b'{"step": 7, "test": 3}',
        b'{"step": 7, "test": {}}',
        b'{"step": 7, "rates": 3}',
        b'{"step": true}',
        b"9" * 5000,
        b"[7]",
    ],
    ids=range(10),
)
def test_a_damaged_line_of_metrics_is_dropped_and_named(tmp_path: Path, damage: bytes) -> None:
    assert parse_line(damage) is None
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "loss": 1.0}\n' + damage + b'\n{"step": 2, "loss": 0.5}\n{"step": 3, "lo')
    damaged: list[int] = []
    assert [line["step"] for line in read_metrics(path, damaged)] == [1, 2]
    assert damaged == [2]


def test_damaged_metrics_do_not_stop_resuming(tmp_path: Path) -> None:
    small.run(tmp_path / "whole")
    small.run(tmp_path / "run", updates=30)
    path = tmp_path / "run" / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], b"\xff" + lines[1], *lines[2:], b""]))
    with pytest.warns(RuntimeWarning, match=r"metrics.jsonl: dropped what cannot be read in line 2;"):
        assert small.run(tmp_path / "run", True).finished
    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
    assert steps == [10, 30, 30, 40, 50, 60, 60]
    assert small.digest(tmp_path / "run") == small.digest(tmp_path / "whole")


def test_a_checkpoint_of_another_network_is_a_sentence(tmp_path: Path) -> None:
    small.run(tmp_path / "run", updates=20)
    (path,) = checkpoint.find(tmp_path / "run" / "checkpoints")[:1]
    state = checkpoint.load(path)
    model = {name: torch.ones(2) for name in state.model}
    checkpoint.save(
        tmp_path / "run" / "checkpoints",
        checkpoint.Checkpoint(state.step, model, state.optimizer, state.config, state.extra),
    )
    with pytest.raises(CheckpointError, match="does not fit this network"):
        small.run(tmp_path / "run", True)
