"""A run that is killed, anywhere, any number of times, ends with the bits of one that was not."""

import multiprocessing
import random
import time
from pathlib import Path

from tests.training import small

# A server that has everything imported and forks a fresh process for each attempt.
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.training.small"])


def _finished(folder: Path) -> bool:
    return (folder / "result.json").exists()


def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    started = time.monotonic()
    process = _SERVER.Process(target=small.run, args=(tmp_path / "whole",))
    process.start()
    process.join()
    usual = time.monotonic() - started
    whole = small.digest(tmp_path / "whole")

    moments, kills, runs = random.Random(0), 0, 0
    while kills < 20 or not _finished(tmp_path / f"run{runs}"):
        folder = tmp_path / f"run{runs}"
        if _finished(folder):
            assert small.digest(folder) == whole
            runs += 1
            continue
        process = _SERVER.Process(target=small.run, args=(folder,))
        process.start()
        # Beyond twenty kills nothing is left but to let it finish.
        process.join(moments.uniform(0, usual) if kills < 20 else None)
        if process.is_alive():
            process.kill()
            process.join()
            kills += 1
        assert process.exitcode in (0, -9)
    assert small.digest(tmp_path / f"run{runs}") == whole


def test_killed_while_saving(tmp_path: Path) -> None:
    """Each file is flushed twice (itself, its folder): die before, between and after, at several checkpoints."""
    small.run(tmp_path / "whole")
    for calls in (1, 3, 5, 6, 7, 8, 9, 12):
        folder = tmp_path / f"run{calls}"
        process = _SERVER.Process(target=small.run_and_die, args=(folder, calls))
        process.start()
        process.join()
        assert process.exitcode == -9
        small.run(folder)
        assert small.digest(folder) == small.digest(tmp_path / "whole")
