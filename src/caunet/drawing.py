"""Figures: one way to make one and one way to save it.

matplotlib's object interface is used throughout: no window, no global state. It comes with the extra ``report``.

>>> check_figure("curves.jpg", "figure")
Traceback (most recent call last):
    ...
ValueError: figure must be a file name ending in .png, .svg or .pdf, got 'curves.jpg'
"""

import os
from pathlib import Path
from typing import Any

from caunet.extras import require
from caunet.files import atomic_write

__all__ = ["FORMATS", "check_figure", "new_figure", "save_figure"]

FORMATS = ("png", "svg", "pdf")


def new_figure(width: float, height: float, layout: str = "constrained", **settings: Any) -> Any:
    """An empty matplotlib figure of ``width`` x ``height`` inches, by default laid out without overlaps."""
    Figure = require("matplotlib.figure", "report", "Drawing").Figure
    return Figure(figsize=(width, height), layout=layout, **settings)


def check_figure(path: str | os.PathLike[str], argument: str) -> str:
    """The format that the name of ``path`` asks for; ``argument`` is the name that an error gives it."""
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in FORMATS:
        ending = ".png, .svg or .pdf"
        raise ValueError(f"{argument} must be a file name ending in {ending}, got {os.fspath(path)!r}")
    return kind


def save_figure(figure: Any, path: str | os.PathLike[str], argument: str = "path", dpi: float = 110) -> None:
    """Write ``figure`` to ``path`` (.png, .svg or .pdf), whole or not at all."""
    kind = check_figure(path, argument)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=dpi)
