"""Write a volume to a file: NIfTI, MetaImage or NRRD, whole or not at all."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

import numpy as np

from caunet.extras import require
from caunet.files import atomic_write
from caunet.volumes.read import SUFFIXES, is_volume_path
from caunet.volumes.volume import Volume, between_spaces

__all__ = ["check_volume_path", "save_volume"]


def check_volume_path(path: str | os.PathLike[str], name: str) -> None:
    """Refuse a path whose suffix says no kind of volume."""
    if not is_volume_path(path):
        raise ValueError(f"{name} must end with one of {', '.join(SUFFIXES)}, got {os.fspath(path)!r}")


def save_volume(volume: Volume, path: str | os.PathLike[str]) -> None:
    """Write ``volume`` in the format that the suffix of ``path`` says."""
    check_volume_path(path, "path")
    target = Path(path)
    name = target.name.lower()
    with atomic_write(target) as temporary:
        if name.endswith((".nii", ".nii.gz")):
            data = _nifti(volume)
            temporary.write_bytes(gzip.compress(data, 6, mtime=0) if name.endswith(".gz") else data)
        else:
            _write_itk(volume, temporary, target.suffix)


def _nifti(volume: Volume) -> bytes:
    nibabel = require("nibabel", "volumes", "Writing NIfTI files")
    values = volume.values
    if values.dtype == bool:
        values = values.astype(np.uint8)
    affine = between_spaces(volume.to_mm, "LPS", "RAS")
    kind = nibabel.Nifti1Image if max(volume.size) < 2**15 else nibabel.Nifti2Image
    image = kind(values.transpose(2, 1, 0), affine, dtype=values.dtype)
    image.header.set_xyzt_units("mm")
    if (volume.slope, volume.intercept) == (1.0, 0.0):
        data: bytes = image.to_bytes()
        return data
    # nibabel would scale the numbers; they are stored already, and the header says how to read them.
    header = image.header.copy()
    header["scl_slope"], header["scl_inter"] = volume.slope, volume.intercept
    header["vox_offset"] = header.sizeof_hdr + 4
    return bytes(header.binaryblock) + bytes(4) + values.tobytes()


def _write_itk(volume: Volume, temporary: Path, suffix: str) -> None:
    sitk = require("SimpleITK", "volumes", "Writing MetaImage and NRRD files")
    values = volume.values.astype(np.uint8) if volume.values.dtype == bool else volume.values
    if (volume.slope, volume.intercept) != (1.0, 0.0):
        values = values.astype(np.float32) * np.float32(volume.slope) + np.float32(volume.intercept)
    image = sitk.GetImageFromArray(values)
    image.SetSpacing(volume.spacing)
    image.SetOrigin(volume.to_mm[:3, 3].tolist())
    image.SetDirection((volume.to_mm[:3, :3] / np.array(volume.spacing)).ravel().tolist())
    # ITK knows the format by the name.
    with tempfile.TemporaryDirectory(dir=temporary.parent) as folder:
        beside = Path(folder) / f"volume{suffix}"
        sitk.WriteImage(image, str(beside), True)
        beside.replace(temporary)
