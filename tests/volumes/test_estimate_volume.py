"""estimate_volume on volumes with known motions; its geometry, files and refusals against SimpleITK and nibabel."""

import numpy as np
import pytest
import SimpleITK as sitk
import torch

import caunet
from caunet.volumes import Volume, VolumeEstimate, estimate_volume
from tests.volumes.scenes import carried, mean_distance, middle_of, rounded, scene, turned

A = scene()
CENTER = middle_of(A.shape)


@pytest.mark.parametrize(
    ("model", "M"),
    [
        ("translation", turned(0, (0, 0, 1), (3.3, -2.1, 1.6), CENTER)),
        ("rigid", turned(25, (1, 2, -1), (2.5, -1.5, 3.0), CENTER)),
        ("rigid", turned(160, (1, -1, 2), (2.0, 1.0, -2.0), CENTER)),
        ("similarity", turned(15, (0, 1, 1), (1.0, 2.0, -1.0), CENTER, scale=1.12)),
        ("affine", turned(12, (1, 0, 1), (1.0, -2.0, 0.5), CENTER) @ np.diag([1.08, 0.95, 1.0, 1.0])),
    ],
)
def test_known_motions_are_found(model, M):
    found = estimate_volume(A, carried(A, M), model=model)
    assert mean_distance(np.asarray(found), M, A.shape) < 0.1
    assert found.confidence > 0.5
    assert found.reason == "found"
    assert found.model == model


@pytest.mark.parametrize("model", ["rigid", "affine"])
def test_an_outline_that_fits_is_not_enough(model):
    """A round body fits at any angle: blocks at its edge correlate, and the search over rotations was left out."""
    stretch = np.diag([1.15, 0.9, 1.05, 1.0]) if model == "affine" else np.eye(4)
    for seed in (0, 3):
        a = rounded(seed=seed)
        M = turned(150, (1, 2, -1), (3, -2, 1), middle_of(a.shape)) @ stretch
        found = estimate_volume(a, carried(a, M), model=model)
        assert mean_distance(np.asarray(found), M, a.shape) < 0.1
        assert found.confidence > 0.9


def test_both_directions_are_inverse_and_the_same_bits_come_twice():
    M = turned(20, (1, 1, 0), (2, 1, -1), CENTER)
    b = carried(A, M) + 0.02 * np.random.default_rng(1).normal(size=A.shape).astype(np.float32)
    there, back = estimate_volume(A, b), estimate_volume(b, A)
    assert mean_distance(np.asarray(back @ there), np.eye(4), A.shape) < 0.05
    assert np.array_equal(np.asarray(there), np.asarray(estimate_volume(A, b)))


def test_light_does_not_matter_and_negatives_are_found_by_a_curve():
    M = turned(10, (0, 1, 2), (1, 2, 1), CENTER)
    b = carried(A, M)
    z, y, x = np.indices(b.shape) / 40
    for other in (b * (0.7 + 0.3 * x + 0.2 * y * z) + 0.1, 900 - 700 * b, 0.3 * np.sqrt(np.clip(b, 0, None))):
        found = estimate_volume(A, other.astype(np.float32))
        assert mean_distance(np.asarray(found), M, A.shape) < 0.02


def test_spacing_origin_and_direction_are_honored():
    """The same two volumes, told differently: in millimeters the answer moves with the geometry."""
    M = turned(14, (1, 0, 2), (1.5, -1.0, 2.0), CENTER)
    b = carried(A, M)
    thick = b[::2]  # every second slice
    into = np.diag([1.0, 1.0, 0.5, 1.0])
    found = estimate_volume(A, thick, spacing_a=1.5, spacing_b=(1.5, 1.5, 3.0))
    assert mean_distance(np.asarray(found), into @ M, A.shape) < 0.15
    np.testing.assert_allclose(found.matrix_mm[:3, :3] @ found.matrix_mm[:3, :3].T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(found.matrix_mm[:3, :3], M[:3, :3], atol=0.01)
    assert found.space == "LPS"
    affine_a = np.array([[0, -2.0, 0, 30], [-2.0, 0, 0, 10], [0, 0, 2.0, -5], [0, 0, 0, 1]])
    affine_b = np.array([[-2.0, 0, 0, -7], [0, 0, 2.0, 3], [0, -2.0, 0, 11], [0, 0, 0, 1]])
    other = estimate_volume(A, b, affine_a=affine_a, affine_b=affine_b, initial=M)
    assert other.space == "RAS"
    assert mean_distance(np.asarray(other), M, A.shape) < 0.1
    np.testing.assert_allclose(
        other.matrix_mm, affine_b @ np.asarray(other) @ np.linalg.inv(affine_a), atol=1e-9
    )
    flip = np.diag([-1.0, -1, 1, 1])
    np.testing.assert_allclose(other.in_space("LPS"), flip @ other.matrix_mm @ flip, atol=1e-9)


def test_itk_resamples_as_warp_does_and_reads_the_file(tmp_path):
    M = turned(9, (1, 2, 3), (1.2, 0.4, -0.8), CENTER)
    b = carried(A, M)
    affine = np.array([[-1.2, 0, 0, 4], [0, -1.1, 0, 9], [0, 0, 1.4, -3], [0, 0, 0, 1]])
    grid = np.diag([-1.0, -1, 1, 1]) @ affine
    volumes = [Volume(v, grid, "RAS") for v in (A, b)]
    found = VolumeEstimate(M, "affine", 0.9, A.shape, b.shape, affine, affine, "RAS")
    found.save_transform(tmp_path / "t.tfm")
    images = []
    for volume in volumes:
        image = sitk.GetImageFromArray(volume.values)
        image.SetSpacing(volume.spacing)
        image.SetOrigin(grid[:3, 3].tolist())
        image.SetDirection((grid[:3, :3] / np.array(volume.spacing)).ravel().tolist())
        images.append(image)
    for transform in (found.to_itk(), sitk.ReadTransform(str(tmp_path / "t.tfm"))):
        theirs = sitk.GetArrayFromImage(sitk.Resample(images[1], images[0], transform, sitk.sitkLinear, 0.0))
        inner = (slice(6, -6),) * 3
        np.testing.assert_allclose(found.warp(b)[inner], theirs[inner], atol=1e-4)
    np.testing.assert_allclose(found.warp(volumes[1]).values, found.warp(b), atol=0)
    np.testing.assert_allclose(found.warp(torch.from_numpy(b)).numpy(), found.warp(b), atol=0)


def test_fsl_matrix_by_its_definition():
    """flirt's matrix takes b's scaled voxels to a's, x counted backwards where the RAS affine is not mirrored."""
    M = turned(9, (1, 2, 3), (1.2, 0.4, -0.8), CENTER)
    affine_a, affine_b = np.diag([-2.0, 2, 2, 1]), np.diag([1.5, 1, 3, 1])  # radiological, neurological
    found = VolumeEstimate(M, "rigid", 0.9, (44, 48, 40), (30, 31, 32), affine_a, affine_b, "RAS")
    voxel_a = np.array([11.0, 7.0, 20.0])
    voxel_b = (M @ [*voxel_a, 1])[:3]
    in_a, in_b = voxel_a * [2, 2, 2], np.array([(31 - voxel_b[0]) * 1.5, voxel_b[1], voxel_b[2] * 3])
    np.testing.assert_allclose((found.to_fsl() @ [*in_b, 1])[:3], in_a, atol=1e-9)


def test_labels_and_whole_numbers_keep_their_dtype():
    labels = (A > 0.3).astype(np.int16) * 7
    found = VolumeEstimate(turned(9, (1, 2, 3), (1.2, 0.4, -0.8), CENTER), "rigid", 0.9, A.shape, A.shape)
    warped = found.warp(labels, mode="nearest")
    assert warped.dtype == np.int16
    assert set(np.unique(warped)) == {0, 7}
    assert np.isnan(found.warp(A, fill=float("nan"))).any()
    cubic = found.warp(A, mode="cubic")
    assert np.abs(cubic - found.warp(A)).max() > 1e-3


def test_masks_leave_out_what_moves_differently():
    M = turned(6, (0, 0, 1), (1.0, 0.5, 0.0), CENTER)
    b = carried(A, M)
    b[:14] = 1.5 * np.random.default_rng(0).random(b[:14].shape)
    mask = np.ones(A.shape, np.uint8)
    mask[:18] = 0
    found = estimate_volume(A, b, mask_a=mask, mask_b=torch.from_numpy(mask))
    assert mean_distance(np.asarray(found), M, A.shape) < 0.15
    broken = b.copy()
    broken[:14] = np.nan  # the same, as NaN
    assert mean_distance(np.asarray(estimate_volume(A, broken)), M, A.shape) < 0.15


def test_bounds_and_initial():
    M = turned(40, (0, 0, 1), (1.0, 0.5, 0.0), CENTER)
    b = carried(A, M)
    out = estimate_volume(A, b, bounds={"angle": 15, "shift": 10})
    assert out.confidence < 0.5
    assert out.reason in ("out of range", "unrelated")
    assert out.parameters["angle"] <= 15.001
    far = turned(95, (1, 1, 1), (2.0, 0.0, 1.0), CENTER)
    found = estimate_volume(A, carried(A, far), initial=far @ turned(4, (1, 0, 0), (0.5, 0, 0), CENTER))
    assert mean_distance(np.asarray(found), far, A.shape) < 0.1
    with pytest.raises(ValueError, match="initial must be within the bounds"):
        estimate_volume(A, b, initial=M, bounds={"angle": 10})


@pytest.mark.parametrize("kind", ["blank", "noise", "other"])
def test_what_is_not_related_is_not_trusted(kind):
    other = {
        "blank": np.full(A.shape, 3, np.int16),
        "noise": np.random.default_rng(3).random(A.shape),
        "other": scene(seed=9, sigma=1.2)[::-1] ** 2,
    }[kind]
    found = estimate_volume(A, other)
    assert found.confidence < 0.5
    assert found.reason == ("blank" if kind == "blank" else "unrelated")


def test_ct_numbers_and_tensors():
    M = turned(8, (1, 1, 0), (1.5, 1.0, -1.0), CENTER)
    ct = [(v * 2000 - 1024).astype(np.int16) for v in (A, carried(A, M))]
    found = estimate_volume(torch.from_numpy(ct[0]), torch.from_numpy(ct[1]))
    assert isinstance(found.matrix, torch.Tensor)
    assert mean_distance(np.asarray(found), M, A.shape) < 0.1


def test_uncertainty_covers_and_json_is_whole():
    """Under noise, errors of the corners are as large as the covariance says, within a factor."""
    M = turned(12, (1, 0, 1), (1, 1, 1), CENTER)
    clean, ratios = carried(A, M), []
    for seed in range(4):
        noise = np.random.default_rng(seed).normal(size=(2, *A.shape)).astype(np.float32) * 0.08
        found = estimate_volume(A + noise[0], clean + noise[1])
        spread = found.uncertainty([CENTER])[0]
        error = found.apply(CENTER[None])[0] - (M @ [*CENTER, 1])[:3]
        ratios.append(float(error @ np.linalg.solve(spread, error)) / 3)
    assert 0.02 < np.mean(ratios) < 8
    again = VolumeEstimate.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert "confidence" in found.summary()
    back = found.inverse().inverse()
    np.testing.assert_allclose(back.covariance, found.covariance, rtol=1e-6, atol=1e-9)


def test_wrong_arguments_are_named():
    cases = [
        ({"model": "projective"}, "model must be one of translation, rigid, similarity, affine"),
        ({"spacing_a": 0}, "spacing_a must be lengths"),
        ({"spacing_a": (1, 2)}, "spacing_a must be one length"),
        ({"affine_b": np.zeros((4, 4))}, "affine_b must have"),
        ({"affine_b": np.ones((4, 4))}, "affine_b must have the last row"),
        (
            {"affine_b": np.array([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])},
            "affine_b must be inv",
        ),
        ({"initial": np.eye(3)}, "initial must be a matrix"),
        ({"mask_a": np.ones((5, 5, 5))}, "mask_a must have the size"),
        ({"mask_a": np.zeros(A.shape)}, "mask_a must have voxels that count"),
        ({"threads": 0}, "threads must be"),
        ({"bounds": {"angle": -1}}, "bounds"),
    ]
    for change, message in cases:
        with pytest.raises(ValueError, match=message):
            estimate_volume(A, A, **change)
    for bad in (A[0], A[None], A[:1, :1]):
        with pytest.raises(ValueError, match="b must"):
            estimate_volume(A, bad)
    with pytest.raises(TypeError, match="b must hold real numbers"):
        estimate_volume(A, A.astype(complex))
    assert caunet.estimate_volume is estimate_volume
