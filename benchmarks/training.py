"""How fast does CAN train, data included, next to a direct transcription of the paper?

Both train the network of Table I on the same fixed pairs at batch 100, in turns in one process: ``caunet`` with
its compiled update and its stream of pairs, ``transcription`` with the update of update.py and pairs kept as
floats and gathered batch by batch. Losses from the same weights on the same batches show that they do the same.
Each number of threads is measured in a process of its own, because compiled code keeps the number it was made for.

    python -m benchmarks.training [--data photos] [--task rotation] [--threads 1 2] [--rounds 25] [--no-save]
"""

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch
from benchmarks import harness
from benchmarks.update import TranscribedUpdate, Transcription
from torch import Tensor

from caunet.data import PairSource, load_images
from caunet.models import create_model
from caunet.optim import HybridOptimizer
from caunet.training.update import Update

BATCH, UPDATES = 100, 50


def make_caunet(task: str) -> tuple[Any, Update]:
    """The network of Table I, and the update that ``caunet train`` makes."""
    model = create_model("can", task, seed=0)
    return model, Update(model, HybridOptimizer.for_model(model, lr=0.005, free_lr=0.005))


def transcribe(model: Any) -> TranscribedUpdate:
    """The direct transcription, from the weights of ``model``."""
    network = Transcription()
    with torch.no_grad():
        network.u.copy_(model.relation.u)
        network.v.copy_(model.relation.v)
    network.decoder.load_state_dict(model.decoder.state_dict())
    return TranscribedUpdate(network)


def float_batches(source: PairSource) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Batches without end from pairs that are kept as floats, in a new order each epoch."""
    x, y, z = source.batch(0, torch.arange(len(source)))
    x, y = x.flatten(1), y.flatten(1)
    while True:
        order = torch.randperm(len(source))
        for start in range(0, len(source) - BATCH + 1, BATCH):
            index = order[start : start + BATCH]
            yield x[index], y[index], z[index]


def agreement(source: PairSource, task: str) -> dict[str, float]:
    """Loss of both at the first update, and at the second one (after one step) on the same batches."""
    model, ours = make_caunet(task)
    theirs = transcribe(model)
    losses = [
        (float(ours(x, y, z)), float(theirs(x.flatten(1), y.flatten(1), z)))
        for x, y, z in source.stream(0, 2, BATCH)
    ]
    return {f"loss_{n}_relative_difference": abs(a - b) / b for n, (a, b) in enumerate(losses, 1)}


def measure(data: str, task: str, rounds: int) -> dict[str, Any]:
    """Updates a second of both with the threads that are set."""
    source = PairSource(load_images(data), task)
    model, ours = make_caunet(task)
    theirs = transcribe(model)
    stream, floats = source.stream(0, sys.maxsize, BATCH), float_batches(source)

    def caunet() -> None:
        for pairs in itertools.islice(stream, UPDATES):
            ours(*pairs).item()

    def transcription() -> None:
        for pairs in itertools.islice(floats, UPDATES):
            theirs(*pairs).item()

    ways = {"caunet": caunet, "transcription": transcription}
    times = harness.interleaved(ways, rounds=rounds, warmup=2)
    speed = {name: UPDATES / float(t["median"]) for name, t in times.items()}
    return {
        "updates_per_second": speed,
        "times_faster": harness.ratio(times, "transcription", "caunet"),
        f"seconds_for_{UPDATES}_updates": times,
        "compiled": ours.compiled,
        "agreement": agreement(source, task),
    }


def in_its_own_process(threads: int, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.training", "--worker", "--threads", str(threads)]
    command += ["--data", options.data, "--task", options.task, "--rounds", str(options.rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="photos")
    parser.add_argument("--task", default="rotation")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        torch.set_num_threads(options.threads[0])
        print(json.dumps(measure(options.data, options.task, options.rounds)))
        return
    results: dict[str, Any] = {
        "environment": harness.environment(),
        "data": options.data,
        "task": options.task,
    }
    for threads in options.threads:
        results[f"threads_{threads}"] = found = in_its_own_process(threads, options)
        speeds = ", ".join(f"{name} {speed:,.0f}" for name, speed in found["updates_per_second"].items())
        print(f"{threads} threads: {speeds} updates/s; {found['times_faster']['median']:.2f} x", flush=True)
    if not options.no_save:
        harness.save("training", results)


if __name__ == "__main__":
    main()
