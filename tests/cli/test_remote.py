"""``caunet estimate --server``: a server of our own answers, its form is read by Python's email parser."""

import email
import email.policy
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from PIL import Image

from caunet.cli import main
from caunet.cli.remote import multipart
from caunet.estimation.result import Estimate


def parse_form(kind, body):
    """name -> content, by the standard library's own MIME parser."""
    message = email.message_from_bytes(
        b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body, policy=email.policy.HTTP
    )
    return {
        part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
        for part in message.iter_parts()
    }


@pytest.fixture
def server():
    """Answers what ``server.answer`` (status, body) says; keeps what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            service.path, service.form = self.path, parse_form(self.headers["Content-Type"], body)
            status, content = service.answer
            self.send_response(status)
            self.send_header("Content-Length", str(len(content) + service.short))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    service = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.short = 0
    service.url = f"http://127.0.0.1:{service.server_address[1]}"
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service
    service.shutdown()
    thread.join()
    service.server_close()


@pytest.fixture
def pictures(tmp_path):
    for name, shade in (("a.png", 10), ("b.jpeg", 200)):
        Image.new("L", (40, 30), shade).save(tmp_path / name)
    return [str(tmp_path / name) for name in ("a.png", "b.jpeg")]


ESTIMATE = Estimate(torch.eye(3), "affine", confidence=0.97, size_a=(30, 40), size_b=(30, 40), seconds=0.01)


def test_both_files_and_the_model_arrive_and_the_answer_is_told(server, pictures, tmp_path, capsys):
    server.answer = 200, json.dumps(ESTIMATE.to_json()).encode()
    out = tmp_path / "out.png"
    words = ["--model", "affine", "--json", "--out", str(out)]
    assert main(["estimate", *pictures, "--server", server.url + "/", *words]) == 0
    assert server.path == "/api/estimate"
    assert server.form["model"] == b"affine"
    for name, path in zip("ab", pictures, strict=True):
        assert server.form[name] == Path(path).read_bytes()
    found = json.loads(capsys.readouterr().out)
    assert found["confidence"] == 0.97
    with Image.open(out) as image:
        assert image.getpixel((5, 5)) == 200
    assert main(["estimate", *pictures, "--server", server.url]) == 0
    assert "0.97 (very high)" in capsys.readouterr().out


def test_an_unsure_answer_ends_with_3(server, pictures):
    server.answer = 200, json.dumps({**ESTIMATE.to_json(), "confidence": 0.1}).encode()
    assert main(["estimate", *pictures, "--server", server.url]) == 3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            (413, b'{"detail": "at most 20 MB"}'),
            "takes smaller files only: at most 20 MB; reduce the images",
        ),
        ((413, b"<html>"), "takes smaller files only; reduce"),
        ((422, b'{"detail": "a: too small:\\n 1 x 1"}'), "cannot use these images: a: too small: 1 x 1"),
        ((422, b'{"detail": [{"msg": "Field required", "loc": ["a"]}]}'), "images: Field required"),
        ((422, b'{"error": {"message": "b is blank"}}'), "cannot use these images: b is blank"),
        ((503, b'{"error": "8 are waiting"}'), "is busy: 8 are waiting; try again in a moment"),
        ((421, b'{"detail": "Another host."}'), "refuses this: Another host"),
        ((504, b'{"detail": "Longer than 4 s."}'), "stopped the computation: Longer than 4 s"),
        ((404, b"[]"), "answered 404 Not Found; is it caunet?"),
        ((500, b""), "answered 500 Internal Server Error; is it caunet?"),
        ((200, b"<html>"), "answered something that is not JSON; is it caunet?"),
        ((200, b"[1]"), "answered something that is no estimate; is it caunet?"),
        ((200, b'{"matrix": 1}'), "answered something that is no estimate ("),
    ],
)
def test_refusals_are_one_kind_line(server, pictures, answer, words, capsys):
    server.answer = answer
    assert main(["estimate", *pictures, "--server", server.url, "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"caunet: {server.url} ")
    assert words in said.err
    assert said.err.count("\n") == 1


def test_an_answer_that_breaks_off(server, pictures, capsys):
    server.answer, server.short = (200, b'{"matrix": '), 100
    assert main(["estimate", *pictures, "--server", server.url]) == 2
    assert "caunet: " in capsys.readouterr().err


def test_nobody_there_and_nobody_answering(pictures, capsys):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert main(["estimate", *pictures, "--server", url]) == 2
        said = capsys.readouterr().err
        assert "cannot be reached (Connection refused); is `caunet serve` running there?" in said
        listener.listen()
        assert main(["estimate", *pictures, "--server", url, "--timeout", "0.2"]) == 2
        assert "did not answer within 0.2 s; try a larger --timeout" in capsys.readouterr().err
    assert main(["estimate", *pictures, "--server", url, "--timeout", "0"]) == 2
    assert "--timeout must be a positive number" in capsys.readouterr().err


def test_missing_files_are_named_before_anything_is_sent(pictures, capsys):
    assert main(["estimate", "nowhere.png", pictures[1], "--server", "http://127.0.0.1:9"]) == 2
    assert "caunet: a: nowhere.png: cannot be read: No such file" in capsys.readouterr().err


def test_forms_hold_any_bytes_and_name():
    content = bytes(range(256)) + b"\r\n--"
    body, kind = multipart({"model": "affine"}, {"a": ('na"me\r\n\u00e4.png', content)})
    assert parse_form(kind, body) == {"model": b"affine", "a": content}
