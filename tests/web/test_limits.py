"""Bodies, crowds, time, headers: what holds whatever is asked."""

import asyncio
import contextlib
import functools
import re
import socket
import threading
from pathlib import Path

import httpx
import pytest
import uvicorn

import caunet.web
from caunet.cli import main
from caunet.errors import DataError
from caunet.web import create_app
from caunet.web.jobs import Computations
from caunet.web.limits import HEADERS, BodyLimit
from caunet.web.refusals import UNAVAILABLE
from tests.web.conftest import serving

MB = 2**20


@contextlib.contextmanager
def client_of(app):
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        client.places = app.state.computations  # the server runs in this process: it can be looked into
        yield client


@pytest.fixture(scope="module")
def strict():
    """The page with workers that do what the tests tell them, and small limits, so that they are reached soon."""
    app = create_app(allowed_hosts=["example.org"])
    app.state.computations = Computations("tests.web.jobs:setup", workers=1, queue=1, seconds=30.0)
    with client_of(app) as client:
        yield client


# Bodies


def chunks(total, piece=256 * 1024):
    for _ in range(total // piece):
        yield bytes(piece)


def test_a_chunked_body_that_is_too_large_is_refused(strict):
    answer = strict.post("/api/estimate", content=chunks(12 * MB))
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 413
    assert answer.json() == {"detail": "The request is larger than 10 MB; send smaller files."}


def test_an_announced_body_that_is_too_large_is_refused(strict):
    assert strict.post("/api/estimate", content=bytes(10 * MB + 1)).status_code == 413
    assert strict.post("/nowhere", content=bytes(10 * MB + 1)).status_code == 413
    assert strict.post("/api/estimate", content=b"echo ".ljust(10 * MB)).json()["length"] == 10 * MB


def raw(address, head, body=b""):
    """What a server says to bytes written by hand."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(head.replace("\n", "\r\n").encode() + b"\r\n" + body)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := line.recv(65536):
                answer += part
    return answer.decode("latin-1")


def test_who_asks_before_sending_is_told_at_once(strict):
    head = f"POST /api/estimate HTTP/1.1\nHost: localhost\nContent-Length: {50 * MB}\nExpect: 100-continue\n"
    answer = raw(str(strict.base_url).rstrip("/"), head)
    assert answer.startswith("HTTP/1.1 413")  # and not "100 Continue"


def test_a_lying_length_does_not_pass():
    # Middleware by itself: what servers normally check is not relied on.
    reached, sent = [], []

    async def app(scope, receive, send):
        reached.append(await receive())

    messages = iter([{"type": "http.request", "body": bytes(60), "more_body": True}] * 2)

    async def receive():
        return next(messages, {"type": "http.request", "body": b"", "more_body": False})

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-length", b"10")]}
    limit = BodyLimit(app, limit=100)
    asyncio.run(limit(scope, receive, send))
    assert reached == []
    assert sent[0]["status"] == 413
    assert limit.held == 0


@pytest.mark.parametrize(("crowd", "seconds", "status"), [(0, 5.0, 503), (1, 0.05, 408)])
def test_too_many_and_too_slow_bodies_are_refused(crowd, seconds, status):
    sent = []

    async def never():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"transfer-encoding", b"chunked")]}
    asyncio.run(BodyLimit(None, crowd=crowd, seconds=seconds)(scope, never, send))
    assert sent[0]["status"] == status


def test_bodies_that_do_not_come_keep_nobody_out():
    """Two clients begin a body and wait; a third sends a whole one, although there is room for one only."""
    answered, sent = [], []

    async def app(scope, receive, send):
        answered.append(await receive())

    async def send(message):
        sent.append(message)

    async def story():
        limit = BodyLimit(app, limit=100, crowd=1, seconds=30.0)
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-length", b"90")]}

        async def slow():
            await asyncio.sleep(60)

        def whole(size):
            messages = iter([{"type": "http.request", "body": bytes(size), "more_body": size < 90}])

            async def receive():
                return next(messages, None) or await slow()

            return receive

        waiting = [asyncio.create_task(limit(scope, receive, send)) for receive in (slow, whole(10))]
        await asyncio.sleep(0.05)
        assert limit.held == 10
        await limit(scope, whole(90), send)
        assert [len(message["body"]) for message in answered] == [90]
        assert limit.held == 10
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert limit.held == 0

    asyncio.run(story())
    assert sent == []


# Computations


def test_busy_then_free_again(strict):
    async def crowd():
        async with httpx.AsyncClient(base_url=strict.base_url, timeout=60) as client:
            post = functools.partial(client.post, "/api/estimate")
            patient = [asyncio.create_task(post(content=b"sleep 0.5")) for _ in range(2)]
            while strict.places.taken < 2:
                await asyncio.sleep(0.01)
            refused = await post(content=b"echo")
            alive = await client.get("/healthz")
            return refused, alive, await asyncio.gather(*patient)

    refused, alive, patient = asyncio.run(crowd())
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert "try again" in refused.json()["detail"]
    assert alive.status_code == 200
    assert [answer.status_code for answer in patient] == [200, 200]


def test_too_long_is_504(strict, monkeypatch):
    monkeypatch.setattr(strict.places, "seconds", 0.1)
    answer = strict.post("/api/estimate", content=b"sleep 60")
    assert answer.status_code == 504
    assert answer.json()["detail"] == "This took longer than 0.1 s; try smaller images."


# Headers, addresses


def test_headers_are_on_every_answer(strict):
    answers = {
        "page": strict.get("/"),
        "static": strict.get("/static/base.css"),
        "missing": strict.get("/static/nothing.css"),
        "outside": strict.get("/static/%2e%2e/app.py"),
        "nowhere": strict.get("/wp-login.php"),
        "docs": strict.get("/docs"),
        "openapi": strict.get("/openapi.json"),
        "models": strict.get("/api/models"),
        "photograph": strict.get("/api/photographs/camera.png"),
        "no photograph": strict.get("/api/photographs/..%2f..%2fapp.png"),
        "method": strict.get("/api/infer"),
        "bad": strict.post("/api/infer", content=b"refuse x"),
        "too large": strict.post("/api/infer", content=chunks(11 * MB)),
        "mistake": strict.post("/api/estimate", content=b"mistake"),
        "elsewhere": strict.post("/api/infer", json={}, headers={"sec-fetch-site": "cross-site"}),
        "rebound": strict.get("/api/models", headers={"host": "evil.example"}),
    }
    status = {name: answer.status_code for name, answer in answers.items()}
    assert status == dict.fromkeys(("page", "static", "docs", "openapi", "models", "photograph"), 200) | {
        **dict.fromkeys(("missing", "outside", "nowhere", "no photograph"), 404),
        "method": 405,
        "bad": 422,
        "too large": 413,
        "mistake": 500,
        "elsewhere": 403,
        "rebound": 421,
    }
    for name, answer in answers.items():
        for header, value in HEADERS.items():
            assert answer.headers.get_list(header) == [value], (name, header)
        kept = answer.headers["cache-control"]
        if name == "photograph":  # it never changes
            assert kept == "max-age=86400"
        else:
            assert ("no-store" in kept) == answer.url.path.startswith("/api"), name
        assert "server" not in answer.headers
        if answer.status_code >= 400:
            assert list(answer.json()) == ["detail"], name
    assert "on purpose" not in answers["mistake"].text  # the inside stays inside
    assert "'unsafe" not in HEADERS["content-security-policy"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1234", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("example.org", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("", 421),
    ],
)
def test_foreign_host_names_are_refused(strict, host, status):
    assert strict.get("/healthz", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://example.org", 200),
        ("http://example.org:80", 200),
        ("https://example.org", 200),  # a proxy that decrypts
        ("http://example.org:81", 403),
        ("http://evil.example", 403),
        ("http://example.org.evil.example", 403),
        ("null", 403),
    ],
)
def test_requests_of_other_sites_are_refused(strict, origin, status):
    # Pages without encryption do not send Sec-Fetch-Site.
    headers = {"host": "example.org", "origin": origin}
    assert strict.post("/api/infer", content=b"echo", headers=headers).status_code == status
    assert strict.get("/healthz", headers=headers).status_code == 200  # whose answer that page cannot read


def test_nothing_points_elsewhere(strict):
    """Neither what is served nor what serves it names another host (namespaces of SVG are names, not addresses)."""
    files = list(Path(caunet.web.__file__).parent.rglob("*"))
    texts = {str(f): f.read_text() for f in files if f.suffix in {".py", ".html", ".css", ".js", ".svg"}}
    texts |= {path: strict.get(path).text for path in ("/", "/docs", "/openapi.json")}
    allowed = re.compile(r"https?://(127\.0\.0\.1|localhost|www\.w3\.org/)|https?://[{$]")
    for name, text in texts.items():
        for found in re.finditer(r"(https?:)?//[a-z0-9{$][\w.{}$-]*\.[\w/]+|https?://\S+", text):
            assert allowed.match(found[0]), f"{name} points to {found[0]}"


def test_photographs_that_cannot_be_read_are_not_a_500(strict, monkeypatch, caplog):
    def missing(name):
        raise DataError("scikit-image is damaged")

    monkeypatch.setattr("caunet.web.app.photograph", missing)
    answer = strict.get("/api/models")
    assert (answer.status_code, answer.json()) == (503, {"detail": UNAVAILABLE})
    assert "scikit-image is damaged" in caplog.text


# The command


def test_serve_listens_on_loopback_and_says_where(monkeypatch, capsys):
    seen = {}

    def run(self, sockets):
        seen["bound"] = sockets[0].getsockname()
        seen["warm"] = self.config.app is not None
        raise KeyboardInterrupt

    opened = threading.Event()
    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr("webbrowser.open", lambda url: (seen.update(url=url), opened.set()))
    assert main(["serve", "--port", "0", "--open"]) == 0
    assert opened.wait(10)
    host, port = seen["bound"]
    assert host == "127.0.0.1"
    assert seen["url"] == f"http://127.0.0.1:{port}/"
    said = capsys.readouterr()
    assert said.out == f"caunet is at http://127.0.0.1:{port}/\n"
    assert said.err == ""
    assert main(["serve", "--port", "0", "--host", "0.0.0.0"]) == 0
    assert "other machines can reach it" in capsys.readouterr().err


def test_serve_tells_what_is_wrong(capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "try another --port" in capsys.readouterr().err
    assert main(["serve", "--port", "70000"]) == 2
    assert "--port must be within 0..65535, got 70000" in capsys.readouterr().err
    assert main(["serve", "--weights", str(tmp_path / "none")]) == 2
    assert "--weights must be a folder" in capsys.readouterr().err
    assert main(["serve", "--time-limit", "0"]) == 2
    assert "--time-limit must be a positive number of seconds, got 0" in capsys.readouterr().err


def test_the_command_line_sees_why_large_files_are_refused(strict, tmp_path, capsys):
    big = tmp_path / "big.png"
    big.write_bytes(bytes(11 * MB))
    assert main(["estimate", str(big), str(big), "--server", str(strict.base_url)]) == 2
    assert "takes smaller files only: The request is larger than 10 MB" in capsys.readouterr().err
