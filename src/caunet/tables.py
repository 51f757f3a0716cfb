"""One table, written as Markdown or drawn on a terminal.

Neither tabulate (Markdown from plain strings) nor rich (terminals) does both; what they would share is this class.

>>> table = Table(["task", "error"], "lr", [["rotation", bold("3.52")], ["scaling", "0.049"]])
>>> print(table.markdown())
| task | error |
|---|--:|
| rotation | **3.52** |
| scaling | 0.049 |
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import rich.table

__all__ = ["Cell", "Table", "bold"]

_RULES = {"l": "---", "r": "--:"}
_JUSTIFY: dict[str, Literal["left", "right"]] = {"l": "left", "r": "right"}


@dataclass(frozen=True)
class Cell:
    """A text, whether it is bold, and (on a terminal only) a style of rich's, such as ``green``."""

    text: str
    bold: bool = False
    style: str = ""


def bold(text: str, when: bool = True) -> Cell:
    """``text`` as a cell, bold if ``when``."""
    return Cell(text, bold=when)


@dataclass(frozen=True)
class Table:
    """Heads, one letter per column (``l`` left, ``r`` right), and rows of texts or cells."""

    heads: Sequence[str]
    align: str
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    caption: str = ""
    wrap: Sequence[str] = field(default_factory=tuple)
    """Heads of columns whose text may go over several lines on a terminal."""
    sections: Sequence[int] = field(default_factory=tuple)
    """Numbers of rows with a line above them on a terminal."""

    def __post_init__(self) -> None:
        wrong = {len(row) for row in (self.align, *self.rows)} - {len(self.heads)}
        if wrong:
            raise ValueError(
                f"rows and align must have {len(self.heads)} columns, as heads, got {min(wrong)}"
            )

    def markdown(self) -> str:
        """The table in Markdown, without title and caption."""
        rules = "".join(f"{_RULES[letter]}|" for letter in self.align)
        return "\n".join([_line(self.heads), f"|{rules}", *(_line(row) for row in self.rows)])

    def rich(self, compact: bool = False) -> "rich.table.Table":
        """The table for a terminal; ``compact`` leaves out the room between columns that 80 characters lack."""
        import rich.table
        from rich.box import SIMPLE, SIMPLE_HEAD
        from rich.text import Text

        shown = rich.table.Table(
            title=self.title or None,
            caption=self.caption or None,
            title_justify="left",
            caption_justify="left",
            box=SIMPLE_HEAD if compact else SIMPLE,
            collapse_padding=compact,
            pad_edge=not compact,
        )
        for head, letter in zip(self.heads, self.align, strict=True):
            shown.add_column(head, justify=_JUSTIFY[letter], no_wrap=head not in self.wrap)
        for number, row in enumerate(self.rows):
            if number in self.sections:
                shown.add_section()
            cells = (cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
            shown.add_row(
                *(Text(cell.text, style=" ".join(["bold"] * cell.bold + [cell.style])) for cell in cells)
            )
        return shown


def _line(row: Sequence[str | Cell]) -> str:
    return "|" + "".join(f" {text} |" if text else " |" for text in map(_markdown, row))


def _markdown(cell: str | Cell) -> str:
    text = (cell.text if isinstance(cell, Cell) else cell).replace("|", "\\|")
    return f"**{text}**" if isinstance(cell, Cell) and cell.bold else text
