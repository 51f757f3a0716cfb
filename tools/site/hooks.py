"""MkDocs hooks: pages that are made when the site is built, and links that leave the documentation.

- ``docs/tutorials/*.py`` and ``docs/gallery/*.py`` are run and become pages with their pictures, and notebooks;
- the reference is made from docstrings, the command line's help and the OpenAPI document;
- CONTRIBUTING.md and CHANGELOG.md of the repository's top folder become pages;
- a link out of ``docs/`` goes to the repository where its address is given, else it is text.
"""

import functools
import html
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from PIL import Image

from tools.repository import linked, repository
from tools.site import reference
from tools.site.notebooks import Notebook, run_file

ROOT = Path(__file__).parents[2]
_THUMBNAIL = (360, 240)
_ELSEWHERE, _HERE = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker.js"


@functools.cache
def notebooks(part: str) -> list[Notebook]:
    """The notebooks of ``tutorials`` or ``gallery``, run once."""
    return [run_file(path) for path in sorted((ROOT / "docs" / part).glob("*.py"))]


def on_config(config: Any) -> Any:
    """Put the pages of the modules into the navigation."""
    pages = [{f"caunet.{room}": f"reference/api/{room}.md"} for room in reference.modules()]
    for part in config.nav:
        if "Reference" in part:
            part["Reference"].append({"Python": pages})
        if "Tutorials" in part:
            shown = [{one.title: f"gallery/{one.name}.md"} for one in notebooks("gallery")]
            part["Tutorials"] = [
                {"Gallery": ["gallery/index.md", *shown]} if page == {"Gallery": "gallery/index.md"} else page
                for page in part["Tutorials"]
            ]
    _add_new_pages(config.nav)
    return config


def _add_new_pages(nav: list[Any]) -> None:
    """A page that the navigation does not name yet stands at the end of the explanations, until somebody places it."""
    named = set(re.findall(r"'([^']+\.md)'", str(nav)))
    for path in sorted((ROOT / "docs").glob("*.md")):
        if path.name not in named:
            next(part for part in nav if "Explanation" in part)["Explanation"].append(path.name)


def on_files(files: Files, config: Any) -> Files:
    """Add what is made here."""
    made = {
        "reference/index.md": reference.top_level(),
        "reference/command-line.md": reference.command_line(),
    }
    made |= {"reference/http.md": reference.http_api(), "gallery/index.md": _gallery()}
    made |= {f"reference/api/{room}.md": reference.module_page(room) for room in reference.modules()}
    made |= {"contributing.md": _top("CONTRIBUTING.md"), "changes.md": _top("CHANGELOG.md")}
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    for part in ("tutorials", "gallery"):
        for notebook in notebooks(part):
            for name, content in _notebook_files(notebook):
                files.append(File.generated(config, f"{part}/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files outside ``docs/`` go to the repository, if it has an address; the file must be there."""
    above = "../" * page.file.src_uri.count("/")

    def outside(match: re.Match[str]) -> str:
        if not (ROOT / match[2].partition("#")[0]).exists():
            raise PluginError(f"{page.file.src_uri} points at {match[2]}, which is not in the repository")
        return linked(f"{match[1]}({match[2]})", repository())

    return re.sub(rf"(\[[^\]]*\])\({re.escape(above)}\.\./([^)]+)\)", outside, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Search without a server needs a script, which the theme would fetch from elsewhere."""
    return output.replace(_ELSEWHERE, "../" * page.file.dest_uri.count("/") + _HERE)


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page that a server shows where there is none."""
    return output_content.replace(_ELSEWHERE, f"/{_HERE}")


def _notebook_files(notebook: Notebook) -> Iterator[tuple[str, str | bytes]]:
    name = notebook.name
    title, _, rest = notebook.markdown.partition("\n")
    offer = f'[Notebook](./{name}.ipynb){{ .md-button download="{name}.ipynb" }}'
    yield f"{name}.md", f"{title}\n\n{rest.strip()}\n\n---\n\n{offer}\n"
    yield f"{name}.ipynb", notebook.ipynb
    yield from notebook.pictures.items()
    if notebook.pictures:
        # The last picture is what an example comes to.
        yield f"{name}-thumbnail.png", _thumbnail(list(notebook.pictures.values())[-1])


def _thumbnail(picture: bytes) -> bytes:
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.thumbnail(_THUMBNAIL)
    paper = Image.new("RGB", _THUMBNAIL, "white")
    paper.paste(image, ((_THUMBNAIL[0] - image.width) // 2, (_THUMBNAIL[1] - image.height) // 2))
    data = io.BytesIO()
    paper.quantize(128).save(data, "PNG", optimize=True)
    return data.getvalue()


def _gallery() -> str:
    return (
        "# Gallery\n\nShort examples, each run when this site is built; click one for its code. They use photographs "
        "that come with scikit-image (`pip install 'caunet[report]'`), so they run as they are.\n\n"
        + _grid("gallery", "")
        + "\n\n## Tutorials\n\n"
        + _grid("tutorials", "../tutorials/")
        + "\n"
    )


def _grid(part: str, folder: str) -> str:
    """Thumbnails with a title and a sentence. (As HTML: in Markdown every link would become a paragraph.)"""
    cards = []
    for one in notebooks(part):
        about = html.escape(one.summary.split(". ")[0].rstrip(".").replace("`", ""))
        picture = f'<img src="{folder}{one.name}-thumbnail.png" alt="" loading="lazy">'
        text = f"<span><b>{html.escape(one.title)}</b>{about}.</span>"
        cards.append(f'<a href="{folder}{one.name}.html">{picture}{text}</a>')
    return '<div class="gallery">\n' + "\n".join(cards) + "\n</div>"


def _top(name: str) -> str:
    """A file of the repository's top folder as a page: its links into docs/ become links between pages."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/([^)]+)\)", r"](\1)", text)
    return re.sub(r"\]\((?!https?:|#)([^)]+)\)", lambda m: _keep_or_leave(m[1]), text)


def _keep_or_leave(target: str) -> str:
    inside = (ROOT / "docs" / target.partition("#")[0]).exists()
    return f"]({target})" if inside else f"](../{target})"
