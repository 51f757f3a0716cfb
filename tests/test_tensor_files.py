"""Files of tensors and JSON: equal content is equal bytes, and no byte changes unnoticed."""

import json
import os
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from caunet import tensor_files
from caunet.errors import CheckpointError

TENSORS = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones((), dtype=torch.float16)}
META = {"step": 3, "name": "é", "nested": {"x": [1, None, 0.5]}}


def test_what_goes_in_comes_out_and_any_tool_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    tensor_files.write(path, TENSORS, META, "test-1")
    tensors, meta = tensor_files.unpack(tensor_files.read_bytes(path), "test-1", path)
    assert meta == META
    for found in (tensors, load_file(path)):
        assert found.keys() == TENSORS.keys()
        assert all(torch.equal(found[name], value) for name, value in TENSORS.items())
    assert tensor_files.format_of(path.read_bytes()) == "test-1"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_equal_content_is_equal_bytes() -> None:
    data = tensor_files.pack(TENSORS, META, "test-1")
    other = {
        name: TENSORS[name].t().contiguous().t() if TENSORS[name].ndim else TENSORS[name] for name in "ab"
    }
    assert tensor_files.pack(other, dict(reversed(META.items())), "test-1") == data
    shared = torch.ones(3)
    assert tensor_files.pack({"x": shared, "y": shared}, {}, "test-1")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_flipped_bit_and_every_cut_is_found(data: st.DataObject) -> None:
    whole = tensor_files.pack(TENSORS, META, "test-1")
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for damaged in (bytes(changed), cut, whole + b"\0"):
        with pytest.raises(CheckpointError, match=r"^memory "):
            tensor_files.unpack(damaged, "test-1", "memory")


def _signed(header: bytes, body: bytes = b"") -> bytes:
    """A file with a right hash and any header behind its metadata."""
    data = len(header).to_bytes(8, "little") + header + body
    start = tensor_files._START
    return data[:start] + tensor_files._digest(data) + data[start + 64 :]


HOSTILE = {
    "no JSON": b'{"__metadata__":{"caunet":"' + b"0" * 64 + b' {"}}',
    "deep": b'{"__metadata__":{"caunet":"' + b"0" * 64 + b" " + b"[" * 100_000 + b'"}}',
    "no object": b'{"__metadata__":{"caunet":"' + b"0" * 64 + b' [1]"}}',
    "huge tensor": b'{"__metadata__":{"caunet":"' + b"0" * 64 + rb' {\"format\":\"test-1\"}"},'
    rb'"w":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4000000000000]}}',
    "odd type": b'{"__metadata__":{"caunet":"' + b"0" * 64 + rb' {\"format\":\"test-1\"}"},'
    rb'"w":{"dtype":"X9","shape":[1],"data_offsets":[0,4]}}',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_with_a_right_hash_are_refused(kind: str) -> None:
    with pytest.raises(CheckpointError, match="memory"):
        tensor_files.unpack(_signed(HOSTILE[kind], b"\0" * 4), "test-1", "memory")


def test_random_bytes_are_refused() -> None:
    rng = random.Random(0)
    for size in (0, 1, 7, 8, 9, 100, 5000):
        with pytest.raises(CheckpointError, match="damaged or not a safetensors file"):
            tensor_files.unpack(rng.randbytes(size), "test-1", "memory")
        assert tensor_files.format_of(rng.randbytes(size)) is None


def test_other_formats_are_named() -> None:
    with pytest.raises(CheckpointError, match="memory must be of the format 'test-2', got 'test-1'"):
        tensor_files.unpack(tensor_files.pack(TENSORS, {}, "test-1"), "test-2", "memory")
    with pytest.raises(CheckpointError, match="got None"):
        tensor_files.unpack(save(TENSORS), "test-2", "memory")
    old = save(TENSORS, metadata={"format": "older-1", "spec": json.dumps({})})
    assert tensor_files.format_of(old) == "older-1"


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"regular|directory"):
            tensor_files.read_bytes(path)
    with pytest.raises(FileNotFoundError):
        tensor_files.read_bytes(tmp_path / "none")
