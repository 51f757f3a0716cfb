"""Volumes over HTTP: the estimate and what is shown, against SimpleITK; files that are refused; nothing left behind."""

import asyncio
import base64
import gzip
import io
import json
import sys
import tempfile
from pathlib import Path

import httpx
import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
from PIL import Image
from scipy import ndimage

from caunet.volumes import Volume, save_volume
from caunet.web import volume_route
from caunet.web.jobs import Computations
from caunet.web.refusals import FieldError, TooLongError
from caunet.web.volume_views import grid_of, on_grid

SIDE = 48


@pytest.fixture(scope="module")
def ask(server):
    with httpx.Client(base_url=server, timeout=120) as client:
        yield client


def scene(size):
    rng = np.random.default_rng(3)
    smooth = ndimage.gaussian_filter(rng.random(size), 2.5)
    return ((smooth - smooth.min()) / np.ptp(smooth) * 900).astype(np.int16)


def file_of(values, to_mm, suffix, folder):
    path = folder / f"volume{suffix}"
    save_volume(Volume(values, to_mm), path)
    return path.read_bytes()


def send(client, a, b, **fields):
    return client.post("/api/volumes", files={"a": ("a", a), "b": ("b", b)}, data=fields)


def slices(png, shown):
    """(D, H, W) bytes from the mosaic of an answer."""
    depth, height, width = shown["size"]
    whole = np.asarray(Image.open(io.BytesIO(base64.b64decode(png))))
    places = [divmod(z, shown["columns"]) for z in range(depth)]
    return np.stack([whole[r * height : (r + 1) * height, c * width : (c + 1) * width] for r, c in places])


def test_two_files_are_related_and_shown_in_one_frame(ask, tmp_path):
    # The second is the same scene, cut 4 voxels later along x and 3 along z, in another format and another place.
    whole = scene((SIDE + 3, SIDE, SIDE + 4))
    to_mm = np.diag([-1.5, 1.0, 2.0, 1.0])  # x runs to the right: what is shown is turned to the left
    to_mm[:3, 3] = (30, -20, 10)
    elsewhere = to_mm.copy()
    elsewhere[:3, 3] = (26, -20, 13)
    a, b = whole[3:, :, 4:], whole[:SIDE, :, :SIDE]
    first, second = file_of(a, to_mm, ".nii.gz", tmp_path), file_of(b, elsewhere, ".mha", tmp_path)
    answer = send(ask, first, second, model="translation").raise_for_status().json()
    np.testing.assert_allclose(np.array(answer["matrix"])[:3, 3], [4, 0, 3], atol=0.05)
    assert answer["space"] == "RAS"  # as NIfTI counts
    assert answer["confidence"] > 0.9
    assert (answer["size_a"], answer["error"]) == ([SIDE] * 3, None)
    shown = answer["shown"]
    # 72 x 48 x 96 mm in cubes of 1 mm.
    assert (shown["size"], shown["spacing"]) == ([96, 48, 72], 1.0)
    seen, before, after = (slices(answer[f"{name}_png"], shown) for name in ("first", "before", "after"))
    inside = (slice(10, -10),) * 3  # at the border ITK repeats half a voxel that caunet fades out
    np.testing.assert_allclose(seen[inside], by_itk(a, to_mm, shown, to_mm)[inside], atol=2)
    np.testing.assert_allclose(before[inside], by_itk(b, elsewhere, shown, to_mm)[inside], atol=2)
    assert np.abs(after[inside].astype(float) - seen[inside]).mean() < 6
    assert np.abs(before[inside].astype(float) - seen[inside]).mean() > 15


def by_itk(values, to_mm, shown, frame):
    """What SimpleITK shows on the grid of an answer, black and white at the same quantiles."""
    image = sitk.GetImageFromArray(values.astype(np.float32))
    lengths = np.sqrt(np.square(to_mm[:3, :3]).sum(0))
    image.SetSpacing(lengths.tolist())
    image.SetDirection((to_mm[:3, :3] / lengths).ravel().tolist())
    image.SetOrigin(to_mm[:3, 3].tolist())
    low, high = np.quantile(values, [0.005, 0.995])
    image = sitk.Clamp((image - low) / (high - low), lowerBound=0, upperBound=1)
    ends = np.array([[-0.5] * 3, [SIDE - 0.5] * 3]) @ frame[:3, :3].T + frame[:3, 3]
    start = ends.min(0) + shown["spacing"] / 2
    spacing = [shown["spacing"]] * 3
    size = shown["size"][::-1]
    grid = sitk.Resample(image, size, sitk.Transform(), sitk.sitkLinear, start.tolist(), spacing)
    return np.rint(255 * sitk.GetArrayFromImage(grid))


def test_large_volumes_are_shown_by_means():
    """Twice as fine as what is shown: each cube is the mean of its eight voxels."""
    values = np.random.default_rng(0).integers(0, 256, (40, 40, 40), dtype=np.uint8)
    volume = Volume(values, np.eye(4))
    grid = grid_of(volume, longest=20)
    means = values.reshape(20, 2, 20, 2, 20, 2).mean((1, 3, 5), dtype=np.float32)
    low, high = np.quantile(means, [0.005, 0.995])
    expected = np.clip((means - low) / (high - low), 0, 1)
    np.testing.assert_allclose(on_grid(volume, grid, np.eye(4)), expected, atol=1e-4)


def test_the_example_has_a_known_motion(ask):
    answer = ask.post("/api/volumes/example", files={"model": (None, "rigid")}).raise_for_status().json()
    a, b, truth = volume_route.example_pair()
    # The pair is what it says: b, read by SciPy where the matrix puts each voxel of a, is a in other light.
    place = np.argwhere(np.ones((64, 64, 64)))[:, ::-1] @ truth[:3, :3].T + truth[:3, 3]
    inside = ((place > 2) & (place < 61)).all(1)
    read = ndimage.map_coordinates(b.values.astype(float), place[inside, ::-1].T, order=1)
    assert np.abs(read - (0.8 * a.values.reshape(-1)[inside] + 20)).mean() < 2
    np.testing.assert_allclose(answer["matrix"], truth, atol=0.02)
    assert answer["error"] < 0.05
    assert ask.post("/api/volumes/example", files={"model": (None, "projective")}).status_code == 422
    assert ask.post("/api/volumes/example", files={"other": (None, "1")}).status_code == 422


def nifti(values):
    return nibabel.Nifti1Image(values, np.eye(4)).to_bytes()


def promising(sides):
    """A NIfTI header for many voxels, packed, and nothing behind it."""
    head = nibabel.Nifti1Header()
    head.set_data_dtype(np.uint8)
    head["dim"][:4] = (3, *sides)
    head["vox_offset"], head["magic"] = 352, b"n+1"
    return gzip.compress(head.binaryblock + bytes(4) + bytes(1000))


ELSEWHERE = b"ObjectType = Image\nNDims = 3\nDimSize = 8 8 8\nElementType = MET_UCHAR\nElementDataFile = /etc/passwd\n"


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"", "b is an empty file; it must be a volume."),
        (b"no volume", "b: not a volume; NIfTI, MetaImage (.mha) and NRRD are read."),
        (nifti(np.zeros((9, 9, 9), np.uint8))[:-100], "b: is truncated"),
        (promising((900, 900, 900)), "b: is truncated: its header promises 729,000,000 bytes"),
        (promising((2000, 2000, 2000)), "b: must have at most"),
        (
            nifti(np.zeros((300, 300, 200), np.uint8)),
            "b: too large, depth 200, height 300, width 300; at most 16,777,216 voxels.",
        ),
        (nifti(np.zeros((9, 9, 2), np.uint8)), "b: must have at least 4 voxels along each axis"),
        (ELSEWHERE, "b: must be a MetaImage that holds its own numbers"),
        (b"NRRD0004\ndata file: /etc/passwd\n\n", "b: must hold its numbers in the same file"),
        (gzip.compress(b"no volume" * 99), "b: is not a NIfTI file"),
    ],
    ids=["empty", "text", "truncated", "promises", "bomb", "large", "flat", "mha", "nrrd", "gzip"],
)
def test_what_is_no_volume_is_refused_in_a_sentence(ask, file, reason):
    answer = send(ask, nifti(scene((16, 16, 16))), file)
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert detail.startswith(reason)
    assert detail.endswith(".")
    assert tempfile.gettempdir() not in detail


def test_volumes_may_be_larger_than_pictures(ask):
    """11 MB: more than two pictures may have; the answer is about the volume, not about the size of the request."""
    large = nifti(np.zeros((230, 230, 220), np.uint8))
    answer = send(ask, large, b"no volume")
    assert answer.json()["detail"].startswith("b: not a volume")
    assert (
        ask.post("/api/volumes", content=bytes(41 * 2**20))
        .json()["detail"]
        .startswith("The request is larger than 40 MB")
    )


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(
        FieldError, match=r"^Reading NIfTI files needs nibabel: pip install 'caunet\[volumes\]'\.$"
    ):
        volume_route._read({"a": nifti(np.zeros((9, 9, 9), np.uint8))}, "a")


def test_files_of_a_request_go_with_its_worker(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    places = Computations("tests.web.jobs:setup", workers=1, seconds=1.0)
    try:
        kept = Path(json.loads(asyncio.run(places.run("", "", b"keep")).content)["made"])
        assert kept.is_relative_to(tmp_path)
        assert kept.exists()
        with pytest.raises(TooLongError):  # it is killed
            asyncio.run(places.run("", "", b"sleep 60"))
        assert list(tmp_path.iterdir()) == []
    finally:
        places.close()
