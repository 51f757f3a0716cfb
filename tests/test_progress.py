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


def test_a_pipe_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with track(2, "warping") as bar:
        bar.advance(2)
    assert bar.done == 2
    assert capsys.readouterr() == ("", "")
