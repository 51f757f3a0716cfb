"""What do two processes change, in speed and in numbers?

Trains CAN (Table I, rotation, photos) as ``caunet train`` does: one process with one thread, one with two, and two
processes with one thread each under ``torchrun``, in turns. Speed is counted after the first logged step, so that
compiling is left out. The curves of 200 updates show how far the losses of two processes are from those of one.

    python -m benchmarks.scaling [--updates 1000] [--rounds 3] [--no-save]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness

from caunet.training.metrics_log import read_metrics

# name: (processes, threads of each)
WAYS = {"1_process_1_thread": (1, 1), "1_process_2_threads": (1, 2), "2_processes_1_thread": (2, 1)}


def run(folder: Path, processes: int, threads: int, *options: str) -> list[dict[str, Any]]:
    """The lines of metrics of one run."""
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*launcher, "-m", "caunet.cli", "train", "--out", str(folder), "--threads", str(threads)]
    command += ["--test-every", "1000000", "--checkpoint-every", "0", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return [line for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]


def speed(lines: list[dict[str, Any]]) -> float:
    """Updates a second between the first line of metrics and the last."""
    first, last = lines[0], lines[-1]
    return float((last["step"] - first["step"]) / (last["seconds"] - first["seconds"]))


# The curves: as usual in both precisions, and with gradients added in a fixed order.
CURVES = {
    "float64": ("--dtype", "float64"),
    "float32": (),
    "float32, 2 shards": ("--shards", "2"),
}


def curves(place: Path, name: str) -> dict[str, Any]:
    """The largest relative difference of the losses of one process and of two, up to some updates."""
    options = ("--updates", "200", "--log-every", "1", *CURVES[name])
    one, two = ([line["loss"] for line in run(place / f"{name}{n}", n, 1, *options)] for n in (1, 2))
    apart = [abs(a - b) / abs(a) for a, b in zip(one, two, strict=True)]
    return {f"up_to_{n}_updates": max(apart[:n]) for n in (1, 10, 50, 100, 200)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = {"environment": harness.environment(), "updates": options.updates}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        results["loss_relative_difference"] = {name: curves(place, name) for name in CURVES}
        print(results["loss_relative_difference"], flush=True)
        found: dict[str, list[float]] = {name: [] for name in WAYS}
        for number in range(options.rounds):
            for name, (processes, threads) in WAYS.items():
                updates = ("--updates", str(options.updates), "--log-every", "50")
                found[name].append(speed(run(place / f"{name}{number}", processes, threads, *updates)))
    results["updates_per_second"] = found
    middle = {name: statistics.median(values) for name, values in found.items()}
    results["times_one_process_one_thread"] = {n: v / middle["1_process_1_thread"] for n, v in middle.items()}
    print(middle, results["times_one_process_one_thread"], flush=True)
    if not options.no_save:
        harness.save("scaling", results)


if __name__ == "__main__":
    main()
