"""One table in two forms: Markdown, read back by a Markdown parser, and rich's, printed."""

import io

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from caunet.tables import Cell, Table, bold

TABLE = Table(
    ["name", "error | px", ""],
    "lrl",
    [["a|b", bold("0.1"), "x"], ["[red]c[/]", bold("2", False), Cell("d", style="green")]],
    title="Errors",
    caption="of two",
    sections=[1],
)


def test_a_markdown_parser_reads_the_cells_back() -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(TABLE.markdown())
    cells = [token for token in tokens if token.type == "inline"]
    texts = ["".join(child.content for child in cell.children or []) for cell in cells]
    assert texts == ["name", "error | px", "", "a|b", "0.1", "x", "[red]c[/]", "2", "d"]
    strong = [any(child.type == "strong_open" for child in cell.children or []) for cell in cells]
    assert strong == [False] * 4 + [True] + [False] * 4
    heads = [token.attrs.get("style") for token in tokens if token.type == "th_open"]
    assert heads == [None, "text-align:right", None]


@pytest.mark.parametrize("compact", [True, False])
def test_a_terminal_shows_the_same_text(compact: bool) -> None:
    console = Console(width=60, file=io.StringIO(), force_terminal=False)
    console.print(TABLE.rich(compact))
    shown = console.file.getvalue()
    lines = [line.split() for line in shown.splitlines()]
    assert ["name", "error", "|", "px"] in lines
    assert ["a|b", "0.1", "x"] in lines
    assert ["[red]c[/]", "2", "d"] in lines  # text, not markup
    assert "Errors" in shown
    assert "of two" in shown


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="must have 2 columns, as heads, got 1"):
        Table(["a", "b"], "lr", [["x"]])
