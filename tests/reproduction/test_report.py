"""The report of a small but real grid: everything in it, nothing fetched from elsewhere."""

import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from PIL import Image

from caunet.data.pairs import Pairs
from caunet.reproduction import unit_figures
from caunet.reproduction.recipes import Cell, written
from caunet.reproduction.report import main, write_report
from caunet.reproduction.results import collect
from caunet.reproduction.tables import paper, show
from caunet.reproduction.worker import make_trainer, run_cell

WANTED = [("rotation", "ctn"), ("rotation", "bln"), ("rotation", "can"), ("translation", "can")]


class Page(HTMLParser):
    """Collects addresses, ids, references between elements, headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: Counter[str] = Counter()
        self.references: set[str] = set()
        self.tags: Counter[str] = Counter()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids[value or ""] += 1
            self.references |= set(re.findall(r"url\(#([^)]+)\)", value or ""))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> tuple[Path, list[Cell]]:
    out = tmp_path_factory.mktemp("runs")
    short = {"updates": 40, "test_every": 20, "log_every": 10, "checkpoint_every": 0, "per_image": 2}
    cells = [
        Cell("written", model, written(task, model, data=str(pictures), compile="never", **short))
        for task, model in WANTED
    ]
    trainer = make_trainer()
    assert [run_cell(cell, out, trainer).state for cell in cells] == ["finished"] * len(cells)
    write_report(cells, collect(cells, out), out)
    return out, cells


@pytest.fixture(scope="module")
def text(grid: tuple[Path, list[Cell]]) -> str:
    return (grid[0] / "report" / "index.html").read_text()


def test_nothing_is_fetched(text: str) -> None:
    page = Page(text)
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert all(address.startswith(("data:image/", "#")) for address in page.addresses)
    assert "script" not in page.tags
    assert "link" not in page.tags


def test_figures_do_not_borrow_from_each_other(text: str) -> None:
    page = Page(text)
    assert page.references
    assert all(page.ids[name] == 1 for name in page.references)


def test_page_has_both_tables_with_ours(text: str, grid: tuple[Path, list[Cell]]) -> None:
    out, cells = grid
    for result in collect(cells, out):
        for measure in ("parameter_error", "transformation_error"):
            assert show(result[measure]) in text
    assert "<th>paper</th>" not in text  # its images are others
    for heading in (
        "Learning curves",
        "Errors, pair by pair",
        "What units prefer",
        "u and v",
    ):
        assert heading in text


def test_the_papers_figures_stand_beside_runs_like_its_own(
    tmp_path: Path, grid: tuple[Path, list[Cell]]
) -> None:
    out, cells = grid
    like = {"data": "cifar10", "updates": 60_000, "config": {}}
    results = [result | like for result in collect(cells, out)]
    page = write_report([], results, tmp_path).read_text()
    for result in results:
        for measure in ("parameter_error", "transformation_error"):
            assert f"{paper()[measure][result['task']][result['model']]:.3f}" in page
    for heading in ("Table II.", "Table III.", "<th>search</th>", "Each parameter of z"):
        assert heading in page


def test_pictures_are_of_the_seed_that_is_at_hand_and_the_page_says_so(
    tmp_path: Path, grid: tuple[Path, list[Cell]], text: str
) -> None:
    """CAN of rotation at seed 2 alone, CTN at seed 0, in two folders; of translation a run that is not finished."""
    out, cells = grid
    assert "Inside the networks: rotation, seed 0" in text
    assert "No pictures from inside" not in text
    ctn, _, can, moved = cells
    later = [Cell(c.recipe, c.label, c.config.replace(seed=2)) for c in (can, moved)]
    one, two = tmp_path / "one", tmp_path / "two"
    shutil.copytree(out / ctn.name, one / ctn.name)
    for cell, old in zip(later, (can, moved), strict=True):
        shutil.copytree(out / old.name, two / cell.name)
    result = two / later[0].name / "result.json"
    stored = json.loads(result.read_text())
    result.write_text(json.dumps(stored | {"config": stored["config"] | {"seed": 2}}))
    page = write_report([*cells, *later], collect(cells, out), one, tmp_path / "page", [two]).read_text()
    assert "Inside the networks: rotation, seed 2" in page
    assert "What units prefer" in page
    assert "Inside the networks: translation" not in page
    assert "No pictures from inside the networks of translation:" in page


def test_page_follows_light_and_dark(text: str) -> None:
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert text.count("currentColor") > 10


def test_figures_lie_beside_the_page(grid: tuple[Path, list[Cell]]) -> None:
    folder = grid[0] / "report" / "figures"
    names = {path.stem for path in folder.glob("*.png")}
    assert names == {path.stem for path in folder.glob("*.svg")}
    assert {"written-curves", "written-histograms", "written-rotation-pairs"} <= names
    assert {
        f"written-translation-{kind}" for kind in ("preferences", "matches", "filters", "associations")
    } <= names
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            image.verify()


def test_same_pairs_are_remembered(grid: tuple[Path, list[Cell]]) -> None:
    cells = grid[1]
    assert cells[0].pairs == cells[1].pairs != cells[3].pairs


def test_tuning_averages_responses_by_z() -> None:
    class Source:
        """Pairs whose first pixel says which unit answers."""

        from caunet import tasks

        task, names = tasks.get("rotation"), ("angle",)

        def __len__(self) -> int:
            return 90

        def batch(self, epoch: int, index: torch.Tensor) -> Pairs:
            z = index[:, None] - 44.5  # one degree a step, two a bin
            return Pairs(z.sign(), z, z)

    class Model:
        """Unit 0 answers negative angles, unit 1 positive ones, as strong as the angle."""

        def units(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cat([(x < 0) * y.abs(), (x > 0) * y.abs()], 1)

    tuning = unit_figures.tuning_of(Model(), Source())  # type: ignore[arg-type]
    assert tuning.response.shape == (2, 45)
    # Bin 0 holds -44.5 and -43.5; the middle bin -0.5 and 0.5, half of which each unit answers.
    assert tuning.response[0, 0] == 44.0
    assert tuning.response[1, 0] == 0.0
    assert tuning.response[:, 22].tolist() == [0.25, 0.25]
    assert tuning.preferred(0) == (-44.0,)
    assert tuning.preferred(1) == (44.0,)


def test_the_command_reports_on_results_without_runs(
    grid: tuple[Path, list[Cell]], tmp_path: Path, text: str
) -> None:
    out, cells = grid
    collect(cells, out, tmp_path / "results")
    arguments = ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "none")]
    assert main([*arguments, "--out", str(tmp_path / "page")]) == 0
    made = (tmp_path / "page" / "index.html").read_text()
    tables = re.compile(r"<table>.*?</table>", re.DOTALL)
    assert tables.findall(made) == tables.findall(text) != []
    assert "What units prefer" in text
    assert "What units prefer" not in made  # no networks are there to draw
