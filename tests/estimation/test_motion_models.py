"""Motion models: each is a group with its generators and its fit; a camera rotation is found in warped photographs."""

import json
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.spatial.transform import Rotation
from tests.estimation.scenes import pair

import caunet
from caunet import geometry
from caunet.estimation import Estimate, Estimator
from caunet.estimation.motion_models import (
    CameraRotation,
    MotionModel,
    Translation,
    base,
    create_motion_model,
    motion_model_names,
    register_motion_model,
)
from caunet.images import photograph

SIZE = (120, 160)
FOCAL = 150.0
FEW = settings(deadline=None, max_examples=25)
names = st.sampled_from(motion_model_names())


def create(name: str) -> MotionModel:
    options = {"focal": FOCAL} if name == "camera-rotation" else {}
    return create_motion_model(name, **options).for_images(SIZE, SIZE)


def in_units(model: MotionModel) -> MotionModel:
    """In coordinates of the order of 1 about the center, as fits and generators are used."""
    return model.in_coordinates(np.array([[1 / 80, 0, -79.5 / 80], [0, 1 / 80, -59.5 / 80], [0, 0, 1]]))


def member(model: MotionModel, seed: int) -> np.ndarray:
    algebra = np.random.default_rng(seed).uniform(-0.15, 0.15, model.freedom) @ model.generators()
    return geometry.normalize(geometry.exponential(np.append(algebra, 0.0).reshape(3, 3)))


@FEW
@given(names, st.integers(0, 1000))
def test_every_model_fits_its_own_members_and_their_products(name: str, seed: int) -> None:
    model = in_units(create(name))
    assert np.linalg.matrix_rank(model.generators()) == model.freedom
    H = geometry.compose(member(model, seed), geometry.invert(member(model, seed + 1)))
    source = np.random.default_rng(seed).uniform(-1, 1, (12, 2))
    target = cv2.perspectiveTransform(source[None], H)[0]
    found = model.fit(source, target, np.linspace(0.5, 1.5, 12))
    np.testing.assert_allclose(found, geometry.normalize(H), atol=1e-6)
    np.testing.assert_allclose(geometry.normalize(model.nearest(H)), geometry.normalize(H), atol=1e-9)


@FEW
@given(names, st.integers(0, 1000))
def test_generators_are_derivatives_of_the_members(name: str, seed: int) -> None:
    """Small steps along the generators are undone by the fit, and parameters are those of the model alone."""
    model = in_units(create(name))
    step = 1e-5 * np.random.default_rng(seed).normal(size=model.freedom)
    A = np.append(step @ model.generators(), 0.0).reshape(3, 3)
    source = np.random.default_rng(seed).uniform(-1, 1, (20, 2))
    target = cv2.perspectiveTransform(source[None], np.eye(3) + A)[0]
    np.testing.assert_allclose(model.fit(source, target, np.ones(20)) - np.eye(3), A, atol=1e-8)


@pytest.mark.parametrize("name", motion_model_names())
def test_words_are_as_many_as_the_model_has(name: str) -> None:
    model = create(name)
    rows = model.describe(model.parameters(torch.eye(3, dtype=torch.float64), SIZE))
    counts = {"translation": 1, "euclidean": 2, "similarity": 3, "affine": 4, "projective": 5}
    assert len(rows) == counts.get(name, 3)


@FEW
@given(st.floats(-40, 40), st.floats(-40, 40), st.floats(-170, 170))
def test_camera_angles_are_scipys(pan: float, tilt: float, roll: float) -> None:
    R = Rotation.from_euler("YXZ", [pan, -tilt, roll], degrees=True).as_matrix()
    K = np.array([[FOCAL, 0, 79.5], [0, FOCAL, 59.5], [0, 0, 1]])
    H = K @ R @ np.linalg.inv(K)
    model = create("camera-rotation")
    assert isinstance(model, CameraRotation)
    np.testing.assert_allclose(model.homography(pan, tilt, roll), H / H[2, 2], atol=1e-8)
    for factor in (1.0, -0.3):
        found = model.angles(factor * H)
        assert list(found.values()) == pytest.approx([pan, tilt, roll], abs=1e-7)
    ahead = cv2.perspectiveTransform(np.array([[[79.5, 59.5]]]), H)[0, 0] - [79.5, 59.5]
    if abs(pan) < 30:
        assert ahead[0] == pytest.approx(FOCAL * np.tan(np.radians(pan)), abs=1e-6)
        assert ahead[1] == pytest.approx(FOCAL * np.tan(np.radians(tilt)) / np.cos(np.radians(pan)), abs=1e-6)


@pytest.mark.parametrize(
    ("angles", "point"),
    [
        ((2.0, -1.5, 3.0), None),
        ((-6.0, 4.0, -12.0), None),
        ((4.0, 1.0, 5.0), (100.0, 140.0)),
        ((9.0, 0, 60), None),
    ],
)
def test_angles_of_a_turned_photograph_are_found(
    angles: tuple[float, float, float], point: tuple[float, float] | None
) -> None:
    """b is the photograph warped by OpenCV through K R K^-1, K and R made by hand."""
    photo = photograph("camera.png").astype(np.float32)[60:380, 100:500]
    focal, (height, width) = 420.0, photo.shape
    x0, y0 = point or ((width - 1) / 2, (height - 1) / 2)
    K = np.array([[focal, 0, x0], [0, focal, y0], [0, 0, 1]])
    R = Rotation.from_euler("YXZ", [angles[0], -angles[1], angles[2]], degrees=True).as_matrix()
    b = cv2.warpPerspective(photo, K @ R @ np.linalg.inv(K), (width, height), borderMode=cv2.BORDER_REFLECT)
    options = {} if point is None else {"principal_point": point}
    found = caunet.estimate(photo / 255, b / 255, model="camera-rotation", focal=focal, **options)
    assert [found.parameters[name] for name in ("pan", "tilt", "roll")] == pytest.approx(angles, abs=0.02)
    assert found.confidence > 0.8
    K_R = np.linalg.inv(K) @ found.matrix @ K
    np.testing.assert_allclose(K_R @ K_R.T / np.cbrt(np.linalg.det(K_R)) ** 2, np.eye(3), atol=1e-9)
    again = Estimate.from_json(json.loads(json.dumps(found.to_json())))
    assert again.to_json() == found.to_json()
    assert again.parameters == found.parameters
    assert all(word in found.summary() for word in ("camera-rotation", "\n  pan ", "\n  tilt ", "\n  roll "))


def test_images_of_different_sizes_have_their_own_centers() -> None:
    model = CameraRotation(focal=200).for_images((100, 100), (140, 180))
    np.testing.assert_allclose(model.initial((100, 100), (140, 180))[:2, 2], [40, 20], atol=1e-12)
    given = CameraRotation(focal=200, principal_point=(30, 40))
    np.testing.assert_allclose(given.initial((100, 100), (140, 180)), np.eye(3), atol=1e-12)


@pytest.mark.parametrize("focal", [0, -5.0, float("nan"), float("inf"), True, "500"])
def test_a_bad_focal_length_is_refused(focal: object) -> None:
    with pytest.raises(ValueError, match="focal must be a positive number of pixels, got"):
        Estimator("camera-rotation", focal=focal)


def test_other_bad_options_are_named() -> None:
    with pytest.raises(
        ValueError, match="focal must be given for the motion model 'camera-rotation', got none"
    ):
        Estimator("camera-rotation")
    with pytest.raises(ValueError, match=r"principal_point must be two numbers \(x, y\), got \(1,\)"):
        Estimator("camera-rotation", focal=500, principal_point=(1,))
    with pytest.raises(
        TypeError, match=r"focus is no option .* 'camera-rotation', which has focal, principal_point"
    ):
        Estimator("camera-rotation", focus=500)
    with pytest.raises(ValueError, match=r"model must be one of translation, .* got 'rigid'"):
        create_motion_model("rigid")
    with pytest.raises(ValueError, match="a motion model named 'translation' exists"):
        register_motion_model(Translation)


def test_the_page_adds_a_model_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """docs/estimation.md runs as written: a camera rotation is found, and a class from outside is a motion model."""
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "b.png"):
        Image.fromarray(photograph("camera.png")[::4, ::4]).save(name)
    page = Path(__file__).parents[2] / "docs" / "estimation.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile("\n".join(blocks), page.name, "exec"), {})
    assert "sideways" in motion_model_names(without_options=True)
    truth = np.array([[1.0, 0, 7.25], [0, 1, 0], [0, 0, 1]])
    found = caunet.estimate(*pair(truth, 96), model="sideways")
    np.testing.assert_allclose(found.matrix, truth, atol=0.02)
    assert "disparity    7.2" in found.summary()
    assert Estimate.from_json(found.to_json()).model == "sideways"
