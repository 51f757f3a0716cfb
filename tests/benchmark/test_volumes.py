"""Pairs of volumes with a known motion, against SimpleITK's resampling; and what is counted on them."""

import numpy as np
import pytest
from benchmarks import volumes
from benchmarks.volume_methods import by_greedy, by_simpleitk, itk_image, matrix_of

from tests.volumes.scenes import scene

sitk = pytest.importorskip("SimpleITK")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A volume on a grid that is neither at the origin nor along the axes of the scanner."""
    image = sitk.GetImageFromArray(scene((38, 42, 36)))
    image.SetOrigin([-20.0, 31.0, 5.0])
    image.SetDirection([-1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    made = tmp_path_factory.mktemp("volumes") / "scene.mha"
    sitk.WriteImage(image, str(made))
    return str(made)


@pytest.mark.parametrize(
    "condition", ["rigid 60°", "affine 30°", "rigid 30°, crop", "rigid 30°, thick slices"]
)
def test_pairs_are_what_simpleitk_resamples(path, condition):
    values, _, to_mm = volumes.source(path, 1)
    for index in range(3):
        pair = volumes.made(path, path, condition, index, 1)
        np.testing.assert_array_equal(pair["a"], values)
        back = np.linalg.inv(pair["T"])
        transform = sitk.AffineTransform(back[:3, :3].ravel().tolist(), back[:3, 3].tolist())
        thick = "thick" in condition
        shares = []
        for offset in (-0.375, -0.125, 0.125, 0.375) if thick else (0.0,):
            grid = pair["grid_b"].copy()
            grid[:3, 3] += offset * grid[:3, 2]
            wanted = itk_image(np.zeros_like(pair["b"]), grid)
            read = sitk.Resample(itk_image(values, to_mm), wanted, transform, sitk.sitkBSpline)
            shares.append(sitk.GetArrayFromImage(read))
        # At the border of a, SciPy and SimpleITK continue its splines differently; there is little there.
        assert np.abs(np.mean(shares, axis=0) - pair["b"]).max() < 2e-3
        assert pair["b"].max() > 0.5


def test_motions_are_as_large_as_they_are_said_to_be():
    rng = np.random.default_rng(0)
    center = np.array([3.0, -4.0, 5.0])
    for angle, model in ((10.0, "rigid"), (180.0, "rigid"), (60.0, "affine")):
        for _ in range(20):
            T = volumes.random_motion(rng, angle, model, center)
            moved = T[:3, :3] @ center + T[:3, 3] - center
            assert np.linalg.norm(moved) <= volumes.SHIFT
            stretches = np.linalg.svd(T[:3, :3], compute_uv=False)
            assert np.abs(stretches - 1).max() <= (volumes.SCALE if model == "affine" else 1e-6) + 1e-9
            turn = T[:3, :3] / np.linalg.norm(T[:3, :3], axis=0)  # the stretch comes first, along the axes
            degrees = np.degrees(np.arccos(np.clip((np.trace(turn) - 1) / 2, -1, 1)))
            assert angle / 2 - 1e-4 <= degrees <= angle + 1e-4


def test_the_error_is_a_distance_in_millimeters():
    a = np.zeros((20, 20, 20))
    a[4:16, 4:16, 4:16] = 1
    away = np.eye(4)
    away[:3, 3] = (3.0, 4.0, 0.0)
    assert volumes.target_error(away, np.eye(4), a, np.diag([2.0, 2.0, 4.0, 1.0])) == pytest.approx(5.0)
    larger = np.diag([1.1, 1.0, 1.0, 1.0])  # x of the 27 points: 4, 9.5 and 15 voxels, about, of 2 mm
    found = volumes.target_error(larger, np.eye(4), a, np.diag([2.0, 2.0, 4.0, 1.0]))
    assert found == pytest.approx(0.1 * 2 * 9.5, rel=1e-3)


def test_the_matrix_of_a_transform():
    turn = sitk.Euler3DTransform((1.0, 2.0, 3.0), 0.3, -0.2, 0.5, (4.0, 5.0, 6.0))
    point = np.array([-7.0, 8.0, 9.0, 1.0])
    np.testing.assert_allclose((matrix_of(turn.TransformPoint) @ point)[:3], turn.TransformPoint(point[:3]))


RIVALS = {"SimpleITK": by_simpleitk("mattes"), "picsl_greedy": by_greedy()}


@pytest.mark.parametrize("module", list(RIVALS))
def test_rivals_are_asked_and_read_as_their_makers_mean(path, module):
    """A transform read the wrong way round, or in the other space, would be off by centimeters."""
    pytest.importorskip(module)
    pair = volumes.made(path, path, "rigid 10°", 0, 1)
    found = RIVALS[module](pair["a"], pair["b"], pair["grid_a"], pair["grid_b"], "rigid")
    assert volumes.target_error(found, pair["T"], pair["a"], pair["grid_a"]) < 1.0


def test_the_summary_counts_what_is_below_a_voxel():
    rows = {
        f"{method}|{condition}|{index}": {"error": error, "cpu": 2.0, "wall": 1.0, "memory": 30.0}
        for method, condition, errors in (
            ("caunet", "rigid 10°", (0.01, 0.03, 5.0)), ("greedy", "rigid 10°", (0.02, None, 5.0)),
            ("caunet", "rigid 180°", (0.02,)),
        )
        for index, error in enumerate(errors)
    }  # fmt: skip
    report = {"rows": rows, "voxel_mm": 2.0}
    assert "| caunet | 2 of 3 (67 %) | 1 of 1 (100 %) | 0.020 mm | 2.0 s | 30 MB |" in volumes.summary(report)
    assert "| greedy | 1 of 3 (33 %) | – | 0.020 mm |" in volumes.summary(report)
    lines = volumes.by_condition(report)
    assert "| rigid 10° | **2 of 3, 0.020 mm** | 1 of 3, 0.020 mm |" in lines
    assert "| rigid 180° | **1 of 1, 0.020 mm** | |" in lines
