"""Every method answers in the one direction: pixels of a to pixels of b."""

import cv2
import numpy as np
import pytest
import torch

from caunet.benchmark import deformable, frames, methods, photographs
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
LIMIT = {
    "phase": 1.5,
    "kornia": 3.0,
    "orb": 1.0,
    "xfeat": 3.0,
    "xfeat-lighterglue": 3.0,
    "disk": 2.0,
    "aliked": 2.0,
}


def installed(method: methods.Method) -> bool:
    """Whether a rival's package is there; LightGlue's is not in the extra."""
    return method.version != "unknown"


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
    if not installed(method):
        pytest.skip(f"{method.package} is not installed")
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


@pytest.mark.parametrize("name", ["sift", "orb", "root-sift", "xfeat", "xfeat-lighterglue"])
def test_features_say_when_there_are_none(name: str) -> None:
    blank = np.full((64, 64), 128, np.uint8)
    (method,) = methods.find([name])
    assert method(blank, blank) is None


def test_what_is_padded_has_no_features() -> None:
    """Sides that are no multiples of 32: LighterGlue refuses points beyond the image."""
    (method,) = methods.find(["xfeat-lighterglue"])
    noise = (
        np.random.default_rng(0).integers(0, 256, (25, 129), np.uint8).repeat(4, 0).repeat(4, 1)[:97, :513]
    )
    with methods.one_thread():
        found = method(noise, noise)
    np.testing.assert_allclose(found, np.eye(3), atol=0.02)


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
    assert all(method.version[0].isdigit() for method in methods.METHODS if installed(method))
    assert [method.name for method in methods.METHODS if not installed(method)] in ([], ["disk", "aliked"])


def test_defaults_are_what_the_extra_brings() -> None:
    for kind, names in methods.DEFAULT_METHODS.items():
        assert [method.name for method in methods.find(None, kind)] == list(names)
        assert not {"disk", "aliked"} & {*names}


@pytest.mark.parametrize("name", ["sift", "xfeat"])
def test_colors_and_transparency_change_nothing_that_is_gray(name: str) -> None:
    (method,) = methods.find([name])
    a, b = pictures(BENT)
    with methods.one_thread():
        gray = method(a, b)
        colored = method(np.stack([a] * 3 + [np.full_like(a, 255)], -1), np.stack([b] * 3, -1))
    np.testing.assert_allclose(colored, gray, atol=1e-6)


def test_a_deformable_convolution_is_its_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(2, 3, 6, 7, generator=generator), torch.randn(4, 3, 3, 3, generator=generator)
    bias = torch.randn(4, generator=generator)
    still = torch.zeros(2, 18, 6, 7)
    plain = torch.nn.functional.conv2d(x, w, bias, padding=1)
    torch.testing.assert_close(deformable.deform_conv2d(x, still, w, bias, padding=1), plain)
    offset = 3 * torch.randn(2, 18, 6, 7, generator=generator)
    found = deformable.deform_conv2d(x, offset, w, bias, padding=(1, 1))
    image = np.pad(x.double().numpy(), [(0, 0), (0, 0), (20, 20), (20, 20)])
    for n, d, row, column in [(0, 0, 0, 0), (1, 3, 5, 6), (0, 2, 3, 4), (1, 1, 0, 6)]:
        total = float(bias[d])
        for k in range(9):
            # torchvision's order: down and right of each tap, taps row by row.
            v = row - 1 + k // 3 + float(offset[n, 2 * k, row, column])
            u = column - 1 + k % 3 + float(offset[n, 2 * k + 1, row, column])
            i, j = int(np.floor(v)), int(np.floor(u))
            corner = image[n, :, i + 20 : i + 22, j + 20 : j + 22]
            weights = np.outer([1 - (v - i), v - i], [1 - (u - j), u - j])
            total += float(((corner * weights).sum((1, 2)) * w[d, :, k // 3, k % 3].double().numpy()).sum())
        assert float(found[n, d, row, column]) == pytest.approx(total, abs=1e-4)
    with pytest.raises(NotImplementedError, match="stride 1"):
        deformable.deform_conv2d(x, offset, w, stride=2)
