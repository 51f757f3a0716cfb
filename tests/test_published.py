"""What the pages print is what the committed results say: no table is older than its runs, none was typed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks import perspective, space, volumes

from caunet.reproduction import tables

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["docs/reproduction.md", "docs/learning-rule.md", "README.md"])
def test_tables_of_the_paper(page: str, tmp_path: Path) -> None:
    copy = shutil.copy(ROOT / page, tmp_path)
    tables.main([str(ROOT / "results"), copy])
    assert Path(copy).read_text() == (ROOT / page).read_text(), "make tables"


@pytest.mark.parametrize("pages", [perspective.pages, space.pages, volumes.pages])
def test_tables_of_benchmarks(pages: Callable[[], dict[tuple[str, str], str]], tmp_path: Path) -> None:
    found = pages()
    assert len(found) > 1
    for (name, section), text in found.items():
        copy = shutil.copy(ROOT / name, tmp_path)
        assert text
        assert not tables.fill(Path(copy), text, section=section), f"{name}: make tables"
