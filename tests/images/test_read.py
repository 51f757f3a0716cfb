"""Images in every form, each against a rule written down independently; bad ones are named."""

import contextlib
import io
import os
import pickle
import socket
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.oracles.png import claiming

from caunet.errors import CaunetError
from caunet.images import MIN_SIDE, ImageError, LoadedImage, image_formats, read_image, read_mask

RNG = np.random.default_rng(8)
RGB = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
GRAY = RNG.integers(0, 256, (20, 30), dtype=np.uint8)


def luma(rgb):
    return 0.2989 * rgb[..., 0] + 0.5870 * rgb[..., 1] + 0.1140 * rgb[..., 2]


def same(picture, pixels):
    """Whether a picture holds ``pixels`` (0..1), and the gray of them."""
    np.testing.assert_allclose(picture.pixels.numpy(), pixels, atol=1e-6)
    np.testing.assert_allclose(picture.gray.numpy(), luma(pixels) if pixels.ndim == 3 else pixels, atol=1e-6)
    assert picture.gray.dtype == picture.pixels.dtype == torch.float32
    assert picture.size == pixels.shape[:2]


def saved(path, image, **options):
    image.save(path, **options)
    return path


def test_one_image_in_every_form(tmp_path):
    path = saved(tmp_path / "a.png", Image.fromarray(RGB))
    forms = {
        str(path): path,
        "bytes": path.read_bytes(),
        "file": io.BytesIO(path.read_bytes()),
        "PIL image": Image.open(path),
        "array": RGB,
        "tensor": torch.from_numpy(RGB).permute(2, 0, 1),
    }
    for source, value in forms.items():
        picture = read_image(value, "a")
        same(picture, RGB / 255)
        assert picture.source == source
    assert read_image(str(path)).source == str(path)
    assert isinstance(read_image(read_image(RGB)), LoadedImage)


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
    same(read_image(array), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.bool, torch.bfloat16, torch.float64])
def test_tensors(dtype):
    largest = {torch.uint8: 255, torch.uint16: 65535}.get(dtype, 1)
    tensor = (torch.from_numpy(RGB).permute(2, 0, 1).float() / 255 * largest).to(dtype)
    same(read_image(tensor), tensor.permute(1, 2, 0).double().numpy() / largest)
    same(read_image(tensor[0]), tensor[0].double().numpy() / largest)
    same(read_image(tensor[:1]), tensor[0].double().numpy() / largest)


def test_a_tensor_that_learns_is_read_without_its_history():
    picture = read_image(torch.rand(20, 20, requires_grad=True))
    assert not picture.gray.requires_grad


@pytest.mark.parametrize(
    "factor", [(255.0, 0.0), (2.0, -1.0), (1e300, 0.0), (1.7e308, -0.85e308), (1e-3, 7.0)]
)
def test_floats_of_another_range_are_stretched(factor):
    unit = GRAY / 255
    unit[0, :2] = 0, 1
    same(read_image(unit * factor[0] + factor[1]), unit)


def test_a_constant_of_another_range_is_a_blank_image():
    same(read_image(np.full((20, 20), 300.0)), np.zeros((20, 20)))


def test_what_is_transparent_is_white_and_masked(tmp_path):
    rgba = RNG.integers(0, 256, (20, 30, 4), dtype=np.uint8)
    share = rgba[..., 3:] / 255
    visible = share >= 0.5
    expected = np.where(visible, rgba[..., :3] / 255, rgba[..., :3] / 255 * share + (1 - share))
    path = saved(tmp_path / "a.png", Image.fromarray(rgba))
    forms = [rgba, torch.from_numpy(rgba / 255).permute(2, 0, 1), path, Image.open(path), path.read_bytes()]
    for form in forms:
        image = read_image(form)
        same(image, expected)
        np.testing.assert_array_equal(image.mask, visible[..., 0])
    assert read_image(np.dstack([RGB, np.full((20, 30), 200, np.uint8)])).mask is None
    assert not read_image(np.dstack([RGB, np.zeros((20, 30), np.uint8)])).mask.any()
    keyed = saved(tmp_path / "b.png", Image.fromarray(GRAY).convert("P"), transparency=0)
    assert read_image(keyed).mask.shape == (20, 30)
    with pytest.raises(
        ValueError,
        match=r"b has an opacity, so it must be uint8, uint16 or floats within 0\.\.1, got float64 within 0\.\.255",
    ):
        read_image(np.dstack([GRAY, GRAY, GRAY, np.full_like(GRAY, 255) * (GRAY > 0)]).astype(float), "b")


def test_nan_and_masked_pixels_are_masked():
    values = GRAY.astype(np.float32) * 3 - 100
    holes = RNG.random(GRAY.shape) < 0.2
    low, high = values[~holes].min(), values[~holes].max()
    expected = (values - low) / (high - low)
    values[holes] = np.nan
    masked = np.ma.masked_array(np.where(holes, 1e30, values), holes)
    whole = np.ma.masked_array(np.where(holes, -(2**30), np.nan_to_num(values).astype(np.int32)), holes)
    for form in (values, torch.from_numpy(values), masked, whole, Image.fromarray(values)):
        image = read_image(form)
        np.testing.assert_array_equal(image.mask, ~holes)
        np.testing.assert_allclose(image.gray.numpy()[~holes], expected[~holes], atol=1e-6)
        assert image.gray.isfinite().all()
    color = RGB / 255
    color[3, 4, 1] = np.nan  # of one channel
    assert (~read_image(color).mask).nonzero().tolist() == [[3, 4]]
    assert (~read_image(np.ma.masked_invalid(color)).mask).nonzero().tolist() == [[3, 4]]
    assert read_image(np.ma.masked_array(GRAY, False)).mask is None
    with pytest.raises(ValueError, match=r"^b must have pixels that are numbers, got NaN or masked ones"):
        read_image(np.full((20, 30), np.nan), "b")
    with pytest.raises(ValueError, match=r"^b must have pixels that are not masked"):
        read_image(np.ma.masked_array(GRAY, True), "b")


def test_a_channel_may_be_chosen():
    for index, name in enumerate(("red", "green", "blue")):
        for channel in (index, name):
            same(read_image(RGB, channel=channel), RGB[..., index] / 255)
            same(read_image(read_image(RGB), channel=channel), RGB[..., index] / 255)
    same(read_image(RGB, channel="gray"), RGB / 255)
    same(read_image(GRAY, channel=0), GRAY / 255)
    five = RNG.random((20, 30, 5))
    same(read_image(five, channel=4), five[..., 4])
    same(read_image(torch.from_numpy(five).permute(2, 0, 1), channel=1), five[..., 1])
    apart = np.dstack([GRAY, GRAY * 0.5 - 7, GRAY])  # each is scaled by its own range
    low, high = GRAY.min(), GRAY.max()
    same(read_image(apart, channel=1), (GRAY - low) / (high - low))
    rgba = np.dstack([RGB, np.where(GRAY > 99, 255, 0).astype(np.uint8)])
    image = read_image(rgba, channel="green")
    np.testing.assert_allclose(image.gray[image.mask], RGB[..., 1][GRAY > 99] / 255, atol=1e-6)
    for value, channel, message in [
        (RGB, 3, r"channel must be at most 2 for b, got 3"),
        (rgba, 3, r"channel must be at most 2 for b, got 3"),
        (GRAY, 1, r"channel must be at most 0 for b, got 1"),
        (GRAY, "red", r"channel must be 'gray' or an index for b, which has no colors, got 'red'"),
        (RGB, "violet", r"channel must be an index, or one of gray, red, green, blue, got 'violet'"),
        (RGB, -1, r"channel must be an index, or one of gray, red, green, blue, got -1"),
        (five, None, r"b must be an array .* got \(20, 30, 5\); of other numbers of channels say which one"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            read_image(value, "b", channel=channel)
    with pytest.raises(TypeError, match=r"^channel must be an index"):
        read_image(RGB, channel=True)


@pytest.mark.parametrize("kind", ["AVIF", "JPEG2000", "HEIF"])
def test_newer_formats(kind, tmp_path):
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    elif kind not in image_formats():
        pytest.skip(f"this Pillow has no {kind}")
    soft = np.asarray(Image.fromarray(RGB).resize((90, 60), Image.Resampling.BICUBIC))
    path = saved(tmp_path / "a", Image.fromarray(soft), format=kind, quality=95)
    for value in (path, path.read_bytes()):
        assert np.abs(read_image(value).gray.numpy() - luma(soft / 255)).mean() < 0.05
    (tmp_path / "half").write_bytes(path.read_bytes()[:400])
    with pytest.raises(ImageError, match=r"^b: .*half: "):
        read_image(tmp_path / "half", "b")


def test_heic_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ImageError, match=r"^b: the bytes: .*pip install 'caunet\[heif\]'"):
        read_image(b"\0\0\0\x18ftypheic" + bytes(80), "b")


def test_masks_in_every_form(tmp_path):
    mask = GRAY > 99
    path = saved(tmp_path / "mask.png", Image.fromarray(mask))
    forms = [
        mask,
        mask.astype(np.uint8),
        mask.astype(np.uint8) * 255,
        torch.from_numpy(mask),
        path,
        str(path),
    ]
    forms += [Image.fromarray(mask), Image.fromarray(mask.astype(np.uint8) * 7)]
    forms += [saved(tmp_path / "rgb.png", Image.fromarray(mask).convert("RGB"))]
    for form in forms:
        np.testing.assert_array_equal(read_mask(form, (20, 30)), mask)
    assert read_mask(None, (20, 30)) is None
    for value, kind, message in [
        (mask[:5], ValueError, r"mask_a must be \(height, width\) = \(20, 30\), .* got \(5, 30\)"),
        (mask[None], ValueError, r"mask_a must be \(height, width\)"),
        (mask & False, ValueError, "mask_a must have pixels that count, got none"),
        (mask.astype(float), TypeError, "mask_a must be bool or uint8, got float64"),
        (torch.zeros(20, 30), TypeError, "mask_a must be bool or uint8, got float32"),
        (3, TypeError, "mask_a must be an array, a tensor, a PIL image or a path, got int"),
        (Image.fromarray(RGB), ValueError, "mask_a must have one channel, got an image in color"),
        (tmp_path / "no.png", ImageError, "mask_a: .*no.png: cannot be read"),
    ]:
        with pytest.raises(kind, match=f"^{message}"):
            read_mask(value, (20, 30), "mask_a")


def test_16_bit_files_keep_their_depth(tmp_path):
    # 12 bits of a camera in a 16-bit file: rounded to bytes, 17 levels would be left.
    dark = RNG.integers(0, 4096, (20, 30)).astype(np.uint16)
    for name in ("a.png", "a.tif"):
        same(read_image(saved(tmp_path / name, Image.fromarray(dark))), dark / 65535)


def test_palette_bilevel_and_orientation(tmp_path):
    indexed = Image.fromarray(GRAY % 4).convert("P")
    table = RNG.integers(0, 256, (256, 3), dtype=np.uint8)
    indexed.putpalette(table.tobytes())
    same(read_image(saved(tmp_path / "a.png", indexed)), table[np.asarray(indexed)] / 255)
    same(read_image(saved(tmp_path / "b.png", Image.fromarray(GRAY > 99))), (GRAY > 99).astype(float))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    turned = saved(tmp_path / "c.png", Image.fromarray(GRAY), exif=exif)
    for value in (turned, Image.open(turned)):
        same(read_image(value, "a"), np.rot90(GRAY, -1) / 255)


def test_of_animations_and_pages_the_first_is_taken(tmp_path):
    pages = [Image.fromarray(np.full((20, 20), v, np.uint8)) for v in (51, 204)]
    for name in ("a.gif", "a.tif", "a.webp"):
        path = saved(tmp_path / name, pages[0], save_all=True, append_images=pages[1:])
        assert read_image(path).gray.mean() == pytest.approx(0.2, abs=0.01)


def _png(path, width, height):
    path.write_bytes(claiming(width, height))
    return path


@pytest.mark.parametrize("size", [(8000, 5001), (12000, 10000), (100_000, 100_000)])
def test_more_than_40_megapixels_are_refused_unread_and_without_warning(size, tmp_path):
    path = _png(tmp_path / "a.png", *size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (path, path.read_bytes()):
            with pytest.raises(ImageError, match=r"^b: .*too large.*40 megapixels"):
                read_image(value, "b")
    with pytest.raises(ValueError, match=r"^a: too large: height 5001, width 8000, at most 40 megapixels"):
        read_image(np.broadcast_to(np.uint8(0), (5001, 8000)), "a")


def test_a_pillow_image_is_measured_before_it_is_decoded(tmp_path):
    opened = Image.open(_png(tmp_path / "a.png", 8000, 5001))
    with (
        opened as image,
        pytest.raises(ImageError, match="a: the PIL image: too large: height 5001, width 8000"),
    ):
        read_image(image, "a")


def test_files_that_are_no_images_are_named(tmp_path):
    text = tmp_path / "text.png"
    text.write_text("not a picture")
    cases = {
        text: r"^a: .*text\.png: not an image in a known format \(PNG, JPEG",
        tmp_path / "nowhere.png": r"^a: .*nowhere\.png: cannot be read: No such file",
        tmp_path: r"^a: .*: is a directory; name one image",
        b"": "^a: the bytes: there are none",
        b"not a picture": "^a: the bytes: not an image",
    }
    for value, message in cases.items():
        with pytest.raises(ImageError, match=message):
            read_image(value, "a")
    assert issubclass(ImageError, CaunetError)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "GIF", "WEBP", "BMP"])
def test_half_a_file_is_an_error_or_what_it_claims_to_be(kind, tmp_path):
    Image.fromarray(RGB).save(tmp_path / "whole", kind)
    content = (tmp_path / "whole").read_bytes()
    half = tmp_path / "half"
    half.write_bytes(content[: len(content) // 2])
    with pytest.raises(ImageError, match=r"^b: .*half: "):
        read_image(half, "b")
    with pytest.raises(ImageError, match=r"^b: "):
        read_image(half.read_bytes(), "b")


def test_a_pillow_image_of_half_a_file(tmp_path):
    whole = saved(tmp_path / "a.png", Image.fromarray(RGB)).read_bytes()
    (tmp_path / "half.png").write_bytes(whole[: len(whole) // 2])
    message = r"^a: the PIL image: cannot be read: .*truncated"
    with Image.open(tmp_path / "half.png") as image, pytest.raises(ImageError, match=message):
        read_image(image, "a")
    image = Image.open(tmp_path / "a.png")
    image.close()
    with pytest.raises(ImageError, match=r"^a: the PIL image: cannot be read"):
        read_image(image, "a")


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 3), (15, 400), (400, 15), (0, 20), (0, 0)])
def test_what_is_too_small_is_refused_by_name(shape, tmp_path):
    array = np.zeros(shape, np.uint8)
    with pytest.raises(ValueError, match=r"^b: too small: .* at least 16 x 16"):
        read_image(array, "b")
    if array.size:
        with pytest.raises(ImageError, match=r"^b: .*a\.png: too small"):
            read_image(saved(tmp_path / "a.png", Image.fromarray(array)), "b")


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_what_is_not_finite_is_counted(value):
    array = np.zeros((20, 20, 3))
    array[3, 4] = value
    with pytest.raises(ValueError, match=r"^b has 3 of 1200 values that are NaN or infinite"):
        read_image(array, "b")
    with pytest.raises(ValueError, match=r"^b has 3 of"):
        read_image(torch.from_numpy(array).permute(2, 0, 1).half(), "b")


@pytest.mark.parametrize(
    "value",
    [
        GRAY.astype(np.int64),
        GRAY.astype(np.uint32),
        GRAY.astype(complex),
        GRAY.astype(object),
        GRAY.astype("datetime64[s]"),
        np.array([["a"] * 20] * 20),
        torch.zeros(20, 20, dtype=torch.int64),
        torch.zeros(20, 20, dtype=torch.complex64),
        None,
        3.5,
        [[0.0] * 20] * 20,
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_wrong_types_are_type_errors_naming_the_argument(value):
    with pytest.raises(TypeError, match=r"^b must be"):
        read_image(value, "b")


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
    with pytest.raises(ValueError, match=f"^b must be .*{message}"):
        read_image(value, "b")


@settings(deadline=None, max_examples=100)
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"P5\n", b"II*\0"]),
)
def test_any_bytes_are_an_image_or_an_image_error(content, magic):
    with contextlib.suppress(ImageError):
        assert read_image(magic + content).gray.isfinite().all()


def test_an_open_file_is_read_from_where_it_stands(tmp_path):
    path = saved(tmp_path / "a.png", Image.fromarray(RGB))
    with path.open("rb") as file:
        same(read_image(file), RGB / 255)
    with pytest.raises(ImageError, match=r"^b: the file cannot be read: .*closed"):
        read_image(file, "b")
    with (
        path.open(encoding="latin1") as text,
        pytest.raises(TypeError, match=r"^b must be a file opened for bytes"),
    ):
        read_image(text, "b")
    with pytest.raises(ImageError, match=r"^b: the file: there are none"):
        read_image(io.BytesIO(), "b")


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
def test_signed_whole_numbers_are_scaled_by_their_own_range(dtype):
    hounsfield = RNG.integers(-1000, 3000, (20, 30)).astype(dtype)
    low, high = int(hounsfield.min()), int(hounsfield.max())
    expected = (hounsfield.astype(float) - low) / (high - low)
    same(read_image(hounsfield), expected)
    same(read_image(torch.from_numpy(hounsfield)), expected)
    limits = np.iinfo(dtype)
    extreme = np.where(GRAY > 99, limits.max, limits.min).astype(dtype)
    same(read_image(extreme), (GRAY > 99).astype(float))


def test_float_files_and_pillow_floats_are_read_as_floats(tmp_path):
    unit = RNG.random((20, 30), np.float32)
    same(read_image(Image.fromarray(unit)), unit)
    same(read_image(saved(tmp_path / "a.tif", Image.fromarray(unit))), unit)
    spread = (unit - unit.min()) / (unit.max() - unit.min())
    same(read_image(saved(tmp_path / "b.tif", Image.fromarray(unit * 4000 - 1000))), spread)
    unit[3, 4] = np.inf
    with pytest.raises(ImageError, match=r"^b: the PIL image has 1 of 600 values that are NaN or infinite"):
        read_image(Image.fromarray(unit), "b")
    with pytest.raises(ImageError, match=r"^b: .*c\.tif has 1 of 600"):
        read_image(saved(tmp_path / "c.tif", Image.fromarray(unit)), "b")


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (lambda: torch.eye(20).to_sparse(), "got a sparse_coo one; convert it: .to_dense"),
        (lambda: torch.eye(20).to_sparse_csr(), "got a sparse_csr one"),
        (lambda: torch.eye(20).to_mkldnn(), "got a _mkldnn one"),
        (lambda: torch.zeros(20, 20, device="meta"), "on the device 'meta'"),
        (
            lambda: torch.quantize_per_tensor(torch.eye(20), 0.1, 0, torch.quint8),
            "quantized tensor; convert it: .dequantize",
        ),
        (lambda: torch.nested.nested_tensor([torch.eye(20)], layout=torch.jagged), "got a nested one"),
        (lambda: torch.eye(20).to(torch.float8_e4m3fn), "got float8_e4m3fn"),
    ],
    ids=["sparse", "csr", "mkldnn", "meta", "quantized", "nested", "float8"],
)
@pytest.mark.filterwarnings("ignore")  # torch warns that these kinds of tensors are new, or going away
def test_unusual_tensors_are_refused_by_name(tensor, message):
    with pytest.raises(TypeError, match=f"^b .*{message}"):
        read_image(tensor(), "b")


def test_only_regular_files_are_opened(tmp_path):
    """Opening a pipe would wait for a writer; reading a device may never end."""
    os.mkfifo(tmp_path / "pipe.png")
    listening = socket.socket(socket.AF_UNIX)
    with listening, contextlib.chdir(tmp_path):
        listening.bind("socket.png")
        for path, what in {
            "pipe.png": "a named pipe",
            "socket.png": "a socket",
            "/dev/zero": "a device",
        }.items():
            with pytest.raises(
                ImageError, match=f"^b: {path}: cannot be read: it is {what}, and only regular files"
            ):
                read_image(path, "b")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("x" * 5000, "^b: x+: cannot be read: the path is too long"),
        ("a\0b.png", r"^b: a\\x00b\.png: cannot be read: .*null"),
        (os.fsdecode(b"caf\xe9.png"), r"^b: caf\\xe9\.png: cannot be read: No such file"),
        ("\ud800.png", r"^b: \\ud800\.png: cannot be read: "),
        ("", "^b: : cannot be read: No such file"),
    ],
    ids=["long", "nul", "not utf-8", "surrogate", "empty"],
)
def test_impossible_paths_are_image_errors_that_can_be_printed(path, message):
    with pytest.raises(ImageError, match=message) as caught:
        read_image(path, "b")
    str(caught.value).encode()


def test_names_that_are_not_utf_8_are_read(tmp_path):
    path = saved(tmp_path / "a.png", Image.fromarray(RGB))
    odd = os.fsencode(tmp_path) + b"/caf\xe9.png"
    path.rename(os.fsdecode(odd))
    found = read_image(os.fsdecode(odd))
    same(found, RGB / 255)
    assert found.source.endswith("caf\\xe9.png")


def test_image_errors_have_fields_and_can_be_pickled():
    with pytest.raises(ImageError) as caught:
        read_image(b"nothing", "b")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.name, again.reason) == ("b: the bytes", str(again).removeprefix("b: the bytes: "))


def test_colors_are_made_when_asked_for_and_gray_in_strips_is_gray(monkeypatch: pytest.MonkeyPatch) -> None:
    colors = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
    whole = read_image(colors)
    monkeypatch.setattr("caunet.images.read._STRIP", 90)
    strips = read_image(colors)
    assert "pixels" not in vars(strips)
    assert strips.pixels.shape == (40, 30, 3)
    assert strips.pixels is strips.pixels
    torch.testing.assert_close(strips.gray, whole.gray, atol=1e-7, rtol=0)
    frozen = colors.copy()
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_image(frozen).pixels.shape == (40, 30, 3)
