"""Frames come in their order, as stored, one at a time, whatever they are stored in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from caunet.errors import DataError
from caunet.images.frames import Frame, open_frames

tifffile = pytest.importorskip("tifffile")
av = pytest.importorskip("av")

RNG = np.random.default_rng(0)
STACK = RNG.integers(0, 60000, (12, 20, 24)).astype(np.uint16)
COLOR = RNG.integers(0, 256, (5, 20, 24, 3)).astype(np.uint8)


def pixels(frames: Any) -> list[np.ndarray]:
    found = list(frames)
    assert [frame.index for frame in found] == list(range(len(found)))
    assert all(isinstance(frame, Frame) and frame.pixels is not None for frame in found)
    return [frame.pixels for frame in found]


def test_arrays_tensors_lists_and_iterators() -> None:
    for source in (STACK, torch.from_numpy(STACK.astype(np.int32)), list(STACK), iter(STACK)):
        frames = open_frames(source)
        assert np.array_equal(np.stack(pixels(frames)), STACK)
    channels_first = torch.from_numpy(COLOR).movedim(-1, 1)
    assert np.array_equal(np.stack(pixels(open_frames(channels_first))), COLOR)
    assert np.array_equal(np.stack(pixels(open_frames(COLOR, channel=2))), COLOR[..., 2])
    frames = open_frames(STACK)
    assert len(frames) == 12
    assert np.array_equal(pixels(frames)[3], pixels(frames)[3])  # again and again
    lazy = open_frames(iter(STACK))
    assert not lazy.repeatable
    with pytest.raises(TypeError, match="not known in advance"):
        len(lazy)


def test_a_folder_in_the_natural_order_of_names(tmp_path: Path) -> None:
    for k in range(12):
        Image.fromarray(COLOR[k % 5] // 16 + k).save(tmp_path / f"frame{k}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    found = pixels(open_frames(tmp_path))
    assert [int((image - COLOR[k % 5] // 16).max()) for k, image in enumerate(found)] == list(range(12))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"empty holds no images \(\.bmp"):
        open_frames(empty)


def test_an_unreadable_file_among_others_is_named_and_the_others_come(tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.png" for k in range(4)]
    for k, path in enumerate(paths):
        Image.fromarray(np.full((20, 20), k, np.uint8)).save(path)
    paths[1].write_bytes(paths[1].read_bytes()[:40])
    paths[2].unlink()
    found = list(open_frames(paths))
    assert [frame.pixels is None for frame in found] == [False, True, True, False]
    assert "1.png" in found[1].error
    assert "2.png" in found[2].error


@pytest.mark.parametrize("kind", ["plain", "imagej", "ome"])
def test_tiff_stacks(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("stack.ome.tif" if kind == "ome" else "stack.tif")
    options = {} if kind == "plain" else {"imagej": kind == "imagej", "metadata": {"axes": "TYX"}}
    tifffile.imwrite(path, STACK, photometric="minisblack", **options)
    frames = open_frames(path)
    assert len(frames) == 12
    assert np.array_equal(np.stack(pixels(frames)), STACK)


def test_channels_of_an_ome_tiff_and_axes_that_could_both_be_time(tmp_path: Path) -> None:
    data = RNG.integers(0, 255, (4, 2, 20, 24)).astype(np.uint8)
    path = tmp_path / "channels.ome.tif"
    tifffile.imwrite(path, data, metadata={"axes": "TCYX"}, photometric="minisblack")
    assert np.array_equal(np.stack(pixels(open_frames(path))), data.transpose(0, 2, 3, 1))
    assert np.array_equal(np.stack(pixels(open_frames(path, channel=1))), data[:, 1])
    with pytest.raises(ValueError, match=r"channel must be below 2, the number of channels of .*, got 2"):
        list(open_frames(path, channel=2))
    both = tmp_path / "both.ome.tif"
    tifffile.imwrite(both, data, metadata={"axes": "TZYX"}, photometric="minisblack")
    with pytest.raises(DataError, match="several axes that could be time"):
        open_frames(both)


def test_a_truncated_tiff_gives_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "stack.tif"
    for k, page in enumerate(STACK):  # pages one after the other, each with its own directory
        tifffile.imwrite(path, page, append=k > 0, contiguous=False)
    assert np.array_equal(np.stack(pixels(open_frames(path))), STACK)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    found = list(open_frames(path))
    assert len(found) >= 4
    assert all(np.array_equal(f.pixels, STACK[f.index]) for f in found if f.pixels is not None)
    assert all("stack.tif" in f.error for f in found if f.pixels is None)
    path.write_bytes(b"II*\0nonsense")
    with pytest.raises(DataError, match=r"stack\.tif"):
        list(open_frames(path))


def write_video(path: Path, frames: np.ndarray) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)  # lossless
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "gray" if frames.ndim == 3 else "bgr0"
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(pixels, format="gray" if frames.ndim == 3 else "rgb24")
            for packet in stream.encode(frame.reformat(format=stream.pix_fmt)):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def test_videos(tmp_path: Path) -> None:
    path = tmp_path / "clip.mkv"
    write_video(path, COLOR)
    assert np.array_equal(np.stack(pixels(open_frames(path))), COLOR)
    gray = (STACK // 256).astype(np.uint8)
    write_video(path, gray)
    frames = open_frames(path)
    assert np.array_equal(np.stack(pixels(frames)), gray)
    assert np.array_equal(pixels(frames)[5], gray[5])  # again
    path.write_bytes(b"no video at all")
    with pytest.raises(DataError, match=r"clip\.mkv is damaged or no video"):
        list(open_frames(path))


def test_frames_are_read_one_at_a_time() -> None:
    read = 0

    def source() -> Iterator[np.ndarray]:
        nonlocal read
        for image in STACK:
            read += 1
            yield image

    frames = iter(open_frames(source()))
    next(frames)
    assert read == 1


@pytest.mark.parametrize("bad", [7, b"bytes", np.zeros((3, 4)), torch.zeros(2, 3, 4, 5, 6)])
def test_what_is_no_sequence_is_refused_by_name(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"frames must be"):
        open_frames(bad)


def test_paths_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file or folder"):
        open_frames(tmp_path / "gone.tif")
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(DataError, match="neither a folder nor a file of many frames"):
        open_frames(text)
    with pytest.raises(ValueError, match="channel must be a whole number of at least 0, got -1"):
        open_frames(STACK, channel=-1)
