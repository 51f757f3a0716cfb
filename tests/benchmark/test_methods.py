"""Every method answers in the one direction: pixels of a to pixels of b."""

import cv2
import numpy as np
import pytest
import torch

from caunet.benchmark import frames, methods, photographs
from caunet.benchmark.pairs import quantized
from caunet.errors import MissingExtraError
from caunet.extras import require

SIDE = 160

# Truths that each can express, with nothing symmetric about them.
SHIFT = np.array([[1, 0, 5.3], [0, 1, -3.6], [0, 0, 1.0]])
AFFINE = np.array([[1.02, -0.03, 4.5], [0.015, 0.98, -2.5], [0, 0, 1.0]])
BENT = AFFINE + np.array([[0, 0, 0], [0, 0, 0], [1e-4, -6e-5, 0.0]])
TRUTH = {"shift": SHIFT, "affine": AFFINE, "homography": BENT}
# Gradient descent, finite windows and points at whole pixels are coarse; the others are not.
LIMIT = {"phase": 1.5, "kornia": 3.0, "orb": 1.0}


def pictures(H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    photo = photographs("test")["chelsea"]
    frame = torch.tensor([[1.0, 0.02, 130.2], [-0.02, 1.0, 60.4], [0, 0, 1]], dtype=torch.float64)
    taken = (
        frames.take(photo, f, (SIDE, SIDE)) for f in (frame, frame @ torch.from_numpy(H).double().inverse())
    )
    a, b = ((quantized(p) * 255).round().byte().numpy() for p in taken)
    return a, b


def corners(H: np.ndarray) -> np.ndarray:
    s = SIDE - 1.0
    return cv2.perspectiveTransform(np.array([[[0, 0]], [[s, 0]], [[s, s]], [[0, s]]]), H)[:, 0]


@pytest.mark.parametrize("method", methods.METHODS, ids=lambda method: method.name)
def test_a_method_takes_a_to_b(method: methods.Method) -> None:
    truth = TRUTH[method.family]
    with methods.one_thread():
        found = method(*pictures(truth))
    assert found is not None
    assert found.shape == (3, 3)
    assert found.dtype == np.float64
    error = np.linalg.norm(corners(found) - corners(truth), axis=1).mean()
    still = np.linalg.norm(corners(np.eye(3)) - corners(truth), axis=1).mean()
    assert still > 4  # so that answering "nothing moved", or the way back, would be seen
    assert error < LIMIT.get(method.name, 0.3)


@pytest.mark.parametrize("name", ["sift", "orb"])
def test_features_say_when_there_are_none(name: str) -> None:
    blank = np.full((64, 64), 128, np.uint8)
    (method,) = methods.find([name])
    assert method(blank, blank) is None


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads(), cv2.getNumThreads()
    with methods.one_thread():
        assert (torch.get_num_threads(), cv2.getNumThreads()) == (1, 1)
    assert (torch.get_num_threads(), cv2.getNumThreads()) == before


def test_unknown_and_missing_methods() -> None:
    with pytest.raises(ValueError, match=r"methods must be names out of caunet, ecc, .*, got 'surf'"):
        methods.find(["surf"])
    absent = methods.Method(
        "x", "X", "shift", "no-such-package", lambda: require("no_such_package", "bench", "X")
    )
    with pytest.raises(MissingExtraError, match=r"X needs no_such_package: pip install 'caunet\[bench\]'"):
        absent.check()
    assert absent.version == "unknown"


def test_versions_are_those_of_the_packages() -> None:
    assert all(method.version[0].isdigit() for method in methods.METHODS)
