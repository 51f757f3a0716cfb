"""A real ``caunet serve``, eight clients, one request in ten malformed: it neither falls nor grows.

By default 60 requests. ``CAUNET_SOAK=1`` makes it the whole 1,000, and watches the memory (on Linux).
"""

import collections
import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.web.pictures import bomb, many_scans, png, related

CLIENTS = 8
LONG = os.environ.get("CAUNET_SOAK", "") not in ("", "0")
COUNT = 1000 if LONG else 60
GROWTH = 1.05

A, B, _ = related(side=128)
PAIR = {"a": ("a.png", png(A)), "b": ("b.png", png(B))}


@pytest.fixture
def process(untrained):
    command = [sys.executable, "-m", "caunet.cli", "serve", "--port", "0", "--weights", str(untrained)]
    if os.name == "posix":  # few descriptors, as a service may have
        command = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def place(rng):
    z = [rng.uniform(-45, 45)]
    x, y = rng.randrange(512), rng.randrange(512)
    return {"task": "rotation", "z": z, "photograph": "astronaut", "x": x, "y": y}


def good(client, rng):
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


def pieces(count):
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
]


def one_client(address, numbers, seen):
    with httpx.Client(base_url=address, timeout=120) as client:
        for number in numbers:
            rng = random.Random(number)
            while True:
                bad = BAD[number // 10 % len(BAD)] if number % 10 == 0 else None
                answer, expected = bad(client) if bad else good(client, rng)
                if answer.status_code != 503:
                    break
                seen["busy, asked again"] += 1
                time.sleep(float(answer.headers["retry-after"]))
            key = "as expected" if answer.status_code == expected else f"{answer.status_code}, not {expected}"
            seen[key] += 1


def soak(address, first, count):
    """How often what was answered; numbers of the requests begin at ``first``."""
    seen = [collections.Counter() for _ in range(CLIENTS)]
    threads = [
        threading.Thread(target=one_client, args=(address, range(first + i, first + count, CLIENTS), seen[i]))
        for i in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(seen, collections.Counter())


def memory(pid):
    """Resident memory in MB; None where there is no /proc."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@contextlib.contextmanager
def half_open(address, count):
    """Connections that begin a request and never end it, opened anew as they are closed."""
    host, port = address.removeprefix("http://").split(":")
    stop = threading.Event()

    def hold():
        with contextlib.ExitStack() as lines:
            for number in itertools.count():
                if stop.is_set():
                    return
                if number < count or number % 10 == 0:
                    with contextlib.suppress(OSError):
                        line = lines.enter_context(socket.create_connection((host, int(port)), timeout=5))
                        line.sendall(b"GET / HTTP/1.1\r\n")
                if number >= count:
                    stop.wait(0.05)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def endless(address, statuses):
    """A request that would take minutes; the server is stopped before."""
    files = {"a": ("a.jpg", many_scans()), "b": PAIR["b"]}
    statuses.append(httpx.post(f"{address}/api/estimate", files=files, timeout=120).status_code)


def test_eight_clients(process):
    address = process.stdout.readline().split()[-1].rstrip("/")
    with half_open(address, 300):
        soak_and_stop(process, address)


def soak_and_stop(process, address):
    warm = 200 if LONG else 0
    answers = soak(address, 0, warm)
    before = memory(process.pid)
    started = time.perf_counter()
    answers += soak(address, warm, COUNT)
    after = memory(process.pid)
    seconds = time.perf_counter() - started
    answers.pop("busy, asked again", None)
    assert answers == {"as expected": warm + COUNT}
    assert process.poll() is None
    if LONG and before is not None:
        sys.stderr.write(f"\n{COUNT} requests in {seconds:.0f} s; memory {before:.0f} -> {after:.0f} MB\n")
        assert after < GROWTH * before
    statuses = []
    client = threading.Thread(target=endless, args=(address, statuses))
    client.start()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0  # of the 30 seconds that computations may take
    client.join()
    assert statuses == [503]
    assert process.stderr.read() == ""  # no traceback, no warning
