"""Bad frames, bad files and full disks: a sentence that names the file, and what was done stays done."""

import errno
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import caunet
from caunet.cli import main
from caunet.errors import DataError
from caunet.images.cut_off import missing_bytes
from caunet.images.frames import open_frames
from caunet.stacks.writing import write_frames
from tests.stacks.test_align import FRAMES, SIDE, TRUTH, gap

tifffile = pytest.importorskip("tifffile")
av = pytest.importorskip("av")


def test_frames_of_another_size_are_named_and_harm_no_other(tmp_path: Path) -> None:
    for k, frame in enumerate([*FRAMES[:2], FRAMES[2][:, :80], FRAMES[3]]):
        cv2.imwrite(str(tmp_path / f"{k}.png"), frame)
    made = caunet.align(tmp_path, missing="interpolate", progress=False, threads=1)
    ((number, reason),) = made.problems
    assert number == 2
    assert (
        reason
        == f"{tmp_path / '2.png'} has height 96, width 80, the frames before it have height 96, width 96"
    )
    assert gap(made.matrices[[0, 1, 3]], TRUTH[[0, 1, 3]]).max() < 0.2
    warped = list(made.warp(tmp_path))
    assert [frame.shape for frame in warped] == [(SIDE, SIDE)] * 4
    assert not warped[2].any()
    with pytest.raises(
        DataError, match=r"most have another size than the first that can be used: .*height 96, width 80"
    ):
        caunet.align([FRAMES[0], FRAMES[1][:, :80], FRAMES[2][:, :80]], progress=False)


def test_gray_among_colors_is_written_and_other_depths_are_named(tmp_path: Path) -> None:
    color = np.stack([FRAMES[0]] * 3, -1)
    still = caunet.Alignment(np.tile(np.eye(3), (2, 1, 1)), np.ones(2), (SIDE, SIDE), "euclidean", ("a", "b"))
    assert write_frames(still.warp([color, FRAMES[0]]), tmp_path / "o.tif") == 2
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "o.tif"), [color, color])
    with pytest.raises(
        DataError, match="frame 1 has 1 channel of uint16, the frames before it have 1 channel of uint8"
    ):
        write_frames(still.warp([FRAMES[0], FRAMES[0].astype(np.uint16)]), tmp_path / "p.tif")
    assert not (tmp_path / "p.tif").exists()


def test_one_bad_file_among_a_thousand(tmp_path: Path) -> None:
    content = cv2.imencode(".png", FRAMES[0][:24, :24])[1].tobytes()
    for k in range(1000):
        (tmp_path / f"{k}.png").write_bytes(content if k != 617 else content[:60])
    (tmp_path / "notes.txt").write_text("ours")
    (tmp_path / "Thumbs.db").write_bytes(b"\0" * 40)
    (tmp_path / ".DS_Store").write_bytes(b"\0" * 40)
    (tmp_path / "raw").mkdir()
    bad = [(frame.index, frame.error) for frame in open_frames(tmp_path) if frame.pixels is None]
    assert len(open_frames(tmp_path)) == 1000
    ((number, error),) = bad
    assert number == 617
    assert str(tmp_path / "617.png") in error


def test_the_command_on_a_truncated_stack_and_video(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole.tif"
    for frame in FRAMES[:5]:  # pages one after the other, each with its own directory
        tifffile.imwrite(whole, frame, append=True, contiguous=False)
    (tmp_path / "cut.tif").write_bytes(whole.read_bytes()[: int(whole.stat().st_size * 0.7)])
    write_frames(FRAMES[:5], tmp_path / "whole.mkv")
    (tmp_path / "cut.mkv").write_bytes((tmp_path / "whole.mkv").read_bytes()[:25_000])
    write_frames(FRAMES[:5], tmp_path / "whole.mp4")
    (tmp_path / "cut.mp4").write_bytes((tmp_path / "whole.mp4").read_bytes()[:2_000])
    # MP4 has its directory at the end.
    for name, expected in {"cut.tif": 3, "cut.mkv": 3, "cut.mp4": 2}.items():
        code = main(["align", str(tmp_path / name), "--table", str(tmp_path / f"{name}.csv")])
        said = capsys.readouterr()
        assert code == expected
        if code == 2:
            assert f"{tmp_path / name} is damaged or no video" in said.err
            continue
        # What is left of it is aligned, and written down.
        assert f"{tmp_path / name} is " in said.out
        assert "damaged behind" in said.out or "cut off behind" in said.out
        rows = (tmp_path / f"{name}.csv").read_text().splitlines()[1:]
        found = np.array([[float(x or "nan") for x in row.split(",")[-9:]] for row in rows]).reshape(-1, 3, 3)
        good = np.isfinite(found).all((1, 2))
        assert good.sum() >= 2
        assert not good[-1]
        assert gap(found[good], TRUTH[: len(found)][good]).max() < 0.3


@pytest.mark.parametrize("name", ["clip.avi", "clip.mkv", "clip.mp4", "clip.mov", "clip.webm"])
def test_videos_state_their_length(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    codec = {".avi": "mpeg4", ".webm": "libvpx"}.get(path.suffix, "mpeg4")
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.height = stream.width = SIDE
        stream.pix_fmt = "yuv420p"
        for pixels in FRAMES[:4]:
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(pixels, format="gray").reformat(format="yuv420p"))
            )
        container.mux(stream.encode())
    assert missing_bytes(path) == 0
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    assert missing_bytes(path) == 100
    for length in (0, 3, 9, 40):
        path.write_bytes(content[:length])
        assert missing_bytes(path) >= 0


def test_no_frames_and_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["align", str(tmp_path / "empty")]) == 2
    assert f"{tmp_path / 'empty'} holds no images" in capsys.readouterr().err
    tifffile.imwrite(tmp_path / "one.tif", FRAMES[0])
    assert main(["align", str(tmp_path / "one.tif"), "--out", str(tmp_path / "o.tif")]) == 0
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "o.tif"), FRAMES[0])
    with pytest.raises(DataError, match=r"there are no frames to write to .*o\.tif"):
        write_frames([], tmp_path / "o.tif")


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], None]]:
    """Files cannot grow beyond so many bytes: a write is cut off and the next one fails, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["out.tif", "out.ome.tif", "out.mkv", "out.mp4"])
def test_a_disk_that_fills_while_frames_are_written(
    name: str,
    tmp_path: Path,
    small_disk: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, out, table = tmp_path / "in.tif", tmp_path / name, tmp_path / "m.csv"
    tifffile.imwrite(source, FRAMES[:3], photometric="minisblack")
    out.write_bytes(b"from before")

    def write(*arguments: Any, **options: Any) -> int:
        small_disk(1_000 if name == "out.mp4" else 12_000)
        return write_frames(*arguments, **options)

    monkeypatch.setattr("caunet.stacks.writing.write_frames", write)
    code = main(["align", str(source), "--out", str(out), "--table", str(table)])
    small_disk(resource.RLIM_INFINITY)
    assert code == 2
    said = capsys.readouterr()
    assert f"caunet: cannot write {out}: " in said.err
    # The matrices are there, what was there before is there, and nothing half done.
    assert len(table.read_text().splitlines()) == 4
    assert out.read_bytes() == b"from before"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["in.tif", "m.csv", name])


def test_no_space_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tifffile.TiffWriter, "write", full)
    with pytest.raises(DataError, match=r"cannot write .*out\.tif: No space left on device"):
        write_frames(FRAMES, tmp_path / "out.tif")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_of_key_frames(small_disk: Callable[[int], None]) -> None:
    small_disk(12_000)
    with pytest.raises(
        DataError, match=r"cannot keep key frames in .*: File too large; set TMPDIR to a folder"
    ):
        caunet.align(FRAMES[:2], progress=False, threads=1)
