"""The documentation: it builds without a warning, its links lead somewhere, and it needs nothing from elsewhere.

The build runs every tutorial and every example of the gallery, so their code is tested here too.
"""

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from PIL import Image
from tools.site.reference import path_of, public_names

from caunet.cli.parser import command_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", folder],
        capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    return folder


class _Page(HTMLParser):
    """What a page loads, where its links go, and which anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = dict(attributes)
        if known.get("id"):
            self.anchors.add(str(known["id"]))
        if tag == "a":
            self.links.append(known.get("href") or "")
        elif tag == "link" and known.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(known.get("href") or "")
        elif known.get("src"):
            self.loads.append(str(known["src"]))
        self.loads += re.findall(r"url\(([^)]+)\)", known.get("style") or "")


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    found = {}
    for path in site.rglob("*.html"):
        found[path] = page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    assert len(found) > 50
    return found


def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, _Page]) -> None:
    outside = {str(path.relative_to(site)): [url for url in page.loads if re.match(r"(https?:)?//", url)]
               for path, page in pages.items()}  # fmt: skip
    assert not {name: urls for name, urls in outside.items() if urls}
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path


def test_links_lead_somewhere(site: Path, pages: dict[Path, _Page]) -> None:
    wrong = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are meant for the top of a server
            continue
        for url in {*page.links, *page.loads}:
            parts = urlsplit(url)
            if parts.scheme or not (parts.path or parts.fragment):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            known = pages.get(target)
            if not target.exists() or (parts.fragment and known and parts.fragment not in known.anchors):
                wrong.append(f"{path.relative_to(site)}: {url}")
    assert not wrong, "\n".join(wrong)


def test_every_public_name_is_in_the_reference(site: Path, pages: dict[Path, _Page]) -> None:
    missing = []
    for room, name in public_names():
        anchors = pages[site / "reference" / "api" / f"{room}.html"].anchors
        if path_of(room, name) not in anchors:
            missing.append(f"caunet.{room}.{name}")
    assert not missing, f"no docstring, or not found: {missing}"


def test_every_command_is_explained(site: Path) -> None:
    page = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"<code>(caunet[^<]*)</code>.*?<pre[^>]*>(.*?)</pre>", page, flags=re.DOTALL))
    wanted = ["caunet", *(" ".join(("caunet", *words)) for words in command_names())]
    assert list(blocks) == wanted
    assert all("usage: caunet" in re.sub(r"<[^>]+>", "", text) for text in blocks.values())


def test_tutorials_and_examples_show_pictures(site: Path, pages: dict[Path, _Page]) -> None:
    sources = [*(DOCS / "tutorials").glob("*.py"), *(DOCS / "gallery").glob("*.py")]
    assert len(sources) >= 12
    for source in sources:
        page = site / source.parent.name / f"{source.stem}.html"
        pictures = [page.parent / name for name in pages[page].loads if name.startswith(f"{source.stem}-")]
        assert pictures, f"{source.name} shows nothing"
        for picture in pictures:
            assert np.asarray(Image.open(picture).convert("L")).std() > 5, f"{picture.name} is empty"
        assert page.with_suffix(".ipynb").exists()


def _console_commands() -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]]
    texts += [re.sub(r"^# ?", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
              for path in sorted(DOCS.rglob("*.py"))]  # fmt: skip
    blocks = [
        block for text in texts for block in re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL)
    ]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return sorted({line.strip() for line in lines if line.strip().startswith("caunet ")})


@pytest.mark.parametrize("line", _console_commands())
def test_commands_can_be_typed_as_printed(line: str) -> None:
    from caunet.cli.parser import parse

    words = shlex.split(line, comments=True)[1:]
    if words[0].startswith("--tyro"):
        return
    if "--import" in words:  # of a module that the reader has written
        del words[words.index("--import") : words.index("--import") + 2]
    parse([word for word in words if word != "..."])


@pytest.mark.parametrize("page", ["masks.md", "many-pairs.md"])
def test_how_to_code_runs(page: str) -> None:
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "how-to" / page).read_text(), flags=re.DOTALL):
        exec(compile(block, page, "exec"), {})


def test_no_notes_to_ourselves() -> None:
    notes = re.compile(r"prototype's|that was asked for|the review\b|\bissue \d+|\bTODO\b", re.IGNORECASE)
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"), *DOCS.rglob("*.py")]
    found = [
        f"{path.name}: {match[0]}" for path in paths for match in notes.finditer(path.read_text("utf-8"))
    ]
    assert not found
