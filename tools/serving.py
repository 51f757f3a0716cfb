"""``caunet serve`` in a process of its own, on a free port."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from caunet.errors import CaunetError

__all__ = ["Served", "served"]


class Served(NamedTuple):
    """A running server."""

    process: "subprocess.Popen[str]"
    address: str
    """Without a slash at the end."""


@contextlib.contextmanager
def served(
    weights: Path | None = None, *options: str, descriptors: int | None = None, log: IO[str] | None = None
) -> Iterator[Served]:
    """Run ``caunet serve`` until the block ends.

    Args:
        weights: a folder of networks instead of those of the package.
        options: further options of the command.
        descriptors: how many files and connections the process may have open (POSIX).
        log: a file for what it writes to its standard error.
    """
    command = [sys.executable, "-m", "caunet.cli", "serve", "--port", "0", *options]
    command += [] if weights is None else ["--weights", str(weights)]
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("caunet is at "):
                raise CaunetError("caunet serve did not start; run it by hand to see why")
            yield Served(process, line.removeprefix("caunet is at ").strip().rstrip("/"))
        finally:
            process.terminate()
