"""A real browser, Chromium without a window, for screenshots and tests."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from caunet.errors import CaunetError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["chromium", "opened"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Where the system keeps a Chromium; None if it has none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


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
