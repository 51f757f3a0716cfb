"""The page in a real browser: a server of its own and a Chromium, for screenshots and tests."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from caunet.errors import CaunetError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["chromium", "opened", "served"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Where the system keeps a Chromium; None if it has none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextlib.contextmanager
def served(weights: Path | None = None) -> Iterator[str]:
    """Run ``caunet serve`` on a free port of this machine; gives its address, without a slash at the end."""
    command = [sys.executable, "-m", "caunet.cli", "serve", "--port", "0"]
    command += [] if weights is None else ["--weights", str(weights)]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("caunet is at "):
                raise CaunetError("caunet serve did not start; run it by hand to see why")
            yield line.removeprefix("caunet is at ").strip().rstrip("/")
        finally:
            process.terminate()


@contextlib.contextmanager
def opened() -> Iterator["Browser"]:
    """A browser without a window, driven by Playwright."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as error:
        raise CaunetError("this needs playwright; run: pip install playwright") from error
    path = chromium()
    if path is None:
        raise CaunetError("this needs Chromium; on Debian run: apt-get install chromium")
    with sync_playwright() as playwright:
        # Chromium's own sandbox refuses to run as root, as in containers; it visits nothing but this page here.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
