"""The overlay: gray where pictures agree, orange and azure where one is alone; files whole or not there."""

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

from caunet import geometry
from caunet.estimation.overlay import FRAME, check_output, overlay, save_image
from caunet.estimation.result import Estimate

PHOTO = data.camera()[100:300:2, 100:340:2].copy()


def found(matrix=None, size_b=PHOTO.shape):
    matrix = torch.eye(3) if matrix is None else matrix
    return Estimate(matrix, "projective", confidence=1.0, size_a=PHOTO.shape, size_b=size_b)


def channels(image):
    return np.moveaxis(np.asarray(image).astype(int), 2, 0)


def test_agreement_is_gray():
    red, green, blue = channels(overlay(PHOTO, PHOTO, found()))
    np.testing.assert_array_equal(red, PHOTO)
    assert np.abs(red - blue).max() <= 1
    assert np.abs(red - green).max() <= 1


def test_brightness_and_contrast_do_not_colour():
    dim = (PHOTO * 0.5 + 30).round().astype(np.uint8)
    red, _, blue = channels(overlay(PHOTO, dim, found()))
    assert np.abs(red - blue).mean() < 1


def test_disagreement_is_coloured_and_the_right_matrix_removes_it():
    moved = np.roll(PHOTO, 5, axis=1)
    wrong = channels(overlay(PHOTO, moved, found()))
    right = channels(overlay(PHOTO, moved, found(geometry.translate(5.0, 0.0))))
    kept = slice(0, -5)  # the last columns came round from the other side
    assert np.abs(wrong[0] - wrong[2])[:, kept].mean() > 5
    assert np.abs(right[0] - right[2])[:, kept].mean() < 1.5


def test_where_one_is_alone():
    other = data.camera()[100:300:2, 20:260:2]  # 40 pixels further to the left
    red, green, blue = channels(overlay(PHOTO, other, found(geometry.translate(40.0, 0.0)), margin=0.5))
    pad = 60
    only_a = np.s_[pad + 10 : -pad - 10, -pad - 38 : -pad - 1]
    assert (blue[only_a] == 0).all()
    assert red[only_a].mean() > 20
    np.testing.assert_allclose(green[only_a], red[only_a] / 2, atol=1)
    only_b = np.s_[pad + 10 : -pad - 10, pad - 38 : pad - 2]
    assert (red[only_b] == 0).all()
    assert blue[only_b].mean() > 20


def test_the_frame_of_a():
    image = overlay(PHOTO, PHOTO, found(), margin=0.25, outline=True)
    assert image.size == (120 + 60, 100 + 60)
    assert image.getpixel((30, 30)) == image.getpixel((149, 129)) == FRAME
    assert FRAME not in {image.getpixel(p) for p in ((29, 29), (150, 130), (31, 31))}


def test_pictures_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match="a must be the image that was compared"):
        overlay(PHOTO[:50], PHOTO, found())
    with pytest.raises(ValueError, match="b must be the image that was compared"):
        overlay(PHOTO, PHOTO[:50], found())
    with pytest.raises(ValueError, match="margin must be"):
        overlay(PHOTO, PHOTO, found(), margin=-1)


def test_blank_and_far_pictures_have_an_overlay():
    blank = np.full_like(PHOTO, 90)
    red, _, blue = channels(overlay(PHOTO, blank, found()))
    assert (blue == 90).all()
    red, _, blue = channels(overlay(PHOTO, PHOTO, found(geometry.translate(1000.0, 0.0))))
    assert (blue == 0).all()
    np.testing.assert_array_equal(red, PHOTO)


@pytest.mark.parametrize("name", ["o.png", "o.JPG", "o.tif", "o.webp", "o.bmp"])
def test_files_are_written_whole(name, tmp_path):
    image = overlay(PHOTO, PHOTO, found())
    save_image(image, tmp_path / "new" / name)
    with Image.open(tmp_path / "new" / name) as back:
        assert back.size == image.size
    assert [p.name for p in (tmp_path / "new").iterdir()] == [name]


def test_names_that_cannot_be_written(tmp_path):
    with pytest.raises(
        ValueError, match=r"--out must be a file name ending in one of .*\.png.*, got 'a\.txt'"
    ):
        check_output("a.txt", "--out")
    (tmp_path / "a.png").mkdir()
    with pytest.raises(ValueError, match=r"--out must be a file, got the directory"):
        check_output(tmp_path / "a.png", "--out")
    with pytest.raises(ValueError, match="JPEG cannot hold an image of mode RGBA"):
        save_image(Image.new("RGBA", (4, 4)), tmp_path / "a.jpg")
    assert not (tmp_path / "a.jpg").exists()
