"""What an estimator must bear: an answer, a low confidence or an error that names the argument; never a crash, and
never the identity with a straight face."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

from caunet.estimation import Estimator
from caunet.images import ImageError

CAMERA = data.camera()[::2, ::2]
COLOUR = data.astronaut()[::2, ::2]
NOISE = np.random.default_rng(0)


@pytest.fixture(scope="module")
def estimator():
    return Estimator("projective", threads=1)


def shift(found):
    return [found.parameters["shift_x"], found.parameters["shift_y"]]


@pytest.mark.parametrize(
    "pair",
    [
        (np.zeros((64, 64)), np.zeros((64, 64))),
        (np.full((100, 100), 0.5), CAMERA),
        (CAMERA, np.full((50, 90, 3), 7, np.uint8)),
        (NOISE.random((80, 80)), NOISE.random((80, 80))),
        (CAMERA, COLOUR),
        (COLOUR, CAMERA[:40, :200]),
    ],
    ids=["blank", "blank a", "blank b", "noise", "unrelated", "unrelated, other size"],
)
def test_what_tells_nothing_gets_a_low_confidence(estimator, pair):
    found = estimator(*pair)
    assert found.confidence < 0.5
    assert "do not rely on it" in found.summary()
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    "picture", [CAMERA, COLOUR, CAMERA[:16, :16], CAMERA[:17, :200]], ids=lambda p: str(p.shape)
)
def test_identical_pictures_are_identical(estimator, picture):
    found = estimator(picture, picture.copy())
    bottom, right = picture.shape[0] - 1, picture.shape[1] - 1
    frame = np.array([[0, 0], [right, 0], [right, bottom], [0, bottom]], float)
    assert np.linalg.norm(found.corners - frame, axis=1).max() < 0.5
    # 16 x 16 pixels hold too little to exclude that another place looks the same.
    assert found.confidence > 0.5 or (picture.size < 300 and found.reason == "ambiguous")


def test_channels_dtypes_and_forms_may_differ(estimator, tmp_path):
    a, b = COLOUR[:180, :200], COLOUR[6:186, 9:209]
    pages = [Image.fromarray(b), Image.fromarray(a)]
    pages[0].save(tmp_path / "b.tif", save_all=True, append_images=pages[1:])
    gray = np.asarray(Image.fromarray(b).convert("L"))
    forms = {
        "gray": gray,
        "one channel": gray[..., None],
        "opaque": np.dstack([b, np.full(b.shape[:2], 255, np.uint8)]),
        "16 bits": gray.astype(np.uint16) * 257,
        "float, 0..255": b.astype(np.float32),
        "tensor": torch.from_numpy(b.astype(np.float32) / 255).permute(2, 0, 1),
        "first page": tmp_path / "b.tif",
    }
    for name, form in forms.items():
        found = estimator(a, form)
        assert shift(found) == pytest.approx([-9, -6], abs=0.2), name
        assert found.confidence > 0.5, name


def test_errors_name_the_argument(estimator, tmp_path):
    broken = np.where(CAMERA > 200, np.inf, CAMERA / 255)
    (tmp_path / "text.png").write_text("text")
    for value, kind in {
        "nowhere.png": ImageError,
        str(tmp_path / "text.png"): ImageError,
        str(tmp_path): ImageError,
    }.items():
        with pytest.raises(kind, match=r"^b: "):
            estimator(CAMERA, value)
        with pytest.raises(kind, match=r"^a: "):
            estimator(value, CAMERA)
    with pytest.raises(ValueError, match=r"^b has .* NaN or infinite"):
        estimator(CAMERA, broken)
    with pytest.raises(ValueError, match=r"^a: too small: height 1, width 1"):
        estimator(CAMERA[:1, :1], CAMERA)
    with pytest.raises(TypeError, match=r"^b must be uint8, .* got int64"):
        estimator(CAMERA, CAMERA.astype(np.int64))


@pytest.mark.parametrize(
    "value",
    [
        torch.eye(40).to_sparse(),
        torch.zeros(40, 40, device="meta"),
        "x" * 5000,
    ],
    ids=["sparse", "meta", "overlong path"],
)
def test_tensors_without_values_and_overlong_paths_are_refused_by_name(estimator, value):
    with pytest.raises((TypeError, ValueError, ImageError), match=r"^b\b"):
        estimator(CAMERA, value)
