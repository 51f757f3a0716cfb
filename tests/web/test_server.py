"""Connections: what holds before a request has arrived."""

import contextlib
import socket
import time

import httpx
import pytest

from caunet.web import create_app
from caunet.web.jobs import Computations
from caunet.web.server import CHUNKS, Crowd, _Quiet, listen
from tests.web.conftest import serving


@contextlib.contextmanager
def served(crowd):
    app = create_app()
    app.state.computations = Computations("tests.web.jobs:setup", workers=1)
    with serving(app, crowd=crowd) as address:
        yield address


def connect(address):
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def rest(line):
    """Everything that still comes, until the other side closes."""
    answer = b""
    with contextlib.suppress(ConnectionResetError), line:
        while part := line.recv(65536):
            answer += part
    return answer


def test_answers_are_not_held_back():
    # Nagle's algorithm makes each answer on a kept connection wait for the client's acknowledgment, 40 ms.
    crowd = Crowd()
    with served(crowd) as address, httpx.Client(base_url=address) as client:
        assert client.get("/healthz").status_code == 200
        (connection,) = crowd.open
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_half_a_head_is_not_waited_for():
    with served(Crowd(head_seconds=0.3)) as address:
        lines = [connect(address) for _ in range(3)]
        lines[1].sendall(b"GET /healthz HTTP/1.1\r\nHost: local")
        # The second request of a kept connection, too.
        lines[2].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP")
        silent, half, kept = (rest(line) for line in lines)
    for answer in (silent, half, kept):
        assert b"HTTP/1.1 408 " in answer
        assert b'{"detail": "The request took longer than 0.3 s to arrive; send it again."}' in answer
    assert kept.startswith(b"HTTP/1.1 200 ")


def test_a_slow_answer_is_not_a_slow_head():
    with served(Crowd(head_seconds=0.2)) as address, httpx.Client(base_url=address, timeout=60) as client:
        assert client.post("/api/infer", content=b"sleep 0.6").status_code == 200
        time.sleep(0.4)  # an idle connection is kept for longer than that
        assert client.get("/healthz").status_code == 200


def test_a_crowd_makes_room_for_newcomers():
    crowd = Crowd(limit=8)
    with served(crowd) as address:
        lines = [connect(address) for _ in range(40)]
        for line in lines:
            line.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert httpx.get(f"{address}/healthz").status_code == 200
        assert len(crowd.open) <= 8
        # The oldest were closed.
        assert rest(lines[0]) == b""
        for line in lines:
            line.close()


def test_a_crowd_of_workers_is_not_dropped():
    crowd = Crowd(limit=1)
    with served(crowd) as address, connect(address) as line:
        line.sendall(b"POST /api/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nsleep 0.5")
        while not any(not one.idle for one in list(crowd.open)):
            time.sleep(0.01)
        refused = httpx.get(f"{address}/healthz")
        assert refused.status_code == 503
        assert refused.json()["detail"] == "Too many connections; try again in a moment."
        assert line.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(("size", "status"), [(1, b"400"), (1000, b"200")])
def test_tiny_chunks_are_refused(size, status):
    chunk = b"%x\r\n%s\r\n" % (size, b"x" * size)
    head = b"POST /api/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    with served(Crowd()) as address, connect(address) as line:
        line.sendall(head + b"5\r\necho \r\n" + chunk * (CHUNKS + 10) + b"0\r\n\r\n")
        answer = rest(line)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"application/json" in answer


def test_nonsense_is_answered_in_json():
    with served(Crowd()) as address, connect(address) as line:
        line.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        answer = rest(line)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'{"detail": "Invalid HTTP request received."}' in answer
    assert b"content-security-policy" in answer


def test_who_does_not_take_the_answer_is_dropped(monkeypatch):
    monkeypatch.setattr("caunet.web.server.SEND_SECONDS", 0.2)
    crowd = Crowd()
    with served(crowd) as address, connect(address) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ask = b"GET /api/photographs/astronaut.png HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for _ in range(40):  # more than fits into the buffers of both sides
            with contextlib.suppress(OSError):
                line.sendall(ask)
        deadline = time.monotonic() + 20
        while crowd.open and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not crowd.open


def test_without_descriptors_the_log_stays_short(caplog):
    quiet = _Quiet()
    for _ in range(1000):
        quiet(None, {"message": "socket.accept() out of system resource", "exception": OSError(24, "many")})
    assert len(caplog.records) == 1
    assert "no connection can be accepted" in caplog.text
