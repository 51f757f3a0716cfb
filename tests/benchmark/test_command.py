"""``caunet bench`` measures, prints and draws; wrong arguments are told in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.registration import merged_summary, scaling_table
from PIL import Image

from caunet.benchmark import figure, table
from caunet.cli import main
from tests.benchmark.test_run import rows_of

FAST = ["--methods", "ecc-pyramid", "phase", "--conditions", "clean", "--motions", "0.03", "--side", "96"]


def test_it_measures_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, curves = tmp_path / "rows.jsonl", tmp_path / "curves.png"
    assert (
        main(["bench", "registration", "--pairs", "2", *FAST, "--out", str(out), "--figure", str(curves)])
        == 0
    )
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines() if "±3 %" in line]
    assert [" ".join(words[3:-9]) for words in rows] == ["OpenCV ECC, pyramid", "phase correlation"]
    assert out.read_text().count("\n") == 1 + 2
    with Image.open(curves) as drawn:
        assert drawn.size[0] > 200
    # The same again, as JSON: nothing is left to measure, the numbers are those.
    size = out.stat().st_size
    assert main(["bench", "registration", "--pairs", "2", *FAST, "--out", str(out), "--json"]) == 0
    assert out.stat().st_size == size
    summary = json.loads(capsys.readouterr().out)
    assert [cell["method"] for cell in summary] == ["ecc-pyramid", "phase"]
    assert summary[0]["median"] < 0.5 < summary[1]["median"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "surf"], "methods must be names out of caunet"),
        (["--conditions", "fog"], "conditions must be names out of clean"),
        (["--pairs", "0"], "pairs must be a number of at least 1"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "registration", *arguments, "--out", str(tmp_path / "rows.jsonl")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "rows.jsonl").exists()


def test_pairs_can_be_looked_at(tmp_path: Path) -> None:
    out = tmp_path / "pairs.png"
    assert main(["bench", "pairs", "--out", str(out), "--pairs", "2", "--motion", "0.03"]) == 0
    with Image.open(out) as drawn:
        sheet = np.asarray(drawn, float)
    assert sheet.shape == (3 * 256, 2 * 256)
    # Below a and b: what the truth leaves of b is gray, but for its border.
    left = sheet[512 + 24 : 768 - 24, 24 : 256 - 24]
    assert np.abs(left - 127.5).mean() < 4
    assert np.abs(sheet[:256, :256] - sheet[256:512, :256]).mean() > 10


def test_the_figure_shows_ours_above_what_is_worse(tmp_path: Path) -> None:
    rows = rows_of({"caunet": [0.02] * 20, "ecc": [2.0] * 20})
    figure.draw(table.summarize(rows), tmp_path / "f.png")
    with Image.open(tmp_path / "f.png") as drawn:
        pixels = np.asarray(drawn.convert("RGB"), int)
    red = np.argwhere(np.abs(pixels - np.array([0xC1, 0x12, 0x1F])).sum(-1) < 30)
    blue = np.argwhere(np.abs(pixels - np.array([0x1D, 0x35, 0x57])).sum(-1) < 30)
    # Ours rises at 0.02 px, left of the middle; the other at 2 px, right of it.
    axes = slice(0, int(0.75 * len(pixels)))
    steep = [np.bincount(found[found[:, 0] < axes.stop][:, 1]).argmax() for found in (red, blue)]
    assert steep[0] < steep[1]


def test_times_against_pixels_as_a_table() -> None:
    cells = {"caunet": {"ms": 60.4}, "ecc": {"ms": 99.6}}
    text = scaling_table({"sides": {"256": cells, "512": {"caunet": {"ms": 240.0}, "ecc": {"ms": 400.2}}}})
    assert text.splitlines()[2:] == ["| caunet | 60 | 240 |", "| OpenCV ECC | 100 | 400 |"]


def test_what_is_saved_of_others_is_held_against_the_same_pairs_again() -> None:
    saved = table.summarize(rows_of({"caunet": [0.9] * 30, "kornia": [0.2] * 20, "ecc": [0.3] * 30}))
    rows = rows_of({"caunet": [0.1] * 20 + [0.5] * 10})
    old = [cell for cell in saved if cell["method"] != "caunet"]
    summary = merged_summary(table.summarize(rows), old, rows)
    assert [cell["method"] for cell in summary] == ["caunet", "ecc", "kornia"]
    assert summary == table.summarize(
        rows_of({"caunet": [0.1] * 20 + [0.5] * 10, "kornia": [0.2] * 20, "ecc": [0.3] * 30})
    )
