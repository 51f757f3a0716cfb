"""``caunet train`` as a person types it: what it leaves, what it says, how it fails."""

import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from caunet.cli import main
from caunet.training.loop import Update
from caunet.training.summary import summary

SMALL = ["--model-options", '{"units": 8}', "--compile", "never"]
SMALL += ["--updates", "30", "--batch", "10", "--log-every", "10", "--test-every", "30"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    for number in range(6):
        coarse = generator.integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC).save(folder / f"{number}.png")
    return folder


def test_a_run_from_the_command_line(
    tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "--data", str(pictures), "--out", str(out), *SMALL]) == 0
    shown = capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    assert result["config"]["model_options"] == {"units": 8}
    assert f"parameter error       {result['parameter_error']:.4g}" in shown
    assert str(out / "weights.safetensors") in shown
    with Image.open(out / "curve.png") as curve:
        assert np.asarray(curve.convert("L")).std() > 5  # something is drawn

    assert main(["train", "--data", str(pictures), "--out", str(out), *SMALL]) == 2
    assert "already has a run in it: add --resume" in capsys.readouterr().err


def test_a_run_of_a_few_updates_says_nothing_odd(
    tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten updates: no line of metrics yet, so nothing to draw (warnings of matplotlib are errors here)."""
    words = ["train", "--data", str(pictures), "--out", str(tmp_path / "run"), "--updates", "10"]
    assert main([*words, "--model-options", '{"units": 8}', "--compile", "never"]) == 0
    shown = capsys.readouterr().out
    assert "(0 " not in shown
    assert "always predicting the mean of z" in shown
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["environment"]["threads"] == 1
    assert set(result["per_parameter"]) == {"angle"}
    assert "(0" not in summary({**result, "seconds": 100.0}, tmp_path, tmp_path)


def test_ctrl_c_says_how_to_continue(
    tmp_path: Path, pictures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call, count = Update.__call__, 0

    def interrupted(self: Update, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return call(self, *arguments)

    words = ["train", "--data", str(pictures), "--out", str(tmp_path / "run"), *SMALL]
    monkeypatch.setattr(Update, "__call__", interrupted)
    monkeypatch.setattr("sys.argv", ["caunet", *words])
    assert main() == 130
    said = capsys.readouterr().err
    assert "Interrupted after 7 updates; saved. To continue:" in said
    again = shlex.split(said.splitlines()[-1])
    assert again[:-1] == ["caunet", *words]
    assert again[-1] == "--resume"
    assert main([*words, "--resume"]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "rotatoin"], "unknown task 'rotatoin'; did you mean 'rotation'?"),
        (["--model", "cann"], "did you mean 'can'?"),
        (["--batch", "0"], "batch must be a whole number of at least 1, got 0"),
        (["--data", "nowhere"], "nowhere"),
        (["--model-options", '{"colour": 1}'], "colour"),
    ],
)
def test_errors_are_one_line(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), "--updates", "5", *words]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert len(said.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []  # a typo leaves nothing behind


def test_profiles_set_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["train", "--profile", "quick", "--help"])
    assert done.value.code == 0
    assert "(default: 12000)" in capsys.readouterr().out


def test_the_bare_command_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    for name in ("data", "train", "evaluate", "reproduce", "models"):
        assert name in shown
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "caunet 0.1.0\n"


def test_a_place_that_cannot_be_written_is_one_line(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    out = tmp_path / "file" / "sample.png"
    assert main(["data", "show", "--data", str(pictures), "--task", "rotation", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("caunet: ")
    assert str(tmp_path / "file") in said
    assert len(said.splitlines()) == 1
