"""Progress is drawn for a person at a terminal and for nobody else."""

import io
import sys

import pytest

from caunet.progress import track


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_the_bar_and_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "stderr", terminal := _Terminal())
    with track(4, "warping", "pairs") as bar:
        for _ in range(4):
            bar.advance(loss=0.123456)
    drawn = terminal.getvalue()
    assert "warping" in drawn
    assert "4/4" in drawn
    assert "loss 0.1235" in drawn


def test_a_log_file_gets_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 3.0, 10.5, 10.5, 12.0, 21.0, 21.0])
    monkeypatch.setattr("caunet.progress.time.monotonic", lambda: next(clock))
    with track(4000, "can", "updates") as bar:
        bar.say("compiling ...")
        for _ in range(4):
            bar.advance(1000, loss=0.123456)
    assert capsys.readouterr().err.splitlines() == [
        "can: compiling ...",
        "can: 2,000 of 4,000 updates  loss 0.1235",
        "can: 4,000 of 4,000 updates  loss 0.1235",
    ]


def test_one_process_of_several_shows_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with track(2, "warping") as bar:
        bar.say("compiling ...")
    assert capsys.readouterr().err == ""


class _Gone(_Terminal):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_that_is_closed_stops_nothing(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Gone()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    with track(2, "warping") as bar:
        bar.say("compiling ...")
        bar.advance(2)
    assert bar.done == 2


def test_a_short_task_writes_nothing_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with track(2, "warping") as bar:
        bar.advance(2)
    assert bar.done == 2
    assert capsys.readouterr() == ("", "")
