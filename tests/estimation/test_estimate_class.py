"""Estimates as objects: kinds of arrays, inverse, composition, uncertainty, canvases, and other libraries' warps."""

import json

import cv2
import kornia
import numpy as np
import pytest
import SimpleITK as sitk
import torch
from PIL import Image
from skimage.transform import warp as skimage_warp

from caunet import geometry
from caunet.estimation.decomposition import compose
from caunet.estimation.result import Estimate, Field

A, B, C = (60, 80), (70, 90), (50, 64)
PHOTO = cv2.GaussianBlur(np.random.default_rng(4).random((70, 90, 3)), (0, 0), 2.0).astype(np.float32)
H = compose({"shift_x": 4.3, "shift_y": 6.1, "angle": 11.0, "scale": 1.1, "perspective_x": 0.05}, A).numpy()
FLAT = compose({"shift_x": 4.3, "shift_y": 6.1, "angle": 11.0, "scale_x": 1.1, "scale_y": 0.9}, A).numpy()
G = compose({"shift_x": -3.0, "angle": -20.0, "scale": 0.7}, B).numpy()
ROOT = np.random.default_rng(1).normal(0, 0.02, (8, 8))
SPREAD = ROOT @ ROOT.T


def made(matrix=H, **changes):
    given = {"model": "projective", "confidence": 0.9, "size_a": A, "size_b": B, "covariance": SPREAD}
    return Estimate(matrix, **{**given, **changes})


def test_arrays_for_arrays_and_tensors_for_tensors():
    found = made()
    for value in (found.matrix, found.corners, found.covariance, found.inverse().matrix):
        assert isinstance(value, np.ndarray)
        assert value.dtype == np.float64
    tensors = made(torch.from_numpy(H))
    for value in (tensors.matrix, tensors.corners, tensors.covariance, tensors.inverse().matrix):
        assert isinstance(value, torch.Tensor)
        assert value.dtype == torch.float64
    for each in (found, tensors):
        np.testing.assert_allclose(np.asarray(each), H)
        assert np.asarray(each, dtype=np.float32).dtype == np.float32
        np.testing.assert_allclose(each @ each.inverse(), np.eye(3), atol=1e-9)
    np.asarray(found)[:] = 0  # a copy
    np.testing.assert_allclose(found, H)


def test_the_inverse_is_an_estimate():
    field = Field(torch.tensor([[10.0, 20.0]]), torch.tensor([[1.0, -2.0]]), torch.tensor([0.5]))
    found = made(field=field, inliers=torch.tensor([True]), reason="ambiguous")
    back = found.inverse()
    assert (back.size_a, back.size_b, back.confidence, back.reason) == (B, A, 0.9, "ambiguous")
    np.testing.assert_allclose(back.apply(found.apply([[3.0, 4.0]])), [[3.0, 4.0]])
    assert back.field.points.tolist() == [[11.0, 18.0]]
    assert back.field.motion.tolist() == [[-1.0, 2.0]]
    again = back.inverse()
    np.testing.assert_allclose(again, found, atol=1e-12)
    np.testing.assert_allclose(again.covariance, SPREAD, atol=1e-10)


def test_composition_is_that_of_matrices():
    second = made(G, model="similarity", size_a=B, size_b=C, confidence=0.5, covariance=SPREAD * 4)
    both = second @ made()
    np.testing.assert_allclose(both, G @ H / (G @ H)[2, 2])
    assert (both.size_a, both.size_b, both.model, both.confidence) == (A, C, "projective", 0.45)
    assert both.reason == "unrelated"  # more likely wrong than right
    assert np.linalg.eigvalsh(both.covariance).min() > 0
    rigid = made(np.eye(3), model="euclidean", size_b=A)
    assert (made(np.eye(3), model="translation", size_b=A) @ rigid).model == "euclidean"
    camera = made(np.eye(3), model="camera-rotation", size_b=A, model_options={"focal": 50})
    assert (camera @ camera).model_options == {"focal": 50.0}
    assert (camera @ rigid).model == "projective"
    assert (made(reason="blank", confidence=0.0).inverse() @ made()).reason == "blank"
    assert (made(covariance=None).inverse() @ made()).covariance is None
    with pytest.raises(ValueError, match="estimates must meet in one image"):
        made() @ made()
    with pytest.raises(TypeError):
        made() @ 3


def test_uncertainty_of_points():
    found = made()
    corners = geometry.corners(A)
    blocks = found.uncertainty(corners)
    assert isinstance(blocks, torch.Tensor)
    for k in range(4):
        np.testing.assert_allclose(blocks[k], SPREAD[2 * k : 2 * k + 2, 2 * k : 2 * k + 2], atol=1e-12)
    assert found.uncertainty(np.zeros((5, 3, 2))).shape == (5, 3, 2, 2)
    assert found.uncertainty([1, 2]).shape == (2, 2)
    with pytest.raises(
        ValueError, match=r"^uncertainty needs a covariance, and this estimate has none: blank"
    ):
        made(covariance=None, reason="blank", confidence=0.0).uncertainty([[0, 0]])
    with pytest.raises(ValueError, match=r"^points must have shape \(\.\.\., 2\), got \(3,\)"):
        found.uncertainty([1, 2, 3])
    with pytest.raises(TypeError, match=r"^points must be numbers"):
        found.uncertainty(["a", "b"])


def test_one_line_says_what_it_is():
    assert repr(made()) == (
        "Estimate(projective, shift (+4.30, +6.10) px, angle +11.00°, scale 1.1000, confidence 0.90)"
    )
    assert repr(made(confidence=0.1)).endswith("confidence 0.10, unrelated)")


def test_json_keeps_all():
    found = made(reason="not this model", confidence=0.2)
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    again = Estimate.from_json(data)
    assert again.to_json() == found.to_json()
    assert again.reason == "not this model"
    np.testing.assert_array_equal(again.covariance, found.covariance)
    del data["reason"], data["covariance"]  # as older files have it
    assert Estimate.from_json(data).reason == "unrelated"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reason": "lost"}, r"^reason must be one of found, blank, .* got 'lost'"),
        ({"covariance": np.eye(6)}, r"^covariance must be \(8, 8\) finite numbers, .* got \(6, 6\)"),
        ({"covariance": np.full((8, 8), np.nan)}, r"^covariance must be \(8, 8\) finite numbers"),
    ],
)
def test_bad_fields_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        made(**changes)


def test_the_union_holds_both_and_says_where():
    found = made(FLAT, model="affine")
    grid = found.canvas("union")
    frame = cv2.perspectiveTransform(
        np.array([[[0, 0], [89, 0], [89, 69], [0, 69]]], float), np.linalg.inv(FLAT)
    )[0]
    low, high = np.minimum(frame.min(0), 0), np.maximum(frame.max(0), [79, 59])
    assert (grid.x, grid.y) == tuple(np.floor(low))
    assert (grid.x + grid.width - 1, grid.y + grid.height - 1) == tuple(np.ceil(high))
    whole, valid = found.warp(PHOTO, canvas="union", return_valid=True)
    assert whole.shape == (*grid.size, 3)
    assert valid.shape == grid.size
    part = (slice(-grid.y, -grid.y + 60), slice(-grid.x, -grid.x + 80))
    inner, seen = found.warp(PHOTO, return_valid=True)
    np.testing.assert_allclose(whole[part], inner, atol=1e-4)
    np.testing.assert_array_equal(valid[part], seen)
    # All of b is on it: as many pixels as its area in a.
    assert valid.sum() == pytest.approx(89 * 69 / np.linalg.det(FLAT[:2, :2]), rel=0.03)
    with pytest.raises(ValueError, match=r"^size must be left out with canvas 'union'"):
        found.warp(PHOTO, (3, 3), canvas="union")
    with pytest.raises(ValueError, match=r"^canvas must be one of a, union, overlap, got 'b'"):
        found.warp(PHOTO, canvas="b")
    far = made(np.diag([1e-3, 1e-3, 1.0]), model="affine")
    with pytest.raises(ValueError, match=r"^canvas 'union' must be at most 40 megapixels"):
        far.canvas("union")
    horizon = np.array([[1.0, 0, 0], [0, 1, 0], [1 / 85, 0, 1]])
    with pytest.raises(ValueError, match=r"^canvas 'union' needs all of b in front of a"):
        made(horizon, size_b=(70, 200)).canvas("union")


def test_the_overlap_is_what_both_show():
    found = made(np.array([[1.0, 0, 5], [0, 1, -3], [0, 0, 1]]), model="translation")
    assert found.canvas("overlap") == (0, 3, 80, 57)
    values, valid = found.warp(PHOTO, canvas="overlap", return_valid=True)
    np.testing.assert_allclose(values, PHOTO[:57, 5:85], atol=1e-6)
    assert valid.all()
    apart = made(np.array([[1.0, 0, 500], [0, 1, 0], [0, 0, 1]]), model="translation")
    with pytest.raises(ValueError, match=r"^canvas 'overlap' needs images that overlap"):
        apart.canvas("overlap")


def test_colors_and_nan_outside():
    found = made()
    valid = found.warp(PHOTO, return_valid=True)[1]
    assert 0.3 < valid.mean() < 0.99
    nothing = found.warp(PHOTO, fill=np.nan)
    np.testing.assert_array_equal(np.isnan(nothing[..., 0]), ~valid)
    np.testing.assert_array_equal(nothing[valid], found.warp(PHOTO)[valid])
    bytes_ = (PHOTO * 255).round().astype(np.uint8)
    theirs = cv2.warpPerspective(
        bytes_, found.to_opencv(), A[::-1], borderMode=cv2.BORDER_CONSTANT, borderValue=(9, 200, 77)
    )
    ours = found.warp(bytes_, fill=(9, 200, 77))
    assert np.abs(ours.astype(int) - theirs).max() <= 6  # OpenCV rounds places to 1/32 of a pixel
    assert (np.asarray(found.warp(Image.fromarray(bytes_), fill=(9, 200, 77))) == ours).all()
    tensor, seen = found.warp(torch.from_numpy(bytes_).permute(2, 0, 1), fill=(9, 200, 77), return_valid=True)
    np.testing.assert_array_equal(tensor.permute(1, 2, 0), ours)
    assert isinstance(seen, torch.Tensor)
    for fill, message in {
        np.nan: r"fill must be finite, or NaN for an image of floats, got nan for uint8",
        np.inf: r"fill must be finite",
        (1, 2): r"fill must be a number, or one for each channel, of which there are 3, got \(1, 2\)",
        "red": r"fill must be a number, or one for each channel, got 'red'",
    }.items():
        with pytest.raises(ValueError, match=f"^{message}"):
            found.warp(bytes_, fill=fill)


def test_other_libraries_make_the_same_image_of_it():
    found = made()
    inside = found.warp(PHOTO, return_valid=True)[1]
    ours = found.warp(PHOTO)[inside]
    opencv = cv2.warpPerspective(PHOTO, found.to_opencv(), A[::-1])
    np.testing.assert_allclose(opencv[inside], ours, atol=0.01)  # places rounded to 1/32 of a pixel
    skimage = skimage_warp(PHOTO, found.to_skimage(), output_shape=A, order=1)
    np.testing.assert_allclose(skimage[inside], ours, atol=1e-5)
    tensor = torch.from_numpy(PHOTO).permute(2, 0, 1)[None].double()
    theirs = kornia.geometry.warp_perspective(tensor, found.to_kornia(), dsize=A)[0].permute(1, 2, 0)
    np.testing.assert_allclose(theirs[torch.from_numpy(inside)], ours, atol=1e-5)


def test_itk_makes_the_same_image_of_it():
    found = made(FLAT, model="affine")
    inside = found.warp(PHOTO, return_valid=True)[1]
    fixed, moving = sitk.GetImageFromArray(np.zeros(A, np.float32)), sitk.GetImageFromArray(PHOTO[..., 0])
    theirs = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, found.to_itk(), sitk.sitkLinear))
    np.testing.assert_allclose(theirs[inside], found.warp(PHOTO)[..., 0][inside], atol=1e-5)
    with pytest.raises(ValueError, match=r"^to_itk must have an affine estimate, got one with perspective"):
        made().to_itk()
