"""Pairs of patches of volumes: against SciPy, against warps, alone and in batches; shapes3 and what is drawn of it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import map_coordinates

from caunet import geometry, tasks
from caunet.data import PairSource, Photometric, load_images, shapes3
from caunet.data.figure import draw_samples
from caunet.data.statistics import pair_statistics
from caunet.data.tiles import cut, shrink
from caunet.evaluation import evaluate
from caunet.files import sha256

NAMES = tuple(task.name for task in tasks.SPACE)
VOLUMES = torch.from_numpy(cut(shapes3.make(3), tile=20, stride=16, scales=(1,)))


def scipy_pair(source: PairSource, number: int, z: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The two patches of a pair, the second read by SciPy at H^-1 of its places."""
    volume = VOLUMES[number // source.per_image].double().numpy()
    corner = np.array([side // 2 - source.patch // 2 for side in volume.shape])
    middle = corner + (source.patch - 1) / 2  # (z, y, x)
    first = volume[tuple(slice(c, c + source.patch) for c in corner)]
    places = np.stack(np.meshgrid(*[np.arange(source.patch)] * 3, indexing="ij"), -1) + corner - middle
    inverse = np.linalg.inv(source.homography(z.double()).numpy())
    points = places[..., ::-1] @ inverse[:3, :3].T + inverse[:3, 3]  # (x, y, z)
    where = np.moveaxis(points[..., ::-1] + middle, -1, 0)
    return first, map_coordinates(np.pad(volume, 2), where + 2, order=1, mode="grid-constant")


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(NAMES), st.integers(0, 2**32), st.sampled_from([3, 6, 7, 9]))
def test_pairs_are_what_scipy_reads(name, seed, patch):
    source = PairSource(VOLUMES, name, pairs="fresh", seed=seed, patch=patch)
    index = torch.tensor([0, 11, len(source) - 1])
    x, y, z = source.bytes(seed % 7, index)
    assert x.shape == (3, patch, patch, patch)
    for i, number in enumerate(index.tolist()):
        first, second = scipy_pair(source, number, z[i])
        np.testing.assert_array_equal(x[i], first)
        # To the nearest byte, of numbers computed in float32.
        assert np.abs(y[i].numpy() - second).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("patch", [6, 7])
def test_pairs_are_what_simpleitk_resamples(name, patch):
    """Its ResampleImageFilter reads the tile at T of a point of the output's grid: T is H^-1 about the middle."""
    sitk = pytest.importorskip("SimpleITK")
    source = PairSource(VOLUMES, name, pairs="fresh", seed=4, patch=patch)
    index = torch.arange(0, len(source), max(1, len(source) // 12))
    _, y, z = source.bytes(1, index)
    inverse = np.linalg.inv(source.homography(z.double()).numpy())
    corner = [float(side // 2 - patch // 2) for side in VOLUMES.shape[:0:-1]]  # (x, y, z)
    for i, number in enumerate(index.tolist()):
        # Two voxels of 0 around it, because SimpleITK reads nothing between the outermost voxel and what is outside.
        tile = sitk.GetImageFromArray(np.pad(VOLUMES[number // source.per_image].double().numpy(), 2))
        tile.SetOrigin([-2.0] * 3)
        back = sitk.AffineTransform(inverse[i, :3, :3].ravel().tolist(), inverse[i, :3, 3].tolist())
        back.SetCenter([c + (patch - 1) / 2 for c in corner])
        grid = ([patch] * 3, back, sitk.sitkLinear, corner, [1.0] * 3, np.eye(3).ravel().tolist())
        second = sitk.GetArrayFromImage(sitk.Resample(tile, *grid))
        # To the nearest byte, of numbers computed in float32.
        assert np.abs(y[i].numpy() - second).max() <= 0.5 + 1e-3


def test_pairs_are_what_the_warp_makes():
    source = PairSource(VOLUMES, "rigid3", pairs="fresh")
    index = torch.arange(40)
    _, y, z = source.bytes(0, index)
    H = geometry.center(source.homography(z.double()), (7,) * 3, origin=(7.0,) * 3)
    volumes = VOLUMES[index // 10].double()
    warped = geometry.warp(volumes, H, size=(7, 7, 7), origin=(7.0, 7.0, 7.0))
    assert (warped - y).abs().max() <= 0.5 + 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_a_pair_is_a_function_of_seed_epoch_and_index(name):
    light = Photometric(gain=(0.8, 1.2), noise=(0.0, 0.03), blur=(0.0, 1.0), gamma=(0.7, 1.4))
    source = PairSource(VOLUMES, name, pairs="fresh", seed=5, photometric=light)
    index = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))[:250]
    together = source.bytes(2, index)
    for pick in (0, 17, 249):
        for one, all_ in zip(source.bytes(2, index[pick : pick + 1]), together, strict=True):
            assert torch.equal(one[0], all_[pick])
    for other in (source.bytes(3, index), PairSource(VOLUMES, name, pairs="fresh", seed=6).bytes(2, index)):
        assert not torch.equal(other[1], together[1])
        assert not torch.equal(other[2], together[2])


def test_fixed_pairs_are_the_fresh_ones_of_epoch_zero():
    fixed, fresh = (PairSource(VOLUMES, "affine3", pairs=kind) for kind in ("fixed", "fresh"))
    index = torch.arange(0, len(fixed), 7)
    for a, b in zip(fixed.batch(4, index), fresh.batch(0, index), strict=True):
        assert torch.equal(a, b)
    assert repr(fixed) == f"PairSource(affine3, text: {len(fixed)} fixed pairs of 7x7x7, seed 0)"


def test_light_changes_the_second_patch_as_said():
    plain = PairSource(VOLUMES, "translation3", pairs="fresh")
    index = torch.arange(30)
    x, y, _ = plain.bytes(0, index)
    bent = PairSource(VOLUMES, "translation3", pairs="fresh", photometric=Photometric(gamma=(2.0, 2.0)))
    x2, y2, _ = bent.bytes(0, index)
    assert torch.equal(x, x2)
    # The curve is applied before rounding: within the slope of the curve, 2, times half a level, and half of one.
    assert ((y.double() / 255).square() * 255 - y2).abs().max() <= 1.5 + 1e-6
    grain = PairSource(VOLUMES, "translation3", pairs="fresh", photometric=Photometric(noise=(0.02, 0.02)))
    rough = grain.bytes(0, index)
    inner = (y > 30) & (y < 225)
    assert (rough[1].double() - y.double())[inner].std() == pytest.approx(0.02 * 255, rel=0.05)


def test_volumes_for_tasks_of_the_plane_are_refused_and_the_other_way():
    with pytest.raises(
        ValueError, match=r"images must be images \(height, width\) for the task rotation, got a size of 20"
    ):
        PairSource(VOLUMES, "rotation")
    with pytest.raises(
        ValueError, match=r"images must be volumes .* for the task rotation3, got a size of 20x20"
    ):
        PairSource(VOLUMES[0], "rotation3")
    with pytest.raises(
        ValueError, match=r"task must be one of translation, .* for protocol 'release', got 'affine3'"
    ):
        PairSource(VOLUMES, "affine3", "release")
    with pytest.raises(ValueError, match="patch must be 1 to 20 for images of 20x20x20, got 21"):
        PairSource(VOLUMES, "affine3", patch=21)
    with pytest.raises(
        ValueError, match=r"images must be one of shapes3.* for a task in space, got 'cifar10'"
    ):
        load_images("cifar10", dimensions=3)


def test_the_true_z_has_no_error_and_the_mean_has_the_variance():
    source = PairSource(VOLUMES, "rigid3", pairs="fresh", patch=5)
    numbers = iter(range(0, len(source), 100))
    exact = evaluate(
        lambda x, y: source.batch(0, torch.arange(i := next(numbers), i + len(x))).z, source, batch=100
    )
    assert exact["parameter_error"] == exact["corner_error"]["mean"] == exact["transformation_error"] == 0
    middle = evaluate(lambda x, y: torch.zeros(len(x), 6), source)
    assert middle["parameter_error"] == pytest.approx((60**2 / 12 + 6**2 / 12) / 2, rel=0.1)
    assert set(middle["per_parameter"]) == set(tasks.get("rigid3").names)


def test_statistics_count_what_reads_outside():
    source = PairSource(VOLUMES[:, :8, :, :], "translation3", pairs="fresh", patch=7)
    found = pair_statistics(source)
    z = torch.cat([source.bytes(0, torch.arange(i, i + 10))[2] for i in range(0, len(source), 10)])
    # Slices 1 to 7 of 8 are read, shifted by -z; the outline runs half a voxel outside the first and the last.
    slices = torch.arange(1, 8) - z[:, 2:]
    outside = (slices < -0.5) | (slices > 7.5)
    assert found["out_of_image_pixels"] == pytest.approx(float(outside.double().mean()), abs=1e-9)
    assert found["z"]["expected_variance"] == [3.0] * 3


def test_shapes_are_the_same_bytes_everywhere():
    """A hash of one volume, as it is wherever this was run; and splits share no volume."""
    volume = shapes3.make(0)
    assert (volume.shape, volume.dtype) == ((64, 64, 64), np.uint8)
    assert sha256(volume.tobytes())[:16] == "08f66141dd2dd23a"
    assert not np.array_equal(shapes3.make(0, "test"), volume)
    assert not np.array_equal(shapes3.make(1), volume)
    # Every number that has to be exact is: whole, and below 2^53.
    for spacing in (*range(2, 4), *shapes3._SPACINGS):
        field = shapes3._field(shapes3._Draws(0, "train"), 64, spacing)
        assert field.max() < 2**53
        assert (field == np.floor(field)).all()
    assert shapes3._field(shapes3._Draws(0, "train"), 64, 16, levels=256).max() < 2**53


def test_fields_are_cubic_b_splines():
    from scipy.interpolate import BSpline

    for spacing in (3, 8):
        weights = shapes3._spline(40, spacing) / (6 * spacing**3)
        knots = np.arange(weights.shape[1] + 4) - 3
        expected = BSpline.design_matrix(np.arange(40) / spacing, knots.astype(float), 3).toarray()
        np.testing.assert_allclose(weights, expected, atol=1e-14)


def test_blur_is_the_binomial_filter():
    from scipy.ndimage import convolve1d

    volume = np.random.default_rng(0).integers(0, 1 << 20, (9, 8, 7)).astype(float)
    expected = volume
    for axis in range(3):
        expected = convolve1d(expected, [1, 2, 1], axis=axis, mode="nearest")
    np.testing.assert_array_equal(shapes3._blurred(volume), expected // 64)


def test_tiles_of_volumes():
    volume = np.random.default_rng(0).integers(0, 256, (13, 9, 11), dtype=np.uint8)
    small = shrink(volume, 2)
    assert small.shape == (6, 4, 5)
    assert small[2, 1, 3] == (int(volume[4:6, 2:4, 6:8].sum()) + 4) // 8
    tiles = cut(volume, tile=4, stride=4, scales=(1, 2))
    assert len(tiles) == 3 * 2 * 2 + 1
    np.testing.assert_array_equal(tiles[5], volume[4:8, 0:4, 4:8])
    np.testing.assert_array_equal(tiles[-1], small[:4, :4, :4])


def test_pairs_of_volumes_are_drawn(tmp_path):
    from PIL import Image

    path = tmp_path / "pairs.png"
    draw_samples(PairSource(VOLUMES, "rotation3", pairs="fresh"), path, columns=3)
    with Image.open(path) as image:
        assert np.asarray(image.convert("L")).std() > 20
