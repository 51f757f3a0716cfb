"""Files into bytes: every mode by an independent rule, nothing too large, nothing odd without a name."""

from fractions import Fraction

import numpy as np
import pytest
from PIL import Image
from tests.oracles.cifar_archives import gray
from tests.oracles.png import claiming

from caunet.errors import DataError
from caunet.images import read_uint8

RNG = np.random.default_rng(3)
RGB = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
GRAY = RNG.integers(0, 256, (5, 7), dtype=np.uint8)


def save(tmp_path, image, name="a.png", **options):
    image.save(tmp_path / name, **options)
    return tmp_path / name


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.bmp", "a.ppm", "a.webp"])
def test_color_without_loss(name, tmp_path):
    options = {"lossless": True} if name.endswith("webp") else {}
    path = save(tmp_path, Image.fromarray(RGB), name, **options)
    np.testing.assert_array_equal(read_uint8(path), gray(RGB))
    np.testing.assert_array_equal(read_uint8(path, rgb=True), RGB)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.bmp", "a.pgm", "a.gif"])
def test_gray_files_keep_their_bytes(name, tmp_path):
    path = save(tmp_path, Image.fromarray(GRAY), name)
    np.testing.assert_array_equal(read_uint8(path), GRAY)
    np.testing.assert_array_equal(read_uint8(path, rgb=True), np.stack([GRAY] * 3, -1))


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.pgm"])
def test_16_bits_are_rounded_to_8(name, tmp_path):
    wide = np.array([[0, 128, 129, 256, 257], [385, 386, 32767, 65406, 65535]], np.uint16)
    path = save(tmp_path, Image.fromarray(wide), name)
    exact = [[int(Fraction(int(v), 257) + Fraction(1, 2)) for v in row] for row in wide]
    assert read_uint8(path).tolist() == exact
    assert exact[1][-1] == 255


def test_palette_and_bilevel(tmp_path):
    indexed = Image.fromarray(RNG.integers(0, 4, (5, 7), dtype=np.uint8), "L").convert("P")
    table = RNG.integers(0, 256, (256, 3), dtype=np.uint8)
    indexed.putpalette(table.tobytes())
    path = save(tmp_path, indexed)
    np.testing.assert_array_equal(read_uint8(path, rgb=True), table[np.asarray(indexed)])
    bits = GRAY > 127
    np.testing.assert_array_equal(read_uint8(save(tmp_path, Image.fromarray(bits), "b.png")), bits * 255)


def test_cmyk(tmp_path):
    inks = RNG.integers(0, 256, (5, 7, 4), dtype=np.uint8)
    path = save(tmp_path, Image.fromarray(inks, "CMYK"), "a.tif")
    c, k = inks[..., :3] / 255, inks[..., 3:] / 255
    np.testing.assert_allclose(read_uint8(path, rgb=True), 255 * (1 - c) * (1 - k), atol=1.01)


def _over_white(color, alpha):
    share = Fraction(int(alpha), 255)
    return int(share * int(color) + (1 - share) * 255 + Fraction(1, 2))


def test_transparency_lies_on_white(tmp_path):
    rgba = RNG.integers(0, 256, (5, 7, 4), dtype=np.uint8)
    rgba[0, :3, 3] = 0, 1, 255
    exact = [[[_over_white(c, p[3]) for c in p[:3]] for p in row] for row in rgba]
    assert read_uint8(save(tmp_path, Image.fromarray(rgba)), rgb=True).tolist() == exact
    la = np.stack([GRAY, rgba[..., 3]], -1)
    exact = [[_over_white(*p) for p in row] for row in la]
    assert read_uint8(save(tmp_path, Image.fromarray(la, "LA"), "b.png")).tolist() == exact


def test_a_transparent_color_is_white(tmp_path):
    path = save(tmp_path, Image.fromarray(RGB), transparency=tuple(int(v) for v in RGB[2, 3]))
    expected = RGB.copy()
    expected[2, 3] = 255
    np.testing.assert_array_equal(read_uint8(path, rgb=True), expected)


ORIENTATIONS = {  # what a viewer must do with the stored rows and columns, by the EXIF standard
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.T,
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].T,
    8: lambda a: np.rot90(a),
}


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_exif_orientation_is_applied(orientation, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path, Image.fromarray(GRAY), exif=exif)
    np.testing.assert_array_equal(read_uint8(path), ORIENTATIONS[orientation](GRAY))


def test_of_an_animation_the_first_frame_is_taken(tmp_path):
    frames = [Image.fromarray(np.full((4, 4), v, np.uint8)) for v in (10, 200)]
    path = save(tmp_path, frames[0], "a.gif", save_all=True, append_images=frames[1:])
    assert (read_uint8(path) == 10).all()
    path = save(tmp_path, frames[1], "a.tif", save_all=True, append_images=frames[:1])
    assert (read_uint8(path) == 200).all()


def _claiming(path, width, height):
    path.write_bytes(claiming(width, height))
    return path


@pytest.mark.parametrize("size", [(8000, 5001), (100_000, 100_000)])
def test_more_than_40_megapixels_are_refused_before_decoding(size, tmp_path):
    with pytest.raises(DataError, match=r"a\.png: too large.* 40 megapixels"):
        read_uint8(_claiming(tmp_path / "a.png", *size))


def test_40_megapixels_are_not_too_large(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read: .*truncated"):
        read_uint8(_claiming(tmp_path / "a.png", 8000, 5000))


def test_formats_off_the_list_are_refused(tmp_path):
    for kind in ("ICO", "TGA", "PCX", "EPS"):
        Image.fromarray(RGB).save(tmp_path / "a.png", kind)
        with pytest.raises(DataError, match=r"a\.png: not an image in a known format \(PNG, JPEG"):
            read_uint8(tmp_path / "a.png")


def test_floats_within_0_to_1_are_255ths_and_others_are_scaled(tmp_path):
    unit = RNG.random((4, 4), np.float32)
    path = save(tmp_path, Image.fromarray(unit), "a.tif")
    np.testing.assert_array_equal(read_uint8(path), np.rint(255 * unit))
    path = save(tmp_path, Image.fromarray(unit * 3000 - 1000), "b.tif")
    scaled = (unit - unit.min()) / (unit.max() - unit.min())
    np.testing.assert_allclose(read_uint8(path), 255 * scaled, atol=0.51)
    unit[0, 0] = np.nan
    with pytest.raises(DataError, match=r"^.*c\.tif: .*1 of 16 values that are NaN or infinite"):
        read_uint8(save(tmp_path, Image.fromarray(unit), "c.tif"))


@pytest.mark.parametrize("dtype", ["<i2", "<i4", "<u4"])
def test_signed_and_wide_whole_numbers_of_tiff_files_are_scaled(dtype, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    limits = np.iinfo(dtype)
    values = np.linspace(limits.min, limits.max, 20).reshape(4, 5).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", values)
    exact = (values.astype(float) - limits.min) / (float(limits.max) - limits.min)
    np.testing.assert_allclose(read_uint8(tmp_path / "a.tif"), 255 * exact, atol=0.51)


def test_missing_files_and_directories_are_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.png: cannot be read: No such file"):
        read_uint8(tmp_path / "nowhere.png")
    with pytest.raises(DataError, match="is a directory"):
        read_uint8(tmp_path)
