"""A directory of images: which files count, where they go, what happens to those that cannot be read."""

import errno
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from caunet.data import load_images
from caunet.errors import DataError


def picture(path, number, size=(40, 48)):
    """Noise whose bytes are all in the band of ``number``, so that a tile tells which picture it is from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(number).integers(0, 20, size, dtype=np.uint8)
    Image.fromarray(noise + np.uint8(20 * number)).save(path)


@pytest.fixture
def folder(tmp_path):
    for number in range(10):
        picture(tmp_path / "deep" / f"{number}.png", number)
    return tmp_path


def numbers(images):
    return {int(tile.min()) // 20 for tile in images.pixels}


def test_a_fifth_by_the_hash_of_the_name_is_for_testing(folder):
    by_hash = sorted(range(10), key=lambda n: hashlib.sha256(f"deep/{n}.png".encode()).hexdigest())
    assert numbers(load_images(folder, split="test")) == set(by_hash[:2])
    assert numbers(load_images(folder, split="train")) == set(by_hash[2:])


def test_validation_pictures_are_training_pictures_of_their_own(folder):
    fit, validation = load_images(folder, split="train-fit"), load_images(folder, split="validation")
    assert len(numbers(validation)) == 1
    assert not numbers(fit) & numbers(validation)
    assert torch.equal(torch.cat([fit.pixels, validation.pixels]), load_images(folder).pixels)


def test_moving_the_directory_changes_nothing(folder, tmp_path_factory):
    before = load_images(str(folder))
    other = tmp_path_factory.mktemp("other") / "name"
    folder.rename(other)
    after = load_images(other)
    assert after.fingerprint == before.fingerprint
    assert after.name == str(other)


def test_hidden_and_foreign_files_do_not_count(folder):
    before = load_images(folder).fingerprint
    (folder / "notes.txt").write_text("not a picture, and does not say so")
    (folder / ".thumbnail.png").write_bytes(b"broken")
    (folder / ".git").mkdir()
    (folder / ".git" / "a.png").write_bytes(b"broken")
    assert load_images(folder).fingerprint == before


def _spoil(folder):
    """Make every way of being unusable, among the training files."""
    by_hash = sorted(
        folder.rglob("*.png"), key=lambda p: hashlib.sha256(f"deep/{p.name}".encode()).hexdigest()
    )
    broken, small, whole = by_hash[2], by_hash[3], by_hash[4:]
    broken.write_bytes(broken.read_bytes()[:60])
    picture(small, 12, size=(31, 100))
    return broken, small, {int(p.stem) for p in whole}


def test_unusable_files_are_all_named(folder):
    broken, small, _ = _spoil(folder)
    with pytest.raises(DataError) as caught:
        load_images(folder)
    message = str(caught.value)
    assert "2 files or folders cannot be used" in message
    assert "--skip-bad" in message
    assert f"{broken}: cannot be read" in message
    assert f"{small}: height 31, width 100, smaller than a tile of 32" in message


def test_unusable_files_are_passed_over_when_asked(folder):
    *_, whole = _spoil(folder)
    assert numbers(load_images(folder, skip_bad=True)) == whole


def test_folders_that_cannot_be_listed_are_named_or_left_out(folder, monkeypatch):
    """They were skipped silently, and with them the images that should have been learned from."""
    picture(folder / "locked" / "11.png", 11)
    real = os.scandir

    def scandir(path):
        if os.fspath(path).endswith("locked"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)  # changing modes would not stop a superuser
    with pytest.raises(
        DataError, match=r"1 files or folders(.|\n)*locked: cannot be read: Permission denied"
    ):
        load_images(folder)
    assert len(load_images(folder, skip_bad=True)) > 0


def test_names_that_are_not_utf_8_are_read_and_can_be_printed(tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe9t\xe9"))
    for number in range(10):
        picture(folder / os.fsdecode(b"%d-\xff.png" % number), number)
    images = load_images(folder)
    assert len(numbers(images)) == 8
    assert images.name.endswith(r"\xe9t\xe9")
    for file in folder.iterdir():
        file.write_bytes(b"broken")
    with pytest.raises(DataError, match=r"\\xe9t\\xe9/\d-\\xff\.png: not an image") as caught:
        load_images(folder)
    str(caught.value).encode()


def test_pipes_among_the_files_are_not_opened(folder):
    before = load_images(folder).fingerprint
    os.mkfifo(folder / "pipe.png")
    assert load_images(folder).fingerprint == before


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "\ud800"])
def test_impossible_names_are_value_errors(name):
    with pytest.raises(
        ValueError, match="images must be one of photos, cifar10, shapes3, or a directory, got"
    ):
        load_images(name)


def test_a_long_list_of_unusable_files_is_cut(tmp_path):
    for number in range(40):
        (tmp_path / f"{number}.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"32 files or folders cannot be used(.|\n)*and 12 more"):
        load_images(tmp_path)
    with pytest.raises(DataError, match="no usable tile in 32 images"):
        load_images(tmp_path, skip_bad=True)


def test_tiles_of_another_size_and_number(folder):
    images = load_images(folder, split="test", tile=16, stride=8, scales=(1,), limit=None)
    assert tuple(images.pixels.shape) == (2 * 4 * 5, 16, 16)
    assert len(load_images(folder, split="test", tile=16, stride=8, scales=(1,), limit=3)) == 2 * 3


def test_too_few_pictures(tmp_path):
    with pytest.raises(DataError, match="has 0 images; at least two are needed"):
        load_images(tmp_path)
    for number in range(2):
        picture(tmp_path / f"{number}.png", number)
    assert numbers(load_images(tmp_path)) | numbers(load_images(tmp_path, split="test")) == {0, 1}
    with pytest.raises(DataError, match="no validation images; at least two training images are needed"):
        load_images(tmp_path, split="validation")


def test_pictures_without_features_are_no_data(tmp_path):
    for number in range(2):
        Image.new("L", (64, 64), 90).save(tmp_path / f"{number}.png")
    with pytest.raises(DataError, match="without features"):
        load_images(tmp_path)
