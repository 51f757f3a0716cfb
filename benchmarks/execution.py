"""Engines on 500 pairs: how fast they are, and what is left of a run whose worker or node is killed.

    python -m benchmarks.execution                      # all of it: about five minutes on two cores
    python -m benchmarks.execution --only speed         # 1 process, 2 processes, Ray, in turns
    python -m benchmarks.execution --only killed        # a worker of two, and a node of a Ray cluster of two, is killed
    python -m benchmarks.execution --pairs 40           # a shorter look; nothing is saved

The pairs are views of 256 x 256 pixels of one photograph, under random shifts and angles, with noise, as PNG files.
Speed: the engines are started first, which is timed apart; then they take turns on 50 pairs each. Killed:
every pair must be in the results exactly once, with the matrix that one process finds, bit by bit. Results go to
benchmarks/results/execution.json.
"""

import argparse
import contextlib
import functools
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.harness import RESULTS, environment, save
from PIL import Image

from caunet import geometry
from caunet.benchmark.frames import take
from caunet.benchmark.photographs import photographs
from caunet.estimation.many import AHEAD, _make
from caunet.execution import Engine, create_engine

SIDE = 256
PART = 50  # pairs of one turn
QUIET = 0.05  # share of the time
FACTORY = functools.partial(_make, "euclidean", {"threads": 1})

Pair = tuple[str, str]


def write_pairs(folder: Path, count: int, seed: int = 0) -> list[Pair]:
    """Pairs of views of one photograph as PNG files; the second is shifted and turned."""
    rng = np.random.default_rng(seed)
    image = photographs("bench")["gravel"]
    middle = torch.tensor([(side - SIDE) / 2 for side in reversed(image.shape)], dtype=torch.float64)
    pairs = []
    for number in range(count):
        place = middle + torch.from_numpy(rng.uniform(-80, 80, 2))
        names = []
        for name, angle, shift in (
            ("a", 0.0, np.zeros(2)),
            ("b", rng.uniform(-5, 5), rng.uniform(-12, 12, 2)),
        ):
            turn = geometry.center(geometry.rotate(torch.tensor(angle, dtype=torch.float64)), (SIDE, SIDE))
            there = geometry.compose(geometry.translate(*(place + torch.from_numpy(shift))), turn)
            view = take(image, there, (SIDE, SIDE), fine=2)
            view = view + 0.02 * torch.from_numpy(rng.standard_normal((SIDE, SIDE))).float()
            path = folder / f"{number:04d}{name}.png"
            Image.fromarray((view.clamp(0, 1) * 255).round().byte().numpy()).save(path)
            names.append(str(path))
        pairs.append((names[0], names[1]))
    return pairs


def busy(_: int) -> int:
    """A little work, and who did it."""
    time.sleep(0.3)
    return os.getpid()


def started(engine: Engine, pairs: Sequence[Pair]) -> float:
    """Seconds until every worker of ``engine`` is there and has loaded its network."""
    start = time.perf_counter()
    there: set[int | None] = set()
    while len(there) < engine.workers:
        there |= {outcome.value for outcome in engine.map(busy, range(2 * engine.workers))}
    for outcome in engine.run(FACTORY, pairs[: 4 * engine.workers]):
        outcome.result()
    return time.perf_counter() - start


class Measured:
    """Estimates a pair; returns its worker's processor time since it was last asked, and for how long that waited.

    Other programs take cores away. What they took is known (Linux): how long a thread was ready to run and did not.
    """

    def __init__(self) -> None:
        self.estimate, self.before = FACTORY(), (time.process_time(), waited())

    def __call__(self, pair: Pair) -> tuple[float, float]:
        self.estimate(pair)
        before, self.before = self.before, (time.process_time(), waited())
        return self.before[0] - before[0], self.before[1] - before[1]


def waited() -> float:
    """Seconds that this thread was ready to run and did not, in all (0 where the system does not say)."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError):
        return 0.0


def speed(pairs: Sequence[Pair], patience: float) -> dict[str, Any]:
    """Seconds of 1 process, 2 processes and Ray on two cores, each after its start, in turns.

    Other programs distort the ratio, in either direction: a turn in which workers waited for cores during more than
    ``QUIET`` of the time is taken again, as long as there is ``patience``; the quietest counts. Beside the seconds as
    they passed there is the processor time of the workers and of the process that feeds them: how much faster several
    workers are on cores of their own, which nobody else uses, follows from it.
    """
    parts = [pairs[k : k + PART] for k in range(0, len(pairs) - PART + 1, PART)]
    with contextlib.ExitStack() as stack:
        engines = {
            "1 process": stack.enter_context(create_engine("processes", 1)),
            "2 processes": stack.enter_context(create_engine("processes", 2)),
            "ray": stack.enter_context(create_engine("ray", 2)),
        }
        starts = {name: started(engine, pairs) for name, engine in engines.items()}
        print("started:", starts, flush=True)
        best: dict[tuple[int, str], Turn] = {}
        turns, end = 0, time.monotonic() + patience
        while time.monotonic() < end or turns < len(parts):
            loud = [n for n in range(len(parts)) if any(_waiting(best, n, e) > QUIET for e in engines)]
            if not loud:
                break
            number = loud[turns % len(loud)]
            for name, engine in engines.items():
                if _waiting(best, number, name) > QUIET:
                    taken = turn(engine, parts[number])
                    best[number, name] = min(best.get((number, name), taken), taken)
            turns += 1
    parts_of = {name: [best[n, name] for n in range(len(parts))] for name in engines}
    seconds = {name: sum(t.seconds for t in taken) for name, taken in parts_of.items()}
    processor = {name: sum(t.processor for t in taken) for name, taken in parts_of.items()}
    workers = {"1 process": 1, "2 processes": 2, "ray": 2}
    return {
        "start": starts,
        "seconds": seconds,
        "share_of_waiting": {
            name: sum(t.waiting * t.seconds for t in taken) / seconds[name]
            for name, taken in parts_of.items()
        },
        "times_faster": {name: seconds["1 process"] / value for name, value in seconds.items()},
        "processor_seconds": processor,
        "times_faster_on_own_cores": {
            name: workers[name] * processor["1 process"] / value for name, value in processor.items()
        },
    }


class Turn(NamedTuple):
    """One part of the pairs by one engine."""

    waiting: float
    """Share of the time for which the workers waited for a core."""
    seconds: float
    processor: float
    """Seconds of processor time, of the workers and of the process that feeds them."""


def _waiting(best: dict[tuple[int, str], Turn], number: int, name: str) -> float:
    return best[number, name].waiting if (number, name) in best else 1.0


def turn(engine: Engine, part: Sequence[Pair]) -> Turn:
    """Let ``engine`` do its turn."""
    start, feeding = time.perf_counter(), time.process_time()
    used = [outcome.result() for outcome in engine.run(Measured, part, ordered=False, ahead=AHEAD)]
    seconds, feeding = time.perf_counter() - start, time.process_time() - feeding
    processor, waiting = (sum(values) for values in zip(*used, strict=True))
    return Turn(waiting / engine.workers / seconds, seconds, processor + feeding)


def counted(outcomes: Iterator[Any], at: int, kill: Any, alone: list[np.ndarray]) -> dict[str, Any]:
    """Run through ``outcomes``, call ``kill`` after ``at`` of them, and look at what came out."""
    times: dict[int, int] = {}
    same = 0
    for number, outcome in enumerate(outcomes, 1):
        times[outcome.index] = times.get(outcome.index, 0) + 1
        if outcome.ok:
            same += bool((np.asarray(outcome.value.matrix) == alone[outcome.index]).all())
        if number == at:
            kill()
    found = {
        "pairs": len(alone),
        "killed after": at,
        "outcomes": sum(times.values()),
        "pairs with exactly one": sum(n == 1 for n in times.values()),
        "matrices of one process, bit by bit": same,
    }
    if set(times) != set(range(len(alone))) or set(times.values()) != {1} or same != len(alone):
        raise SystemExit(f"not every pair exactly once and the same: {found}")
    return found


def killed(pairs: Sequence[Pair]) -> dict[str, Any]:
    """A worker of two, and a node of a cluster of two, is killed after a fifth of the pairs."""
    with create_engine("serial") as engine:
        alone = [np.asarray(outcome.result().matrix) for outcome in engine.run(FACTORY, pairs)]
    at = len(pairs) // 5
    result = {}
    with create_engine("processes", 2) as engine:
        outcomes = engine.run(FACTORY, pairs, ordered=False, ahead=AHEAD)

        def kill_worker() -> None:
            victim = next(iter(engine._executor._processes))  # type: ignore[attr-defined]
            os.kill(victim, signal.SIGKILL)

        result["processes, a worker of two killed"] = counted(outcomes, at, kill_worker, alone)

    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        with create_engine("ray", address=cluster.address) as engine:
            outcomes = engine.run(FACTORY, pairs, ordered=False, ahead=AHEAD)

            def kill_node() -> None:
                cluster.remove_node(second, allow_graceful=False)

            result["ray, a node of two killed"] = counted(outcomes, at, kill_node, alone)
    finally:
        ray.shutdown()
        cluster.shutdown()
    return result


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--patience", type=float, default=180.0, help="seconds for all turns (default: 180)")
    parser.add_argument("--only", choices=["speed", "killed"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Workers on a cluster import caunet from where this process does.
    source = str(Path(geometry.__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    path = RESULTS / "execution.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    result = {name: before[name] for name in ("speed", "killed") if name in before}
    with tempfile.TemporaryDirectory() as folder:
        pairs = write_pairs(Path(folder), options.pairs)
        for name, measure in (
            ("speed", functools.partial(speed, patience=options.patience)),
            ("killed", killed),
        ):
            if options.only in (None, name):
                about = {"commit": environment()["commit"], "pairs": len(pairs), "side": SIDE}
                result[name] = {**about, **measure(pairs)}
                print(name, json.dumps(result[name], indent=1), flush=True)
    if options.pairs >= 500:
        save("execution", result)


if __name__ == "__main__":
    main()
