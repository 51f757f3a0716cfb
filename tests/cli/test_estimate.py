"""``caunet estimate``: what it prints, what it writes, how it ends; the estimator itself is tested elsewhere."""

import json
import os

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

from caunet import geometry
from caunet.cli import main
from caunet.cli.estimate import EstimateCommand
from caunet.estimation.result import Estimate, Field
from caunet.images import read_image


def opened(path):
    with Image.open(path) as image:
        image.load()
        return image


WIDE = data.astronaut()[100:200, 100:240]
SHIFT = (12.0, -7.0)


def answer(a, b, model="projective", confidence=0.93):
    field = Field(torch.rand(10, 2), torch.rand(10, 2), torch.ones(10))
    return Estimate(
        geometry.translate(*SHIFT),
        model,
        confidence=confidence,
        size_a=read_image(a, "a").size,
        size_b=read_image(b, "b").size,
        field=field,
        inliers=torch.arange(10) < 8,
        seconds=0.0421,
    )


@pytest.fixture
def pictures(tmp_path):
    """A point of a at p lies at p + SHIFT in b."""
    Image.fromarray(WIDE[10:90, 22:120]).save(tmp_path / "a.png")
    Image.fromarray(WIDE[17:90, 10:120]).save(tmp_path / "b.png")
    return [str(tmp_path / name) for name in ("a.png", "b.png")]


@pytest.fixture
def known(monkeypatch):
    """An estimator that knows the answer; its confidence can be set."""
    says = {"confidence": 0.93}
    monkeypatch.setattr(
        EstimateCommand, "_locally", lambda self: answer(self.a, self.b, self.model, says["confidence"])
    )
    return says


@pytest.mark.usefixtures("known")
def test_it_tells_in_words(pictures, capsys):
    assert main(["estimate", *pictures]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    for words in (
        "projective, from a (height 80, width 98) to b (height 73, width 110)",
        "12.00 px right, 7.00 px up",
        "0.00°",
        "1.0000 (x 1.0000, y 1.0000)",
        "0.93 (high)",
        "8 of 10 agree",
        "42 ms",
    ):
        assert words in said.out
    matrix = [[float(v) for v in line.split()] for line in said.out.splitlines()[1:4]]
    np.testing.assert_allclose(matrix, [[1, 0, 12], [0, 1, -7], [0, 0, 1]])


@pytest.mark.usefixtures("known")
def test_it_prints_one_json_object(pictures, tmp_path, capsys):
    out = tmp_path / "out.png"
    assert main(["estimate", *pictures, "--json", "--model", "affine", "--out", str(out)]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert said.out.count("\n") == 1
    assert said.err == ""
    assert (found["a"], found["b"], found["aligned"]) == (*pictures, str(out))
    assert found["model"] == "affine"
    assert found["parameters"]["shift_y"] == -7
    assert "field" not in found
    assert Estimate.from_json(found).confidence == 0.93
    assert main(["estimate", *pictures, "--json", "--field"]) == 0
    assert len(json.loads(capsys.readouterr().out)["field"]["points"]) == 10


@pytest.mark.usefixtures("known")
def test_the_aligned_picture_lies_on_a(pictures, tmp_path, capsys):
    out, overlay = tmp_path / "new" / "out.png", tmp_path / "overlay.jpg"
    assert main(["estimate", *pictures, "--out", str(out), "--overlay", str(overlay)]) == 0
    assert str(out) in capsys.readouterr().out
    aligned = np.asarray(opened(out))
    np.testing.assert_array_equal(aligned[7:], WIDE[17:90, 22:120])
    assert (aligned[:7] == 0).all()
    assert opened(overlay).size == (98, 80)


@pytest.mark.usefixtures("known")
def test_16_bits_stay_16_bits(tmp_path, pictures):
    wide = np.arange(6400, dtype=np.uint16).reshape(80, 80) * 10
    Image.fromarray(wide).save(tmp_path / "wide.png")
    first = [pictures[0], str(tmp_path / "wide.png")]
    assert main(["estimate", *first, "--out", str(tmp_path / "o.tif")]) == 0
    assert np.asarray(opened(tmp_path / "o.tif"))[20, 3] == wide[13, 15]
    assert main(["estimate", *first, "--out", str(tmp_path / "o.jpg")]) == 0
    assert opened(tmp_path / "o.jpg").mode == "L"


def test_below_the_confidence_asked_for_it_ends_with_3(known, pictures, tmp_path, capsys):
    known["confidence"] = 0.3
    out = tmp_path / "out.png"
    assert main(["estimate", *pictures, "--out", str(out)]) == 3
    said = capsys.readouterr()
    assert "0.30 (low): do not rely on it" in said.out
    assert said.err == "caunet: confidence 0.30 is below --min-confidence 0.5\n"
    assert out.exists()
    assert main(["estimate", *pictures, "--min-confidence", "0.3"]) == 0
    assert main(["estimate", *pictures, "--min-confidence", "0"]) == 0


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "a.txt"], r"--out must be a file name ending in"),
        (["--overlay", "o.pdf"], r"--overlay must be a file name ending in"),
        (["--out", "{a}"], "--out would overwrite .*, which is one of the two images"),
        (["--out", "c.png", "--overlay", "./c.png"], "--out and --overlay must be different files"),
        (["--min-confidence", "2"], r"--min-confidence must be within 0\.\.1, got 2"),
        (["--field"], "--field must be used with --json"),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--model", "camera-rotation"], "focal must be given for the motion model 'camera-rotation'"),
        (
            ["--model", "camera-rotation", "--focal", "-1"],
            r"focal must be a positive number of pixels, got -1\.0",
        ),
        (["--focal", "500"], "focal is no option of the motion model 'projective'"),
        (["--model", "rigid"], "model must be one of translation, .*got 'rigid'"),
        (
            ["--model", "camera-rotation", "--focal", "9", "--server", "http://x"],
            "--focal must be left out with --server",
        ),
        (["--server", "localhost"], r"--server must be an address such as http://localhost:8000"),
    ],
)
def test_wrong_arguments_are_one_line_and_code_2(pictures, words, message, capsys):
    words = [word.replace("{a}", pictures[0]) for word in words]
    assert main(["estimate", *pictures, *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert pytest.raises(AssertionError, match=message).matches(AssertionError(said.err))


@pytest.mark.usefixtures("known")
def test_bad_pictures_are_one_line_and_code_2(pictures, tmp_path, capsys):
    (tmp_path / "text.png").write_text("hello")
    os.mkfifo(tmp_path / "pipe")
    Image.fromarray(np.zeros((1, 1), np.uint8)).save(tmp_path / "dot.png")
    for name, words in {
        "text.png": "not an image in a known format",
        "dot.png": "too small: height 1, width 1",
        "none.png": "cannot be read: No such file or directory",
        ".": "is a directory",
        "pipe": "cannot be read: it is a named pipe, and only regular files are read",
        "x" * 5000: "cannot be read: the path is too long",
        os.fsdecode(b"caf\xe9"): r"caf\xe9: cannot be read: No such file",
    }.items():
        assert main(["estimate", pictures[0], str(tmp_path / name), "--json"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("caunet: b: ")
        assert said.err.count("\n") == 1
        assert words in said.err


def test_a_device_that_is_not_there(pictures, capsys):
    assert main(["estimate", *pictures, "--device", "cuda:77"]) == 2
    assert main(["estimate", *pictures, "--device", "abacus"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("caunet: --device cuda:77 cannot be used here")
    assert said[1].startswith("caunet: --device abacus cannot be used here")
    assert len(said) == 2


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as end:
        main(["estimate", "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    for words in (
        "--min-confidence",
        "To see how they fit: caunet estimate",
        "--max-angle",
        "--mask-a",
        "maps points of a to points of b",
        "orange",
    ):
        assert words in said


def test_two_photographs_from_end_to_end(tmp_path, capsys):
    """The real estimator on the weights that come with the package; OpenCV moved the picture."""
    scene = data.astronaut()
    H = np.array([[1.02, 0.05, -38.0], [-0.04, 0.98, -21.0], [3e-5, -2e-5, 1.0]])
    moved = cv2.warpPerspective(scene, H, (440, 430), flags=cv2.INTER_CUBIC)
    Image.fromarray(scene[:440]).save(tmp_path / "a.png")
    Image.fromarray(moved).save(tmp_path / "b.jpg", quality=92)
    paths = [str(tmp_path / name) for name in ("a.png", "b.jpg")]
    assert main(["estimate", *paths, "--json", "--threads", "1", "--out", str(tmp_path / "o.png")]) == 0
    found = Estimate.from_json(json.loads(capsys.readouterr().out))
    frame = np.array([[[0, 0], [511, 0], [511, 439], [0, 439]]], float)
    error = found.corners - cv2.perspectiveTransform(frame, H)[0]
    assert np.linalg.norm(error, axis=1).max() < 1
    aligned = np.asarray(opened(tmp_path / "o.png")).astype(float)[100:300, 100:300]
    assert np.abs(aligned - scene[100:300, 100:300]).mean() < 4


def test_what_is_known_beforehand_reaches_the_estimator(tmp_path, capsys):
    """Masks, a region, a first matrix, bounds and a channel, on photographs; JSON there and back."""
    scene = data.astronaut()
    a, b = scene[20:220, 30:230].copy(), scene[26:226, 21:221].copy()  # moved by (+9, -6)
    a[:, :70] = b[:, :70] = scene[300:500, 100:170]
    mask = np.ones((200, 200), np.uint8) * 255
    mask[:, :70] = 0
    for name, image in {"a": a, "b": b, "mask": mask}.items():
        Image.fromarray(image).save(tmp_path / f"{name}.png")
    paths = [str(tmp_path / name) for name in ("a.png", "b.png")]
    mask_path = str(tmp_path / "mask.png")
    base = ["estimate", *paths, "--model", "euclidean", "--threads", "1", "--json"]
    (tmp_path / "matrix.json").write_text("[[1, 0, 8], [0, 1, -5], [0, 0, 1]]")
    (tmp_path / "matrix.txt").write_text("1 0 8\n0 1 -5\n0 0 1\n")
    cases = [
        ["--mask-a", mask_path, "--mask-b", mask_path],
        ["--region", "80", "10", "110", "180", "--initial", str(tmp_path / "matrix.json")],
        ["--region", "80", "10", "110", "180", "--region-b", "80", "0", "120", "200", "--max-shift", "20"],
        ["--mask-a", mask_path, "--mask-b", mask_path, "--channel", "red", "--max-angle", "5"],
        ["--mask-a", mask_path, "--mask-b", mask_path, "--channel", "all", "--fixed", "angle=0"],
        [
            "--mask-a",
            mask_path,
            "--mask-b",
            mask_path,
            "--channel",
            "2",
            "--initial",
            str(tmp_path / "matrix.txt"),
        ],
    ]
    for options in cases:
        assert main([*base, *options]) == 0, options
        text = capsys.readouterr().out
        found = Estimate.from_json(json.loads(text))
        np.testing.assert_allclose(found.matrix[:2, 2], [9, -6], atol=0.3)
        assert found.reason == "found"
        assert found.covariance.shape == (8, 8)
        assert (
            json.loads(json.dumps(found.to_json(field=False)))["covariance"] == json.loads(text)["covariance"]
        )
    # What --json printed is itself a first matrix; beyond a bound the exit code says so.
    (tmp_path / "found.json").write_text(text)
    out = ["--max-shift", "4", "--mask-a", mask_path, "--mask-b", mask_path]
    assert main([*base, *out]) == 3
    missed = json.loads(capsys.readouterr().out)
    assert missed["reason"] == "out of range"
    assert np.hypot(missed["parameters"]["shift_x"], missed["parameters"]["shift_y"]) <= 4.001
    assert main([*base, *out[2:], "--initial", str(tmp_path / "found.json")]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-shift", "-1"], "--max-shift must be a number, 0 or more, got -1"),
        (["--max-angle", "-1"], "--max-angle must be a number, 0 or more, got -1"),
        (["--max-scale", "0.5"], "--max-scale must be a number, at least 1, got 0.5"),
        (["--fixed", "angle"], "--fixed must be NAME=VALUE, such as angle=0, got 'angle'"),
        (["--fixed", "angle=zero"], "--fixed must be NAME=VALUE, such as angle=0, got 'angle=zero'"),
        (["--fixed", "angle=0"], "--fixed must be of shift_x, shift_y for the model 'projective'"),
        (["--channel", "violet"], "--channel must be gray, red, green, blue, all or a number, got 'violet'"),
        (["--channel", "7"], "channel must be at most 2 for a: "),
        (["--mask-a", "{a}"], "mask_a must have one channel, got an image in color"),
        (["--mask-b", "nowhere.png"], "mask_b: nowhere.png: cannot be read"),
        (["--region", "0", "0", "500", "20"], "region must be (x, y, width, height) in whole pixels within"),
        (["--initial", "nowhere.json"], "--initial nowhere.json: cannot be read: No such file"),
        (["--initial", "{a}"], "--initial "),
        (
            ["--server", "http://localhost:1", "--max-angle", "3"],
            "--max-angle must be left out with --server",
        ),
    ],
)
def test_bad_options_are_named(options, message, pictures, capsys):
    assert main(["estimate", *pictures, *(option.format(a=pictures[0]) for option in options)]) == 2
    assert message in capsys.readouterr().err
