"""Pictures of the page for the documentation: ``python -m tools.screenshots [FOLDER]``.

Every tab, saved as ``page-TAB-LOOK.png`` with few colors, so that they stay small.
"""

import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from caunet.errors import CaunetError
from caunet.files import atomic_write
from tools.browser import opened
from tools.serving import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["SHOTS", "Shot", "main", "take"]


class Shot(NamedTuple):
    """One picture: which tab, how wide, in which colors."""

    tab: str
    look: str
    task: str = "rotation"
    width: int = 1280
    height: int = 800
    narrow: bool = False

    @property
    def file(self) -> str:
        return f"page-{self.tab}-{self.look}.png"


SHOTS = tuple(Shot(tab, "light") for tab in ("see", "use", "stack", "volumes"))
_OWN = 64
_COLORS = """[...document.querySelectorAll("#legend .mark")].map(n => getComputedStyle(n).backgroundColor)"""
_PATIENCE = 60_000  # milliseconds: the first answer waits for the networks to be loaded


def take(browser: "Browser", address: str, shot: Shot) -> bytes:
    """The PNG of one shot of the page at ``address``."""
    page = browser.new_page(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.look == "dark" else "light",
        reduced_motion="reduce",
        device_scale_factor=2 if shot.narrow else 1,
    )
    page.set_default_timeout(_PATIENCE)
    try:
        page.goto(f"{address}/#{shot.tab}")
        {"see": _see, "use": _use, "stack": _stack, "volumes": _volumes}[shot.tab](page, shot)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(300)  # until what was decoded is painted
        return _small(page.screenshot(full_page=not shot.narrow), page.evaluate(_COLORS))
    finally:
        page.close()


def _see(page: "Page", shot: Shot) -> None:
    page.locator("#parameters[data-answered]").wait_for()
    wanted = page.locator(f'#tasks input[value="{shot.task}"]')
    if wanted.is_enabled():  # else the first task that there are networks for remains
        wanted.check(force=True)
        page.locator(f'#parameters[data-answered^="{shot.task} "]').wait_for()
    answered = page.locator("#parameters").get_attribute("data-answered")
    for key in ("ArrowRight", "ArrowLeft"):  # there and back, so that the time shown is not that of loading
        page.locator(".parameter input").first.press(key)
        page.wait_for_timeout(1500)
    page.locator(f'#parameters[data-answered="{answered}"]').wait_for()
    page.evaluate("document.activeElement.blur()")
    page.evaluate("window.scrollTo(0, 0)")
    if shot.narrow:
        page.locator(".photo-panel").evaluate("node => window.scrollTo(0, node.offsetTop - 12)")


def _use(page: "Page", shot: Shot) -> None:
    page.locator("#example").click()
    page.locator("#result:not(.working)").wait_for()
    if shot.narrow:
        page.locator(".viewer-panel").evaluate("node => window.scrollTo(0, node.offsetTop - 12)")
    else:
        page.evaluate("document.activeElement.blur()")


def _stack(page: "Page", shot: Shot) -> None:
    page.locator("#stack-example").click()
    page.locator("#stack-result:not(.working)").wait_for()
    page.locator("#stack-frame").fill("7")
    page.evaluate("document.activeElement.blur()")


def _volumes(page: "Page", shot: Shot) -> None:
    page.locator("#volume-example").click()
    page.locator("#volumes-result:not(.working)").wait_for()
    page.evaluate("document.activeElement.blur()")


def _small(png: bytes, exact: list[str]) -> bytes:
    """The same picture in 256 colors: the exact ones, "rgb(r, g, b)", the most frequent ones, and what is near."""
    with Image.open(io.BytesIO(png)) as opened_png:
        image = opened_png.convert("RGB")
    packed = np.asarray(image).reshape(-1, 3) @ (1 << 16, 1 << 8, 1)
    colors, counts = np.unique(packed, return_counts=True)
    frequent = colors[np.argsort(-counts)[: _OWN - len(exact)]].tolist()
    own = [int(level) for color in exact for level in re.findall(r"\d+", color)[:3]]
    own += [color >> shift & 255 for color in frequent for shift in (16, 8, 0)]
    reference = Image.new("P", (1, 1))
    reference.putpalette(own + (image.quantize(256 - _OWN, kmeans=1).getpalette() or []))
    file = io.BytesIO()
    image.quantize(palette=reference, dither=Image.Dither.FLOYDSTEINBERG).save(file, "PNG", optimize=True)
    return file.getvalue()


def main(arguments: list[str]) -> int:
    """Take all of them into the folder that is named first, or docs/figures."""
    folder = Path(arguments[0] if arguments else "docs/figures")
    weights = Path(arguments[1]) if len(arguments) > 1 else None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with opened() as browser, served(weights) as (_, address):
            for shot in SHOTS:
                png = take(browser, address, shot)
                with atomic_write(folder / shot.file) as path:
                    path.write_bytes(png)
                sys.stdout.write(f"{folder / shot.file}  {len(png) / 1000:.0f} kB\n")
    except CaunetError as error:
        sys.stderr.write(f"caunet: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
