"""``caunet reproduce``: exit codes, kind errors, what it prints and keeps."""

import functools
import json
from pathlib import Path

import pytest

from caunet.cli.reproduce import Reproduce
from caunet.reproduction import grid

FAKES = "tests.reproduction.fakes"


@pytest.fixture
def command(tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> functools.partial[Reproduce]:
    """The command on one task, small enough for a test; ``with_trainer`` puts a fake in the workers."""
    monkeypatch.setattr("sys.argv", ["caunet", "reproduce", "--tasks", "rotation"])
    return functools.partial(
        Reproduce,
        tasks=("rotation",),
        data=str(pictures),
        workers=1,
        out=tmp_path / "runs",
        results=tmp_path / "results",
    )


def with_trainer(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    original = functools.partial(grid.run_grid, trainer=f"{FAKES}:{name}")
    monkeypatch.setattr("caunet.reproduction.grid.run_grid", original)


def test_failed_cell_gives_exit_code_1_and_the_way_on(
    command: functools.partial[Reproduce], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_trainer(monkeypatch, "bln_fails")
    assert command().run() == 1
    printed = capsys.readouterr()
    assert "RuntimeError: no luck" in printed.err
    assert "1 of 3 cells are not finished. To continue:\n  caunet reproduce --tasks rotation" in printed.err
    assert "0.500" in printed.out  # what is finished is shown all the same


def test_finished_grid_gives_0_tables_and_results(
    command: functools.partial[Reproduce],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with_trainer(monkeypatch, "good")
    assert command().run() == 0
    out = capsys.readouterr().out
    assert "Mean parameter error" in out
    assert "Mean transformation error" in out
    assert "9.854" not in out  # the paper's, whose images are others
    kept = sorted(path.name for path in (tmp_path / "results" / "written").iterdir())
    assert kept == ["rotation-bln-seed0.json", "rotation-can-seed0.json", "rotation-ctn-seed0.json"]
    value = json.loads((tmp_path / "results" / "written" / kept[0]).read_text())
    wanted = (
        "protocol",
        "task",
        "model",
        "recipe",
        "seed",
        "updates",
        "parameter_error",
        "seconds",
        "commit",
    )
    assert all(name in value for name in wanted)
    assert value["curve"]["test"] == [[100, 0.5]]
    assert command().run() == 0  # a second time: nothing to train, the same tables


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ("rotatoin",)}, "unknown task 'rotatoin'; did you mean 'rotation'"),
        ({"models": ("cnn",)}, "models must be any of ctn, bln, can, got 'cnn'"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1, got 0"),
        ({"updates": 0}, "updates must be a whole number of at least 1, got 0"),
        ({"recipe": ("claims",), "tasks": ("affine",)}, "recipe claims has no runs for affine"),
    ],
)
def test_wrong_arguments_are_told_before_anything_runs(
    command: functools.partial[Reproduce], change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        command(**change).run()
