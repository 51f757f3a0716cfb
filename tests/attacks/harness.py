"""Runs a reader on many damaged inputs in a process of its own, with limits on time and memory, and counts outcomes.

A test names a function ``bytes -> None`` at the top level of a module (the child process imports it by name) and the
exceptions that it may raise; everything else is a failure:

    def read(content: bytes) -> None:
        load_something(io.BytesIO(content))

    def test_damaged_files() -> None:
        inputs = mutations(VALID, cases(100), seed=1)
        attack("something", read, inputs, allowed=(DataError,)).check()

Outcomes of a case:

    accepted   the function returned
    refused    it raised one of ``allowed``
    escaped    it raised something else
    memory     it needed more than ``memory`` bytes beyond what the process had when it started
    timeout    it took longer than ``seconds`` and was killed
    crashed    the process died (a segmentation fault, say)

Only the first two are good. Everything is a function of the seed. Environment:

    CAUNET_ATTACK_CASES    how many cases a test runs instead of its own number (``make torture``: 10,000)
    CAUNET_ATTACK_SEED     added to the seed of every test (0)
    CAUNET_ATTACK_REPORT   a file to which each attack appends one line of JSON with its counts
"""

import atexit
import contextlib
import importlib
import io
import json
import os
import random
import resource
import select
import struct
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
GOOD = ("accepted", "refused")
# Values that lengths, counts and offsets in headers break on.
EXTREMES = [
    b"\0" * 4,
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\x80\0\0\0",
    b"\0\0\0\x80",
    b"\xff" * 8,
]


def cases(default: int) -> int:
    """How many cases to run: ``default``, or what the environment says."""
    return int(os.environ.get("CAUNET_ATTACK_CASES", default))


def mutations(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """``count`` damaged versions of ``content``: flipped bits, other bytes, cuts, repetitions, extreme numbers."""
    generator = random.Random(seed + int(os.environ.get("CAUNET_ATTACK_SEED", 0)))
    for _ in range(count):
        data = bytearray(content)
        for _ in range(generator.choice((1, 1, 1, 2, 5))):
            _damage(data, generator)
        yield bytes(data)


def _damage(data: bytearray, generator: random.Random) -> None:
    if not data:
        data += generator.randbytes(8)
        return
    # Half of the damage goes to the first 512 bytes, where most formats keep their headers.
    place = generator.randrange(min(len(data), 512) if generator.random() < 0.5 else len(data))
    length = generator.randrange(1, 64)
    match generator.randrange(8):
        case 0 | 1:
            data[place] ^= 1 << generator.randrange(8)
        case 2:
            data[place] = generator.randrange(256)
        case 3:
            del data[place:]
        case 4:
            del data[place : place + length]
        case 5:
            data[place:place] = data[place : place + length]
        case 6:
            data[place : place + length] = generator.randbytes(length)
        case _:
            extreme = generator.choice(EXTREMES)
            data[place : place + len(extreme)] = extreme


@dataclass
class Report:
    """What became of the cases."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    """Number of the case, outcome, and the traceback if there is one."""
    seconds: float = 0.0

    def check(self) -> "Report":
        """Fail if any case ended otherwise than accepted or refused."""
        bad = sum(self.counts.values()) - sum(self.counts[outcome] for outcome in GOOD)
        assert bad == 0, f"{self.name}: {dict(self.counts)}\n" + "\n".join(self.failures[:5])
        return self


def attack(
    name: str,
    function: Callable[[bytes], Any],
    inputs: Iterable[bytes],
    *,
    allowed: tuple[type[BaseException], ...],
    seconds: float = 10.0,
    memory: int = 1 << 30,
) -> Report:
    """Run ``function`` on each of ``inputs`` in a child process.

    Args:
        name: what the report calls it.
        function: takes bytes; must be importable by its module and name.
        allowed: exceptions that mean "refused, and said so".
        seconds: time limit of one case.
        memory: bytes that one case may take beyond what the process has after importing.
    """
    report = Report(name)
    start = time.monotonic()
    key = (function, allowed, memory)
    for number, content in enumerate(inputs):
        if key not in _CHILDREN:
            _CHILDREN[key] = _Child(function, allowed, memory)
        outcome, text = _CHILDREN[key].run(content, seconds)
        report.counts[outcome] += 1
        if outcome not in GOOD:
            report.failures.append(f"case {number}, {outcome}: {text}\n  input: {content[:200]!r}")
        if outcome in ("timeout", "crashed", "memory"):
            _CHILDREN.pop(key).end()
    report.seconds = time.monotonic() - start
    _append(report)
    return report


_CHILDREN: dict[Any, "_Child"] = {}
"""Kept for the next attack with the same function: starting one costs more than a hundred cases."""


@atexit.register
def _end_children() -> None:
    while _CHILDREN:
        _CHILDREN.popitem()[1].end()


def _append(report: Report) -> None:
    path = os.environ.get("CAUNET_ATTACK_REPORT")
    if path:
        line = {"name": report.name, "counts": dict(report.counts), "seconds": round(report.seconds, 1)}
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")


class _Child:
    """The process that runs the function. Frames both ways: four bytes of length, then content."""

    def __init__(
        self, function: Callable[[bytes], Any], allowed: tuple[type[BaseException], ...], memory: int
    ) -> None:
        names = [f"{thing.__module__}:{thing.__qualname__}" for thing in (function, *allowed)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
            "OMP_NUM_THREADS": "1",  # each thread reserves address space, which is limited here
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.harness", str(memory), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
        )
        assert self._answer(60.0) == ("ready", ""), "the child process did not start"

    def run(self, content: bytes, seconds: float) -> tuple[str, str]:
        assert self.process.stdin is not None
        try:
            _send(self.process.stdin, content)
        except BrokenPipeError:
            return "crashed", f"exit code {self.process.wait()}"
        return self._answer(seconds)

    def _answer(self, seconds: float) -> tuple[str, str]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return "timeout", f"more than {seconds:g} s"
        frame = _receive(self.process.stdout)
        if frame is None:
            return "crashed", f"exit code {self.process.wait()}"
        outcome, text = json.loads(frame)
        return outcome, text

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _send(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(struct.pack("<I", len(content)) + content)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(4)
    return pipe.read(struct.unpack("<I", head)[0]) if len(head) == 4 else None


def _import(name: str) -> Any:
    module, qualified = name.split(":")
    found = importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    return found


def limit_memory(allowance: int) -> None:
    """Bound this process's address space to what it has now and ``allowance`` bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + allowance
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _main(memory: str, function_name: str, *allowed_names: str) -> None:
    commands, answers = sys.stdin.buffer, io.FileIO(os.dup(1), "w")
    os.dup2(2, 1)  # what the function prints must not mix with the answers
    function, *allowed = (_import(name) for name in (function_name, *allowed_names))
    limit_memory(int(memory))
    _send(answers, json.dumps(["ready", ""]).encode())
    while (content := _receive(commands)) is not None:
        _send(answers, json.dumps(_outcome(function, content, tuple(allowed))).encode())


def _outcome(
    function: Callable[[bytes], Any], content: bytes, allowed: tuple[type[BaseException], ...]
) -> tuple[str, str]:
    try:
        function(content)
    except allowed as error:
        # A reader that catches everything would hide that memory ran out.
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, MemoryError):
                return "memory", str(error)
            cause = cause.__cause__ or cause.__context__
        return "refused", str(error)
    except MemoryError:
        return "memory", ""
    except BaseException:
        return "escaped", traceback.format_exc(limit=-8)
    return "accepted", ""


if __name__ == "__main__":
    _main(*sys.argv[1:])
