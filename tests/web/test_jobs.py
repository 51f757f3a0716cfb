"""Workers: what they may use, and what becomes of those that use more."""

import asyncio
import contextlib
import json
import os
import sys
import time

import pytest

from caunet.web.jobs import Computations
from caunet.web.refusals import BusyError, StoppingError, TooLongError, WorkerError

needs_limits = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_CPU and RLIMIT_AS hold on Linux")


@contextlib.contextmanager
def pool(**options):
    places = Computations("tests.web.jobs:setup", **{"workers": 1, "seconds": 30.0, **options})
    try:
        yield places
    finally:
        places.close()


def ask(places, text):
    """Status and JSON of one request."""
    answer = asyncio.run(places.run("test", "text/plain", text.encode()))
    return answer.status, json.loads(answer.content)


def test_a_worker_answers_again_and_again():
    with pool() as places:
        status, first = ask(places, "echo " + "x" * 3_000_000)
        assert (status, first["length"]) == (200, 3_000_005)
        assert ask(places, "refuse x") == (422, {"detail": "x is missing."})
        status, mistake = ask(places, "mistake")
        assert (status, "on purpose" in mistake["detail"]) == (500, False)  # the inside stays inside
        assert ask(places, "nan")[0] == 500  # JSON has no NaN
        assert ask(places, "echo")[1]["pid"] == first["pid"] != os.getpid()
        assert places.taken == 0


def test_too_long_is_killed_and_replaced():
    with pool(seconds=0.3) as places:
        before = ask(places, "echo")[1]["pid"]
        with pytest.raises(TooLongError, match=r"longer than 0\.3 s"):
            ask(places, "sleep 60")
        assert places.taken == 0
        with pytest.raises(ProcessLookupError):  # it is gone, not forgotten
            os.kill(before, 0)
        assert ask(places, "echo")[1]["pid"] != before


def test_a_worker_that_ends_is_replaced():
    with pool() as places:
        places.start()
        for _ in range(2):
            with pytest.raises(WorkerError, match="ended unexpectedly"):
                ask(places, "crash")
            assert ask(places, "echo")[0] == 200


def test_a_worker_that_cannot_start_is_said_to_be(capfd):
    with pool(options={"fail": True}) as places:
        for _ in range(2):
            with pytest.raises(WorkerError, match="cannot start a worker"):
                ask(places, "echo")
    assert "on purpose" in capfd.readouterr().err


@needs_limits
def test_memory_is_bounded():
    with pool(memory=64 * 2**20) as places:
        before = ask(places, f"eat {32 * 2**20}")[1]["pid"]
        status, answer = ask(places, f"eat {256 * 2**20}")
        assert status == 413
        assert (
            answer["detail"]
            == "This needs more memory than the 64 MB a request may use; send smaller images."
        )
        assert ask(places, "echo")[1]["pid"] != before


@needs_limits
def test_cpu_time_can_be_bounded_within_a_request():
    with pool() as places, pytest.raises(TooLongError, match="Decoding took too long"):
        ask(places, "spin 0.1")


def test_the_queue_is_bounded_and_waiting_too():
    with pool(queue=1) as places:

        async def crowd():
            running = asyncio.create_task(places.run("test", "", b"sleep 60"))
            waiting = asyncio.create_task(places.run("test", "", b"echo"))
            while places.taken < 2:
                await asyncio.sleep(0.01)
            with pytest.raises(BusyError):  # at once: there is no room to wait
                await places.run("test", "", b"echo")
            waiting.cancel()
            while places.taken > 1:
                await asyncio.sleep(0.01)
            places.seconds = 0.1
            with pytest.raises(BusyError):  # waits, and never begins
                await places.run("test", "", b"echo")
            assert places.taken == 1
            running.cancel()

        asyncio.run(crowd())


def test_close_does_not_wait_for_what_runs():
    with pool() as places:

        async def story():
            running = [asyncio.create_task(places.run("test", "", b"sleep 60")) for _ in range(2)]
            while places.taken < 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            places.close()
            return await asyncio.gather(*running, return_exceptions=True)

        started = time.monotonic()
        assert [type(error) for error in asyncio.run(story())] == [StoppingError] * 2
        assert time.monotonic() - started < 30  # of 60
        with pytest.raises(StoppingError):
            ask(places, "echo")
