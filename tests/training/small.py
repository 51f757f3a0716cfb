"""A run that takes a second: few images, few units. Importable, so that other processes can train it too."""

import errno
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # every first optimizer imports it; a server that forks processes does so once for all

from caunet import tensor_files
from caunet.data import Pairs, PairSource
from caunet.errors import CaunetError, DataError
from caunet.files import sha256
from caunet.models import load_weights
from caunet.training import TrainConfig, TrainResult, train
from caunet.training.metrics_log import read_metrics

SETTINGS: dict[str, Any] = {
    "task": "rotation",
    "model": "can",
    "model_options": {"units": 12},
    "updates": 60,
    "batch": 20,
    "decay_every": 20,
    "log_every": 10,
    "test_every": 30,
    "test_pairs": 50,
    "checkpoint_every": 10,
    "compile": "never",
}


def config(**changes: Any) -> TrainConfig:
    return TrainConfig(**{**SETTINGS, **changes})


def sources(config: TrainConfig) -> tuple[PairSource, PairSource]:
    """Smooth random images: 400 pairs to train on, 100 to test on."""
    noise = torch.rand(50, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    smooth = torch.nn.functional.interpolate(noise, size=(32, 32), mode="bicubic").clamp(0, 1)
    images = (smooth[:, 0] * 255).round().to(torch.uint8)
    options: dict[str, Any] = {
        "dtype": getattr(torch, config.dtype),
        "seed": config.seed,
        "pairs": config.pairs,
    }
    training = PairSource(images[:40], config.task, config.protocol, **options)
    return training, PairSource(images[40:], config.task, config.protocol, dtype=options["dtype"])


def digest(folder: Path) -> str:
    """SHA-256 over the names and bits of a run's weights."""
    weights = load_weights(folder / "weights.safetensors").state_dict()
    return sha256(tensor_files.pack(weights, {}, "test"))


def run(folder: Path, resume: Any = "auto", **changes: Any) -> TrainResult:
    torch.set_num_threads(1)
    return train(config(**changes), folder, resume=resume, progress=False, sources=sources)


def run_and_die(folder: Path, calls: int) -> None:
    """Train, and be killed at the ``calls``-th time a file is flushed to disk: in the middle of saving."""
    flush, count = os.fsync, 0

    def fsync(descriptor: int) -> None:
        nonlocal count
        count += 1
        if count == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        flush(descriptor)

    os.fsync = fsync
    run(folder)


def join(
    rank: int,
    port: int,
    folder: Path,
    fault: str,
    changes: dict[str, Any],
    answers: "Queue[tuple[int, str, str]]",
) -> None:
    """Be process ``rank`` of two that train together, with a ``fault``, and answer how it ended."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    _break(fault, rank, folder)
    try:
        result = run(folder, **{"updates": 200, "dtype": "float64", "checkpoint_every": 20, **changes})
        how = "finished" if result.finished else f"stopped by {result.signal}"
        answers.put((rank, how, str(result.step)))
    except (CaunetError, ValueError) as error:
        answers.put((rank, type(error).__name__, str(error)))


def _terminate_when_under_way(folder: Path) -> None:
    while len(read_metrics(folder / "metrics.jsonl")) < 4:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGTERM)


def _break(fault: str, rank: int, folder: Path) -> None:
    """Let something go wrong in this process."""
    from caunet.training import checkpoint

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def missing(*_: Any, **__: Any) -> Any:
        raise DataError("no such images")

    if fault == "checkpoint":
        checkpoint.save = full
    elif fault == "metrics" and rank == 0:
        usual = Path.open
        Path.open = lambda p, mode="r", *a, **k: full() if mode == "a" else usual(p, mode, *a, **k)  # type: ignore
    elif fault == "sigterm" and rank == 1:
        threading.Thread(target=_terminate_when_under_way, args=(folder,), daemon=True).start()
    elif fault == "other images" and rank == 1:
        PairSource.fingerprint = "others"  # type: ignore[assignment,method-assign]
    elif fault == "images" and rank == 1:
        PairSource.__init__ = missing  # type: ignore[method-assign]
    elif fault == "batch" and rank == 1:
        stream = PairSource.stream
        nothing = torch.tensor(float("nan"))
        PairSource.stream = lambda *a, **k: (Pairs(x, y, z * nothing) for x, y, z in stream(*a, **k))  # type: ignore[method-assign]


def run_two(folder: Path, fault: str = "", **changes: Any) -> list[tuple[str, str]]:
    """How each of two processes ended; both must end long before a connection times out."""
    server = multiprocessing.get_context("forkserver")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers = server.Queue()
    processes = [
        server.Process(target=join, args=(rank, port, folder, fault, changes, answers)) for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    try:
        ended = {rank: (how, said) for rank, how, said in (answers.get(timeout=120) for _ in processes)}
        for process in processes:
            process.join(timeout=60)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
    return [ended[rank] for rank in (0, 1)]


def main() -> None:
    """``torchrun -m tests.training.small FOLDER UPDATES [DIE_AT]``: rank 1 kills itself once, at update DIE_AT."""
    folder, updates = Path(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) > 3 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        _die_at(int(sys.argv[3]))
    run(folder, False, updates=updates, dtype="float64", checkpoint_every=20)


def _die_at(step: int) -> None:
    from caunet.training.loop import Update

    apply, count = Update.apply, 0

    def dying(self: Update) -> None:
        nonlocal count
        count += 1
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)
        apply(self)

    Update.apply = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
