"""Stacks with a known drift: frames come home, errors do not add up, bad frames harm no other."""

import json
import weakref
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

import caunet
from caunet.benchmark.photographs import photographs
from caunet.cli import main
from caunet.errors import DataError
from caunet.images.frames import frame_rate
from caunet.stacks.align import _SURE
from caunet.stacks.keys import KeyFrames
from caunet.stacks.views import View
from caunet.stacks.writing import write_frames
from tests.test_tasks import run_documentation

tifffile = pytest.importorskip("tifffile")
SIDE = 96
ROOT = Path(__file__).parents[2]


def stack(count: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Frames made by OpenCV from one photograph, and their matrices to the first."""
    rng = np.random.default_rng(seed)
    photo = (photographs("calibration")["motorcycle_left"] * 255).byte().numpy()
    walk = np.concatenate([np.zeros((1, 3)), rng.normal(0, [2.5, 2.5, 1.0], (count - 1, 3))]).cumsum(0)
    frames, poses = [], []
    for x, y, angle in walk:
        turn = cv2.getRotationMatrix2D((SIDE / 2 - 0.5, SIDE / 2 - 0.5), -angle, 1.0)
        pose = np.vstack([turn, [0, 0, 1]])
        pose[:2, 2] += [x, y]
        there = np.array([[2.0, 0, 240.5], [0, 2.0, 130.5], [0, 0, 1]]) @ pose
        image = cv2.GaussianBlur(photo, (0, 0), 1.0)
        view = cv2.warpPerspective(image, there, (SIDE, SIDE), flags=cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP)
        frames.append(
            np.clip(view * rng.uniform(0.8, 1.2) + rng.normal(0, 2, view.shape), 0, 255).astype(np.uint8)
        )
        poses.append(pose)
    return np.stack(frames), np.linalg.inv(poses[0]) @ np.stack(poses)


def gap(matrices: np.ndarray, truth: np.ndarray) -> np.ndarray:
    corners = np.array([[0, 0, 1], [SIDE - 1, 0, 1], [SIDE - 1, SIDE - 1, 1], [0, SIDE - 1, 1.0]]).T
    difference = (matrices @ corners)[:, :2] - (truth @ corners)[:, :2]
    return np.linalg.norm(difference, axis=1).mean(1)


FRAMES, TRUTH = stack()


@pytest.fixture(scope="module")
def found() -> caunet.Alignment:
    return caunet.align(FRAMES, progress=False, threads=1)


def test_frames_come_home(found: caunet.Alignment) -> None:
    assert gap(found.matrices, TRUTH).max() < 0.15
    assert found.problems == ()
    assert found.confidence.min() > 0.2
    assert {link.source for link in found.links} == set(range(1, 10))


@pytest.mark.parametrize("reference", ["middle", 3, -1, "mean"])
def test_the_common_frame_is_that_of_the_reference(found: caunet.Alignment, reference: str | int) -> None:
    other = caunet.align(FRAMES[:5], reference=reference, progress=False, threads=1)
    poses = found.matrices[:5]
    if reference == "mean":
        middle = np.array([SIDE / 2 - 0.5, SIDE / 2 - 0.5, 1])
        np.testing.assert_allclose((other.matrices @ middle)[:, :2].mean(0), middle[:2], atol=0.05)
        relative = np.linalg.inv(other.matrices[0]) @ other.matrices
        assert gap(relative, poses).max() < 0.15
    else:
        k = {"middle": 2, 3: 3, -1: 4}[reference]
        np.testing.assert_allclose(other.matrices[k], np.eye(3), atol=1e-9)
        assert gap(poses[k] @ other.matrices, poses).max() < 0.15


def test_bad_frames_are_named_and_harm_no_other(found: caunet.Alignment, tmp_path: Path) -> None:
    frames = [*FRAMES[:6]]
    frames[2] = np.full((SIDE, SIDE), 90, np.uint8)
    frames[4] = np.random.default_rng(5).integers(0, 256, (SIDE, SIDE)).astype(np.uint8)
    paths = []
    for k, frame in enumerate(frames):
        paths.append(tmp_path / f"{k}.png")
        cv2.imwrite(str(paths[-1]), frame)
    paths[3].write_bytes(b"no image")
    made = caunet.align(paths, progress=False, threads=1)
    assert [number for number, _ in made.problems] == [2, 3, 4]
    assert all(f"{number}.png" in reason for number, reason in made.problems)
    assert np.isnan(made.matrices[2]).all()
    good = [0, 1, 5]
    assert gap(made.matrices[good], TRUTH[good]).max() < 0.2
    filled = made.interpolated()
    # Carried along: a quarter of the way from frame 1 to frame 5, and a rotation.
    middle = np.array([SIDE / 2 - 0.5, SIDE / 2 - 0.5, 1])
    expected = (0.75 * made.matrices[1] + 0.25 * made.matrices[5]) @ middle
    np.testing.assert_allclose(filled.matrices[2] @ middle, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.det(filled.matrices), 1, atol=1e-9)
    assert filled.problems == made.problems
    asked = caunet.align(paths, progress=False, threads=1, missing="interpolate")
    np.testing.assert_array_equal(asked.matrices, filled.matrices)
    assert list(asked.warp(paths))[4].std() > 10  # what it shows is resampled, though it had no answer
    warped = list(made.warp(paths))
    assert len(warped) == 6
    assert not warped[3].any()


def test_warped_frames_lie_on_the_first(found: caunet.Alignment) -> None:
    warped = np.stack(list(found.warp(FRAMES, crop="common", mode="bicubic"))).astype(float)
    (x, y), (height, width) = found.canvas("common")
    assert warped.shape[1:] == (height, width)
    first = FRAMES[0, y : y + height, x : x + width]
    inner = (slice(4, -4), slice(4, -4))
    for image in warped:
        assert np.corrcoef(image[inner].ravel(), first[inner].ravel())[0, 1] > 0.97
    # What all show: no frame is filled there.
    seen = np.stack(list(found.warp(np.full_like(FRAMES, 200), crop="common")))
    assert seen.min() == 200
    union = found.canvas("union")
    assert union.size[0] >= SIDE
    assert union.size[1] >= SIDE


def test_any_source_gives_the_same_matrices(found: caunet.Alignment, tmp_path: Path) -> None:
    def lazily() -> Iterator[torch.Tensor]:
        yield from torch.from_numpy(FRAMES[:3])

    path = tmp_path / "stack.tif"
    tifffile.imwrite(path, FRAMES[:3].astype(np.uint16) * 3, photometric="minisblack")  # ten bits of sixteen
    color = np.stack([FRAMES[:3] // 3, FRAMES[:3], 255 - FRAMES[:3]], -1)
    expected = caunet.align(FRAMES[:3], progress=False, threads=1).matrices
    np.testing.assert_array_equal(caunet.align(lazily(), progress=False, threads=1).matrices, expected)
    assert gap(caunet.align(path, progress=False, threads=1).matrices, expected).max() < 0.05
    steered = caunet.align(color, channel=1, progress=False, threads=1).matrices
    np.testing.assert_array_equal(steered, expected)


def test_the_table_reads_back(found: caunet.Alignment, tmp_path: Path) -> None:
    found.save(tmp_path / "m.csv")
    rows = np.genfromtxt(tmp_path / "m.csv", delimiter=",", skip_header=1)[:, 3:]
    np.testing.assert_array_equal(rows.reshape(-1, 3, 3), found.matrices)
    found.save(tmp_path / "m.json")
    assert len((tmp_path / "m.json").read_text()) > 1000
    with pytest.raises(ValueError, match=r"path must end in \.csv or \.json"):
        found.save(tmp_path / "m.txt")


@pytest.mark.parametrize("name", ["out.tif", "out.ome.tif", "out.mkv"])
def test_frames_are_written_as_they_are(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert write_frames(iter(FRAMES), path) == len(FRAMES)
    from caunet.images.frames import open_frames

    read = np.stack([frame.pixels for frame in open_frames(path)])
    np.testing.assert_array_equal(read, FRAMES)
    if name == "out.ome.tif":
        with tifffile.TiffFile(path) as file:
            assert file.is_ome
            assert file.series[0].axes == "TYX"


def test_a_failure_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[np.ndarray]:
        yield FRAMES[0]
        raise DataError("frame 1 is gone")

    with pytest.raises(DataError, match="frame 1 is gone"):
        write_frames(broken(), tmp_path / "out.tif")
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.tif"
    tifffile.imwrite(path, FRAMES[:3], photometric="minisblack")
    out, table = tmp_path / "out.tif", tmp_path / "m.csv"
    assert main(["align", str(path), "--out", str(out), "--table", str(table), "--crop", "common"]) == 0
    assert "3 frames of height 96, width 96" in capsys.readouterr().out
    assert len(table.read_text().splitlines()) == 4
    assert tifffile.imread(out).shape[0] == 3
    write_frames(FRAMES[:3], tmp_path / "in.mkv", rate=12)
    cv2.imwrite(str(tmp_path / "mask.png"), np.full((SIDE, SIDE), 255, np.uint8))
    options = [
        "--reference",
        "-1",
        "--max-shift",
        "9",
        "--mask",
        str(tmp_path / "mask.png"),
        "--stabilize",
        "5",
    ]
    assert main(["align", str(tmp_path / "in.mkv"), "--out", str(tmp_path / "out.mkv"), *options]) == 0
    assert frame_rate(tmp_path / "out.mkv") == 12  # as it was
    assert main(["align", str(path), "--out", str(path)]) == 2
    capsys.readouterr()
    assert main(["align", str(tmp_path / "none.tif")]) == 2
    assert "there is no file or folder" in capsys.readouterr().err
    assert main(["align", str(path), "--out", str(tmp_path / "x.gif")]) == 2
    assert "--out must end in one of" in capsys.readouterr().err


def test_a_shaking_path_is_smoothed_and_a_steady_one_stays() -> None:
    count = 60
    drift = np.tile(np.eye(3), (count, 1, 1))
    drift[:, 0, 2] = np.arange(count) * 0.5
    names = tuple(map(str, range(count)))
    steady = caunet.Alignment(drift, np.ones(count), (48, 64), "euclidean", names)
    inner = slice(20, 40)
    np.testing.assert_allclose(steady.smoothed(4).matrices, np.tile(np.eye(3), (count, 1, 1)), atol=1e-9)
    shaking = drift.copy()
    shaking[:, 1, 2] = 3 * (-1.0) ** np.arange(count)
    made = caunet.Alignment(shaking, np.ones(count), (48, 64), "euclidean", names).smoothed(4).matrices
    np.testing.assert_allclose(
        made[inner, 1, 2], shaking[inner, 1, 2], atol=0.05
    )  # moved back by what it shook
    np.testing.assert_allclose(made[inner, 0, 2], 0, atol=1e-9)


def overlaid(frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Frames behind a pattern that stands still, and where they can be seen."""
    pattern = np.random.default_rng(3).integers(0, 256, (12, 12)).astype(np.uint8).repeat(8, 0).repeat(8, 1)
    counts = np.zeros((SIDE, SIDE), bool)
    counts[:, 42:] = True
    return np.where(counts, frames, pattern), counts


def test_masks_say_what_is_to_be_held_still(tmp_path: Path) -> None:
    frames, counts = overlaid(FRAMES[:4])
    cv2.imwrite(str(tmp_path / "mask.png"), counts.astype(np.uint8) * 255)
    made = caunet.align(frames, mask=tmp_path / "mask.png", progress=False, threads=1)
    assert gap(made.matrices, TRUTH[:4]).max() < 0.3
    # One for each frame; of one that is masked everywhere nothing can be said.
    each = np.stack([counts] * 4)
    each[2] = False
    again = caunet.align(frames, mask=each, progress=False, threads=1)
    assert again.problems == ((2, "frame 2 is blank where it counts"),)
    assert gap(again.matrices[[0, 1, 3]], TRUTH[[0, 1, 3]]).max() < 0.3
    # NaN does not count either.
    holes = np.where(counts, frames / np.float32(255), np.nan)
    assert gap(caunet.align(holes, progress=False, threads=1).matrices, TRUTH[:4]).max() < 0.3
    with pytest.raises(ValueError, match=r"mask must be \(height, width\) = \(96, 96\)"):
        caunet.align(frames, mask=counts[:50], progress=False)
    with pytest.raises(ValueError, match="mask must be one image, or one for each frame, got 3"):
        caunet.align(frames, mask=each[:3], progress=False, threads=1)


def test_bounds_are_those_from_frame_to_frame(found: caunet.Alignment) -> None:
    steps = np.linalg.inv(TRUTH[:-1]) @ TRUTH[1:]
    middle = np.array([SIDE / 2 - 0.5, SIDE / 2 - 0.5, 1])
    longest = np.linalg.norm((steps @ middle - middle)[:, :2], axis=1).max()
    frames = FRAMES[:5].copy()
    frames[2] = np.roll(frames[2], 20, 1)  # has jumped
    free = caunet.align(frames, progress=False, threads=1)
    assert abs(free.matrices[2, 0, 2] - TRUTH[2, 0, 2] + 20) < 2
    held = caunet.align(frames, bounds={"shift": longest + 1}, progress=False, threads=1)
    assert [number for number, _ in held.problems] == [2]
    good = [0, 1, 3, 4]
    assert gap(held.matrices[good], TRUTH[good]).max() < 0.2
    with pytest.raises(ValueError, match="bounds must allow frames that do not move"):
        caunet.align(frames, bounds={"angle": (2, 5)}, progress=False)


def test_a_still_camera_stays_still_while_something_walks_by() -> None:
    rng = np.random.default_rng(7)
    scene = FRAMES[0].astype(float)
    figure = rng.integers(0, 256, (6, 3)).repeat(6, 0).repeat(6, 1)  # 36 x 18
    frames = []
    for k in range(10):
        frame = scene.copy()
        frame[40:76, 4 + 7 * k : 22 + 7 * k] = figure
        frame[10:46, 70 - 6 * k : 88 - 6 * k] = 255 - figure
        frames.append(np.clip(frame + rng.normal(0, 3, frame.shape), 0, 255).astype(np.uint8))
    made = caunet.align(frames, progress=False, threads=1)
    assert made.problems == ()
    assert gap(made.matrices, np.tile(np.eye(3), (10, 1, 1))).max() < 0.1


@pytest.mark.parametrize("page", ["stacks.md", "scaling.md"])
def test_the_documentation_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_documentation(page)
    if page == "stacks.md":
        np.testing.assert_allclose(names["found"].matrices[4, :2, 2], [8, 4], atol=0.1)
    else:
        assert [line[:2] for line in capsys.readouterr().out.splitlines()] == ["0 ", "1 ", "2 "]


def test_the_threshold_is_the_calibrated_one() -> None:
    chosen = json.loads((ROOT / "benchmarks" / "results" / "calibrate_stacks.json").read_text())["chosen"]
    assert chosen == _SURE


def test_channels_have_names() -> None:
    color = np.stack([FRAMES[:2] // 3, FRAMES[:2], 255 - FRAMES[:2]], -1)
    expected = caunet.align(FRAMES[:2], progress=False, threads=1).matrices
    np.testing.assert_array_equal(
        caunet.align(color, channel="green", progress=False, threads=1).matrices, expected
    )
    with pytest.raises(ValueError, match="channel must be gray, red, green, blue or a number, got 'cyan'"):
        caunet.align(color, channel="cyan")
    with pytest.raises(ValueError, match="channel must be below 3, the number of channels of frames, got 3"):
        caunet.align(color, channel=3)


def test_no_more_than_a_few_frames_are_held(tmp_path: Path) -> None:
    """Of any number: frames that come one by one are let go when the next ones come."""
    alive: list[weakref.ref[np.ndarray]] = []
    most = 0

    class Tracked(np.ndarray):
        """An array that can be referred to weakly."""

    def frames(count: int) -> Iterator[np.ndarray]:
        nonlocal most
        for k in range(count):
            frame = np.roll(FRAMES[0], (k * 7) % 40, 1).copy().view(Tracked)
            alive.append(weakref.ref(frame))
            most = max(most, sum(reference() is not None for reference in alive))
            yield frame
            del frame

    counts = {}
    for count in (6, 18):
        most = 0
        made = caunet.align(frames(count), model="translation", progress=False, threads=1)
        held = most
        most = 0
        assert write_frames(made.warp(frames(count)), tmp_path / f"{count}.tif") == count
        counts[count] = (held, most)
    assert counts[6] == counts[18]
    assert max(counts[18]) <= 3


def test_key_frames_are_in_a_file() -> None:
    rng = np.random.default_rng(0)
    keys = KeyFrames((20, 30))
    views = [
        View(torch.from_numpy(rng.random((20, 30), np.float32)), mask)
        for mask in [None, torch.from_numpy(rng.random((20, 30)) > 0.5)] * 6
    ]
    for number, view in enumerate(views):
        keys.add(5 * number, view)
    assert len(keys._ready) == 4
    for number, view in enumerate(views):
        again = keys[5 * number]
        assert torch.equal(again.gray, view.gray)
        assert (again.mask is None) == (view.mask is None)
        assert view.mask is None or torch.equal(again.mask, view.mask)
    assert len(keys._ready) == 4
    keys.close()


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="reference must be one of first, middle, mean, previous"):
        caunet.align(FRAMES, reference="last")
    with pytest.raises(ValueError, match="reference must be below 2, the number of frames, got 7"):
        caunet.align(FRAMES[:2], reference=7, progress=False)
    with pytest.raises(ValueError, match="missing must be 'nan' or 'interpolate', got 'zero'"):
        caunet.align(FRAMES, missing="zero")
    with pytest.raises(DataError, match="holds no frames"):
        caunet.align([], progress=False)
    one = caunet.align(FRAMES[:1], progress=False)
    np.testing.assert_array_equal(one.matrices, np.eye(3)[None])
    with pytest.raises(ValueError, match="crop must be one of first, common, union, got 'all'"):
        one.canvas("all")  # type: ignore[arg-type]
