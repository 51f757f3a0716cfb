"""A real ``caunet serve``, eight clients, one request in ten malformed, 300 half-open connections, few descriptors.

60 requests here; ``python -m tools.soak_server --minutes 60`` is the long form.
"""

import os
import signal
import tempfile
import threading
import time

import httpx
from tools.serving import served
from tools.soak_server import AGAIN, PAIR, half_open, soak

from tests.web.pictures import many_scans


def endless(address, statuses):
    """A request that would take minutes; the server is stopped before."""
    files = {"a": ("a.jpg", many_scans()), "b": PAIR["b"]}
    statuses.append(httpx.post(f"{address}/api/estimate", files=files, timeout=120).status_code)


def test_eight_clients_and_then_ctrl_c(untrained):
    descriptors = 256 if os.name == "posix" else None
    with tempfile.TemporaryFile("w+") as log:
        with served(untrained, descriptors=descriptors, log=log) as (process, address), half_open(address):
            answers = soak(address, 0, 60)
            for again in AGAIN:
                answers.pop(again, None)
            assert answers == {"as expected": 60}
            statuses = []
            client = threading.Thread(target=endless, args=(address, statuses))
            client.start()
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0  # of the 30 seconds that computations may take
            client.join()
            assert statuses == [503]
        log.seek(0)
        assert log.read() == ""  # no traceback, no warning
