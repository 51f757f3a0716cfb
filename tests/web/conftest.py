"""A real server on loopback, in a thread of the tests; and networks to put into it."""

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

from caunet.models import create_model, save_weights
from caunet.web import create_app
from caunet.web.server import Server, listen


@contextlib.contextmanager
def serving(app, **options):
    """The address of ``app``, answered by the server of ``caunet serve`` until the block ends."""
    listening = listen("127.0.0.1", 0)
    server = Server(app, before_end=app.state.computations.close, **options)
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
    """A folder of small networks that have learned nothing, one of each kind, for rotation and translation."""
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
