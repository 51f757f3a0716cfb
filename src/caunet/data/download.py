"""Get one file from the network, in bounded time: over HTTP, or as a package by running ``npm pack``.

Whatever goes wrong at the far end is a :class:`SourceError`, so that the caller can try the next source.
A full disk is a plain :class:`~caunet.errors.DataError`: no other source would help.

Why not pooch, which is made for this: it bounds neither the size nor the whole time of a download (a server that sends
a byte every ten seconds keeps it for ever), and it identifies a file by the hash of the archive, while what has to be
right here are the pixels, which come in several archives; its HTTP library would be one more dependency of the core.
"""

import contextlib
import errno
import http.client
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caunet.errors import DataError
from caunet.progress import track

__all__ = ["Limits", "SourceError", "disk_errors", "download", "npm_pack"]

CHUNK = 1 << 18


class SourceError(DataError):
    """This source did not deliver; another one may."""


@dataclass(frozen=True)
class Limits:
    """Seconds until a silent connection, a whole download, a run of npm is given up; bytes of a download."""

    silence: float = 15.0
    total: float = 1800.0
    npm: float = 600.0
    size: int = 400_000_000


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn failures to write below ``folder`` into a :class:`DataError` that says what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free about 400 MB there" if full else "make it writable"
        what = "the disk is full" if full else (error.strerror or str(error))
        raise DataError(
            f"cannot write in {folder}: {what}; {advice}, or set CAUNET_HOME to a folder elsewhere"
        ) from error


def download(url: str, path: Path, limits: Limits) -> None:
    """Download ``url`` (http or https) to ``path``. Raises :class:`SourceError` when ``limits`` are exceeded."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url must begin with http:// or https://, got {url!r}")
    request = urllib.request.Request(url, headers={"User-Agent": "caunet"})
    try:
        with urllib.request.urlopen(request, timeout=limits.silence) as response:
            _copy(response, path, limits)
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            raise SourceError(f"the server answered {error.code} {error.reason}") from error
    except TimeoutError as error:
        raise SourceError(f"no data for {limits.silence:g} s") from error
    except urllib.error.URLError as error:
        raise SourceError(f"cannot connect: {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise SourceError(f"the connection broke: {error or type(error).__name__}") from error


def _copy(response: Any, path: Path, limits: Limits) -> None:
    if "text/html" in (response.headers.get("Content-Type") or ""):
        raise SourceError("the server sent a web page instead of data")
    length = response.headers.get("Content-Length") or ""
    total = int(length) if length.isdecimal() else None
    if total is not None and total > limits.size:
        raise SourceError(f"the file is too large: {total} bytes, at most {limits.size} expected")
    end = time.monotonic() + limits.total
    with _create(path) as file, track(total, "downloading", "bytes") as bar:
        # read1 hands over what has arrived, so a server that drips is seen by the clock below.
        while chunk := response.read1(CHUNK):
            with disk_errors(path.parent):
                file.write(chunk)
            bar.advance(len(chunk))
            if bar.done > limits.size:
                raise SourceError(f"the file is too large: more than {limits.size} bytes")
            if time.monotonic() > end:
                raise SourceError(f"not finished after {limits.total:g} s")
    if total is not None and bar.done < total:
        raise SourceError(f"the connection ended early: {bar.done} of {total} bytes")


@contextlib.contextmanager
def _create(path: Path) -> Iterator[Any]:
    with disk_errors(path.parent):
        file = path.open("wb")
    try:
        yield file
    finally:
        with disk_errors(path.parent):
            file.close()


def npm_pack(package: str, folder: Path, limits: Limits) -> Path:
    """Get ``package`` (``name@version``) by npm into the empty ``folder``; the path of the ``.tgz``.

    Nothing of the package is run or unpacked.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("npm is not installed")
    with track(None, f"npm pack {package}"):
        code, output = _run([npm, "pack", "--ignore-scripts", package], folder, limits.npm)
    found = sorted(folder.glob("*.tgz"))
    if code == 0 and len(found) == 1:
        return found[0]
    if "ENOSPC" in output:
        with disk_errors(folder.parent):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    raise SourceError(f"npm failed (exit code {code}): {_reason(output)}")


def _run(command: list[str], folder: Path, seconds: float) -> tuple[int, str]:
    # A session of its own, because on time-out npm's children have to go too.
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except BaseException as error:
            _stop(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise SourceError(f"npm not finished after {seconds:g} s") from error
            raise
    return process.returncode, output.decode("utf-8", "replace")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if "npm error" in line or "npm ERR" in line]
    return "; ".join(lines[:3]) or output.strip()[-200:] or "no message"
