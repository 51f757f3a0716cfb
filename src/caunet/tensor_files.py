"""Tensors and what is known about them in one file that can be trusted: safetensors, JSON, a SHA-256 over every byte.

The file is a plain safetensors file. Its only metadata entry, ``caunet``, is a SHA-256 in hexadecimal, a space, and a
JSON object with the file's ``format`` and whatever else was given. The hash is that of the whole file with 64 zeros in
its own place, so that no byte can change unnoticed. Equal content gives equal bytes. Nothing is ever unpickled.

>>> import torch
>>> data = pack({"w": torch.ones(2)}, {"step": 3}, "example-1")
>>> unpack(data, "example-1", "memory")
({'w': tensor([1., 1.])}, {'step': 3})
>>> unpack(data[:-1] + b"!", "example-1", "memory")
Traceback (most recent call last):
...
caunet.errors.CheckpointError: memory is damaged: its content does not match its SHA-256
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from caunet.errors import CheckpointError
from caunet.files import atomic_write, open_regular

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["format_of", "pack", "read_bytes", "unpack", "write"]

_PREFIX = b'{"__metadata__":{"caunet":"'
_ZEROS = b"0" * 64
_START = 8 + len(_PREFIX)  # where the hash stands: behind the length of the header and its first bytes
_MAX_HEADER = 16 << 20


def pack(tensors: Mapping[str, "Tensor"], meta: Mapping[str, Any], file_format: str) -> bytes:
    """The bytes of a file with ``tensors`` and ``meta``, a mapping of JSON's own types without ``format``."""
    from safetensors.torch import save

    text = json.dumps({**meta, "format": file_format}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    # A copy, for safetensors refuses tensors that share their memory.
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    data = save(plain, metadata={"caunet": f"{_ZEROS.decode()} {text}"})
    if data[8:_START] != _PREFIX:
        raise CheckpointError("this version of safetensors writes a header that caunet cannot sign")
    return data[:_START] + _digest(data) + data[_START + 64 :]


def unpack(data: bytes, file_format: str, source: object) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """``tensors`` and ``meta`` of the bytes that :func:`pack` made.

    Args:
        data: the whole file.
        file_format: what it must be.
        source: where it comes from, for messages.

    Whatever the bytes are, nothing but :class:`CheckpointError` is raised, and nothing is allocated beyond what the
    file itself holds.
    """
    try:
        header = _header(data)
        found = _format(header)
        if found != file_format:
            raise CheckpointError(f"{source} must be of the format {file_format!r}, got {found!r}")
        if data[8:_START] != _PREFIX or data[_START : _START + 64] != _digest(data):
            raise CheckpointError(f"{source} is damaged: its content does not match its SHA-256")
        from safetensors.torch import load

        meta = json.loads(header["__metadata__"]["caunet"][65:])
        del meta["format"]
        return load(data), meta
    except CheckpointError:
        raise
    except Exception as error:  # of JSON, of safetensors, of torch: whatever a damaged file provokes
        raise CheckpointError(
            f"{source} is damaged or not a safetensors file ({error or type(error).__name__}); "
            "copy it again or take an earlier one"
        ) from error


def format_of(data: bytes) -> str | None:
    """The format that a safetensors file of caunet's states, before anything is checked; None if it states none."""
    try:
        return _format(_header(data))
    except Exception:
        return None


def write(
    path: str | os.PathLike[str], tensors: Mapping[str, "Tensor"], meta: Mapping[str, Any], file_format: str
) -> None:
    """:func:`pack` into the file ``path``, whole or not at all."""
    data = pack(tensors, meta, file_format)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file; OSError for anything else (a pipe would be waited for, a device never ends)."""
    with open_regular(path) as file:
        return file.read()


def _digest(data: bytes) -> bytes:
    """SHA-256 of ``data`` with zeros in the place of the hash."""
    digest = hashlib.sha256(data[:_START])
    digest.update(_ZEROS)
    digest.update(memoryview(data)[_START + 64 :])
    return digest.hexdigest().encode()


def _header(data: bytes) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _MAX_HEADER):
        raise ValueError("its header is cut off or too long")
    header = json.loads(data[8 : 8 + length])
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header


def _format(header: dict[str, Any]) -> str | None:
    metadata = header.get("__metadata__")
    if not metadata:
        return None
    # Files of earlier formats name it in an entry of its own.
    found = metadata["format"] if "format" in metadata else json.loads(metadata["caunet"][65:])["format"]
    return found if isinstance(found, str) else None
