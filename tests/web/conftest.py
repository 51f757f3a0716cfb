"""A real server on loopback, in a thread of the tests; and networks to put into it."""

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import pytest
import torch
import uvicorn

from caunet.models import create_model, save_weights
from caunet.web import create_app


@contextlib.contextmanager
def serving(app):
    """The address of ``app``, answered by uvicorn until the block ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    # Connections are kept for longer than clients keep them: who reuses one as it is closed sees it fail.
    config = uvicorn.Config(app, log_level="critical", server_header=False, timeout_keep_alive=75)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """A folder of small networks that have learnt nothing, one a kind, for rotation and translation."""
    folder = tmp_path_factory.mktemp("networks")
    for task in ("rotation", "translation"):
        for seed, name in enumerate(("ctn", "bln", "can")):
            save_weights(create_model(name, task, seed=seed), folder / f"{name}-{task}.safetensors")
    return folder


@pytest.fixture(scope="session")
def server(untrained):
    with serving(create_app(weights=untrained)) as address:
        yield address


@pytest.fixture(scope="session")
def trained():
    """Where trained networks are: None for those of the package. CAUNET_WEIGHTS names another folder."""
    folder = os.environ.get("CAUNET_WEIGHTS")
    return Path(folder) if folder else None


@pytest.fixture(autouse=True, scope="session")
def _threads():
    """The server's workers set torch to one thread; other tests of this process get back what they had."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
