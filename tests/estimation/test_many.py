"""Many pairs: every engine agrees, bad pairs are errors of their own, files of results grow by whole lines."""

import csv
import json

import numpy as np
import pytest
from PIL import Image
from tests.estimation.scenes import pair, quad

from caunet.cli import main
from caunet.errors import DataError, ItemError
from caunet.estimation import Estimate, estimate_many
from caunet.estimation.pair_files import Results, read_pairs

SIDE = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three pairs in two folders, a bad file, and images without a partner."""
    root = tmp_path_factory.mktemp("pairs")
    for k in range(3):
        for name, image in zip("ab", pair(quad(SIDE, 3, seed=k), SIDE, seed=k), strict=True):
            (root / name).mkdir(exist_ok=True)
            Image.fromarray((image * 255).round().astype(np.uint8)).save(root / name / f"{k}.png")
    for name in "ab":
        (root / name / "9.jpg").write_bytes(b"no image")
        (root / name / "notes.txt").write_text("not an image either")
    Image.new("L", (20, 20)).save(root / "a" / "alone.png")
    return root


def pairs_of(folder):
    return [(str(folder / "a" / f"{k}.png"), str(folder / "b" / f"{k}.png")) for k in range(3)]


def test_engines_agree_and_bad_pairs_are_named(folder):
    pairs = [*pairs_of(folder)[:1], ("nowhere.png", "nowhere.png"), ("alone",), *pairs_of(folder)[1:]]
    here = estimate_many(pairs, "affine", threads=1)
    there = estimate_many(pairs, "affine", threads=1, engine="processes", workers=1)
    assert [outcome.index for outcome in here] == [0, 1, 2, 3, 4]
    assert (
        [outcome.ok for outcome in here]
        == [outcome.ok for outcome in there]
        == [True, False, False, True, True]
    )
    for one, other in zip(here, there, strict=True):
        if one.ok:
            np.testing.assert_array_equal(one.result().matrix, other.result().matrix)
    assert here[1].error.kind == "ImageError"
    assert "nowhere.png" in here[1].error.message
    assert str(here[2].error) == "ValueError: pairs must be (a, b) each, got tuple"
    with pytest.raises(ItemError, match="item 1: ImageError"):
        here[1].result()
    with pytest.raises(ValueError, match=r"^engine must be one of serial, processes, ray, got 'threads'"):
        estimate_many(pairs, engine="threads")
    with pytest.raises(ValueError, match=r"^bounds must be"):
        estimate_many(pairs, bounds=3)


def test_pairs_from_files_and_folders(folder, tmp_path):
    expected = pairs_of(folder)[:2]
    (folder / "pairs.csv").write_text(
        "a,b,note\na/0.png,b/0.png,x\n\na/1.png,b/1.png,y\na/0.png,b/0.png,again\n"
    )
    (folder / "plain.csv").write_text("a/0.png,b/0.png\na/1.png,b/1.png\n")
    (folder / "pairs.jsonl").write_text('{"a": "a/0.png", "b": "b/0.png"}\n["a/1.png", "b/1.png"]\n')
    for name in ("pairs.csv", "plain.csv", "pairs.jsonl"):
        assert read_pairs([folder / name]) == (expected, [])
    found, alone = read_pairs([folder / "a", folder / "b"])
    assert found[:3] == pairs_of(folder)
    assert alone == [str(folder / "a" / "alone.png")]
    (tmp_path / "bad.csv").write_text("a/0.png\n")
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "empty.csv").write_text("\n")
    for names, message in {
        ("bad.csv",): r"bad\.csv: row 1 must have two paths",
        ("bad.jsonl",): r'bad\.jsonl: line 1 must be JSON with "a" and "b"',
        ("empty.csv",): r"empty\.csv: has no pairs",
        ("none.csv",): r"none\.csv: cannot be read: No such file",
        ("none", "none"): r"none: must be a folder of images",
    }.items():
        with pytest.raises(DataError, match=message):
            read_pairs([tmp_path / name for name in names])
    for names in (["pairs.txt"], ["a", "b", "c"]):
        with pytest.raises(ValueError, match=r"^PAIRS must be"):
            read_pairs(names)


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_the_command_takes_up_what_is_missing(ending, folder, tmp_path, capsys, monkeypatch):
    out = tmp_path / "new" / f"results.{ending}"
    command = ["estimate-many", str(folder / "a"), str(folder / "b"), "--out", str(out), "--model", "affine"]
    assert main(command) == 3  # 9.jpg is no image
    said = capsys.readouterr()
    assert "4 pairs, 4 of them now, 1 with an error" in said.out
    assert "1 images have no partner" in said.err
    whole = out.read_bytes()
    lines = (
        [json.loads(line) for line in whole.splitlines()]
        if ending == "jsonl"
        else list(csv.DictReader(out.read_text().splitlines()))
    )
    assert sorted(line["a"][-5:] for line in lines) == ["0.png", "1.png", "2.png", "9.jpg"]
    assert [bool(line.get("error")) for line in lines].count(True) == 1
    if ending == "jsonl":
        assert Estimate.from_json(lines[0]).model == "affine"
    # Killed in the middle of a line: only that pair is done again.
    out.write_bytes(whole[:-10])
    assert main(command) == 3
    assert "4 pairs, 1 of them now" in capsys.readouterr().out
    again = out.read_bytes().splitlines()
    assert len(again) == len(whole.splitlines())
    assert again[:-1] == whole.splitlines()[:-1]
    monkeypatch.setattr("caunet.estimation.estimator.Estimator.__call__", None)  # nothing is left to do
    assert main(command) == 3
    assert main([*command[:-1], "euclidean"]) == 2
    assert "RESULTS must be of the model 'euclidean', got a file of 'affine'" in capsys.readouterr().err


def test_other_files_are_not_touched(folder, tmp_path, capsys):
    for name, content in {"r.jsonl": "hello\n", "r.csv": "x,y\n1,2\n"}.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match="is no file of results"):
            Results(tmp_path / name, "affine")
        assert (tmp_path / name).read_text() == content
    assert (
        main(["estimate-many", str(folder / "a"), str(folder / "b"), "--out", str(tmp_path / "r.txt")]) == 2
    )
    assert "RESULTS must be a .jsonl or a .csv file" in capsys.readouterr().err
