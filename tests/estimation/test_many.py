"""Many pairs: every engine agrees, bad pairs are errors of their own, files of results grow by whole lines."""

import csv
import errno
import json
import resource

import numpy as np
import pyarrow.parquet as pq
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
    assert "1 image has no partner" in said.err
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
    assert "RESULTS must end in one of .jsonl, .csv, .parquet, got" in capsys.readouterr().err


def rows_of(path):
    return sorted(pq.read_table(path).to_pylist(), key=lambda row: row["a"])


def test_parquet_is_whole_or_not_there_and_taken_up(folder, tmp_path, capsys, monkeypatch):
    out, lines = tmp_path / "r.parquet", tmp_path / "r.jsonl"
    journal = tmp_path / "r.parquet.journal"
    two = folder / "two.csv"
    two.write_text("a/0.png,b/0.png\na/9.jpg,b/9.jpg\n")
    command = ["estimate-many", str(two), "--model", "affine", "--out"]
    assert main([*command, str(lines)]) == main([*command, str(out)]) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.jsonl", "r.parquet"]
    good, bad = rows_of(out)
    written = [json.loads(line) for line in lines.read_text().splitlines()]
    expected = next(line for line in written if "matrix" in line)
    np.testing.assert_array_equal(
        [[good[f"h{r}{c}"] for c in (1, 2, 3)] for r in (1, 2, 3)], expected["matrix"]
    )
    assert (good["angle"], good["confidence"]) == (expected["parameters"]["angle"], expected["confidence"])
    assert (good["error"], good["model"], good["reason"]) == (None, "affine", expected["reason"])
    assert bad["error"].startswith("ImageError:")
    assert bad["h11"] is None
    # More pairs; runs that were killed in the middle of a line of the journal, and when the file was there and the
    # journal had not gone.
    three = folder / "three.csv"
    three.write_text("a/0.png,b/0.png\na/9.jpg,b/9.jpg\na/1.png,b/1.png\na/2.png,b/2.png\n")
    a = json.dumps({**expected, "a": str(folder / "a" / "1.png"), "b": str(folder / "b" / "1.png")})
    journal.write_text(json.dumps({**expected, "confidence": 0.0}) + "\n" + a + "\n" + a[:50])
    capsys.readouterr()
    assert main([*command[:1], str(three), *command[2:], str(out)]) == 3
    assert "4 pairs, 1 of them now, 1 with an error" in capsys.readouterr().out
    assert [row["a"][-5:] for row in rows_of(out)] == ["0.png", "1.png", "2.png", "9.jpg"]
    assert rows_of(out)[0] == good
    assert not journal.exists()
    # Nothing to do: the file is not even written.
    before = out.stat().st_mtime_ns
    assert main([*command, str(out)]) == 3
    assert out.stat().st_mtime_ns == before
    # Ctrl-C: what was done is in the file. Killed: it is in the journal, and there is no file.
    pair = pairs_of(folder)[0]
    (outcome,) = estimate_many([pair], "affine", threads=1)
    for error in (KeyboardInterrupt, SystemExit):
        made = tmp_path / f"{error.__name__}.parquet"
        results = Results(made, "affine").__enter__()
        results.add(pair, outcome)
        results.__exit__(error)
        assert made.exists() == (error is KeyboardInterrupt)
        assert Results(made, "affine").done == {pair}
    for content in (b"PAR1 and no more", b""):
        (tmp_path / "other.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"other\.parquet: is no file of results"):
            Results(tmp_path / "other.parquet", "affine")
    pq.write_table(pq.read_table(out).select(["a"]), tmp_path / "other.parquet")
    with pytest.raises(DataError, match=r"other\.parquet: is no file of results"):
        Results(tmp_path / "other.parquet", "affine")


@pytest.fixture
def small_disk():
    """Files cannot grow beyond 3,000 bytes: a write is cut off and the next one fails, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_disk_that_fills_loses_nothing(ending, folder, tmp_path, capsys, small_disk):
    out = tmp_path / f"r.{ending}"
    command = ["estimate-many", str(folder / "a"), str(folder / "b"), "--out", str(out), "--model", "affine"]
    small_disk(500 if ending == "csv" else 3000)
    assert main(command) == 2
    small_disk(resource.RLIM_INFINITY)
    said = capsys.readouterr().err
    assert f"{out}: cannot be written: " in said
    assert "What was done is kept: run the same command again to go on" in said
    kept = len(Results(out, "affine").done)
    assert 0 < kept < 4
    assert main(command) == 3
    assert f"4 pairs, {4 - kept} of them now, 1 with an error" in capsys.readouterr().out
    assert len(Results(out, "affine").done) == 4


def test_a_disk_that_is_full_when_the_table_is_made(folder, tmp_path, monkeypatch):
    pair = pairs_of(folder)[0]
    (outcome,) = estimate_many([pair], "affine", threads=1)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("caunet.estimation.tables.atomic_write", full)
    with (
        pytest.raises(DataError, match=r"r\.parquet: cannot be written: No space left on device\. What was"),
        Results(tmp_path / "r.parquet", "affine") as results,
    ):
        results.add(pair, outcome)
    monkeypatch.undo()
    with Results(tmp_path / "r.parquet", "affine") as results:
        assert results.done == {pair}
    assert len(rows_of(tmp_path / "r.parquet")) == 1
