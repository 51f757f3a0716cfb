"""The API over real HTTP: values against independent ones, refusals, headers."""

import base64
import io
import json
import re
import sys
from pathlib import Path

import httpx
import numpy as np
import pillow_heif
import pytest
import torch
from PIL import Image

import caunet
from caunet import geometry, tasks
from caunet.cli import main
from caunet.estimation.motion_models import motion_model_names
from caunet.metrics import corner_error
from caunet.models import load_weights, save_weights
from caunet.refinement import refine
from caunet.web import worker
from caunet.web.answers import setup
from caunet.web.certainty import certainty, explained
from caunet.web.decoding import read_upload
from caunet.web.inference import infer
from caunet.web.networks import TASKS, Networks
from caunet.web.patches import cut_pair, gray_photograph
from caunet.web.refusals import FieldError
from tests.web.pictures import ASTRONAUT, bomb, carried, png, related, transparent

PLACE = {"task": "rotation", "z": [20.0], "photograph": "astronaut", "x": 230, "y": 110}


@pytest.fixture(autouse=True)
def _threads():
    """What a worker sets up sets torch to one thread; other tests of this process get back what they had."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def ask(server):
    with httpx.Client(base_url=server, timeout=60) as client:
        yield client


def post(client, a, b, **fields):
    return client.post("/api/estimate", files={"a": ("a.png", a), "b": ("b.png", b)}, data=fields)


# What it answers


def test_health_and_models(ask):
    assert ask.get("/healthz").json() == {"status": "ok", "version": caunet.__version__}
    about = ask.get("/api/models").json()
    assert [task["name"] for task in about["tasks"]] == list(TASKS)
    assert about["tasks"][1]["parameters"] == [
        {"name": "angle", "low": -45.0, "high": 45.0, "unit": "degrees", "step": 0.9}
    ]
    assert about["pretrained"]["rotation"] == ["ctn", "bln", "can"]
    assert about["pretrained"]["affine"] == []
    assert about["motion_models"] == list(motion_model_names(without_options=True))
    for entry in about["photographs"][:3]:
        image = Image.open(io.BytesIO(ask.get(entry["url"]).content))
        assert image.size == (entry["width"], entry["height"])
        assert max(image.size) <= 512
    astronaut = Image.open(io.BytesIO(ask.get("/api/photographs/astronaut.png").content))
    np.testing.assert_array_equal(np.asarray(astronaut), ASTRONAUT)


def test_estimate_finds_the_known_homography(ask):
    a, b, H = related()
    answer = post(ask, png(a), png(b)).raise_for_status().json()
    distance = np.linalg.norm(carried(answer["matrix"], a.shape) - carried(H, a.shape), axis=1)
    assert distance.max() < 1
    assert answer["confidence"] > 0.5
    assert (answer["size_a"], answer["size_b"]) == ([256, 256], [256, 256])
    assert "projective, from a (height 256, width 256)" in answer["words"]
    assert answer["confidence_words"] in ("fair", "high", "very high")
    aligned = np.asarray(Image.open(io.BytesIO(base64.b64decode(answer["aligned_png"]))))
    middle = np.s_[40:-40, 40:-40]
    before, after = (np.abs(a[middle].astype(float) - c[middle]).mean() for c in (b, aligned))
    assert after < before / 4


def test_what_is_transparent_does_not_count(ask):
    """Both are seen through a disc that stands still: its edge, white on white, must not say that nothing moved."""
    a, b, H = related()
    line = np.linspace(-1, 1, len(a))
    alpha = np.where(line**2 + line[:, None] ** 2 < 0.8, 255, 0).astype(np.uint8)
    seen = [np.dstack([picture, alpha]) for picture in (a, b)]
    answer = post(ask, *map(png, seen)).raise_for_status().json()
    assert np.linalg.norm(carried(answer["matrix"], a.shape) - carried(H, a.shape), axis=1).max() < 1
    assert answer["confidence"] > 0.5
    expected = caunet.estimate(*(Image.fromarray(picture) for picture in seen)).matrix
    assert np.abs(carried(answer["matrix"], a.shape) - carried(expected, a.shape)).max() < 0.02


def test_large_pictures_are_reduced_but_answered_in_their_own_pixels(ask):
    a, b, H = related(side=240)
    large = [np.asarray(Image.fromarray(p).resize((1680, 1680), Image.Resampling.BICUBIC)) for p in (a, b)]
    answer = post(ask, png(large[0], "JPEG"), png(large[1], "JPEG"), model="similarity").json()
    assert answer["size_a"] == [1680, 1680]
    enlarge = np.array([[7, 0, 3], [0, 7, 3], [0, 0, 1]])  # outlines at -0.5 lie upon each other
    truth = enlarge @ H @ np.linalg.inv(enlarge)
    distance = np.linalg.norm(carried(answer["matrix"], (1680, 1680)) - carried(truth, (1680, 1680)), axis=1)
    assert distance.max() < 4  # of 1680; one pixel of the 840 that were compared is 2
    (m00, m01, _), (m10, m11, _), _ = answer["matrix"]
    assert m00 == pytest.approx(m11)
    assert m01 == pytest.approx(-m10)
    points, motion = (np.array(answer["field"][name]) for name in ("points", "motion"))
    assert points.max() > 840
    agree = np.array(answer["field"]["inlier"])
    predicted = (np.c_[points, np.ones(len(points))] @ truth.T)[:, :2]
    assert np.median(np.linalg.norm(points + motion - predicted, axis=1)[agree]) < 40
    assert max(Image.open(io.BytesIO(base64.b64decode(answer["aligned_png"]))).size) == 840


def test_the_patches_are_the_photograph_transformed(ask):
    answer = ask.post("/api/infer", json=PLACE).json()
    gray = Image.fromarray(gray_photograph("astronaut")).crop((230 - 2 - 128, 110 - 2 - 128, 360, 240))
    small = torch.from_numpy(np.asarray(gray.reduce(4)).copy())  # (65, 65), by Pillow
    np.testing.assert_allclose(np.array(answer["first"]) * 255, small[27:38, 27:38], atol=1.01)
    H = geometry.center(geometry.rotate(20.0), (65, 65))
    turned = geometry.warp(small[None], H, mode="bilinear")[0][27:38, 27:38]
    np.testing.assert_allclose(np.array(answer["second"]) * 255, turned, atol=2)
    c, s = np.cos(np.radians(20)), np.sin(np.radians(20))
    expected = [[5 + c * x - s * y, 5 + s * x + c * y] for x, y in ((-5, -5), (5, -5), (5, 5), (-5, 5))]
    np.testing.assert_allclose(answer["truth_corners"], expected, atol=1e-9)


def test_infer_says_what_the_networks_say(ask, untrained):
    answer = ask.post("/api/infer", json=PLACE).json()
    first, second = (torch.tensor(answer[name])[None] - 0.5 for name in ("first", "second"))
    for name in ("ctn", "bln", "can"):
        model = load_weights(untrained / f"{name}-rotation.safetensors")
        (z,) = model(first, second).tolist()
        said = answer["networks"][name]
        assert said["z"] == pytest.approx(z, abs=0.02)  # patches were rounded to 4 digits
        gap = np.linalg.norm(np.subtract(said["corners"], answer["truth_corners"]), axis=1).mean()
        assert said["error"] == pytest.approx(gap, abs=1e-6)
    responses = model.units(first, second)[0].tolist()
    assert len(answer["responses"]) == 300
    np.testing.assert_allclose(answer["responses"], responses, atol=1e-4)
    winner = answer["winner"]
    assert winner["index"] == int(np.argmax(answer["responses"]))
    k = winner["index"]
    W = sum(
        np.outer(model.relation.u[r].detach(), model.relation.v[r].detach()) for r in range(4 * k, 4 * k + 4)
    )
    for name, axis in (("u", 1), ("v", 0)):
        weight = W.sum(axis)
        np.testing.assert_allclose(np.array(winner[name]).ravel(), weight / weight.max(), atol=1e-4)


def test_refined_answers_stand_beside_the_networks(ask, untrained):
    """Against least squares asked directly; untrained networks begin near the middle, where a small turn is found."""
    place = {**PLACE, "z": [6.0]}
    plain, answer = (ask.post("/api/infer", json={**place, "refine": r}).json() for r in (False, True))
    assert all(one["refined"] is None for one in plain["networks"].values())
    first, second = (torch.tensor(answer[name])[None] for name in ("first", "second"))
    assert set(answer["networks"]) == {"ctn", "bln", "can"}
    for name, said in answer["networks"].items():
        assert said["z"] == plain["networks"][name]["z"]
        expected = refine(first, second, torch.tensor([said["z"]]), tasks.get("rotation"))[0]
        assert said["refined"]["z"] == pytest.approx(expected.tolist(), abs=0.02)  # patches were rounded
        assert said["refined"]["error"] < 0.1 < said["error"]
        H = geometry.rotate(torch.tensor(said["refined"]["z"][0], dtype=torch.float64))
        corners = geometry.apply(H, geometry.corners((11, 11), centered=True).double()) + 5
        np.testing.assert_allclose(said["refined"]["corners"], corners, atol=1e-6)
    form = {"task": "rotation", "z": "6", "x": "230", "y": "110", "refine": "true"}
    upload = ask.post("/api/infer", data=form, files={"picture": png(ASTRONAUT)}).json()
    assert upload["networks"]["can"]["refined"]["error"] < 0.1


def test_two_patches_and_an_uploaded_picture_give_the_same_answer(ask):
    whole = ask.post("/api/infer", json=PLACE).json()
    patches = {name: whole[name] for name in ("task", "first", "second")}
    by_patches = ask.post("/api/infer", json=patches).json()
    fields = {"task": "rotation", "z": "20", "x": "230", "y": "110"}
    upload = ask.post("/api/infer", data=fields, files={"picture": png(ASTRONAUT)}).json()
    assert (by_patches["truth"], by_patches["truth_corners"]) == (None, None)
    np.testing.assert_allclose(upload["first"], whole["first"], atol=1.1 / 255)
    for other in (by_patches, upload):
        z = [other["networks"][name]["z"][0] for name in ("ctn", "bln", "can")]
        assert z == pytest.approx(
            [whole["networks"][name]["z"][0] for name in ("ctn", "bln", "can")], abs=0.1
        )


def test_translations_of_the_release_are_turned_around(untrained, tmp_path):
    for name in ("can-translation.safetensors",):
        (tmp_path / name).write_bytes((untrained / name).read_bytes())
    question = {**PLACE, "task": "translation", "z": [3.0, -1.0]}
    answers = []
    for protocol in ("text", "release"):
        (tmp_path / "can-translation.json").write_text(json.dumps({"protocol": protocol}))
        handler = setup(weights=str(tmp_path))
        answer = handler("infer", "application/json", json.dumps(question).encode())
        answers.append(answer["networks"]["can"]["z"])
    assert answers[1] == pytest.approx(answers[0][::-1])


def test_weights_that_cannot_be_used_are_not_a_500(untrained, tmp_path, capsys):
    question = json.dumps({**PLACE, "task": "rotation"}).encode()
    whole = (untrained / "can-rotation.safetensors").read_bytes()
    for name, content in {"can": whole[:-20], "bln": b"nothing"}.items():
        (tmp_path / f"{name}-rotation.safetensors").write_bytes(content)
        handler = setup(weights=str(tmp_path))
        status, answer, ends = worker._answer(handler, "infer", "application/json", question, None)
        assert (status, ends) == (503, False)
        assert json.loads(answer)["detail"] == "The server cannot load what this needs; its log says why."
        assert "CheckpointError" in capsys.readouterr().err
        (tmp_path / f"{name}-rotation.safetensors").unlink()
    # Finite weights whose sums are not: that network has no answer, the others do.
    for name in ("ctn", "can"):
        model = load_weights(untrained / f"{name}-rotation.safetensors")
        if name == "can":
            with torch.no_grad():
                for parameter in model.decoder.parameters():
                    parameter.fill_(3e38)
        save_weights(model, tmp_path / f"{name}-rotation.safetensors")
    handler = setup(weights=str(tmp_path), warm=True)
    status, answer, _ = worker._answer(handler, "infer", "application/json", question, None)
    assert status == 200
    assert list(json.loads(answer)["networks"]) == ["ctn"]


@pytest.mark.parametrize("task", TASKS)
def test_trained_networks_move_towards_the_truth(task, trained):
    networks, family = Networks(trained), tasks.get(task)
    there = networks.available(task)
    if not there:
        pytest.skip(f"no network for {task} is shipped")
    gray = gray_photograph("astronaut")
    rest = family.parameters(torch.eye(3, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    errors, identity, sure = {name: [] for name in there}, [], []
    for z in family.sample(24, generator, dtype=torch.float64):
        place = tuple(torch.randint(60, 450, (2,), generator=generator).tolist())
        first, second = cut_pair(gray, family, z, place, 4)
        answer = infer(networks, family, first / 255, second / 255, z)
        for name in there:
            errors[name].append(answer["networks"][name]["error"])
        sure.append(answer["confidence"])
        still, moved = family.homography(rest)[None], family.homography(z)[None]
        identity.append(float(corner_error(still, moved, 11)))
    for name in there:
        assert np.mean(errors[name]) < 0.75 * np.mean(identity), name
    if "can" in there:  # and it knows when it does not know
        order = np.argsort(sure)
        half = len(order) // 2
        assert np.mean(np.array(errors["can"])[order[half:]]) < np.mean(np.array(errors["can"])[order[:half]])


def test_confidence_falls_where_there_is_nothing_to_see():
    rotation = tasks.get("rotation")
    textured = torch.from_numpy(gray_photograph("astronaut")[100:144:4, 210:254:4].copy()) / 255
    noise = torch.rand(11, 11, generator=torch.Generator().manual_seed(0)) / 255
    assert certainty(textured, rotation) > 0.8
    assert certainty(0.5 + noise, rotation) < 0.15
    # Rings do not tell how far they were turned, but stripes do; stripes do not tell a shift along them.
    k = torch.arange(11.0) - 5
    rings = torch.exp(-(k[:, None] ** 2 + k[None] ** 2) / 30)
    stripes = (0.5 + 0.5 * torch.cos(k)).expand(11, 11)
    assert certainty(rings, rotation) < certainty(stripes, rotation) - 0.1
    assert certainty(stripes, tasks.get("translation")) < 0.35
    assert certainty(rings, tasks.get("translation")) > 0.9
    H = geometry.translate(2.0, 1.0)
    moved = torch.roll(textured, (1, 2), (0, 1))
    assert explained(textured, moved, H) > 0.95
    assert explained(textured, moved, geometry.translate(-2.0, -1.0)) < 0.7
    assert explained(textured, textured.flip(0, 1), torch.eye(3)) < 0.5
    assert explained(textured, moved, torch.zeros(3, 3)) == 0


def test_a_large_image_takes_little_memory(ask):
    # 24 megapixels of four channels in 100 KB; 413 where floats are made of every pixel, which takes 2.1 GB.
    answer = post(ask, transparent(), SMALL, model="translation")
    assert answer.status_code == 200, answer.text
    assert answer.json()["size_a"] == [4000, 6000]


def test_docs_need_no_script_and_describe_every_operation(ask):
    page, document = ask.get("/docs").text, ask.get("/openapi.json").json()
    assert "<script" not in page
    assert "style=" not in page
    for path in document["paths"]:
        assert path in page
    body = document["paths"]["/api/infer"]["post"]["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():  # examples that do not work teach the wrong thing
        assert ask.post("/api/infer", json=example["value"]).status_code == 200


# What it refuses


def parts(**names):
    return {name: (f"{name}.png", content) for name, content in names.items()}


SMALL = png(ASTRONAUT[:64, :64])
BAD_FORMS = {
    "no file": ({}, {"model": "affine"}, "a is missing"),
    "one file": (parts(a=SMALL), {}, "b is missing"),
    "empty": (parts(a=SMALL, b=b""), {}, "b is an empty file"),
    "text": (parts(a=b"hello", b=SMALL), {}, "a: not an image in a known format"),
    "cut short": (parts(a=SMALL, b=SMALL[:2000]), {}, "b: cannot be read"),
    "bomb": (parts(a=bomb(30_000, 30_000), b=SMALL), {}, "a: too large; at most 24 mega"),
    "smaller bomb": (
        parts(a=SMALL, b=bomb(5000, 5000)),
        {},
        "b: too large, height 5000, width 5000; at most 24 mega",
    ),
    "beyond Pillow's bombs": (parts(a=bomb(2**30, 2**30), b=SMALL), {}, "a: too large"),
    "speck": (parts(a=SMALL, b=png(ASTRONAUT[:8, :8])), {}, "b: too small: height 8, width 8"),
    "beside": (
        parts(a=png(np.zeros((30, 3300, 3), np.uint8)), b=SMALL),
        {},
        "a: too small beside the other image, which has to be reduced 3 times",
    ),
    "SVG": (parts(a=b"<svg xmlns='x'/>", b=SMALL), {}, "a: not an image"),
    "model": (parts(a=SMALL, b=SMALL), {"model": "magic"}, "model must be one of translation, eu"),
    "path": (parts(a=SMALL), {"b": "/etc/passwd"}, "b must be a file"),
    "model as a file": (parts(a=SMALL, b=SMALL, model=b"affine"), {}, "Too many files"),
    "unknown": (parts(a=SMALL, b=SMALL), {"url": "http://example"}, "'url' is not a field"),
}


@pytest.mark.parametrize("case", BAD_FORMS)
def test_bad_forms_are_told_in_a_sentence(ask, case):
    files, fields, message = BAD_FORMS[case]
    answer = ask.post(
        "/api/estimate", files=files or {"model": (None, "affine")}, data=fields if files else {}
    )
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert re.search(message, detail)
    assert detail.endswith(".")
    assert len(detail) < 320


BAD_QUESTIONS = [
    ({"task": "rotate"}, "task: input should be 'translation', 'rotation'"),
    ({"z": [50]}, "z: angle must be within -45 and 45, not 50"),
    ({"z": [1, 2]}, r"z must have 1 numbers for rotation \(angle\), not 2"),
    ({"z": None}, "z is missing"),
    ({"z": [True]}, r"z\[0\]: input should be a valid number"),
    ({"z": ["x"]}, r"z\[0\]: input should be a valid number"),
    ({"photograph": "../../etc/passwd"}, "photograph must be one of astronaut, camera"),
    ({"photograph": None}, "photograph is missing"),
    ({"x": 600}, "x: input should be less than or equal to 511"),
    ({"photograph": "chelsea", "y": 400}, "y must be within 0 and 299 here, not 400"),
    ({"x": None}, "x is missing"),
    ({"zoom": 0}, "zoom: input should be greater than or equal to 1"),
    ({"url": "http://example"}, "'url' is not a field"),
    ({"first": [[0] * 11] * 11}, "second is missing"),
    ({"first": [[0] * 11] * 11, "second": [[2] * 11] * 11}, r"second\[0\]\[0\]: input should be less"),
    ({"first": [[0] * 10] * 11}, r"first\[0\]: list should have at least 11 items"),
]


@pytest.mark.parametrize(("change", "message"), BAD_QUESTIONS)
def test_bad_questions_are_told_in_a_sentence(ask, change, message):
    answer = ask.post("/api/infer", json={**PLACE, **change})
    assert answer.status_code == 422
    assert re.search(message, answer.json()["detail"])


def test_what_is_no_json_is_told(ask):
    for body in (b"{", b"[]", b"\xff", b"[" * 5000, b'{"task":"rotation","z":[NaN]}', b""):
        answer = ask.post("/api/infer", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert isinstance(answer.json()["detail"], str)
    assert ask.post("/api/infer", content=b" " * 70_000).status_code == 413


# The command line as its client


def test_the_command_line_asks_the_server(server, tmp_path, capsys):
    a, b, H = related()
    paths = [str(tmp_path / name) for name in ("a.png", "b.png")]
    for path, pixels in zip(paths, (a, b), strict=True):
        Path(path).write_bytes(png(pixels))
    aligned = str(tmp_path / "aligned.png")
    assert main(["estimate", *paths, "--server", server, "--json", "--field", "--out", aligned]) == 0
    said = json.loads(capsys.readouterr().out)
    distance = np.linalg.norm(carried(said["matrix"], a.shape) - carried(H, a.shape), axis=1)
    assert distance.max() < 1
    assert len(said["field"]["points"]) == said["matches"] > 0
    assert main(["estimate", *paths, "--json"]) == 0
    here = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(said["matrix"], here["matrix"], atol=1e-3)
    assert Image.open(io.BytesIO(Path(aligned).read_bytes())).size == (256, 256)
    Path(paths[1]).write_bytes(b"no picture")
    assert main(["estimate", *paths, "--server", server]) == 2
    assert "cannot use these images: b: not an image" in capsys.readouterr().err


def test_a_picture_comes_back_as_png(ask):
    pixels = np.random.default_rng(0).integers(0, 256, (64, 90, 3), dtype=np.uint8)
    pillow_heif.register_heif_opener()
    exact = {
        "TIFF": {},
        "AVIF": {"quality": 100, "subsampling": "4:4:4"},
        "HEIF": {"quality": 100, "chroma": 444},
    }
    for kind, options in exact.items():
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind, **options)
        answer = ask.post("/api/picture", files={"picture": file.getvalue()}).raise_for_status().json()
        assert (answer["size"], answer["factor"]) == ([64, 90], 1)
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(answer["png"]))))
        assert np.abs(shown.astype(int) - pixels).mean() < (0.1 if kind == "TIFF" else 3)
    half = ask.post("/api/picture", files={"picture": png(pixels)}, data={"factor": "2"}).json()
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(half["png"]))))
    np.testing.assert_allclose(shown, pixels.reshape(32, 2, 45, 2, 3).mean((1, 3)), atol=1)
    for wrong in ("0", "65", "x", "1.5"):
        answer = ask.post("/api/picture", files={"picture": png(pixels)}, data={"factor": wrong})
        assert (answer.status_code, answer.json()["detail"]) == (
            422,
            "factor must be a whole number from 1 to 64.",
        )


def test_a_photograph_of_a_phone_in_heic_is_reduced_before_it_is_compared(ask):
    """As any other format; without its extra the answer says what to install."""
    pillow_heif.register_heif_opener()
    large = np.asarray(Image.fromarray(ASTRONAUT).resize((2000, 2000), Image.Resampling.BICUBIC))
    files = {}
    for name, (x, y) in (("a", (0, 0)), ("b", (60, 14))):
        file = io.BytesIO()
        Image.fromarray(large[y + 300 : y + 500, x : x + 1700]).save(file, "HEIF", quality=60)
        files[name] = file.getvalue()
    shown = ask.post("/api/picture", files={"picture": files["a"]}).raise_for_status().json()
    assert (shown["size"], shown["factor"]) == ([200, 1700], 2)
    answer = ask.post("/api/estimate", files=files, data={"model": "translation"}).raise_for_status().json()
    np.testing.assert_allclose(np.array(answer["matrix"])[:2, 2], [-60, -14], atol=0.5)
    assert answer["size_a"] == [200, 1700]
    assert Image.open(io.BytesIO(base64.b64decode(answer["aligned_png"]))).size == (850, 100)


def test_heic_without_its_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(FieldError, match=r"^a: .*pip install 'caunet\[heif\]'\.$"):
        read_upload({"a": b"\0\0\0\x18ftypheic" + bytes(80)}, "a", 2)


def test_files_that_were_reduced_are_answered_in_pixels_of_the_pictures(ask):
    a, b = ASTRONAUT[40:240, 60:300], ASTRONAUT[50:250, 52:292]
    small = ask.post("/api/estimate", files={"a": png(a), "b": png(b)}, data={"model": "translation"}).json()
    files = {"a": png(a), "b": png(b)}
    large = ask.post("/api/estimate", files=files, data={"model": "translation", "reduced": "3"}).json()
    assert large["size_a"] == [600, 720]
    np.testing.assert_allclose(
        np.array(large["matrix"])[:2, 2], 3 * np.array(small["matrix"])[:2, 2], rtol=1e-9
    )
    np.testing.assert_allclose(large["parameters"]["shift_x"], 24, atol=0.1)


def test_a_stack_is_related_to_its_first_frame(ask):
    walk = [(0, 0), (5, -3), (-6, 4)]
    cut = [ASTRONAUT[100 - y : 260 - y, 120 - x : 300 - x] for x, y in walk]
    files = {f"frame_{n}": png(frame) for n, frame in enumerate(cut, 1)}
    answer = ask.post("/api/stack", files=files, data={"model": "translation"}).raise_for_status().json()
    shifts = np.array(answer["matrices"])[:, :2, 2]
    np.testing.assert_allclose(shifts, -np.array(walk), atol=0.1)
    assert answer["size"] == [160, 180]
    assert min(answer["confidence"]) > 0.5
    files["frame_4"] = png(np.full_like(cut[0], 90))
    answer = ask.post("/api/stack", files=files, data={"model": "translation"}).json()
    assert answer["matrices"][3] is None
    assert answer["problems"][0]["frame"] == 3


def test_what_is_wrong_with_a_stack_is_said(ask):
    frame = png(ASTRONAUT[:160, :180])
    wrong = [
        ({"frame_1": frame}, "without a gap"),
        ({"frame_1": frame, "frame_3": frame}, "without a gap"),
        ({"frame_1": frame, "frame_2": png(ASTRONAUT[:150, :180])}, "frame_2 must have the size of frame_1."),
        (
            {"frame_1": png(ASTRONAUT), "frame_2": frame},
            "frame_1: too large, height 512, width 512; at most 320 pixels a side.",
        ),
    ]
    for files, reason in wrong:
        answer = ask.post("/api/stack", files=files)
        assert answer.status_code == 422
        assert reason in answer.json()["detail"]
    answer = ask.post("/api/stack", files={"frame_1": frame, "frame_2": frame}, data={"model": "projective"})
    assert answer.json()["detail"].startswith("model must be one of translation")
