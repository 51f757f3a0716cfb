"""Files of volumes: as nibabel and SimpleITK read and write them; damaged, lying and unfit ones are refused."""

import gzip
import json
import tracemalloc

import nibabel
import numpy as np
import pytest
import SimpleITK as sitk
import torch

from caunet.cli import main
from caunet.errors import DataError
from caunet.volumes import Volume, read_volume, save_volume
from caunet.volumes.prepare import prepare, read_volume_mask
from tests.volumes.scenes import carried, mean_distance, middle_of, scene, turned

AFFINE = turned(20, (1, 2, 3), (4, 9, -3), (0, 0, 0)) @ np.diag([-1.1, 1.3, 1.2, 1])  # RAS, oblique
EQUAL = turned(20, (1, 2, 3), (4, 9, -3), (0, 0, 0)) @ np.diag([-1.1, 1.1, 1.1, 1])


def nifti(path, values, affine=AFFINE, slope=None):
    image = nibabel.Nifti1Image(values.transpose(2, 1, 0), affine)
    if slope is not None:
        image.header.set_slope_inter(*slope)
    nibabel.save(image, path)
    return path


def whole(volume: Volume) -> np.ndarray:
    return volume.values * volume.slope + volume.intercept


@pytest.mark.parametrize("name", ["v.nii", "v.nii.gz", "v.mha", "v.nrrd"])
@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.uint8])
def test_what_is_written_is_what_others_read(tmp_path, name, dtype):
    values = np.random.default_rng(0).integers(0, 200, (5, 6, 7)).astype(dtype)
    lps = np.diag([-1.0, -1, 1, 1]) @ AFFINE
    save_volume(Volume(values, lps, "RAS"), tmp_path / name)
    theirs = sitk.ReadImage(str(tmp_path / name))
    np.testing.assert_array_equal(sitk.GetArrayFromImage(theirs), values)
    point = theirs.TransformContinuousIndexToPhysicalPoint((1.0, 2.0, 3.0))
    np.testing.assert_allclose(point, (lps @ [1, 2, 3, 1])[:3], atol=1e-3 if ".nii" in name else 1e-6)
    ours = read_volume(tmp_path / name)
    np.testing.assert_array_equal(whole(ours), values)
    np.testing.assert_allclose(ours.to_mm, lps, atol=1e-3 if ".nii" in name else 1e-6)
    if ".nii" in name:
        np.testing.assert_allclose(nibabel.load(tmp_path / name).affine, AFFINE, atol=1e-6)


def test_nifti_of_others_is_read_as_nibabel_reads_it(tmp_path):
    values = np.random.default_rng(0).integers(-900, 3000, (5, 6, 7)).astype(np.int16)
    for name, slope in (("a.nii.gz", (0.5, -10.0)), ("b.nii", None)):
        ours = read_volume(nifti(tmp_path / name, values, slope=slope))
        theirs = nibabel.load(tmp_path / name)
        np.testing.assert_allclose(whole(ours), theirs.get_fdata().transpose(2, 1, 0), atol=1e-4)
        np.testing.assert_allclose(np.diag([-1.0, -1, 1, 1]) @ ours.to_mm, theirs.affine, atol=1e-6)
        assert ours.values.dtype == np.int16
    big = nibabel.Nifti1Image(values.transpose(2, 1, 0), AFFINE, header=nibabel.Nifti1Header(endianness=">"))
    nibabel.save(big, tmp_path / "big.nii")
    np.testing.assert_array_equal(whole(read_volume(tmp_path / "big.nii")), values)


def test_damaged_files_are_refused_by_name(tmp_path):
    values = np.random.default_rng(0).integers(0, 99, (8, 8, 8)).astype(np.int16)
    good = nifti(tmp_path / "good.nii.gz", values).read_bytes()
    raw = gzip.decompress(good)
    header = bytearray(raw[:352])
    lies = header.copy()
    lies[42:48] = np.array([1000, 1000, 1000], "<i2").tobytes()  # dim[1..3]
    flat = header.copy()
    flat[40:48] = np.array([2, 64, 8, 1], "<i2").tobytes()
    series = header.copy()
    series[40:50] = np.array([4, 8, 8, 4, 2], "<i2").tobytes()
    singular = bytearray(raw)
    singular[252:256] = np.array([0, 1], "<i2").tobytes()  # sform only
    singular[280:328] = bytes(48)
    huge = header.copy()
    huge[42:48] = np.array([32767, 32767, 32767], "<i2").tobytes()
    files = {
        "truncated.nii": (raw[:-100], "truncated"),
        "truncated.nii.gz": (good[:-50], "cannot be read|truncated"),
        "lies.nii": (bytes(lies) + raw[352:], "truncated"),
        "lies.nii.gz": (gzip.compress(bytes(lies) + raw[352:]), "truncated"),
        "huge.nii.gz": (gzip.compress(bytes(huge) + raw[352:]), "must have at most"),
        "flat.nii": (bytes(flat) + raw[352:], "three dimensions"),
        "series.nii": (bytes(series) + raw[352:], "must hold one volume of three dimensions"),
        "singular.nii": (bytes(singular), "its affine must have voxels"),
        "text.nii": (b"hello" * 200, "not a NIfTI file|cannot be read|promises"),
        "empty.nii": (b"", "is empty"),
        "text.mha": (b"hello" * 200, "holds its own numbers"),
        "text.nrrd": (b"hello" * 200, "not an NRRD"),
        "other.nrrd": (
            b"NRRD0004\ntype: short\ndimension: 3\nsizes: 8 8 8\ndata file: /etc/passwd\n\n",
            "same file",
        ),
        "bomb.mha": (
            b"ObjectType = Image\nNDims = 3\nDimSize = 1000 1000 1000\nElementType = MET_SHORT\n"
            b"CompressedData = True\nElementDataFile = LOCAL\n" + bytes(100),
            "truncated|cannot be read",
        ),
        "short.mha": (  # would be allocated before it is read
            b"ObjectType = Image\nNDims = 3\nDimSize = 100 100 100\nElementType = MET_DOUBLE\n"
            b"ElementDataFile = LOCAL\n" + bytes(1_000_000),
            "truncated: its header promises 8,000,000 bytes",
        ),
        "short.nrrd": (
            b"NRRD0004\ntype: double\ndimension: 3\nsizes: 100 100 100\nencoding: raw\nendian: little\n\n"
            + bytes(1_000_000),
            "truncated: its header promises 8,000,000 bytes",
        ),
        "photo.png": (b"\x89PNG", "must be a volume"),
    }
    tracemalloc.start()
    for name, (data, message) in files.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=message):
            read_volume(tmp_path / name, "b")
    assert tracemalloc.get_traced_memory()[1] < 50e6  # what is promised is not allocated
    tracemalloc.stop()
    with pytest.raises(DataError, match=r"b: .*cannot be read: No such file"):
        read_volume(tmp_path / "missing.nii", "b")


def test_spacing_of_zero_in_files(tmp_path, capfd):
    raw = bytearray(nifti(tmp_path / "good.nii", np.zeros((8, 8, 8), np.int16)).read_bytes())
    raw[80:92] = np.array([1, 0, 1], "<f4").tobytes()  # pixdim[1..3]
    (tmp_path / "told.nii").write_bytes(raw)  # sform says it all
    np.testing.assert_allclose(read_volume(tmp_path / "told.nii").affine, AFFINE, atol=1e-6)
    raw[252:256] = bytes(4)  # neither qform nor sform
    (tmp_path / "zero.nii").write_bytes(raw)
    with pytest.raises(
        DataError, match=r"zero\.nii: must say how long its voxels are, .* \[1.0, 0.0, 1.0\] mm"
    ):
        read_volume(tmp_path / "zero.nii")
    assert capfd.readouterr() == ("", "")  # nibabel's remarks are not printed
    text = (
        b"ObjectType = Image\nNDims = 3\nDimSize = 8 8 8\nElementSpacing = 1 0 1\n"
        b"ElementType = MET_UCHAR\nElementDataFile = LOCAL\n"
    )
    (tmp_path / "zero.mha").write_bytes(text + bytes(512))
    with pytest.raises(DataError, match=r"zero\.mha"):
        read_volume(tmp_path / "zero.mha")


def test_a_large_volume_is_halved_in_slabs_and_needs_little_memory():
    """A grid of 200 million voxels that takes no memory: what is held is the level, and a slab."""
    values = np.broadcast_to(np.linspace(0, 1000, 600).astype(np.int16), (580, 600, 600))
    tracemalloc.start()
    level = prepare(Volume(values, np.eye(4)), None, torch.device("cpu"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert level.values.numel() <= 12_000_000
    assert peak < 100e6  # NumPy's share; torch holds the level
    np.testing.assert_allclose(level.spacing * np.array(level.size[::-1]), [600, 600, 580], rtol=0.02)
    inner = level.values[20, 20, 5:-5]
    np.testing.assert_allclose(np.diff(inner), float(inner[1] - inner[0]), atol=1e-3)  # still a ramp


@pytest.mark.parametrize("size", [1e300, 1e-300, 1.0])
def test_very_large_and_very_small_numbers_fit(size):
    values = np.random.default_rng(0).random((6, 7, 8))
    level = prepare(Volume(values * size, np.eye(4)), None, torch.device("cpu"))
    low, high = np.quantile(values, (0.005, 0.995))
    np.testing.assert_allclose(level.values.numpy(), (values - low) / (high - low), atol=1e-5)


def test_a_mask_of_another_size_is_refused():
    volume = Volume(np.zeros((6, 7, 8)), np.eye(4))
    for shape in ((2, 7, 8), (8, 7, 6)):
        with pytest.raises(ValueError, match=r"mask_a must have the size of its volume, \(6, 7, 8\), got"):
            read_volume_mask(np.ones(shape, bool), volume, "mask_a")


def test_the_command_line(tmp_path, capsys):
    a = scene((36, 40, 34))
    M = turned(15, (1, 0, 1), (1.5, 1.0, -1.0), middle_of(a.shape))
    b = carried(a, M)
    paths = [nifti(tmp_path / f"{name}.nii.gz", v, EQUAL) for name, v in (("a", a), ("b", b))]
    out, transform = tmp_path / "out.nii.gz", tmp_path / "t.tfm"
    arguments = ["estimate", *map(str, paths), "--out", str(out), "--transform", str(transform), "--json"]
    assert main(arguments) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["space"] == "RAS"
    assert data["model"] == "rigid"
    assert mean_distance(np.array(data["matrix"]), M, a.shape) < 0.15
    aligned = nibabel.load(out)
    np.testing.assert_allclose(aligned.affine, EQUAL, atol=1e-6)
    inner = (slice(8, -8),) * 3
    error = np.abs(aligned.get_fdata().transpose(2, 1, 0) - a)[inner].mean()
    assert error < 0.2 * np.abs(b - a)[inner].mean()
    fixed, moving = (sitk.ReadImage(str(path)) for path in paths)
    theirs = sitk.GetArrayFromImage(sitk.Resample(moving, fixed, sitk.ReadTransform(str(transform))))
    np.testing.assert_allclose(aligned.get_fdata().transpose(2, 1, 0)[inner], theirs[inner], atol=5e-3)
    assert main(["estimate", *map(str, paths), "--min-confidence", "1"]) in (0, 3)
    assert "millimeters in RAS" in capsys.readouterr().out
    assert main(["estimate", *map(str, paths), "--overlay", "x.png"]) == 2
    assert "--overlay must be left out for volumes" in capsys.readouterr().err


def test_two_gigabytes_are_refused_by_the_header(tmp_path):
    """All bytes that the header promises are there (a sparse file), but none of them is read."""
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.int16)
    header.set_data_shape((1000, 1000, 1100))
    header["magic"], header["vox_offset"] = b"n+1", 352
    path = tmp_path / "large.nii"
    with path.open("wb") as file:
        file.write(header.binaryblock + bytes(4))
        file.truncate(352 + 2 * 1000 * 1000 * 1100)
    tracemalloc.start()
    with pytest.raises(DataError, match="at most 1,073,741,824 voxels, its header promises 1,100,000,000"):
        read_volume(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
