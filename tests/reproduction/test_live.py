"""What a log file is told while a grid runs."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from caunet.reproduction import live
from caunet.reproduction.grid import GridState
from caunet.reproduction.recipes import cells


def test_a_log_is_told_every_ten_seconds_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    ctn, bln, can = cells(["written"], tasks=["rotation"], profile="quick")
    said = io.StringIO()
    state = GridState([ctn, bln, can], tmp_path, running={ctn.name: 0.0, bln.name: 0.0, can.name: 0.0})
    for cell in (bln, can):
        (tmp_path / cell.name).mkdir()
        (tmp_path / cell.name / "config.json").write_text("{}")
    lines = [f'{{"step": {step}, "loss": 0.5, "seconds": {step / 100}}}\n' for step in (100, 200)]
    (tmp_path / can.name / "metrics.jsonl").write_text("".join(lines))
    with live.watch(Console(file=said)) as listener:
        for now[0] in (0.0, 1.0, 9.9, 10.0, 11.0):
            listener(state)
    updates = can.config.updates
    minutes, seconds = divmod(int((updates - 200) / 100), 60)
    line = (
        f"rotation ctn: making pairs; rotation bln: compiling the update; "
        f"rotation can: 200/{updates:,} updates, loss 0.500, {minutes:02d}:{seconds:02d} left"
    )
    assert said.getvalue().splitlines() == [line, line]
    with (tmp_path / can.name / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": {updates}, "loss": 0.4, "seconds": 9.0}}\n')
    assert live._stage(state, can) == "measuring on all test pairs"
    shown = io.StringIO()
    Console(file=shown, width=160).print(live._picture(state))
    assert "measuring on all test pairs" in shown.getvalue()
