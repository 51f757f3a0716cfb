"""Engines differ in where items run, not in what comes out."""

import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from caunet.errors import ItemError
from caunet.execution import Engine, create_engine
from tests.execution import jobs

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["serial", "processes"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with create_engine(request.param, None if request.param == "serial" else 2) as made:
        yield made


def test_every_item_has_one_outcome_in_order(engine: Engine) -> None:
    outcomes = list(engine.map(jobs.fail_on_three, range(8)))
    assert [outcome.index for outcome in outcomes] == list(range(8))
    assert [outcome.value for outcome in outcomes] == [0, 1, 4, None, 16, 25, 36, 49]
    assert [outcome.ok for outcome in outcomes] == [i != 3 for i in range(8)]
    failure = outcomes[3].error
    assert failure is not None
    assert (failure.kind, failure.message) == ("ValueError", "three is bad")
    assert "fail_on_three" in failure.trace
    with pytest.raises(ItemError, match="item 3: ValueError: three is bad") as caught:
        outcomes[3].result()
    assert caught.value.index == 3


def test_unordered_outcomes_are_the_same_set(engine: Engine) -> None:
    outcomes = engine.map(jobs.square, range(20), ordered=False)
    assert sorted((o.index, o.value) for o in outcomes) == [(i, i * i) for i in range(20)]


def test_items_are_read_only_a_little_ahead(engine: Engine) -> None:
    taken = itertools.count()
    last = -1

    def endless() -> Iterator[int]:
        nonlocal last
        for number in taken:
            last = number
            yield number

    results = engine.map(jobs.square, endless())
    first = [next(results).value for _ in range(3)]
    results.close()  # type: ignore[attr-defined]
    assert first == [0, 1, 4]
    assert last <= 3 + 8 * engine.workers


def test_a_slow_item_does_not_let_outcomes_pile_up() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(500):
            taken = number
            yield number

    with create_engine("processes", 2) as engine:
        results = engine.map(jobs.first_is_slow, items())
        assert next(results).value == 0
        assert taken <= 16
        assert [outcome.value for outcome in results] == list(range(1, 500))


def test_the_factory_is_called_once_per_worker(engine: Engine, tmp_path: Path) -> None:
    outcomes = list(engine.run(functools.partial(jobs.counting, tmp_path), range(12)))
    assert [outcome.result() for outcome in outcomes] == [i * i for i in range(12)]
    assert 1 <= len(list(tmp_path.glob("made-*"))) <= engine.workers


def test_no_items_is_no_outcome(engine: Engine) -> None:
    assert list(engine.map(jobs.square, [])) == []


def test_closures_and_items_that_cannot_be_sent() -> None:
    offset = 5
    with create_engine("processes", 1) as engine:
        assert [o.value for o in engine.map(lambda x: x + offset, [1, 2])] == [6, 7]
        lock = threading.Lock()
        bad, good = engine.map(str, [lock, 7])
    assert bad.error is not None
    assert bad.error.kind == "PicklingError"
    assert good.value == "7"


def test_a_worker_that_dies_is_replaced_and_its_items_are_done_again(tmp_path: Path) -> None:
    with create_engine("processes", 2) as engine:
        outcomes = list(engine.run(functools.partial(jobs.die_once, tmp_path), range(10)))
    assert [outcome.result() for outcome in outcomes] == [i * i for i in range(10)]
    assert (tmp_path / "died").exists()


def test_an_item_that_always_ends_its_worker_is_named_and_harms_no_other() -> None:
    with create_engine("processes", 2) as engine:
        outcomes = list(engine.map(jobs.die, range(6)))
    assert [outcome.value for outcome in outcomes] == [0, 1, None, 9, 16, 25]
    assert outcomes[2].error is not None
    assert outcomes[2].error.kind == "WorkerDied"


def test_workers_have_one_thread_and_are_kept() -> None:
    with create_engine("processes", 1) as engine:
        (first,) = engine.map(jobs.environment, [0])
        (second,) = engine.map(jobs.environment, [0])
    assert first.value is not None
    assert first.value[0] == "1"
    assert first.value[1] != os.getpid()
    assert first.value == second.value


_INTERRUPTED = """
import sys
from caunet.execution import create_engine
from tests.execution import jobs
engine = create_engine("processes", 2)
try:
    for outcome in engine.map(jobs.save_when_interrupted, range(50), ordered=False):
        print(outcome.index, outcome.value, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""


@pytest.mark.parametrize("to_group", [False, True], ids=["to the parent", "to the terminal's group"])
def test_ctrl_c_lets_items_save_and_ends_cleanly(to_group: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "0 quick\n"
    time.sleep(0.5)  # items 1 and 2 are asleep now
    (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert sorted(out.splitlines()) == ["1 saved 1", "2 saved 2", "interrupted"]
    assert process.returncode == 130
    assert "Traceback" not in err


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="engine must be one of serial, processes, ray, got 'cluster'"):
        create_engine("cluster")
    for workers in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match="workers must be a whole number of at least 1, got"):
            create_engine("processes", workers)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="workers must be 1 for engine 'serial', got 2"):
        create_engine("serial", 2)
    with pytest.raises(ValueError, match="address is for engine 'ray' only"):
        create_engine("processes", address="auto")


def test_a_killed_worker_leaves_no_semaphore_behind() -> None:
    """tqdm, which torch.compile imports, makes a lock between processes as soon as it draws a bar."""
    pytest.importorskip("tqdm")
    code = (
        "from caunet.execution.processes import Processes\n"
        "from tests.execution import jobs\n"
        "with Processes(workers=1) as engine:\n"
        "    print([outcome.value for outcome in engine.map(jobs.draw_a_bar, [3])])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.stdout == "[3]\n", done.stderr
    assert "leaked" not in done.stderr
