"""Bodies, crowds, time, headers: what holds whatever is asked."""

import asyncio
import contextlib
import re
import socket
import threading
from pathlib import Path

import httpx
import pytest
import uvicorn

import caunet.web
from caunet.cli import main
from caunet.web import create_app
from caunet.web.jobs import BusyError, Computations, TooLongError
from caunet.web.limits import HEADERS, BodyLimit
from tests.web.conftest import serving
from tests.web.pictures import ASTRONAUT, png

MB = 2**20


@pytest.fixture(scope="module")
def strict():
    """An application with small limits, so that they are reached soon."""
    app = create_app(workers=1, queue=1, seconds=30.0)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        client.places = app.state.computations  # the server runs in this process: it can be looked into
        yield client


# Bodies


def chunks(total, piece=256 * 1024):
    for _ in range(total // piece):
        yield bytes(piece)


def test_a_chunked_body_that_is_too_large_is_refused(strict):
    answer = strict.post("/api/estimate", content=chunks(12 * MB))
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 413
    assert answer.json() == {"detail": "The request is larger than 10 MB; send smaller pictures."}


def test_an_announced_body_that_is_too_large_is_refused(strict):
    assert strict.post("/api/estimate", content=bytes(10 * MB + 1)).status_code == 413
    assert strict.post("/nowhere", content=bytes(10 * MB + 1)).status_code == 413
    assert strict.post("/api/estimate", content=bytes(10 * MB)).status_code == 422  # read, but no form


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
    head = f"POST /api/estimate HTTP/1.1\nHost: x\nContent-Length: {50 * MB}\nExpect: 100-continue\n"
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


# Computations


def test_busy_then_free_again(monkeypatch, strict):
    go, begun = threading.Event(), threading.Event()

    def slow(form):
        begun.set()
        go.wait(30)
        return {}

    monkeypatch.setattr("caunet.web.app.relate", slow)
    form = {"a": png(ASTRONAUT[:32, :32])}

    async def crowd():
        async with httpx.AsyncClient(base_url=strict.base_url, timeout=60) as client:
            patient = [asyncio.create_task(client.post("/api/estimate", files=form)) for _ in range(2)]
            while not begun.is_set() or strict.places.taken < 2:
                await asyncio.sleep(0.01)
            refused = await client.post("/api/estimate", files=form)
            alive = await client.get("/healthz")
            go.set()
            return refused, alive, await asyncio.gather(*patient)

    refused, alive, patient = asyncio.run(crowd())
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert "try again" in refused.json()["detail"]
    assert alive.status_code == 200
    assert [answer.status_code for answer in patient] == [200, 200]


def test_too_long_keeps_its_place_until_it_really_ends():
    go = threading.Event()
    places = Computations(workers=1, queue=1, seconds=0.1)

    async def story():
        with pytest.raises(TooLongError):
            await places.run(go.wait, 30)
        assert places.taken == 1  # it goes on
        with pytest.raises(BusyError):  # waits in the queue, but never begins
            await places.run(lambda: None)
        assert places.taken == 1
        go.set()
        while places.taken:
            await asyncio.sleep(0.01)
        return await places.run(lambda: 7)

    assert asyncio.run(story()) == 7
    with pytest.raises(ZeroDivisionError):  # failures are handed on, and give their place back
        asyncio.run(places.run(lambda: 1 / 0))
    assert places.taken == 0
    places.close()


def test_too_long_is_504(monkeypatch):
    go = threading.Event()
    monkeypatch.setattr("caunet.web.app.relate", lambda form: go.wait(30) and {})
    with serving(create_app(workers=1, seconds=0.1)) as address:
        answer = httpx.post(f"{address}/api/estimate", files={"a": b"x"})
        go.set()
    assert answer.status_code == 504
    assert answer.json()["detail"] == "This took longer than 0.1 s; try smaller pictures."


# Headers, addresses


def test_headers_are_on_every_answer(monkeypatch, strict):
    def broken(form):
        raise RuntimeError("on purpose")

    monkeypatch.setattr("caunet.web.app.relate", broken)
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
        "bad": strict.post("/api/infer", json={}),
        "too large": strict.post("/api/infer", content=chunks(11 * MB)),
        "mistake": strict.post("/api/estimate", files={"a": b"x"}),
        "elsewhere": strict.post("/api/infer", json={}, headers={"sec-fetch-site": "cross-site"}),
    }
    status = {name: answer.status_code for name, answer in answers.items()}
    assert status == dict.fromkeys(("page", "static", "docs", "openapi", "models", "photograph"), 200) | {
        **dict.fromkeys(("missing", "outside", "nowhere", "no photograph"), 404),
        "method": 405,
        "bad": 422,
        "too large": 413,
        "mistake": 500,
        "elsewhere": 403,
    }
    for name, answer in answers.items():
        for header, value in HEADERS.items():
            assert answer.headers.get_list(header) == [value], (name, header)
        assert ("no-store" in answer.headers["cache-control"]) == answer.url.path.startswith("/api"), name
        assert "server" not in answer.headers
        if answer.status_code >= 400:
            assert list(answer.json()) == ["detail"], name
    assert "on purpose" not in answers["mistake"].text  # the inside stays inside
    assert "'unsafe" not in HEADERS["content-security-policy"]


def test_nothing_points_elsewhere(strict):
    """Neither what is served nor what serves it names another host (namespaces of SVG are names, not addresses)."""
    files = list(Path(caunet.web.__file__).parent.rglob("*"))
    texts = {str(f): f.read_text() for f in files if f.suffix in {".py", ".html", ".css", ".js", ".svg"}}
    texts |= {path: strict.get(path).text for path in ("/", "/docs", "/openapi.json")}
    allowed = re.compile(r"https?://(127\.0\.0\.1|localhost|www\.w3\.org/)|https?://[{$]")
    for name, text in texts.items():
        for found in re.finditer(r"(https?:)?//[a-z0-9{$][\w.{}$-]*\.[\w/]+|https?://\S+", text):
            assert allowed.match(found[0]), f"{name} points to {found[0]}"


def test_docs_need_no_script_and_tell_every_operation(strict):
    page, document = strict.get("/docs").text, strict.get("/openapi.json").json()
    assert "<script" not in page
    assert "style=" not in page
    for path in document["paths"]:
        assert path in page
    body = document["paths"]["/api/infer"]["post"]["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():  # examples that do not work teach the wrong thing
        assert strict.post("/api/infer", json=example["value"]).status_code == 200


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
    assert "--port takes a number within 0..65535" in capsys.readouterr().err
    assert main(["serve", "--weights", str(tmp_path / "none")]) == 2
    assert "--weights takes a folder" in capsys.readouterr().err
    assert main(["serve", "--time-limit", "0"]) == 2
    assert "--time-limit takes a positive" in capsys.readouterr().err


def test_the_command_line_sees_why_large_files_are_refused(strict, tmp_path, capsys):
    big = tmp_path / "big.png"
    big.write_bytes(bytes(11 * MB))
    assert main(["estimate", str(big), str(big), "--server", str(strict.base_url)]) == 2
    assert "takes smaller files only: The request is larger than 10 MB" in capsys.readouterr().err
