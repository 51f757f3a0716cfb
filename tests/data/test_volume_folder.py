"""A directory of volumes: what is read of it, which part each file is in, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from caunet.cli import main
from caunet.data import load_images, shapes3
from caunet.data.folder import list_volumes, volume_bytes
from caunet.data.tiles import cut, join
from caunet.errors import DataError

nibabel = pytest.importorskip("nibabel")
SimpleITK = pytest.importorskip("SimpleITK")


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three volumes as NIfTI of int16, packed NIfTI of float32 and MetaImage, beside files that are none."""
    folder = tmp_path_factory.mktemp("volumes")
    volumes = [shapes3.make(i, side=40) for i in range(3)]
    affine = np.diag([1.0, 1.0, 4.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(volumes[0].T.astype(np.int16) * 4 - 1000, affine), folder / "ct.nii")
    nibabel.save(nibabel.Nifti1Image(volumes[1].T.astype(np.float32) / 255, affine), folder / "mr.NII.gz")
    (folder / "deeper").mkdir()
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(volumes[2]), str(folder / "deeper" / "us.mha"))
    (folder / "notes.txt").write_text("none")
    (folder / ".hidden.nii").write_bytes(b"none")
    return folder


def stretched(values: np.ndarray) -> np.ndarray:
    """Bytes from the 0.5th to the 99.5th percentile, by the formula."""
    low, high = np.percentile(values.astype(float), [0.5, 99.5])
    return np.floor(255 * np.clip((values - low) / (high - low), 0, 1) + 0.5).astype(np.uint8)


def test_every_file_is_in_one_part_and_read_as_it_is(head: Path) -> None:
    files, problems = list_volumes(head)
    assert sorted(f.name for f in files) == ["ct.nii", "mr.NII.gz", "us.mha"]
    assert not problems
    known = {"ct.nii": 0, "mr.NII.gz": 1, "us.mha": 2}
    expected = [
        cut(stretched(shapes3.make(known[f.name], side=40)), tile=20, stride=8, scales=(1, 2)) for f in files
    ]
    test = load_images(head, "test", dimensions=3)
    train = load_images(head, "train", dimensions=3)
    # Numbers that pass through float32 may round to the next byte.
    for found, wanted in ((test, expected[:1]), (train, expected[1:])):
        tiles = torch.from_numpy(join(wanted)[0])
        assert found.pixels.shape == tiles.shape
        assert (found.pixels.int() - tiles.int()).abs().max() <= 1


def test_bytes_of_values() -> None:
    ramp = np.linspace(-3, 5, 8000).reshape(20, 20, 20)
    np.testing.assert_array_equal(volume_bytes(ramp), stretched(ramp))
    np.testing.assert_array_equal(
        volume_bytes((ramp * 1000).astype(np.int16)), stretched((ramp * 1000).astype(np.int16))
    )
    holes = ramp.copy()
    holes[3, 4, 5:9] = np.nan, np.inf, -np.inf, np.nan
    shown = volume_bytes(holes)
    assert shown[3, 4, 5:9].tolist() == [0, 255, 0, 0]
    assert (volume_bytes(np.full((4, 4, 4), 7.0)) == 0).all()
    with pytest.raises(DataError, match="no voxel is finite"):
        volume_bytes(np.full((4, 4, 4), np.nan))
    # Percentiles of a part of a large volume are nearly those of all of it.
    large = np.random.default_rng(0).normal(size=(200, 190, 180)).astype(np.float32)
    assert np.abs(volume_bytes(large).astype(int) - stretched(large).astype(int)).max() <= 1


def test_what_cannot_be_used_is_named_or_left_out(head: Path, tmp_path: Path) -> None:
    for file in ("ct.nii", "mr.NII.gz"):
        (tmp_path / file).write_bytes((head / file).read_bytes())
    (tmp_path / "torn.nii").write_bytes((head / "ct.nii").read_bytes()[:5000])
    flat = nibabel.Nifti1Image(np.zeros((30, 30, 30, 2), np.int16), np.eye(4))
    nibabel.save(flat, tmp_path / "four.nii")
    nibabel.save(nibabel.Nifti1Image(np.zeros((30, 9, 30), np.int16), np.eye(4)), tmp_path / "thin.nii")
    bad = []
    for split in ("train", "test"):
        try:
            load_images(tmp_path, split, dimensions=3)
        except DataError as error:
            bad.append(str(error))
    said = "\n".join(bad)
    assert all(name in said for name in ("torn.nii", "four.nii", "thin.nii"))
    assert "30 x 9 x 30 voxels, smaller than a tile of 20" in said
    usable = [
        load_images(tmp_path, split, dimensions=3, skip_bad=True)
        for split in ("train", "test")
        if any("ct.nii" in str(f) or "mr.NII.gz" in str(f) for f in _part(tmp_path, split))
    ]
    assert sum(len(found) for found in usable) > 0
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has 0 volumes; at least two are needed.*\.nii\.gz"):
        load_images(tmp_path / "empty", dimensions=3)


def _part(path: Path, split: str) -> list[Path]:
    files, _ = list_volumes(path)
    test = max(1, round(len(files) / 5))
    return files[:test] if split == "test" else files[test:]


def test_training_from_a_directory(head: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--task",
        "affine3",
        "--data",
        str(head),
        "--compile",
        "never",
        "--updates",
        "5",
        "--batch",
        "10",
    ]
    options = ["--model-options", '{"units": 4}', "--out", str(tmp_path / "run")]
    assert main(["train", *words, *options]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["data"], result["config"]["patch"]) == (str(head), 7)
    capsys.readouterr()
