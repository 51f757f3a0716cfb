"""Volumes from outside: files (NIfTI, MetaImage, NRRD), arrays and tensors.

Stored numbers stay as they are (int16 of a scanner takes half of float32); they become values where they are used. What
a header promises is compared with what is there before anything is allocated for it.
"""

from __future__ import annotations

import gzip
import logging
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from caunet.errors import DataError
from caunet.extras import require
from caunet.files import open_regular, printable_path
from caunet.volumes.volume import Space, Volume, between_spaces, checked_affine, grid_affine

__all__ = ["MOST_VOXELS", "SUFFIXES", "is_volume_path", "read_volume"]

MOST_VOXELS = 1 << 30
"""A volume of more voxels (1024 x 1024 x 1024) is refused."""
LEAST_SIDE = 4
"""A volume of fewer voxels along an axis is refused: nothing could be compared."""
SUFFIXES = (".nii", ".nii.gz", ".mha", ".nrrd")
"""Names of files that are volumes."""

_CHUNK = 1 << 20  # bytes unpacked at once
_LONGEST = 1 << 16  # bytes of the header of a MetaImage or NRRD file, at most
_PACKED = 1100  # times that data grow when unpacked, at most (1032 for zlib)
# nibabel remarks on what it mends in a header; what is wrong with a file is said once, in the error.
_SILENT = logging.Logger("silent")
_SILENT.addHandler(logging.NullHandler())
_HEADER = 352  # bytes of a NIfTI-1 file before its numbers, at least


def is_volume_path(path: Any) -> bool:
    """Whether a path is that of a volume, by its name.

    >>> is_volume_path("brain.nii.gz"), is_volume_path("photo.png")
    (True, False)
    """
    return isinstance(path, str | os.PathLike) and os.fspath(path).lower().endswith(SUFFIXES)


def read_volume(value: Any, name: str = "a", *, spacing: Any = None, affine: Any = None) -> Volume:
    """A volume from a path, an array or a tensor (D, H, W), or a :class:`Volume`.

    Args:
        value: the volume; files bring their own geometry.
        name: what it is called in messages.
        spacing: for arrays: the lengths of a voxel (x, y, z) in millimeters; 1 if not given.
        affine: for arrays: (4, 4) from voxels (x, y, z) to millimeters, RAS, as nibabel has it.
    """
    if spacing is not None and affine is not None:
        raise ValueError(f"spacing_{name} must be left out where affine_{name} is given, got both")
    if isinstance(value, Volume):
        volume = value
    elif isinstance(value, str | os.PathLike):
        volume = _read_file(Path(value), name)
    else:
        return _checked(_from_array(value, name, spacing, affine), name)
    if spacing is not None or affine is not None:
        raise ValueError(
            f"{'spacing' if affine is None else 'affine'}_{name} must be left out for a file or a Volume"
        )
    return _checked(volume, name)


def _from_array(value: Any, name: str, spacing: Any, affine: Any) -> Volume:
    if isinstance(value, Tensor):
        if value.is_sparse or value.is_meta or value.is_complex():
            raise TypeError(
                f"{name} must be a dense tensor of real numbers, got {value.dtype} ({value.layout})"
            )
        value = value.detach().cpu()
        value = (
            value.float().numpy()
            if value.dtype.itemsize == 2 and value.is_floating_point()
            else value.numpy()
        )
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} must be a path, an array, a tensor or a Volume, got {type(value).__name__}")
    space: Space = "LPS" if affine is None else "RAS"
    if affine is not None:
        to_mm = between_spaces(checked_affine(affine, f"affine_{name}"), "RAS", "LPS")
    else:
        to_mm = grid_affine(1.0 if spacing is None else spacing, f"spacing_{name}")
    return Volume(value, to_mm, space)


def _checked(volume: Volume, name: str) -> Volume:
    """The same volume, if it can be one."""
    values = volume.values
    if values.ndim != 3:
        raise ValueError(f"{name} must be a volume (depth, height, width), got {_described(values.shape)}")
    if values.dtype.kind not in "uifb":
        raise TypeError(f"{name} must hold real numbers, got {values.dtype}")
    if min(values.shape) < LEAST_SIDE:
        raise ValueError(
            f"{name} must have at least {LEAST_SIDE} voxels along each axis, got {_described(values.shape)}"
        )
    if values.size > MOST_VOXELS:
        raise ValueError(f"{name} must have at most {MOST_VOXELS:,} voxels, got {values.size:,}")
    return volume


def _described(shape: tuple[int, ...]) -> str:
    return " x ".join(str(side) for side in shape) if shape else "one number"


def _read_file(path: Path, name: str) -> Volume:
    shown = f"{name}: {printable_path(path)}"
    lower = path.name.lower()
    try:
        with open_regular(path) as file:
            start = file.read(8)
    except OSError as error:
        raise DataError(f"{shown}: cannot be read: {error.strerror or error}") from error
    if not lower.endswith(SUFFIXES):
        raise DataError(f"{shown}: must be a volume ({', '.join(SUFFIXES)}), got another kind of file")
    if not start:
        raise DataError(f"{shown}: is empty")
    try:
        if lower.endswith((".nii", ".nii.gz")):
            return _read_nifti(path, shown)
        return _read_itk(path, shown)
    except (OSError, EOFError, zlib.error, RuntimeError, OverflowError, MemoryError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        text = str(error).strip().splitlines()
        raise DataError(
            f"{shown}: cannot be read: {text[-1][:200] if text else type(error).__name__}"
        ) from error


def _promised(shape: tuple[int, ...], bytes_each: int, shown: str) -> int:
    """How many bytes a header promises, if that can be."""
    kept = [side for side in shape[3:] if side != 1]
    if len(shape) < 3 or kept:
        raise DataError(f"{shown}: must hold one volume of three dimensions, got {_described(shape)}")
    if min(shape[:3]) < LEAST_SIDE:
        raise DataError(
            f"{shown}: must have at least {LEAST_SIDE} voxels along each axis, got {_described(shape[:3])}"
        )
    count = math.prod(shape[:3])
    if count > MOST_VOXELS:
        raise DataError(f"{shown}: must have at most {MOST_VOXELS:,} voxels, its header promises {count:,}")
    return count * bytes_each


def _read_nifti(path: Path, shown: str) -> Volume:
    nibabel = require("nibabel", "volumes", "Reading NIfTI files")
    # The largest header: a gzip bomb is unpacked no further than that to learn what it promises.
    with _opened(path) as file:
        head = file.read(1 << 12)
    if len(head) < _HEADER - 4:
        raise DataError(f"{shown}: is truncated: {len(head)} bytes")
    kind = nibabel.Nifti2Header if _is_nifti2(head) else nibabel.Nifti1Header
    try:
        header = kind(head[: kind.sizeof_hdr], check=False)
        lengths, is_oriented = header["pixdim"][1:4].copy(), int(header["sform_code"]) != 0
        header.check_fix(logger=_SILENT)
    except Exception as error:  # nibabel has errors of several kinds for what is not a header
        raise DataError(f"{shown}: is not a NIfTI file: {error}") from error
    if not is_oriented and not (np.isfinite(lengths) & (lengths != 0)).all():
        # nibabel would take 1 mm instead.
        raise DataError(f"{shown}: must say how long its voxels are, its header says {lengths.tolist()} mm")
    shape = tuple(int(side) for side in header.get_data_shape())
    dtype = header.get_data_dtype()
    if dtype.kind not in "uif":
        raise DataError(f"{shown}: must hold real numbers, got {dtype}")
    if bytes(header["magic"])[:2] == b"ni":
        raise DataError(f"{shown}: must hold its numbers in the same file, got a header for another one")
    wanted = _promised(shape, dtype.itemsize, shown)
    offset = int(header["vox_offset"])
    if not _HEADER - 4 <= offset <= 1 << 24:
        raise DataError(f"{shown}: must begin its numbers within 16 MiB, its header says at byte {offset}")
    data = _read_bytes(path, offset, wanted, shown)
    affine = header.get_best_affine()
    try:
        to_mm = between_spaces(checked_affine(affine, "its affine"), "RAS", "LPS")
    except ValueError as error:
        raise DataError(f"{shown}: {error}") from error
    slope, intercept = header.get_slope_inter()
    slope, intercept = 1.0 if slope is None else float(slope), 0.0 if intercept is None else float(intercept)
    values = np.frombuffer(data, dtype=dtype).reshape(shape[2::-1])  # x is the fastest
    if dtype.byteorder not in "=|":
        values = values.astype(dtype.newbyteorder("="))
    return Volume(values, to_mm, "RAS", slope, intercept)


def _is_nifti2(head: bytes) -> bool:
    return 540 in (*struct.unpack("<i", head[:4]), *struct.unpack(">i", head[:4]))


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")


def _read_bytes(path: Path, offset: int, wanted: int, shown: str) -> bytearray:
    """``wanted`` bytes from ``offset``, read as they come: a file that promises more than it has costs no memory."""
    if not path.name.lower().endswith(".gz") and path.stat().st_size < offset + wanted:
        raise DataError(
            f"{shown}: is truncated: its header promises {wanted:,} bytes of numbers, "
            f"got {max(path.stat().st_size - offset, 0):,}"
        )
    data = bytearray()
    with _opened(path) as file:
        left = offset
        while left:
            part = file.read(min(left, _CHUNK))
            if not part:
                break
            left -= len(part)
        while len(data) < wanted:
            part = file.read(min(wanted - len(data), _CHUNK))
            if not part:
                raise DataError(
                    f"{shown}: is truncated: its header promises {wanted:,} bytes of numbers, got {len(data):,}"
                )
            data += part
    return data


def _read_itk(path: Path, shown: str) -> Volume:
    sitk = require("SimpleITK", "volumes", "Reading MetaImage and NRRD files")
    with open_regular(path) as file:
        head = file.read(_LONGEST)
    meta = path.suffix.lower() == ".mha"
    _check_alone(head, meta, shown)
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    reader.SetImageIO("MetaImageIO" if meta else "NrrdImageIO")
    reader.ReadImageInformation()
    shape = tuple(int(side) for side in reader.GetSize())
    if reader.GetNumberOfComponents() != 1:
        raise DataError(f"{shown}: must have one number per voxel, got {reader.GetNumberOfComponents()}")
    each = sitk.GetArrayViewFromImage(sitk.Image([1, 1, 1], reader.GetPixelID())).itemsize
    promised, size = _promised(shape, each, shown), path.stat().st_size
    if promised > (_PACKED if _is_packed(head, meta) else 1) * size:
        raise DataError(
            f"{shown}: is truncated: its header promises {promised:,} bytes of numbers, the file has {size:,}"
        )
    if len(shape) > 3:
        reader.SetExtractSize([*shape[:3], *[0] * (len(shape) - 3)])
    image = reader.Execute()
    values: npt.NDArray[Any] = sitk.GetArrayFromImage(image)
    direction = np.array(image.GetDirection(), dtype=np.float64).reshape(3, 3)
    to_mm = np.eye(4)
    to_mm[:3, :3] = direction * np.array(image.GetSpacing())
    to_mm[:3, 3] = image.GetOrigin()
    try:
        to_mm = checked_affine(to_mm, "its geometry")
    except ValueError as error:
        raise DataError(f"{shown}: {error}") from error
    return Volume(values, to_mm, "LPS")


def _lines(head: bytes) -> list[bytes]:
    """The lines of the header of a MetaImage or NRRD file, in small letters, without spaces."""
    return [line.strip().lower().replace(b" ", b"") for line in head.split(b"\n")]


def _is_packed(head: bytes, meta: bool) -> bool:
    """Whether its numbers are compressed, or written as text, so that they may take fewer bytes than they become."""
    if meta:
        return any(line in (b"compresseddata=true", b"binarydata=false") for line in _lines(head))
    return b"encoding:raw" not in _lines(head)


def _check_alone(head: bytes, meta: bool, shown: str) -> None:
    """Refuse a header whose numbers lie in another file: it could name any."""
    lines = _lines(head)
    if meta:
        alone = any(line.startswith(b"elementdatafile=local") for line in lines)
        if not alone:
            raise DataError(
                f"{shown}: must be a MetaImage that holds its own numbers (ElementDataFile = LOCAL)"
            )
        return
    if not head.startswith(b"NRRD"):
        raise DataError(f"{shown}: is not an NRRD file")
    end = lines.index(b"") if b"" in lines else len(lines)
    if any(line.startswith((b"datafile:", b"file:")) for line in lines[:end]):
        raise DataError(f"{shown}: must hold its numbers in the same file, got a header for another one")
