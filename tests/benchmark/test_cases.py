"""Stress cases are related by the H they claim: warped by OpenCV, one image lies on the other."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from caunet.benchmark.cases import STRESS, Case, oxford_cases, relative_error, stress_cases
from caunet.errors import DataError


def gray(pixels: np.ndarray) -> np.ndarray:
    return pixels if pixels.ndim == 2 else pixels[..., :3].mean(-1)


def local(image: np.ndarray, sigma: float) -> np.ndarray:
    """What changes slowly taken off, and what is left brought to one size: light of any kind is gone."""
    image = image.astype(np.float32)
    flat = image - cv2.GaussianBlur(image, (0, 0), sigma)
    return flat / np.sqrt(cv2.GaussianBlur(flat * flat, (0, 0), sigma) + 4.0)


@pytest.mark.parametrize("row", STRESS)
def test_a_case_is_related_by_its_truth(row: str) -> None:
    cases = list(stress_cases("test", (row,)))
    assert cases or row == "red to blue"
    for case in cases:
        if case.name == "page" and row.startswith("thumbnail"):
            continue  # text of 384 pixels, reduced to 128: nothing is left of it
        H = case.truth.numpy()
        zoom = np.sqrt(abs(np.linalg.det(H[:2, :2])))
        b = gray(case.b).astype(np.float32)
        if zoom > 1:  # read with the blur of the coarser image
            b = cv2.GaussianBlur(b, (0, 0), 0.5 * zoom)
        size = (case.a.shape[1], case.a.shape[0])
        laid = cv2.warpPerspective(b, H, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
        seen = cv2.warpPerspective(np.ones_like(b), H, size, flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP)
        seen = cv2.erode(seen, np.ones((15, 15))) > 0
        seen[:20], seen[-20:], seen[:, :20], seen[:, -20:] = False, False, False, False
        a = gray(case.a).astype(np.float32)
        if zoom < 1:
            a = cv2.GaussianBlur(a, (0, 0), 0.5 / zoom)
        first, second = local(a, 8)[seen], local(laid, 8)[seen]
        sign = -1 if row == "negative" else 1
        likeness = sign * np.corrcoef(first, second)[0, 1]
        moved = sign * np.corrcoef(first, local(np.roll(laid, 9, (0, 1)), 8)[seen])[0, 1]
        assert likeness > (0.25 if "foreground 50" in row or row == "red to blue" else 0.4), case.name
        assert likeness > moved + 0.2, case.name


def test_cases_are_a_function_of_the_seed() -> None:
    first, again, other = (next(stress_cases("test", ("scale 2",), seed=seed)) for seed in (3, 3, 4))
    assert (first.a == again.a).all()
    assert (first.b == again.b).all()
    assert torch.equal(first.truth, again.truth)
    assert not torch.equal(first.truth, other.truth)


def test_the_relative_error_is_a_share_of_the_diagonal_seen_in_b() -> None:
    image = np.zeros((301, 401), np.uint8)
    case = Case("", "", image, image, torch.diag(torch.tensor([2.0, 2.0, 1.0])).double())
    found = case.truth.clone()
    found[0, 2] = 10.0
    assert relative_error(found, case) == pytest.approx(10 / 1000)
    found[2] = 0.0
    assert relative_error(found, case) == float("inf")


def test_the_oxford_set_is_read_as_opencv_stores_it(tmp_path: Path) -> None:
    folder = tmp_path / "graf"
    folder.mkdir()
    H = np.array([[1.0, 0.1, 3], [0, 1, -2], [1e-5, 0, 1]])
    for k in range(1, 7):
        cv2.imwrite(str(folder / f"img{k}.png"), np.full((20, 30), k, np.uint8))
        storage = cv2.FileStorage(str(folder / f"H1to{k}p.xml"), cv2.FILE_STORAGE_WRITE)
        storage.write("H", H * k)
        storage.release()
    cases = list(oxford_cases(tmp_path))
    assert [case.name for case in cases] == ["1-2", "1-3", "1-4", "1-5", "1-6"]
    np.testing.assert_allclose(cases[2].truth.numpy(), H * 4)
    assert cases[2].b[0, 0] == 4
    (folder / "H1to3p.xml").write_text("<nothing/>")
    with pytest.raises(DataError, match=r"H1to3p\.xml holds no 3 x 3 matrix"):
        list(oxford_cases(tmp_path))
    with pytest.raises(DataError, match="the Oxford set must be a folder"):
        list(oxford_cases(tmp_path / "none"))
