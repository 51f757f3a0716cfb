"""Use ``caunet serve`` hard for a while: ``python -m tools.soak_server --minutes 60 --json soak.json``.

Eight clients ask for everything there is, one request in ten is malformed; beside them hundreds of connections stay
half open, and files that would be decoded for ever are sent. The server has few descriptors (256) and a short time
limit. Every answer must be the expected one, ``/healthz`` must answer throughout, and neither memory nor
descriptors may grow.
"""

import argparse
import collections
import contextlib
import itertools
import json
import random
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from tests.web.pictures import bomb, many_comments, many_scans, png, related

from tools.serving import Served, served

__all__ = ["AGAIN", "PAIR", "half_open", "main", "memory", "run", "soak"]

CLIENTS = 8
HALF_OPEN = 300
AGAIN = ("busy, asked again", "connection lost, asked again")
ROUND = 200
"""Requests between two looks at the memory."""

_A, _B, _ = related(side=128)
PAIR = {"a": ("a.png", png(_A)), "b": ("b.png", png(_B))}


def place(rng: random.Random) -> dict[str, Any]:
    """A question about a photograph."""
    x, y = rng.randrange(512), rng.randrange(512)
    return {"task": "rotation", "z": [rng.uniform(-45, 45)], "photograph": "astronaut", "x": x, "y": y}


def good(client: httpx.Client, rng: random.Random) -> tuple[httpx.Response, int]:
    """Any of the things a client can ask for; the status that it should get."""
    kind = rng.choices(("estimate", "infer", "upload", "models", "photograph", "page"), (3, 5, 1, 1, 1, 1))[0]
    if kind == "estimate":
        model = rng.choice(("translation", "similarity", "affine", "projective"))
        return client.post("/api/estimate", files=PAIR, data={"model": model}), 200
    if kind == "infer":
        return client.post("/api/infer", json=place(rng)), 200
    if kind == "upload":
        fields = {"task": "translation", "z": "2,-1", "x": "60", "y": "60"}
        return client.post("/api/infer", data=fields, files={"picture": PAIR["a"]}), 200
    path = {"models": "/api/models", "photograph": "/api/photographs/coffee.png", "page": "/"}[kind]
    return client.get(path), 200


def pieces(count: int) -> Iterator[bytes]:
    """A body without a length."""
    yield from itertools.repeat(bytes(2**20), count)


BAD = [
    lambda client: (client.post("/api/estimate", files={**PAIR, "b": ("b.png", b"no picture")}), 422),
    lambda client: (client.post("/api/estimate", files={**PAIR, "a": ("a.png", bomb(20_000, 20_000))}), 422),
    lambda client: (client.post("/api/estimate", files={**PAIR, "b": ("b.png", PAIR["b"][1][:3000])}), 422),
    lambda client: (client.post("/api/estimate", content=pieces(11)), 413),
    lambda client: (
        client.post("/api/estimate", content=b"--x\r\n", headers={"content-type": "multipart/x"}),
        422,
    ),
    lambda client: (client.post("/api/infer", content=b'{"task": '), 422),
    lambda client: (client.post("/api/infer", json={"task": "rotation", "z": [1e308]}), 422),
    lambda client: (client.put("/api/infer", content=b"x"), 405),
    lambda client: (client.get("/api/photographs/..%2fsecret.png"), 404),
    lambda client: (client.get("/api/models", headers={"host": "evil.example"}), 421),
    lambda client: (client.post("/api/infer", json={}, headers={"origin": "http://evil.example"}), 403),
]


def _one_client(address: str, numbers: range, seen: "collections.Counter[str]") -> None:
    with httpx.Client(base_url=address, timeout=120) as client:
        for number in numbers:
            while True:
                bad = BAD[number // 10 % len(BAD)] if number % 10 == 0 else None
                try:
                    answer, expected = bad(client) if bad else good(client, random.Random(number))
                except httpx.TransportError:  # an idle connection was closed to make room, as in any browser
                    seen[AGAIN[1]] += 1
                    continue
                if answer.status_code != 503:
                    break
                seen[AGAIN[0]] += 1
                time.sleep(float(answer.headers.get("retry-after", 1)))
            key = "as expected" if answer.status_code == expected else f"{answer.status_code}, not {expected}"
            seen[key] += 1


def soak(address: str, first: int, count: int) -> "collections.Counter[str]":
    """How often what was answered; numbers of the requests begin at ``first``."""
    seen: list[collections.Counter[str]] = [collections.Counter() for _ in range(CLIENTS)]
    threads = [
        threading.Thread(
            target=_one_client, args=(address, range(first + i, first + count, CLIENTS), seen[i])
        )
        for i in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(seen, collections.Counter())


@contextlib.contextmanager
def _beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Do ``work`` in a thread until the block ends, which sets the event."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def half_open(address: str, count: int = HALF_OPEN) -> Iterator["collections.Counter[str]"]:
    """Connections that begin a request and never end it; opened anew as they are closed. Counts them."""
    host, port = address.removeprefix("http://").split(":")
    seen = collections.Counter[str]()

    def hold(stop: threading.Event) -> None:
        lines: collections.deque[socket.socket] = collections.deque()
        while not stop.is_set():
            with contextlib.suppress(OSError):
                line = socket.create_connection((host, int(port)), timeout=5)
                lines.append(line)
                seen["half open"] += 1
                line.sendall(b"GET / HTTP/1.1\r\n")
            if len(lines) >= count:
                lines.popleft().close()
                stop.wait(0.2)
        for line in lines:
            line.close()

    with _beside(hold):
        yield seen


@contextlib.contextmanager
def _attacks(address: str) -> Iterator["collections.Counter[str]"]:
    """Files that are decoded for ever, one after the other with pauses; counts the statuses."""
    seen = collections.Counter[str]()
    files = [("a.jpg", many_scans()), ("a.ppm", many_comments())]

    def send(stop: threading.Event) -> None:
        for file in itertools.cycle(files):
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.post(f"{address}/api/estimate", files={"a": file, "b": PAIR["b"]}, timeout=120)
                seen[str(answer.status_code)] += 1
            if stop.wait(5):
                return

    with _beside(send):
        yield seen


@contextlib.contextmanager
def _health(address: str) -> Iterator[list[float]]:
    """Seconds that /healthz took, asked ten times a second."""
    times: list[float] = []

    def watch(stop: threading.Event) -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            while not stop.wait(0.1):
                started = time.perf_counter()
                try:
                    client.get("/healthz").raise_for_status()
                except httpx.TransportError:
                    continue  # closed to make room; the next one is asked on a new connection
                times.append(time.perf_counter() - started)

    with _beside(watch):
        yield times


def memory(pid: int) -> float | None:
    """Resident memory in MB; None where there is no /proc."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _descriptors(pid: int) -> int | None:
    folder = Path(f"/proc/{pid}/fd")
    return len(list(folder.iterdir())) if folder.exists() else None


def run(minutes: float) -> dict[str, Any]:
    """The figures of a soak of so many minutes."""
    with (
        tempfile.TemporaryFile("w+") as log,
        served(None, "--time-limit", "4", descriptors=256, log=log) as server,
    ):
        answers = soak(server.address, 0, ROUND)  # until everything is loaded
        figures = _soak_for(server, minutes, answers)
        log.seek(0, 2)
        return {**figures, "log_bytes": log.tell()}


def _soak_for(server: Served, minutes: float, answers: "collections.Counter[str]") -> dict[str, Any]:
    process, address = server
    before, started, count = memory(process.pid), time.monotonic(), ROUND
    with half_open(address) as opened, _attacks(address) as attacks, _health(address) as times:
        while time.monotonic() - started < 60 * minutes:
            answers += soak(address, count, ROUND)
            count += ROUND
    seconds = time.monotonic() - started
    time.sleep(2)  # until the connections that were left are gone
    after, total = memory(process.pid), sum(answers.values())
    again = sum(answers[kind] for kind in AGAIN)
    alive = process.poll() is None
    slowest = round(1000 * max(times), 1)
    return {
        "count": count,
        "failures": total - again - answers["as expected"] + (not alive),
        "note": f"{sum(attacks.values())} endless files and {opened['half open']} half-open connections beside; "
        f"/healthz at most {slowest:g} ms; {before or 0:.0f} MB before, {after or 0:.0f} MB after",
        "seconds": round(seconds, 1),
        "answers": dict(answers),
        "endless_files": dict(attacks),
        "half_open_connections": opened["half open"],
        "healthz_median_ms": round(1000 * statistics.median(times), 1),
        "healthz_slowest_ms": slowest,
        "memory_mb": [before, after],
        "descriptors": _descriptors(process.pid),
        "alive": alive,
    }


def main(arguments: list[str] | None = None) -> int:
    """0 if every answer was as expected and the server lives."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak_server", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--json", type=Path, help="save the figures here")
    options = parser.parse_args(arguments)
    figures = run(options.minutes)
    text = json.dumps(figures, indent=1)
    sys.stdout.write(text + "\n")
    if options.json is not None:
        options.json.write_text(text + "\n")
    return 0 if figures["failures"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
