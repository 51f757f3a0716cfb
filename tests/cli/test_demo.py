"""``caunet demo``: two images aligned, three networks, a table, a report."""

from pathlib import Path

import pytest

from caunet.cli import main
from caunet.reproduction.recipes import demo


def test_the_demo_shows_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("caunet.reproduction.recipes.best", _short)
    assert main(["demo", "--out", str(tmp_path), "--updates", "20", "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "corners off by 0." in said
    assert "confidence" in said
    for row in (
        "CTN, concatenation",
        "BLN, bilinear",
        "CAN, contrast association",
        "always the mean",
        "exhaustive search",
    ):
        assert row in said
    assert "paper" not in said  # neither images nor length are the paper's
    assert (tmp_path / "aligned.png").is_file()
    page = (tmp_path / "report" / "index.html").read_text()
    assert "At their best" in page
    assert "three networks compared" in page
    assert "trained again" not in page
    assert "ratio" not in page.partition("</style>")[2]


def _short(task: str, model: str, **changes: object) -> object:
    from caunet.reproduction.recipes import written

    small = {
        "model_options": {"units": 8} if model != "ctn" else {"hidden": [20]},
        "compile": "never",
        "test_pairs": 50,
    }
    return written(task, model, **{**changes, **small})


def test_the_networks_are_at_their_best() -> None:
    cells = demo(6000)
    assert {cell.config.test_every for cell in cells} == {500}  # a curve of a dozen points
    assert [cell.label for cell in cells] == ["ctn", "bln", "can"]
    assert {cell.config.pairs for cell in cells} == {"fresh"}
    assert cells[-1].config.rule == "multiplicative-adam"
