"""Sets of cases: measured once, resumed, summed up as plain arithmetic would."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from caunet.benchmark import case_table, figure, methods
from caunet.benchmark.adapters import Answer
from caunet.benchmark.case_run import CaseSet, run_cases
from caunet.benchmark.cases import STRESS
from caunet.benchmark.figure import draw_cases
from caunet.cli import main
from caunet.errors import DataError
from tests.benchmark.test_run import Counter

TWO = CaseSet("stress", rows=("black frame 3 %", "red to blue"), group="test")
WIDTH, HEIGHT = 40, 30


@pytest.fixture
def oxford(tmp_path: Path) -> Path:
    """Two sequences of small images in OpenCV's storage; image k is shifted by k pixels."""
    folder = tmp_path / "oxford"
    for name in ("graf", "ubc"):
        (folder / name).mkdir(parents=True)
        for k in range(1, 7):
            pixels = np.random.default_rng(k).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
            cv2.imwrite(str(folder / name / f"img{k}.png"), pixels)
            storage = cv2.FileStorage(str(folder / name / f"H1to{k}p.xml"), cv2.FILE_STORAGE_WRITE)
            storage.write("H", np.array([[1.0, 0, k], [0, 1, 0], [0, 0, 1]]))
            storage.release()
    return folder


def test_a_set_is_measured_once_and_resumed(oxford: Path, tmp_path: Path) -> None:
    path, chosen = tmp_path / "rows.jsonl", CaseSet("oxford", oxford)
    ours = Counter("caunet", Answer(np.array([[1.0, 0, 2], [0, 1, 0], [0, 0, 1]]), 0.95))
    other = Counter("sift", None)
    rows = run_cases(chosen, [ours.method, other.method], path)
    assert len(rows) == 10
    assert len(ours.calls) == 10 + 1  # and once to warm up
    diagonal = np.hypot(WIDTH - 1, HEIGHT - 1)
    for (_, case), row in rows.items():
        far = int(case[-1]) - 2
        assert row["methods"]["caunet"]["error"] == far
        assert row["methods"]["caunet"]["relative"] == pytest.approx(far / diagonal, abs=1e-6)
        assert row["methods"]["caunet"]["confidence"] == 0.95
        assert row["methods"]["caunet"]["corners"] == [
            [2, 0],
            [WIDTH + 1, 0],
            [WIDTH + 1, HEIGHT - 1],
            [2, HEIGHT - 1],
        ]
        assert row["methods"]["sift"]["corners"] is None
        assert (row["methods"]["sift"]["error"], row["methods"]["sift"]["relative"]) == (None, None)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]) + lines[5][:30])  # killed while it wrote its fifth case
    again = Counter("caunet", ours.answer)
    assert len(run_cases(chosen, [again.method], path)) == 10
    assert len(again.calls) == 6 + 1
    again = Counter("caunet", ours.answer)
    some = run_cases(CaseSet("oxford", oxford, ("ubc",)), [again.method], path)
    assert [key[0] for key in some] == ["ubc"] * 5
    assert not again.calls
    with pytest.raises(DataError, match="holds other pairs"):
        run_cases(TWO, [again.method], path)


def test_a_method_gets_what_it_can_read(tmp_path: Path) -> None:
    shapes = {}
    for color in (True, False):
        fake = Counter("sift", np.eye(3))
        method = methods.Method("sift", "sift", "homography", "numpy", lambda f=fake: f.register, color=color)
        run_cases(
            CaseSet("stress", rows=("round aperture, alpha",), group="test"),
            [method],
            tmp_path / f"{color}.jsonl",
        )
        shapes[color] = {image.shape for call in fake.calls for image in call}
    assert shapes == {True: {(256, 256, 4)}, False: {(256, 256)}}


def by_hand() -> dict:
    """Ten cases of the Oxford set: ours and one rival."""
    errors = {
        "graf": ([0.5, 2.0, None, 0.25, 40.0], [0.5, 0.5, 0.5, 0.5, None]),
        "ubc": ([0.1, 0.1, 0.1, 0.1, 6.0], [1.0] * 5),
    }
    confidence = [0.95, 0.95, 0.1, 0.95, 0.92]
    rows = {}
    for row, (ours, sift) in errors.items():
        for k in range(5):
            results = {
                name: {"error": e, "relative": None if e is None else e / 1000, "ms": 10.0 * k}
                for name, e in (("caunet", ours[k]), ("sift", sift[k]))
            }
            results["caunet"]["confidence"] = confidence[k]
            results["sift"]["ms"] = 100.0
            rows[row, f"1-{k + 2}"] = {"row": row, "case": f"1-{k + 2}", "methods": results}
    return rows


def test_summaries_are_plain_arithmetic() -> None:
    summary = case_table.summarize_cases(by_hand(), "oxford")
    entries = {(entry["part"], entry["method"]): entry for entry in summary}
    assert set(entries) == {
        (part, name)
        for part in ("graf", "ubc", "viewpoint", "light, blur, JPEG", "all")
        for name in ("caunet", "sift")
    }
    whole = entries["all", "caunet"]
    assert (whole["cases"], whole["failures"], whole["found"]) == (10, 1, 0.8)
    assert whole["auc"]["1"] == pytest.approx((0.5 + 0.75 + 4 * 0.9) / 10, abs=1e-4)
    near = 0.5 + 2.0 + 0.25 + 4 * 0.1 + 6.0  # the sum of the eight below 10 px
    assert whole["auc"]["10"] == pytest.approx((8 - near / 10) / 10, abs=1e-4)
    assert (whole["ms"], whole["ms_median"]) == (20.0, 20.0)
    assert (whole["sure"], whole["sure_wrong"]) == (8, 1)  # 40 px of 1000 at 0.92 is wrong, 6 px is not
    assert whole["median"] == pytest.approx((0.25 + 0.5) / 2)
    assert "sure" not in entries["all", "sift"]
    assert entries["graf", "caunet"]["found"] == 0.6
    json.dumps(summary, allow_nan=False)


def test_tables_have_the_values_and_own_up() -> None:
    summary = case_table.summarize_cases(by_hand(), "oxford")
    rows = case_table.by_row(summary, "oxford").markdown().splitlines()
    assert rows[0] == "| | cases | caunet | SIFT + MAGSAC |"
    assert "| graf | 5 | 60 %, 2.00 | **80 %, 0.50** |" in rows
    assert "| ubc | 5 | **100 %, 0.10** | **100 %, 1.00** |" in rows
    overview = case_table.overview(summary, "oxford").markdown().splitlines()
    ours = "| caunet | 60 % | **100 %** | 80 % | **0.485** | 0.595 | 0.637 | 0.709 | 1 of 8 | 1 | **20** | **20** |"
    assert ours in overview
    lines = case_table.behind(summary, "oxford")
    assert lines[:2] == ["graf: found 60 %, SIFT + MAGSAC 80 %", "all: found 80 %, SIFT + MAGSAC 90 %"]
    assert lines[2:] == [
        "AUC at 3 px: 0.595, SIFT + MAGSAC 0.667",
        "AUC at 5 px: 0.637, SIFT + MAGSAC 0.760",
        "AUC at 10 px: 0.709, SIFT + MAGSAC 0.830",
    ]
    small = case_table.together({"oxford": summary}).markdown()
    assert "| caunet | 60 % | **100 %** | 80 % | 0.59 | **20** |" in small


def test_what_nobody_finds_is_told() -> None:
    rows = by_hand()
    assert case_table.missed_by_all(rows) == ["graf 1-6: caunet 40.00"]  # the rival has no answer
    missed = rows["graf", "1-6"]["methods"]
    square = [[0.0, 0.0], [9.0, 0.0], [9.0, 9.0], [0.0, 9.0]]
    missed["caunet"]["corners"] = square
    missed["sift"] |= {"error": 38.0, "relative": 0.038, "corners": [[x + 3.0, y + 4.0] for x, y in square]}
    (line,) = case_table.missed_by_all(rows)
    assert line == "graf 1-6: caunet 40.00, SIFT + MAGSAC 38.00 (5.00 from caunet's answer)"


def test_every_row_of_the_stress_set_is_in_one_group() -> None:
    grouped = [row for rows in case_table.GROUPS["stress"].values() for row in rows]
    assert sorted(grouped) == sorted(STRESS)


def test_the_command_measures_sets_of_cases(
    oxford: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["bench", "registration", "--methods", "orb", "--out", str(tmp_path / "rows.jsonl")]
    chosen = [*common, "--set", "oxford", "--data", str(oxford), "--rows", "graf"]
    assert main([*chosen, "--figure", str(tmp_path / "curves.png")]) == 0
    assert "graf" in capsys.readouterr().out
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert main([*chosen, "--json"]) == 0
    assert {entry["part"] for entry in json.loads(capsys.readouterr().out)} == {"graf", "viewpoint", "all"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "oxford"], "data must be the folder of the Oxford set"),
        (["--set", "oxford", "--data", "nowhere"], "the Oxford set must be a folder"),
        (["--set", "stress", "--data", "here"], "data must not be given with the set stress"),
        (["--set", "stress", "--rows", "fog"], "rows must be names out of scale 1/4"),
        (["--set", "stress", "--conditions", "blur"], "conditions must not be given with the set stress"),
        (["--rows", "graf"], "rows must not be given with the set synthetic"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--methods", "orb", "--out", str(tmp_path / "rows.jsonl")]
    assert main(["bench", "registration", *arguments, *out]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_set_must_be_one_of_two() -> None:
    with pytest.raises(ValueError, match="kind must be one of stress, oxford, got 'hpatches'"):
        CaseSet("hpatches")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="folder must be that of the Oxford set"):
        CaseSet("oxford")


def test_every_method_has_a_color_of_its_own() -> None:
    colors = [figure._COLORS[number % len(figure._COLORS)] for number in range(len(methods.METHODS))]
    assert len({*colors}) == len(methods.METHODS)


def test_curves_of_sets_can_be_drawn(tmp_path: Path) -> None:
    draw_cases({"oxford": by_hand()}, tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 1000
