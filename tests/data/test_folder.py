"""A directory of pictures: which files count, where they go, what happens to those that cannot be read."""

import hashlib

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
    assert "2 pictures cannot be used" in message
    assert "--skip-bad" in message
    assert f"{broken}: cannot be read" in message
    assert f"{small}: 100 x 31 pixels, smaller than a tile of 32" in message


def test_unusable_files_are_passed_over_when_asked(folder):
    *_, whole = _spoil(folder)
    assert numbers(load_images(folder, skip_bad=True)) == whole


def test_a_long_list_of_unusable_files_is_cut(tmp_path):
    for number in range(40):
        (tmp_path / f"{number}.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"32 pictures cannot be used(.|\n)*and 12 more"):
        load_images(tmp_path)
    with pytest.raises(DataError, match="no usable tile in 32 pictures"):
        load_images(tmp_path, skip_bad=True)


def test_tiles_of_another_size_and_number(folder):
    images = load_images(folder, split="test", tile=16, stride=8, scales=(1,), limit=None)
    assert tuple(images.pixels.shape) == (2 * 4 * 5, 16, 16)
    assert len(load_images(folder, split="test", tile=16, stride=8, scales=(1,), limit=3)) == 2 * 3


def test_too_few_pictures(tmp_path):
    with pytest.raises(DataError, match="has 0 pictures; at least two are needed"):
        load_images(tmp_path)
    for number in range(2):
        picture(tmp_path / f"{number}.png", number)
    assert numbers(load_images(tmp_path)) | numbers(load_images(tmp_path, split="test")) == {0, 1}
    with pytest.raises(DataError, match="no validation images; it takes at least two training pictures"):
        load_images(tmp_path, split="validation")


def test_pictures_without_features_are_no_data(tmp_path):
    for number in range(2):
        Image.new("L", (64, 64), 90).save(tmp_path / f"{number}.png")
    with pytest.raises(DataError, match="without features"):
        load_images(tmp_path)
