"""Other ways to register two pictures, all called alike, each used as its documentation advises.

>>> [peer.name for peer in PEERS][:3]
['caunet', 'ecc', 'ecc-pyramid']
"""

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from caunet.benchmark import methods
from caunet.benchmark.methods import Matrix, Picture, Register
from caunet.errors import CaunetError

__all__ = ["PEERS", "Peer", "PeerMissing", "find", "one_thread"]


class PeerMissing(CaunetError):
    """A peer's package is not installed."""


@dataclass(frozen=True)
class Peer:
    """A way to register: ``peer(a, b)`` on gray bytes (H, W) is H (3, 3), a's pixels to b's, or None.

    Args:
        name: as the command line and the results have it.
        label: as the table has it.
        family: the most general motion it can answer with.
        package: what it comes from, to be installed and to name its version.
        module: what to import to see whether it is there.
        make: makes the function; anything that can be kept between pairs is made once.
        share: of the pairs it is given: slow ones get fewer.
    """

    name: str
    label: str
    family: str
    package: str
    module: str
    make: Callable[[], Register]
    share: float = 1.0

    def __call__(self, a: Picture, b: Picture) -> Matrix | None:
        return _made(self)(a, b)

    def check(self) -> None:
        """Raise :class:`PeerMissing` if its package cannot be imported."""
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            raise PeerMissing(
                f"{self.label} needs {self.package}; run: pip install 'caunet[bench]', or name other --peers"
            ) from error

    @property
    def version(self) -> str:
        """Of its package, as installed."""
        for name in (self.package, f"{self.package}-headless"):
            with contextlib.suppress(PackageNotFoundError):
                return version(name)
        return "unknown"


@functools.cache
def _made(peer: Peer) -> Register:
    return peer.make()


def find(names: Sequence[str] | None = None) -> list[Peer]:
    """The peers of these names (all, if None), each with its package there.

    >>> [peer.label for peer in find(["caunet"])]
    ['caunet']
    """
    known = {peer.name: peer for peer in PEERS}
    for name in names or ():
        if name not in known:
            raise ValueError(f"peers takes names out of {', '.join(known)}, got {name!r}")
    chosen = [known[name] for name in names] if names else list(PEERS)
    for peer in chosen:
        peer.check()
    return chosen


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run a block with one thread in torch and, if imported (:func:`find` imports), in OpenCV and SimpleITK."""
    settings: list[tuple[Callable[[], int], Callable[[int], Any]]] = [
        (torch.get_num_threads, torch.set_num_threads)
    ]
    if opencv := sys.modules.get("cv2"):
        settings.append((opencv.getNumThreads, opencv.setNumThreads))
    if itk := sys.modules.get("SimpleITK"):
        process = itk.ProcessObject
        settings.append((process.GetGlobalDefaultNumberOfThreads, process.SetGlobalDefaultNumberOfThreads))
    before = [get() for get, _ in settings]
    for _, put in settings:
        put(1)
    try:
        yield
    finally:
        for (_, put), count in zip(settings, before, strict=True):
            put(count)


_CV = "opencv-python"
PEERS: tuple[Peer, ...] = (
    Peer("caunet", "caunet", "homography", "caunet", "caunet.estimation", methods.caunet),
    Peer("ecc", "OpenCV ECC", "homography", _CV, "cv2", methods.ecc),
    Peer("ecc-pyramid", "OpenCV ECC, pyramid", "homography", _CV, "cv2", methods.ecc_pyramid),
    Peer("sift", "SIFT + MAGSAC", "homography", _CV, "cv2", methods.sift),
    Peer("orb", "ORB + MAGSAC", "homography", _CV, "cv2", methods.orb),
    Peer("phase", "phase correlation", "shift", _CV, "cv2", methods.phase),
    Peer("kornia", "kornia ImageRegistrator", "homography", "kornia", "kornia", methods.kornia, share=0.2),
    Peer("pystackreg", "pystackreg", "affine", "pystackreg", "pystackreg", methods.pystackreg),
    Peer("simpleitk", "SimpleITK", "affine", "SimpleITK", "SimpleITK", methods.simpleitk),
)
