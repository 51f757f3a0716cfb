"""The grid's promises: never twice, failures stay alone, others' cells are theirs, a clean stop."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from caunet.locks import hold
from caunet.models import registry
from caunet.reproduction.grid import choose, run_grid
from caunet.reproduction.recipes import Cell, best, cells
from caunet.reproduction.results import collect, finished
from caunet.reproduction.worker import run_cell
from tests.reproduction import fakes

FAKES = "tests.reproduction.fakes"
ROTATION = cells(["written"], tasks=["rotation"], profile="quick")


def log(out: Path) -> list[str]:
    path = out / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_cell_is_trained_once(tmp_path: Path) -> None:
    cell = ROTATION[0]
    assert run_cell(cell, tmp_path, fakes.good()).state == "finished"
    assert run_cell(cell, tmp_path, fakes.good()).state == "finished"
    assert len(log(tmp_path)) == 1


def test_result_of_other_settings_does_not_count(tmp_path: Path) -> None:
    cell = ROTATION[0]
    folder = tmp_path / cell.name
    folder.mkdir()
    other = cells(["written"], tasks=["rotation"], profile="quick", seeds=2)[3]
    fakes.result(other, folder)
    assert not finished(cell, folder)
    (folder / "result.json").write_text('{"config": {"task"')  # torn by a crash of something else
    assert not finished(cell, folder)


def test_a_variant_that_means_something_else_is_trained_again(tmp_path: Path, monkeypatch) -> None:
    def wide() -> Cell:
        return Cell("best", "can-wide", best("rotation", "can-wide"))

    first = wide()
    assert run_cell(first, tmp_path, fakes.good()).state == "finished"
    assert wide().name == first.name
    monkeypatch.setattr(registry._MODELS, "_values", dict(registry._MODELS._values))
    registry.register_model("can-wide", "can", units=156, rank=8, hidden=(300, 100, 100), replace=True)
    assert not finished(wide(), tmp_path / wide().name)
    assert wide().name != first.name


def test_a_folder_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    outcome = run_cell(ROTATION[0], tmp_path / "runs", fakes.good())
    assert outcome.state == "failed"
    assert outcome.message.startswith(f"cannot write in {tmp_path / 'runs'}")
    with pytest.raises(FileExistsError):  # before any worker is started
        run_grid(ROTATION, tmp_path / "runs", trainer=f"{FAKES}:no_such_trainer")


def test_failure_is_told_and_names_its_kind(tmp_path: Path) -> None:
    outcome = run_cell(ROTATION[1], tmp_path, fakes.bln_fails())
    assert (outcome.state, outcome.message) == ("failed", "RuntimeError: no luck")


@pytest.mark.parametrize("label", ["can-projection", "can-no-competition"])
def test_divergence_is_a_finding_where_the_paper_speaks_of_it(tmp_path: Path, label: str) -> None:
    by_label = {cell.label: cell for cell in cells(["claims"], tasks=["rotation"])}
    assert run_cell(by_label["can"], tmp_path, fakes.diverges()).state == "failed"
    projected = by_label[label]
    assert run_cell(projected, tmp_path, fakes.diverges()).state == "diverged"
    (value,) = collect([projected], tmp_path)
    assert value["diverged_at"] == 321
    assert value["message"] == "training stopped at update 321: the loss is nan"  # no path of this machine
    assert value["parameter_error"] is None
    assert run_cell(projected, tmp_path, fakes.good()).state == "finished"
    assert log(tmp_path) == []  # known to diverge: not trained again


def hold_elsewhere(folder: Path) -> subprocess.Popen[str]:
    code = (
        "import sys, time, pathlib; from caunet.locks import hold\n"
        "with hold(pathlib.Path(sys.argv[1])) as mine:\n    print(mine, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def test_locked_cell_is_left_alone_and_a_dead_owner_locks_nothing(tmp_path: Path) -> None:
    cell = ROTATION[0]
    process = hold_elsewhere(tmp_path / cell.name)
    try:
        outcome = run_cell(cell, tmp_path, fakes.good())
        assert outcome.state == "busy"
        assert str(process.pid) in outcome.message
        assert log(tmp_path) == []
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert (tmp_path / cell.name / ".lock").exists()  # left behind by the killed process
    assert run_cell(cell, tmp_path, fakes.good()).state == "finished"


def test_lock_is_released(tmp_path: Path) -> None:
    with hold(tmp_path) as first:
        assert first
    process = hold_elsewhere(tmp_path)
    process.kill()
    process.communicate()


def test_workers_share_the_cells_and_failures_stay_alone(tmp_path: Path) -> None:
    both = cells(["written"], tasks=["rotation", "scaling"], profile="quick")
    state = run_grid(both, tmp_path, workers=2, trainer=f"{FAKES}:bln_fails")
    assert not state.complete
    states = [state.outcomes[cell.name].state for cell in both]
    assert states == ["finished", "failed", "finished"] * 2
    assert len(log(tmp_path)) == 6
    again = run_grid(both, tmp_path, workers=2, trainer=f"{FAKES}:good")
    assert again.complete
    assert len(log(tmp_path)) == 8  # only the two that had failed


def test_a_worker_that_dies_costs_its_cell_alone(tmp_path: Path) -> None:
    state = run_grid(ROTATION, tmp_path, workers=1, trainer=f"{FAKES}:can_dies")
    assert [state.outcomes[cell.name].state for cell in ROTATION] == ["finished", "finished", "failed"]
    assert "ended without an answer, 3 times" in state.outcomes[ROTATION[2].name].message
    assert len(log(tmp_path)) == 5  # tried again twice: a run goes on at its last checkpoint


def test_ctrl_c_lets_runs_save(tmp_path: Path) -> None:
    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not log(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    # Where the tests run in the background, the shell has them ignore Ctrl-C: here it has to count.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread = threading.Thread(target=interrupt)
        thread.start()
        state = run_grid(ROTATION, tmp_path, workers=1, trainer=f"{FAKES}:slow")
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert state.interrupted
    assert not state.complete
    assert [line.split()[0] for line in log(tmp_path)] == ["begun", "saved"]


def test_same_run_in_two_recipes_is_made_once(tmp_path: Path) -> None:
    wanted = cells(["written", "claims"], tasks=["rotation"], models=["ctn"], profile="quick")
    assert [cell.recipe for cell in wanted] == ["written", "claims"]
    state = run_grid(wanted, tmp_path, workers=1, trainer=f"{FAKES}:good")
    assert state.complete
    assert len(log(tmp_path)) == 1
    assert [value["recipe"] for value in collect(wanted, tmp_path)] == ["written", "claims"]


def test_workers_stay_on_their_pairs() -> None:
    grid = cells(["written"], tasks=["rotation", "scaling"])
    rotation, scaling = grid[:3], grid[3:]
    assert choose(grid[1:], rotation[0], [scaling[0]]).config.task == "rotation"
    assert choose(grid[1:], None, [rotation[0]]).config.task == "scaling"
    assert choose(rotation[1:], scaling[0], [rotation[0]]).config.task == "rotation"  # better than idling


def test_every_engine_makes_the_same_grid(tmp_path: Path) -> None:
    found = {}
    for engine in ("serial", "processes"):
        state = run_grid(ROTATION, tmp_path / engine, engine=engine, trainer=f"{FAKES}:bln_fails")
        found[engine] = [state.outcomes[cell.name] for cell in ROTATION]
    assert found["serial"] == found["processes"]
    assert [outcome.state for outcome in found["serial"]] == ["finished", "failed", "finished"]


def test_a_cell_of_another_grid_is_waited_for(tmp_path: Path) -> None:
    process = hold_elsewhere(tmp_path / ROTATION[0].name)
    threading.Timer(2.0, process.kill).start()
    state = run_grid(ROTATION[:2], tmp_path, workers=1, trainer=f"{FAKES}:good")
    process.communicate()
    assert state.complete
    assert len(log(tmp_path)) == 2


def test_workers_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers must be a whole number of at least 1, got 0"):
        run_grid(ROTATION, tmp_path, workers=0)
