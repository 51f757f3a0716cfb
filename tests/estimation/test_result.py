"""Estimates: their parameters against closed forms, their warp against OpenCV, their JSON there and back."""

import json
import math

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from skimage.transform import AffineTransform

from caunet import geometry
from caunet.estimation.decomposition import PARAMETERS, compose, decompose
from caunet.estimation.motion_models import motion_model_names
from caunet.estimation.resample import resample_onto
from caunet.estimation.result import Estimate, Field

SIZE = (60, 80)
RNG = np.random.default_rng(4)
PHOTO = cv2.GaussianBlur(RNG.random((70, 90, 3)), (0, 0), 2.0)
PHOTO = ((PHOTO - PHOTO.min()) / (PHOTO.max() - PHOTO.min()) * 255).round().astype(np.uint8)
HOMOGRAPHY = compose(
    {"shift_x": 4.3, "shift_y": 6.1, "angle": 11.0, "scale_x": 1.1, "scale_y": 0.9, "shear": 0.1}
    | {"perspective_x": 0.05, "perspective_y": -0.08},
    SIZE,
)


def estimate(matrix=HOMOGRAPHY, **changes):
    given = {"model": "projective", "confidence": 0.9, "size_a": SIZE, "size_b": PHOTO.shape[:2]}
    return Estimate(matrix, **{**given, **changes})


numbers = {
    "shift_x": st.floats(-100, 100),
    "shift_y": st.floats(-100, 100),
    "angle": st.floats(-179, 179),
    "scale_x": st.floats(0.2, 5),
    "scale_y": st.floats(0.2, 5) | st.floats(-5, -0.2),
    "shear": st.floats(-2, 2),
    "perspective_x": st.floats(-0.4, 0.4),
    "perspective_y": st.floats(-0.4, 0.4),
}


@settings(deadline=None, max_examples=100)
@given(
    st.fixed_dictionaries(numbers),
    st.tuples(st.integers(16, 2000), st.integers(16, 2000)),
    st.sampled_from([1.0, -2.0, 0.01]),
)
def test_decompose_undoes_compose(parameters, size, factor):
    matrix = compose(parameters, size)
    assert matrix[2, 2] == 1
    found = decompose(matrix * factor, size)
    assert set(found) == {*PARAMETERS, "scale"}
    for name, value in parameters.items():
        assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-6), name
    assert found["scale"] == pytest.approx(math.sqrt(abs(parameters["scale_x"] * parameters["scale_y"])))


@settings(deadline=None, max_examples=50)
@given(st.fixed_dictionaries({name: numbers[name] for name in PARAMETERS[:6]}))
def test_affine_parameters_are_those_of_scikit_image(parameters):
    # Its shear is an angle, and leans to the other side.
    theirs = AffineTransform(
        scale=(parameters["scale_x"], parameters["scale_y"]),
        rotation=math.radians(parameters["angle"]),
        shear=math.atan(-parameters["shear"]),
    ).params[:2, :2]
    ours = compose(parameters, SIZE)[:2, :2].numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_the_jacobian_at_the_centre_is_what_is_decomposed():
    centre = torch.tensor([(SIZE[1] - 1) / 2, (SIZE[0] - 1) / 2], dtype=torch.float64)
    step = torch.eye(2, dtype=torch.float64) * 1e-4
    ahead, behind = (geometry.apply(HOMOGRAPHY, centre + way * step) for way in (1, -1))
    jacobian = (ahead - behind).mT / 2e-4
    found = estimate().parameters
    assert found["scale"] == pytest.approx(float(jacobian.det().sqrt()))
    assert found["angle"] == pytest.approx(math.degrees(math.atan2(jacobian[1, 0], jacobian[0, 0])))
    moved = geometry.apply(HOMOGRAPHY, centre[None])[0] - centre
    assert [found["shift_x"], found["shift_y"]] == pytest.approx(moved.tolist())


def test_known_motions_in_numbers():
    turned = geometry.center(geometry.rotate(torch.tensor(30.0).double()), SIZE)
    assert estimate(turned).parameters["angle"] == pytest.approx(30)
    assert estimate(turned).parameters["shift_x"] == pytest.approx(0, abs=1e-12)
    grown = geometry.center(geometry.scale(2.0).double(), SIZE)
    assert estimate(grown).parameters["scale"] == pytest.approx(2)
    mirrored = geometry.center(geometry.scale(1.0, -1.0).double(), SIZE)
    assert estimate(mirrored).parameters["scale_y"] == pytest.approx(-1)


def test_points_of_any_kind():
    points = RNG.random((5, 7, 2)) * 60
    expected = cv2.perspectiveTransform(points, HOMOGRAPHY.numpy())
    found = estimate().apply(points)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert estimate().apply(points.astype(np.float32)).dtype == np.float32
    tensor = estimate().apply(torch.from_numpy(points).float())
    assert tensor.dtype == torch.float32
    np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-5)
    whole = np.array([[3, 4]])
    np.testing.assert_allclose(
        estimate().apply(whole), cv2.perspectiveTransform(whole[None] * 1.0, HOMOGRAPHY.numpy())[0]
    )
    np.testing.assert_allclose(estimate().apply([3, 4]), estimate().apply(whole)[0])
    assert estimate().apply(torch.tensor([[3, 4]])).dtype == torch.float64
    with pytest.raises(ValueError, match=r"points must have shape \(\.\.\., 2\), got \(3,\)"):
        estimate().apply(np.zeros(3))
    with pytest.raises(TypeError, match="points must be numbers"):
        estimate().apply(["a", "b"])


def test_inverse_and_corners():
    product = estimate().inverse().matrix @ HOMOGRAPHY
    torch.testing.assert_close(product / product[2, 2], torch.eye(3, dtype=torch.float64))
    frame = np.array([[[0, 0], [79, 0], [79, 59], [0, 59]]], float)
    np.testing.assert_allclose(
        estimate().corners.numpy(), cv2.perspectiveTransform(frame, HOMOGRAPHY.numpy())[0]
    )


def opencv(picture, size=SIZE, fill=0):
    """b onto a's grid as OpenCV does it: its own inverse map is given."""
    return cv2.warpPerspective(
        picture,
        HOMOGRAPHY.numpy(),
        size[::-1],
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=[fill] * 3,
    )


def test_warp_is_opencvs_and_keeps_the_type():
    expected = opencv(PHOTO.astype(np.float32))
    array = estimate().warp(PHOTO.astype(np.float32))
    assert array.shape == (60, 80, 3)
    # OpenCV rounds places to 1/32 of a pixel.
    np.testing.assert_allclose(array, expected, atol=2.5)
    assert np.abs(array - expected).mean() < 0.2
    byte = estimate().warp(PHOTO)
    assert byte.dtype == np.uint8
    np.testing.assert_allclose(byte, array, atol=0.5001)
    tensor = estimate().warp(torch.from_numpy(PHOTO).permute(2, 0, 1))
    np.testing.assert_array_equal(tensor.permute(1, 2, 0).numpy(), byte)
    image = estimate().warp(Image.fromarray(PHOTO))
    assert isinstance(image, Image.Image)
    np.testing.assert_array_equal(np.asarray(image), byte)
    np.testing.assert_array_equal(estimate().warp(PHOTO[..., 0]), byte[..., 0])
    torch.testing.assert_close(estimate().warp(torch.from_numpy(PHOTO[..., 0])), tensor[0])


@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.int32, np.float16, np.float64, ">u2", bool])
def test_warp_keeps_the_dtype(dtype):
    picture = (PHOTO[..., 0] > 127).astype(dtype) if dtype is bool else PHOTO[..., 0].astype(dtype)
    warped = estimate().warp(picture)
    assert warped.dtype == np.dtype(dtype)
    exact = estimate().warp(picture.astype(np.float64))
    np.testing.assert_allclose(warped.astype(float), exact, atol=0.51)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16", "F"])
def test_warp_of_pillows_modes(mode):
    image = Image.fromarray(PHOTO)
    image = Image.fromarray(PHOTO[..., 0].astype(np.uint16)) if mode == "I;16" else image.convert(mode)
    warped = estimate().warp(image)
    assert warped.size == (80, 60)
    assert warped.mode == {"1": "L", "P": "RGB", "CMYK": "RGB"}.get(mode, mode)


def test_warp_of_a_path_is_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 8  # lies on its side
    Image.fromarray(np.rot90(PHOTO, -1)).save(tmp_path / "b.png", exif=exif)
    expected = estimate().warp(PHOTO)
    np.testing.assert_array_equal(np.asarray(estimate().warp(tmp_path / "b.png")), expected)
    with Image.open(tmp_path / "b.png") as image:
        np.testing.assert_array_equal(np.asarray(estimate().warp(image)), expected)


def test_warp_fills_and_sizes():
    far = estimate(geometry.translate(500.0, 0.0))
    assert (far.warp(PHOTO, fill=7) == 7).all()
    small = estimate().warp(PHOTO, size=(10, 12))
    np.testing.assert_array_equal(small, estimate().warp(PHOTO)[:10, :12])
    with pytest.raises(
        ValueError,
        match="b must be the image that was compared, height 70, width 90, got height 70, width 80",
    ):
        estimate().warp(PHOTO[:, :80])
    for bad in (np.zeros((2, 2, 2, 2)), torch.zeros(2), np.zeros((0, 3))):
        with pytest.raises(ValueError, match="b must be"):
            estimate().warp(bad)
    sparse, meta = torch.eye(70, 90).to_sparse(), torch.zeros(70, 90, device="meta")
    for bad in (None, np.array([["a"]]), sparse, meta):
        with pytest.raises(TypeError, match="b must be"):
            estimate().warp(bad)


def test_bands_and_origins_join(monkeypatch):
    whole = estimate().warp(PHOTO)
    monkeypatch.setattr("caunet.estimation.resample.BAND", 400)
    np.testing.assert_array_equal(estimate().warp(PHOTO), whole)
    part = resample_onto(PHOTO, HOMOGRAPHY, (20, 30), origin=(5, 7))
    np.testing.assert_array_equal(part, whole[7:27, 5:35])


def test_json_there_and_back():
    field = Field(torch.rand(4, 2) * 50, torch.rand(4, 2), torch.rand(4))
    inliers = torch.tensor([True, False, True, True])
    before = estimate(field=field, inliers=inliers, seconds=0.25)
    text = json.dumps(before.to_json(), allow_nan=False)
    after = Estimate.from_json(json.loads(text))
    assert after.to_json() == before.to_json()
    torch.testing.assert_close(after.field.points, field.points, rtol=0, atol=0)
    assert after.inliers.tolist() == inliers.tolist()
    short = before.to_json(field=False)
    assert (short["matches"], short["inliers"]) == (4, 3)
    assert len(Estimate.from_json(short).field) == 0
    empty = estimate().to_json()
    assert Estimate.from_json(empty).to_json() == empty


@pytest.mark.parametrize("data", [{}, {"matrix": None}, {"matrix": [[1]]}, [], {"matrix": "x"}])
def test_other_json_is_refused(data):
    with pytest.raises(ValueError, match=r"(not the JSON of an estimate|matrix)"):
        Estimate.from_json(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"matrix": torch.zeros(3, 3)}, "matrix is singular"),
        ({"matrix": torch.full((3, 3), math.nan)}, "matrix is not finite"),
        ({"matrix": torch.eye(2)}, r"matrix must have shape \(\.\.\., 3, 3\)"),
        ({"matrix": torch.eye(3)[None]}, r"matrix must have shape \(3, 3\)"),
        ({"matrix": torch.eye(3).flip(0)}, "last entry is 0"),
        (
            {"matrix": torch.tensor([[1, 0, 0], [0, 1, 0], [-2 / 79, 0, 1]], dtype=torch.float64)},
            "center .* infinity",
        ),
        ({"model": "homography"}, "model must be one of translation, .*'homography'"),
        ({"confidence": math.nan}, r"confidence must be a number within 0\.\.1"),
        ({"confidence": 1.1}, r"confidence must be a number within 0\.\.1"),
        ({"size_a": (0, 4)}, "size_a must be"),
        ({"inliers": torch.ones(3, dtype=torch.bool)}, "inliers must be 0 bools"),
    ],
)
def test_what_is_no_estimate_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        estimate(**changes)


def test_fields_are_checked():
    points = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"motion must have shape \(3, 2\), got \(2, 2\)"):
        Field(points, points[:2], torch.ones(3))
    with pytest.raises(ValueError, match="weight must hold finite"):
        Field(points, points, torch.tensor([1.0, math.nan, 1.0]))
    assert repr(Field(points, points, torch.ones(3))) == "Field(3 motions)"


def test_the_matrix_is_normalised_and_wide():
    found = estimate(-2 * HOMOGRAPHY.float()).matrix
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, HOMOGRAPHY, rtol=1e-6, atol=1e-6)


def test_compose_refuses_unknown_names():
    with pytest.raises(ValueError, match=r"parameters must be among shift_x, .* got zoom"):
        compose({"zoom": 2.0}, SIZE)
    torch.testing.assert_close(
        compose({"scale": 2.0}, SIZE), geometry.center(geometry.scale(2.0).double(), SIZE)
    )


@pytest.mark.parametrize("model", motion_model_names(without_options=True))
def test_the_summary_says_what_the_model_has(model):
    text = estimate(model=model, seconds=0.05).summary()
    rows = ["shift", "angle", "scale", "shear", "perspective"]
    count = {"translation": 1, "euclidean": 2, "similarity": 3, "affine": 4, "projective": 5}[model]
    assert [row for row in rows if f"\n  {row} " in text] == rows[:count]
    assert "4.30 px right, 6.10 px down" in text
    assert "0.90 (high)" in text
    assert "50 ms" in text
    assert "height 60, width 80" in text


def test_the_summary_warns():
    assert "0.10 (very low): do not rely on it" in estimate(confidence=0.1).summary()
    assert "do not rely" not in estimate(confidence=0.5).summary()
