"""What the workers of the tests do, by the first word of a request's body: nothing useful, in many ways."""

import io
import os
import signal
import sys
import tempfile
import time

from caunet.web.refusals import FieldError
from caunet.web.worker import cpu_limit


def setup(fail=False):
    if fail:
        sys.exit("on purpose")
    print("anything that a library prints")  # noqa: T201
    return handler


def setup_decoder():
    from PIL import Image

    return lambda name, kind, body: Image.open(io.BytesIO(body)).convert("L").size


def spin(seconds):
    with cpu_limit(seconds):
        while True:
            pass


def _mistake(_):
    raise RuntimeError("on purpose")


def _refuse(text):
    raise FieldError(f"{text} is missing.")


def _keep():
    """A temporary file that is left behind."""
    number, name = tempfile.mkstemp()
    os.close(number)
    return name


JOBS = {
    "sleep": lambda text: time.sleep(float(text)),
    "spin": lambda text: spin(float(text)),
    "eat": lambda text: len(bytearray(int(text))),
    "crash": lambda text: os.kill(os.getpid(), signal.SIGKILL),
    "mistake": _mistake,
    "refuse": _refuse,
    "nan": lambda text: float("nan"),
    "echo": lambda text: None,
    "keep": lambda text: _keep(),
}


def handler(name, kind, body):
    command, _, argument = body[:100].decode().partition(" ")
    return {"pid": os.getpid(), "length": len(body), "made": JOBS[command](argument)}
