"""The embedded photographs: there without any download, the same everywhere, train and test apart."""

import hashlib
import socket
import sys
import types

import numpy as np
import pytest
import torch

from caunet.data import load_images, photos
from caunet.data.tiles import cut
from caunet.errors import DataError, MissingExtraError
from caunet.files import sha256
from caunet.images import photograph


@pytest.fixture(scope="module")
def sets():
    return {
        split: load_images("photos", split=split) for split in ("train", "test", "train-fit", "validation")
    }


def test_there_are_enough(sets):
    assert len(sets["train"]) >= 20_000
    assert len(sets["test"]) >= 4_000


def test_nothing_is_downloaded(monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    load_images("photos", split="test")


def test_every_tile_comes_from_a_photograph_of_its_own_part(sets):
    def all_tiles(names):
        found = [cut(photograph(name), tile=32, stride=8, scales=(1, 2, 3, 4)) for name in names]
        return sorted(tile.tobytes() for tile in np.concatenate(found))

    assert sorted(tile.tobytes() for tile in sets["train"].pixels.numpy()) == all_tiles(photos.TRAIN)
    assert sorted(tile.tobytes() for tile in sets["validation"].pixels.numpy()) == all_tiles(
        photos.TRAIN[-2:]
    )
    assert sorted(tile.tobytes() for tile in sets["test"].pixels.numpy()) == all_tiles(photos.TEST)


def test_no_photograph_and_no_tile_is_in_two_parts(sets):
    assert not set(photos.TRAIN) & set(photos.TEST)
    parts = [
        {tile.tobytes() for tile in sets[split].pixels.numpy()}
        for split in ("train-fit", "validation", "test")
    ]
    assert not parts[0] & parts[1]
    assert not (parts[0] | parts[1]) & parts[2]


def test_validation_is_the_last_tenth_of_train(sets):
    both = torch.cat([sets["train-fit"].pixels, sets["validation"].pixels])
    assert torch.equal(both, sets["train"].pixels)
    assert 0.08 < len(sets["validation"]) / len(sets["train"]) < 0.12


def test_the_fingerprint_is_that_of_type_shape_and_bytes(sets):
    for images in sets.values():
        header = f"uint8 {len(images)}x32x32\n".encode()
        assert images.fingerprint == hashlib.sha256(header + images.pixels.numpy().tobytes()).hexdigest()


def test_the_test_tiles_are_the_same_everywhere(sets):
    # All three are stored without loss, so no decoder can change a byte.
    assert all(name.endswith(".png") for name in photos.TEST)
    assert sha256(sets["test"].pixels.numpy().data).startswith("df861e5d2afd")


def test_other_tiles_can_be_cut():
    images = load_images("photos", split="test", tile=64, stride=64, scales=(1,))
    assert tuple(images.pixels.shape[1:]) == (64, 64)
    assert len(images) <= 8 * 8 + 6 * 9 + 8 * 8


def test_the_set_says_what_it_is(sets):
    assert repr(sets["test"]).startswith(
        f"ImageSet('photos', 'test', {len(sets['test'])} x 32 x 32, fingerprint "
    )


def test_without_scikit_image_its_extra_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(
        MissingExtraError, match=r"photographs needs? skimage: pip install 'caunet\[report\]'"
    ) as caught:
        load_images("photos")
    assert caught.value.extra == "report"


def test_a_missing_photograph_is_named(monkeypatch, tmp_path):
    elsewhere = types.ModuleType("skimage")
    elsewhere.__file__ = str(tmp_path / "__init__.py")
    monkeypatch.setitem(sys.modules, "skimage", elsewhere)
    with pytest.raises(
        DataError, match=r"lacks .*astronaut\.png; run: pip install --force-reinstall scikit-image"
    ):
        load_images("photos")


def test_unknown_names_splits_and_options_are_refused():
    with pytest.raises(
        ValueError, match="images must be one of photos, cifar10, shapes3, or a directory, got 'imagenet'"
    ):
        load_images("imagenet")
    with pytest.raises(
        ValueError, match="split must be one of train, test, validation, train-fit, got 'dev'"
    ):
        load_images("photos", split="dev")
    with pytest.raises(TypeError, match="colour"):
        load_images("photos", colour=True)


def test_skip_bad_changes_nothing_where_no_picture_can_be_bad():
    plain, skipping = load_images("photos", split="test"), load_images("photos", split="test", skip_bad=True)
    assert skipping.fingerprint == plain.fingerprint
