"""The tables hold the paper's figures digit for digit, and ours beside them without slips."""

import re
from pathlib import Path
from typing import Any

import pytest

from caunet.errors import DataError
from caunet.reproduction import tables
from caunet.reproduction.recipes import MODELS, TASKS

# Tables II and III, typed from the paper a second time and independently of paper_tables.toml.
PRINTED = {
    "parameter_error": """
        0.773 1.893 0.049
        9.854 5.925 3.518
        0.018 0.025 0.017
        0.014 0.020 0.010
        0.030 0.032 0.030""",
    "transformation_error": """
        0.198 0.322 0.014
        0.025 0.018 0.014
        0.056 0.065 0.055
        0.084 0.100 0.072
        0.160 0.166 0.158""",
}


def result(
    task: str, model: str, error: float | None, seed: int = 0, recipe: str = "written"
) -> dict[str, Any]:
    return {
        "task": task,
        "model": model,
        "seed": seed,
        "recipe": recipe,
        "protocol": "text",
        "data": "cifar10",
        "pairs": "fixed",
        "updates": 60_000,
        "parameter_error": error,
        "transformation_error": None if error is None else error / 100,
    }


@pytest.mark.parametrize("measure", tables.MEASURES)
def test_paper_figures(measure: str) -> None:
    rows = [line.split() for line in PRINTED[measure].split("\n") if line.strip()]
    for task, row in zip(TASKS, rows, strict=True):
        assert [f"{tables.paper()[measure][task][model]:.3f}" for model in MODELS] == row


def test_entries_have_ours_the_papers_and_the_ratio() -> None:
    table = tables.make_table(
        [result("rotation", "can", 1.759), result("rotation", "ctn", 0.74)], "parameter_error"
    )
    row = table.rows["rotation"]
    assert row["can"].ours == 1.759
    assert row["can"].paper == 3.518
    assert row["can"].ratio == pytest.approx(0.5)
    assert [row[model].best for model in MODELS] == [True, False, False]
    assert row["bln"].ours is None
    assert row["bln"].ratio is None


def test_seeds_are_averaged_and_their_spread_told() -> None:
    both = [result("rotation", "can", 1.0), result("rotation", "can", 3.0, seed=1)]
    entry = tables.make_table(both, "parameter_error").rows["rotation"]["can"]
    assert entry.ours == 2.0
    assert entry.spread == pytest.approx(2**0.5)  # sample standard deviation of 1 and 3


def test_ties_in_the_digits_shown_are_both_bold() -> None:
    tie = [
        result("projective", "ctn", 0.0301),
        result("projective", "can", 0.0299),
        result("projective", "bln", 0.032),
    ]
    row = tables.make_table(tie, "parameter_error").rows["projective"]
    assert [row[model].best for model in MODELS] == [True, False, True]


def test_rows_follow_the_paper_and_variants_stay_out() -> None:
    mixed = [
        result("projective", "can", 1.0),
        result("translation", "can", 1.0),
        result("scaling", "can-wta", 1.0),
    ]
    assert list(tables.make_table(mixed, "parameter_error").rows) == ["translation", "projective"]


def test_markdown_has_every_figure_in_its_column() -> None:
    ours = [result("rotation", "ctn", 0.74), result("rotation", "bln", 5.0), result("rotation", "can", 1.928)]
    text = tables.markdown(tables.make_table(ours, "parameter_error"))
    line = next(line for line in text.splitlines() if line.startswith("| Rotation"))
    fields = [field.strip() for field in line.strip("|").split("|")]
    assert fields == [
        "Rotation",
        *("**0.740**", "9.854", "0.08×"),
        *("5.00", "5.925", "0.84×"),
        *("1.93", "3.518", "0.55×"),
        *("1", "670", "6.4e-04"),
    ]


def test_the_summary_has_the_released_runs_alone() -> None:
    runs = [result("rotation", "can", error, seed, "released") for seed, error in ((0, 2.0), (1, 3.0))]
    runs += [result("rotation", "bln", 4.0, recipe="released"), result("rotation", "ctn", 0.1)]
    head, _, row = tables.summary(runs).splitlines()[2:5]
    columns = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, row)]
    found = dict(zip(*columns, strict=True))
    assert found["CAN"] == "**2.50 ± 0.707**"
    assert (found["CTN"], found["BLN"], found["CAN, paper"]) == ("–", "4.00", "3.518")
    assert tables.summary([result("rotation", "can", 1.0)]) == ""


def test_terminal_table_fits_eighty_columns() -> None:
    from rich.console import Console

    ours = [result(task, model, 123.4) for task in TASKS for model in MODELS]
    console = Console(width=80, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(
        tables.layout(tables.make_table(ours, "transformation_error"), "note", narrow=True).rich(compact=True)
    )
    text = console.export_text()
    console.file.close()
    assert "…" not in text
    assert re.search(r"Projective +1\.23 +0\.160 +7\.71× +1\.23 +0\.166", text)


def test_fill_replaces_only_what_is_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- results:begin -->\nold\n<!-- results:end -->\nafter\n")
    assert tables.fill(page, "new")
    assert page.read_text() == "before\n<!-- results:begin -->\n\nnew\n\n<!-- results:end -->\nafter\n"
    assert not tables.fill(page, "new")  # nothing to do the second time


def test_fill_refuses_a_page_without_markers(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("nothing here\n")
    with pytest.raises(DataError, match="lacks the markers"):
        tables.fill(page, "new")


def test_unknown_measure() -> None:
    with pytest.raises(
        ValueError, match="measure must be parameter_error or transformation_error, got 'speed'"
    ):
        tables.make_table([], "speed")


def test_nobody_is_best_alone_in_a_row() -> None:
    results = [result("rotation", "can", 2.7), result("affine", "can", 0.1), result("affine", "ctn", 0.2)]
    rows = tables.make_table(results, "parameter_error").rows
    assert not rows["rotation"]["can"].best
    assert rows["affine"]["can"].best
