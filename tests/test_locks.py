"""A folder is held by one process at a time, and is free when that process is gone, however it ended."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from caunet.locks import hold, owner

HOLDER = """
import pathlib, subprocess, sys, time
from caunet.locks import hold
with hold(pathlib.Path(sys.argv[1])) as mine:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(mine, child.pid, flush=True)
    time.sleep(60)
"""


def test_a_killed_holder_and_its_children_hold_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    mine, child = process.stdout.readline().split()
    try:
        assert mine == "True"
        with hold(tmp_path) as ours:
            assert not ours
        assert owner(tmp_path) == process.pid
        process.kill()
        process.wait()
        with hold(tmp_path) as ours:  # while its child is still there
            assert ours
            assert owner(tmp_path) == os.getpid()
    finally:
        process.kill()
        os.kill(int(child), signal.SIGKILL)
        process.stdout.close()


def test_a_thread_may_hold_twice_and_another_thread_may_not(tmp_path: Path) -> None:
    seen = []

    def other() -> None:
        with hold(tmp_path) as mine:
            seen.append(mine)

    with hold(tmp_path) as first, hold(tmp_path) as second:
        assert first
        assert second
    with hold(tmp_path) as mine:
        with hold(tmp_path):
            pass
        thread = threading.Thread(target=other)  # leaving the inner block has not released it
        thread.start()
        thread.join()
        assert mine
    assert seen == [False]
    other()
    assert seen == [False, True]


def test_nobody_is_the_owner_of_a_new_folder(tmp_path: Path) -> None:
    assert owner(tmp_path) is None
    (tmp_path / ".owner").write_bytes(b"\xff")
    assert owner(tmp_path) is None
