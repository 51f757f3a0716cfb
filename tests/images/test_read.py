"""Pictures in every form, each against a rule written down independently; bad ones are named."""

import contextlib
import struct
import warnings
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from caunet.errors import CaunetError
from caunet.images.read import MIN_SIDE, Picture, PictureError, read_picture

RNG = np.random.default_rng(8)
RGB = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
GRAY = RNG.integers(0, 256, (20, 30), dtype=np.uint8)


def luma(rgb):
    return 0.299 * rgb[..., 0] + 0.587 * rgb[..., 1] + 0.114 * rgb[..., 2]


def same(picture, pixels):
    """Whether a picture holds ``pixels`` (0..1), and the gray of them."""
    np.testing.assert_allclose(picture.pixels.numpy(), pixels, atol=1e-6)
    np.testing.assert_allclose(picture.gray.numpy(), luma(pixels) if pixels.ndim == 3 else pixels, atol=1e-6)
    assert picture.gray.dtype == picture.pixels.dtype == torch.float32
    assert picture.size == pixels.shape[:2]


def saved(path, image, **options):
    image.save(path, **options)
    return path


def test_one_picture_in_every_form(tmp_path):
    path = saved(tmp_path / "a.png", Image.fromarray(RGB))
    forms = {
        str(path): path,
        "bytes": path.read_bytes(),
        "PIL image": Image.open(path),
        "array": RGB,
        "tensor": torch.from_numpy(RGB).permute(2, 0, 1),
    }
    for source, value in forms.items():
        picture = read_picture(value)
        same(picture, RGB / 255)
        assert picture.source == source
    assert read_picture(str(path)).source == str(path)
    assert isinstance(read_picture(read_picture(RGB)), Picture)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (GRAY, GRAY / 255),
        (GRAY[..., None], GRAY / 255),
        (GRAY.astype(np.uint16) * 257, GRAY / 255),
        (GRAY.astype(">u2"), GRAY / 65535),
        (GRAY > 99, (GRAY > 99).astype(float)),
        (GRAY / 255, GRAY / 255),
        ((GRAY / 255).astype(np.float16), (GRAY / 255).astype(np.float16).astype(float)),
        ((GRAY / 255).astype(">f4"), GRAY / 255),
        (GRAY[::-2, ::-1], GRAY[::-2, ::-1] / 255),
    ],
    ids=["u8", "u8x1", "u16", "big-endian", "bool", "f64", "f16", "big-endian float", "strided"],
)
def test_arrays(array, expected):
    if min(expected.shape) < MIN_SIDE:
        array, expected = np.tile(array, (2, 1)), np.tile(expected, (2, 1))
    same(read_picture(array), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.bool, torch.bfloat16, torch.float64])
def test_tensors(dtype):
    largest = {torch.uint8: 255, torch.uint16: 65535}.get(dtype, 1)
    tensor = (torch.from_numpy(RGB).permute(2, 0, 1).float() / 255 * largest).to(dtype)
    same(read_picture(tensor), tensor.permute(1, 2, 0).double().numpy() / largest)
    same(read_picture(tensor[0]), tensor[0].double().numpy() / largest)
    same(read_picture(tensor[:1]), tensor[0].double().numpy() / largest)


def test_a_tensor_that_learns_is_read_without_its_history():
    picture = read_picture(torch.rand(20, 20, requires_grad=True))
    assert not picture.gray.requires_grad


@pytest.mark.parametrize(
    "factor", [(255.0, 0.0), (2.0, -1.0), (1e300, 0.0), (1.7e308, -0.85e308), (1e-3, 7.0)]
)
def test_floats_of_another_range_are_stretched(factor):
    unit = GRAY / 255
    unit[0, :2] = 0, 1
    same(read_picture(unit * factor[0] + factor[1]), unit)


def test_a_constant_of_another_range_is_a_blank_picture():
    same(read_picture(np.full((20, 20), 300.0)), np.zeros((20, 20)))


def test_opacity_lies_on_white(tmp_path):
    rgba = RNG.integers(0, 256, (20, 30, 4), dtype=np.uint8)
    share = rgba[..., 3:] / 255
    expected = rgba[..., :3] / 255 * share + (1 - share)
    same(read_picture(rgba), expected)
    same(read_picture(torch.from_numpy(rgba / 255).permute(2, 0, 1)), expected)
    from_file = read_picture(saved(tmp_path / "a.png", Image.fromarray(rgba)))  # blended in whole numbers
    np.testing.assert_allclose(from_file.pixels.numpy(), expected, atol=0.51 / 255)
    with pytest.raises(
        ValueError, match=r"b has an opacity, so its floats must lie within 0\.\.1; got 0\.\.255"
    ):
        read_picture(np.dstack([GRAY, GRAY, GRAY, np.full_like(GRAY, 255) * (GRAY > 0)]).astype(float), "b")


def test_16_bit_files_keep_their_depth(tmp_path):
    # 12 bits of a camera in a 16-bit file: rounded to bytes, 17 levels would be left.
    dark = RNG.integers(0, 4096, (20, 30)).astype(np.uint16)
    for name in ("a.png", "a.tif"):
        same(read_picture(saved(tmp_path / name, Image.fromarray(dark))), dark / 65535)


def test_palette_bilevel_and_orientation(tmp_path):
    indexed = Image.fromarray(GRAY % 4).convert("P")
    table = RNG.integers(0, 256, (256, 3), dtype=np.uint8)
    indexed.putpalette(table.tobytes())
    same(read_picture(saved(tmp_path / "a.png", indexed)), table[np.asarray(indexed)] / 255)
    same(read_picture(saved(tmp_path / "b.png", Image.fromarray(GRAY > 99))), (GRAY > 99).astype(float))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    turned = saved(tmp_path / "c.png", Image.fromarray(GRAY), exif=exif)
    for value in (turned, Image.open(turned)):
        same(read_picture(value), np.rot90(GRAY, -1) / 255)


def test_of_animations_and_pages_the_first_is_taken(tmp_path):
    pages = [Image.fromarray(np.full((20, 20), v, np.uint8)) for v in (51, 204)]
    for name in ("a.gif", "a.tif", "a.webp"):
        path = saved(tmp_path / name, pages[0], save_all=True, append_images=pages[1:])
        assert read_picture(path).gray.mean() == pytest.approx(0.2, abs=0.01)


def _png(path, width, height):
    """A PNG whose header claims a size that its data do not have."""
    chunks = []
    for kind, data in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0")),
        (b"IEND", b""),
    ):
        chunks.append(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return path


@pytest.mark.parametrize("size", [(8000, 5001), (12000, 10000), (100_000, 100_000)])
def test_more_than_40_megapixels_are_refused_unread_and_without_warning(size, tmp_path):
    path = _png(tmp_path / "a.png", *size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (path, path.read_bytes()):
            with pytest.raises(PictureError, match=r"^b: .*too large.*40 megapixels"):
                read_picture(value, "b")
    with pytest.raises(ValueError, match=r"^a: too large: 8000 x 5001 pixels, at most 40 megapixels"):
        read_picture(np.broadcast_to(np.uint8(0), (5001, 8000)))


def test_a_pillow_image_is_measured_before_it_is_decoded(tmp_path):
    opened = Image.open(_png(tmp_path / "a.png", 8000, 5001))
    with opened as image, pytest.raises(PictureError, match="a: too large: 8000 x 5001"):
        read_picture(image)


def test_files_that_are_no_pictures_are_named(tmp_path):
    text = tmp_path / "text.png"
    text.write_text("not a picture")
    cases = {
        text: r"^a: .*text\.png: not a picture in a known format \(PNG, JPEG",
        tmp_path / "nowhere.png": r"^a: .*nowhere\.png: cannot be read: No such file",
        tmp_path: r"^a: .* is a directory; name one picture",
        b"": "^a: the bytes are empty",
        b"not a picture": "^a: the bytes: not a picture",
    }
    for value, message in cases.items():
        with pytest.raises(PictureError, match=message):
            read_picture(value)
    assert issubclass(PictureError, CaunetError)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "GIF", "WEBP", "BMP"])
def test_half_a_file_is_an_error_or_what_it_claims_to_be(kind, tmp_path):
    Image.fromarray(RGB).save(tmp_path / "whole", kind)
    content = (tmp_path / "whole").read_bytes()
    half = tmp_path / "half"
    half.write_bytes(content[: len(content) // 2])
    with pytest.raises(PictureError, match=r"^b: .*half: "):
        read_picture(half, "b")
    with pytest.raises(PictureError, match=r"^b: "):
        read_picture(half.read_bytes(), "b")


def test_a_pillow_image_of_half_a_file(tmp_path):
    whole = saved(tmp_path / "a.png", Image.fromarray(RGB)).read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    message = r"^a: this PIL image cannot be read: .*truncated"
    with Image.open(tmp_path / "half.png") as image, pytest.raises(PictureError, match=message):
        read_picture(image)
    image = Image.open(tmp_path / "a.png")
    image.close()
    with pytest.raises(PictureError, match=r"^a: this PIL image cannot be read"):
        read_picture(image)


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 3), (15, 400), (400, 15), (0, 20), (0, 0)])
def test_what_is_too_small_is_refused_by_name(shape, tmp_path):
    array = np.zeros(shape, np.uint8)
    with pytest.raises(ValueError, match=r"^b: too small: .* at least 16 x 16"):
        read_picture(array, "b")
    if array.size:
        with pytest.raises(PictureError, match=r"^b: .*a\.png: too small"):
            read_picture(saved(tmp_path / "a.png", Image.fromarray(array)), "b")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_counted(value):
    array = np.zeros((20, 20, 3))
    array[3, 4] = value
    with pytest.raises(ValueError, match=r"^b has 3 of 1200 values that are NaN or infinite"):
        read_picture(array, "b")
    with pytest.raises(ValueError, match=r"^b has 3 of"):
        read_picture(torch.from_numpy(array).permute(2, 0, 1).half(), "b")


@pytest.mark.parametrize(
    "value",
    [
        GRAY.astype(np.int64),
        GRAY.astype(np.uint32),
        GRAY.astype(complex),
        GRAY.astype(object),
        GRAY.astype("datetime64[s]"),
        np.array([["a"] * 20] * 20),
        torch.zeros(20, 20, dtype=torch.int32),
        torch.zeros(20, 20, dtype=torch.complex64),
        None,
        3.5,
        [[0.0] * 20] * 20,
        np.ma.masked_array(GRAY, GRAY > 9),
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_wrong_types_are_type_errors_naming_the_argument(value):
    with pytest.raises(TypeError, match=r"^b (takes|is a masked)"):
        read_picture(value, "b")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(20), r"\(H, W\) or \(H, W, 1\|3\|4\), got \(20,\)"),
        (np.zeros((20, 20, 2)), r"got \(20, 20, 2\)"),
        (np.zeros((3, 20, 20)), r"channels first; arrays have them last"),
        (np.zeros((1, 20, 20, 3)), r"got \(1, 20, 20, 3\)"),
        (torch.zeros(20, 20, 3), r"channels last; tensors have them first"),
        (torch.zeros(1, 3, 20, 20), r"\(H, W\) or \(1\|3\|4, H, W\), got \(1, 3, 20, 20\)"),
        (torch.zeros(()), r"got \(\)"),
    ],
)
def test_wrong_shapes_are_value_errors_naming_the_argument(value, message):
    with pytest.raises(ValueError, match=f"^b takes .*{message}"):
        read_picture(value, "b")


@settings(deadline=None, max_examples=100)
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"P5\n", b"II*\0"]),
)
def test_any_bytes_are_a_picture_or_a_picture_error(content, magic):
    with contextlib.suppress(PictureError):
        assert read_picture(magic + content).gray.isfinite().all()
