"""Tutorials and examples: Python files in jupytext's percent format, run from top to bottom, with what they show.

A cell that ends in an expression shows it: an image or a figure as a picture, anything else as text, as Jupyter does.

>>> run("# %% [markdown]\\n# # Title\\n# %%\\nprint(6 * 7)\\n", "title").markdown
'# Title\\n\\n```python\\nprint(6 * 7)\\n```\\n\\n```text\\n42\\n```\\n'
"""

import ast
import contextlib
import io
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from PIL import Image

__all__ = ["Notebook", "run", "run_file"]

_WIDEST = 1200  # pixels of a picture in the site


@dataclass
class Notebook:
    """A notebook after it was run."""

    name: str
    markdown: str = ""
    """The page: text, code and what the code shows."""
    pictures: dict[str, bytes] = field(default_factory=dict)
    """PNG files that the page refers to, by name."""
    ipynb: str = ""
    """The same as a Jupyter notebook, without the outputs: run it and see."""

    @property
    def title(self) -> str:
        """The first heading."""
        return next(line for line in self.markdown.splitlines() if line.startswith("# "))[2:]

    @property
    def summary(self) -> str:
        """The first paragraph after the title."""
        return self.markdown.split("\n\n")[1].replace("\n", " ")


def run_file(path: Path) -> Notebook:
    """Run the notebook at ``path`` in an empty folder that is removed afterwards."""
    return run(path.read_text(encoding="utf-8"), path.stem)


def run(source: str, name: str) -> Notebook:
    """Run a notebook in percent format; what its code raises goes through."""
    notebook = jupytext.reads(source, fmt="py:percent")
    found = Notebook(name, ipynb=_as_jupyter(notebook))
    parts: list[str] = []
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "markdown":
                parts.append(cell.source.strip())
                continue
            hidden = "hide" in cell.metadata.get("tags", [])
            if not hidden:
                parts.append(f"```python\n{cell.source.strip()}\n```")
            said, value = _execute(cell.source, names, f"{name}, cell {number}")
            shown = _picture(value)
            if shown is None and value is not None:
                said += f"{value!r}\n"
            if said.strip():
                parts.append(f"```text\n{said.rstrip()}\n```")
            if shown is not None:
                file = f"{name}-{len(found.pictures) + 1}.png"
                found.pictures[file] = shown
                parts.append(f"![{_alternative(cell)}]({file})")
    found.markdown = "\n\n".join(parts) + "\n"
    return found


@contextlib.contextmanager
def _inside(folder: str) -> Any:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _execute(source: str, names: dict[str, Any], where: str) -> tuple[str, Any]:
    """Run the statements; what was printed, and the value of the last one if it is an expression."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said, value = io.StringIO(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, where, "exec"), names)
        if isinstance(last, ast.Expr) and not source.rstrip().endswith(";"):
            value = eval(compile(ast.Expression(last.value), where, "eval"), names)
        elif last is not None:
            exec(compile(ast.Module([last], []), where, "exec"), names)
    return said.getvalue(), value


def _picture(value: Any) -> bytes | None:
    """A PNG of what a cell shows; None if it is not a picture."""
    data = io.BytesIO()
    if isinstance(value, Image.Image):
        image = value.convert("RGBA" if value.mode in ("LA", "RGBA", "P") else "RGB")
        image.thumbnail((_WIDEST, _WIDEST))
        image.save(data, "PNG", optimize=True)
        return data.getvalue()
    if hasattr(value, "savefig"):
        value.savefig(data, format="png", dpi=110)
        image = Image.open(data).convert("RGB").quantize(256)
        data = io.BytesIO()
        image.save(data, "PNG", optimize=True)
        return data.getvalue()
    return None


def _alternative(cell: Any) -> str:
    """What a picture shows, in words: the comment at the end of its cell."""
    last = str(cell.source).strip().splitlines()[-1]
    return last.partition("# ")[2] or "What the code shows"


def _as_jupyter(notebook: Any) -> str:
    # Cell numbers instead of random ids: the same source gives the same file.
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    text: str = nbformat.writes(notebook)
    return text
