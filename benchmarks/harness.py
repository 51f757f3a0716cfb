"""What every benchmark here has in common: fair timing, a description of the machine, results as JSON.

Machines are shared and their clocks wander, so two things are never timed one after the other: all candidates
take turns, round after round, and are compared by the median of their ratios within a round.
"""

import contextlib
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from caunet.files import write_json

__all__ = ["RESULTS", "environment", "interleaved", "merged", "ratio", "save", "threads"]

RESULTS = Path(__file__).parent / "results"


def interleaved(
    candidates: Mapping[str, Callable[[], Any]],
    rounds: int = 100,
    warmup: int = 3,
    repeat: int = 1,
    before: Callable[[], Any] | None = None,
) -> dict[str, dict[str, Any]]:
    """Time every candidate once a round, in turn; the order is reversed every other round.

    Args:
        candidates: name -> function of no arguments.
        rounds: how many measurements of each.
        warmup: calls of each before the first measurement.
        repeat: calls in one measurement, whose mean is taken.
        before: called, untimed, before each measurement (to restore a state, say).

    Returns:
        name -> median, p10, p90, best (seconds a call), rounds, and all ``samples`` in the order of rounds.
    """
    for call in candidates.values():
        for _ in range(warmup):
            call()
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds):
        names = list(candidates) if number % 2 == 0 else list(reversed(list(candidates)))
        for name in names:
            if before is not None:
                before()
            samples[name].append(_seconds(candidates[name], repeat))
    return {name: _summary(values) for name, values in samples.items()}


def _seconds(call: Callable[[], Any], repeat: int) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - start) / repeat


def _summary(values: list[float]) -> dict[str, Any]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "median": statistics.median(ordered),
        "p10": ordered[round(0.1 * last)],
        "p90": ordered[round(0.9 * last)],
        "best": ordered[0],
        "rounds": len(ordered),
        "samples": values,
    }


def merged(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What several processes have measured, as one measurement.

    Where a process puts its arrays in memory can move a time by a tenth for as long as it lives.

    >>> parts = [{"a": {"samples": [1.0, 3.0]}}, {"a": {"samples": [2.0]}}]
    >>> merged(parts)["a"]["median"]
    2.0
    """
    return {name: _summary([t for part in parts for t in part[name]["samples"]]) for name in parts[0]}


def ratio(results: Mapping[str, Mapping[str, Any]], slower: str, faster: str) -> dict[str, float]:
    """How many times longer ``slower`` takes: median and quartiles of the ratio within a round, and of the bests.

    >>> r = {"a": {"samples": [2.0, 4.0, 6.0], "best": 2.0}, "b": {"samples": [1.0, 2.0, 3.0], "best": 1.0}}
    >>> ratio(r, "a", "b")["median"]
    2.0
    """
    pairs = zip(results[slower]["samples"], results[faster]["samples"], strict=True)
    low, middle, high = statistics.quantiles((s / f for s, f in pairs), n=4)
    best = results[slower]["best"] / results[faster]["best"]
    return {"median": middle, "p25": low, "p75": high, "best": best}


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Run a block with ``count`` threads within an operation."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def environment() -> dict[str, Any]:
    """The machine, the versions and the commit that a result belongs to."""
    load = os.getloadavg() if hasattr(os, "getloadavg") else (None,)
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "load": load[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "commit": _commit(),
    }


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _commit() -> str:
    """The commit, and "-dirty" behind it when tracked files differ; results that were just measured do not count."""
    changed = [
        "diff",
        "--quiet",
        "HEAD",
        "--",
        ":/",
        ":(top,exclude)benchmarks/results",
        ":(top,exclude)README.md",
    ]
    try:
        name = _git("rev-parse", "--short=12", "HEAD", check=True).stdout.strip()
        return f"{name}-dirty" if _git(*changed).returncode else name
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=check)


def save(name: str, results: Mapping[str, Any]) -> Path:
    """Write ``results`` and :func:`environment` to ``results/<name>.json`` atomically; samples are left out."""
    path = RESULTS / f"{name}.json"
    write_json(path, {"environment": environment(), **_without_samples(results)})
    return path


def _without_samples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_samples(item) for key, item in value.items() if key != "samples"}
    return value
