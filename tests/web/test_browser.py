"""The page in Chromium, served by ``caunet serve``: what a person would do with it, by pointer and keyboard."""

import contextlib
import io
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

cv2 = pytest.importorskip("cv2")
pillow_heif = pytest.importorskip("pillow_heif")
sync_api = pytest.importorskip("playwright.sync_api")

from tools import browser as real  # noqa: E402
from tools import screenshots  # noqa: E402
from tools.serving import served  # noqa: E402

from caunet.volumes import Volume, save_volume  # noqa: E402
from caunet.web.patches import photograph  # noqa: E402
from caunet.web.volume_route import example_pair  # noqa: E402

expect = sync_api.expect
LOUD = "THE PAGE WAS NOT TESTED: "  # tests/conftest.py repeats such reasons at the end


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if real.chromium() is None and os.geteuid() == 0:
        command = "apt-get update -q && apt-get install -q -y --no-install-recommends chromium"
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["sh", "-c", command], check=False, capture_output=True, timeout=300)
    if real.chromium() is None:
        pytest.skip(LOUD + "there is no Chromium, and it could not be installed")
    with real.opened() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(trained: Path | None) -> Iterator[str]:
    with served(trained) as (_, url):
        yield url


class Watched:
    """A page, what went wrong in it, and whom it asked."""

    def __init__(self, page: Any) -> None:
        self.page, self.troubles, self.asked = page, [], []
        page.on("console", lambda m: m.type in ("error", "warning") and self.troubles.append(m.text))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))


@pytest.fixture
def watched(browser: Any, address: str) -> Iterator[Watched]:
    """Whatever a test does: nothing may go wrong in the page, and no request may leave the server's origin."""
    context = browser.new_context(viewport={"width": 1100, "height": 800}, accept_downloads=True)
    context.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    seen = Watched(context.new_page())
    seen.page.goto(address)
    yield seen
    context.close()
    assert seen.troubles == []
    assert len(seen.asked) > 5
    strangers = [
        url for url in seen.asked if not url.startswith((f"{address}/", "data:", f"blob:{address}/"))
    ]
    assert strangers == []


@pytest.fixture
def page(watched: Watched) -> Any:
    return watched.page


def choose_task(page: Any, name: str) -> None:
    radio = page.locator(f'#tasks input[value="{name}"]')
    radio.wait_for(state="attached")
    if radio.is_disabled():
        pytest.skip(f"{LOUD}no network for {name} is shipped")
    radio.check(force=True)
    page.locator(f'#parameters[data-answered^="{name} "]').wait_for()


def number(text: str) -> float:
    return float(re.sub(r"[^0-9.e-]", "", text.replace("−", "-")))


def inferred(page: Any) -> dict[str, float]:
    """The networks' answers to the first parameter, by their names."""
    rows = page.locator(".parameter").first.locator(".value").all()
    return {row.get_attribute("class").split()[-1]: number(row.inner_text()) for row in rows}


def png(pixels: np.ndarray, name: str) -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"name": name, "mimeType": "image/png", "buffer": file.getvalue()}


def test_the_estimate_follows_the_slider(page: Any) -> None:
    choose_task(page, "rotation")
    slider = page.locator("#z-angle")
    found = {}
    for angle in (-30, 30):
        slider.fill(str(angle))
        page.locator(f'#parameters[data-answered="rotation {angle}"]').wait_for()
        found[angle] = inferred(page)
    assert found[30]
    for who in found[30]:
        assert abs(found[30][who] - 30) < 12, f"{who} is nearer to 30° than to anything else"
        assert abs(found[-30][who] + 30) < 12
    slider.press("ArrowLeft")
    page.locator('#parameters[data-answered="rotation 29"]').wait_for()
    expect(page.locator("#see-live")).to_contain_text("angle 29.00")


def test_the_refined_answer_sees_perspective(page: Any) -> None:
    choose_task(page, "projective")
    rows = page.locator(".parameter", has_text="tilt")
    truth = [number(text) for text in rows.locator("output").all_inner_texts()]
    found = {who: rows.locator(f".value.{who}").all_inner_texts() for who in ("can", "refined")}
    assert np.abs(np.subtract([number(text) for text in found["refined"]], truth)).max() < 0.001
    assert np.abs(np.subtract([number(text) for text in found["can"]], truth)).min() > 0.003
    page.locator("#refine").uncheck()
    expect(rows.locator(".value.refined")).to_have_count(0)
    expect(page.locator("#legend")).not_to_contain_text("LSQ")
    expect(rows.locator(".value.can").first).not_to_have_text("–")


def test_pulling_a_handle_turns_the_patch(page: Any) -> None:
    choose_task(page, "rotation")
    box = page.locator("#quads").bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    reach = box["width"] * 5 / 24  # half a patch; the plot is 24 pixels of it wide
    page.locator("#neutral").click()
    page.locator('#parameters[data-answered="rotation 0"]').wait_for()
    page.mouse.move(middle[0] + reach, middle[1])
    page.mouse.down()
    page.mouse.move(middle[0] + reach, middle[1] + reach * np.tan(np.deg2rad(20)), steps=3)
    page.mouse.up()
    expect(page.locator(".parameter output")).to_have_text(re.compile(r"(19|20|21)\.\d°"))


def test_confidence_falls_in_a_blank_area(page: Any) -> None:
    choose_task(page, "rotation")
    own = np.full((256, 512), 128, np.uint8)
    coarse = np.random.default_rng(0).integers(0, 256, (32, 32), np.uint8)
    own[:, :256] = cv2.resize(coarse, (256, 256), interpolation=cv2.INTER_CUBIC)
    page.locator("#upload").set_input_files(png(own, "own.png"))
    expect(page.locator("#stage img")).to_have_attribute("width", "512")
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    page.mouse.down()
    meter = page.locator("#confidence")
    expect(meter).to_have_attribute("aria-valuenow", re.compile(r"0\.[3-9]|1\.0"))
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    expect(meter).to_have_attribute("aria-valuenow", "0.00")
    expect(page.locator("#confidence-text")).to_have_text("very low, 0.00")


def warped_pair() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two pictures of one photograph by OpenCV, and the matrix that takes points of the first to the second."""
    source = photograph("astronaut")
    H = np.array([[1.04, -0.09, 18.0], [0.08, 0.97, -12.0], [8e-5, -5e-5, 1.0]])
    move = np.array([[1.0, 0, -70], [0, 1, -70], [0, 0, 1]])
    b = cv2.warpPerspective(source, H @ move, (360, 340), flags=cv2.INTER_CUBIC)
    return source[70:410, 70:430], b, H


def corner_error(H: np.ndarray, truth: np.ndarray) -> float:
    corners = np.array([[[0, 0], [359, 0], [359, 339], [0, 339]]], np.float64)
    put = [cv2.perspectiveTransform(corners, M)[0] for M in (H, truth)]
    return float(np.linalg.norm(put[0] - put[1], axis=1).mean())


def test_a_warped_pair_ends_in_its_matrix(page: Any) -> None:
    a, b, truth = warped_pair()
    page.locator("#tab-use").click()
    page.locator("#file-a").set_input_files(png(a, "a.png"))
    page.locator("#file-b").set_input_files(png(b, "b.png"))
    page.locator("#result:not(.working)").wait_for()

    shown = [
        [number(t) for t in row.locator("td").all_inner_texts()] for row in page.locator("#matrix tr").all()
    ]
    assert corner_error(np.array(shown), truth) < 1
    page.locator("#copy").click()
    expect(page.locator("#copy")).to_have_text("Copied")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert corner_error(np.array(copied), truth) < 1
    assert saved(page, "#save-json", json.load)["matrix"] == copied
    aligned = saved(page, "#save-picture", lambda file: np.asarray(Image.open(file).convert("RGB")))
    assert aligned.shape == a.shape
    inner = np.s_[60:-60, 60:-60]
    assert (
        np.abs(aligned[inner].astype(float) - a[inner]).mean()
        < 4
        < np.abs(b[inner].astype(float) - a[inner]).mean()
    )
    expect(page.locator("#trust-text")).to_have_text(re.compile(r"(fair|high), [01]\.\d\d"))
    look_at_it(page)


def saved(page: Any, link: str, read: Any) -> Any:
    with page.expect_download() as download:
        page.locator(link).click()
    with Path(download.value.path()).open("rb") as file:
        return read(file)


def look_at_it(page: Any) -> None:
    """The slider, before and after, and blinking."""
    page.locator("#slide").fill("20")
    assert page.locator("#layer").evaluate("node => node.style.clipPath") == "inset(0px 0px 0px 20%)"
    after = page.locator("#view-b").get_attribute("src")
    page.locator('[name="state"][value="before"]').check(force=True)
    assert page.locator("#view-b").get_attribute("src") != after
    page.locator("#blink").click()
    expect(page.locator("#viewer")).to_have_class(re.compile("hide-b"))
    expect(page.locator("#viewer")).not_to_have_class(re.compile("hide-b"))
    page.locator("#blink").click()
    expect(page.locator("#blink")).to_have_attribute("aria-pressed", "false")


def test_the_example_is_told_apart_from_its_truth(page: Any) -> None:
    page.locator("#tab-use").click()
    page.locator("#example").click()
    page.locator("#result:not(.working)").wait_for()
    facts = dict(zip(*(page.locator(f"#facts {tag}").all_inner_texts() for tag in ("dt", "dd")), strict=True))
    assert number(facts["true error"].split()[0]) < 1
    assert facts["angle"].endswith("clockwise")
    # Too large for the server: said at once, and the answer to other pictures does not stay.
    large = {"name": "large.png", "mimeType": "image/png", "buffer": bytes(11 * 2**20)}
    page.locator("#file-b").set_input_files(large)
    expect(page.locator("#use-message")).to_have_text(re.compile(r"the limit is 10\.0 MB"))
    expect(page.locator("#result")).to_be_hidden()


def in_format(pixels: np.ndarray, name: str, **options: Any) -> dict[str, Any]:
    file = io.BytesIO()
    kind = Path(name).suffix[1:]
    if kind == "heic":
        pillow_heif.register_heif_opener()
    kind = {"jpg": "jpeg", "tif": "tiff", "heic": "heif"}.get(kind, kind)
    Image.fromarray(pixels).save(file, kind, **options)
    return {"name": name, "mimeType": "", "buffer": file.getvalue()}


def matrix(page: Any) -> np.ndarray:
    page.locator("#result:not(.working)").wait_for()
    return np.array(
        [[number(t) for t in row.locator("td").all_inner_texts()] for row in page.locator("#matrix tr").all()]
    )


def test_photographs_of_a_phone_are_made_smaller_before_they_are_sent(watched: Watched) -> None:
    page = watched.page
    large = np.asarray(
        Image.fromarray(photograph("astronaut")).resize((4100, 4100), Image.Resampling.BICUBIC)
    )
    noise = np.random.default_rng(0).integers(0, 50, (3000, 4000, 3), dtype=np.uint8)
    a, b = (np.minimum(large[y : y + 3000, x : x + 4000], 205) + noise for x, y in ((0, 0), (84, 60)))
    files = [in_format(image, f"{name}.jpg", quality=96) for name, image in (("a", a), ("b", b))]
    assert sum(len(file["buffer"]) for file in files) > 10 * 2**20  # more than the server reads
    page.locator("#tab-use").click()
    page.locator("#file-a").set_input_files(files[0])
    with page.expect_request_finished(lambda request: request.url.endswith("/api/estimate")) as event:
        page.locator("#file-b").set_input_files(files[1])
    found = matrix(page)
    assert corner_error(found, np.array([[1, 0, -84], [0, 1, -60], [0, 0, 1]])) < 3  # of 4,000 pixels
    assert event.value.sizes()["requestBodySize"] < 5 * 2**20


@pytest.mark.parametrize("name", ["scan.tif", "phone.heic"])
def test_a_format_that_the_browser_does_not_know_is_shown_in_every_tab(page: Any, name: str) -> None:
    pixels = photograph("coffee")
    a, b = (in_format(pixels[y : y + 240, x : x + 320], name) for x, y in ((40, 30), (52, 25)))
    page.locator("#photographs input").first.wait_for(state="attached")
    page.locator("#upload").set_input_files(a)
    expect(page.locator("#stage img")).to_have_attribute("src", re.compile("^blob:"))
    expect(page.locator("#stage img")).to_have_js_property("naturalWidth", 320)
    page.locator("#tab-use").click()
    page.locator("#file-a").set_input_files(a)
    page.locator("#file-b").set_input_files(b)
    assert corner_error(matrix(page), np.array([[1, 0, -12], [0, 1, 5], [0, 0, 1]])) < 0.5
    for shown in ("#view-a", '.drop[data-side="a"] img', '.drop[data-side="b"] img'):
        expect(page.locator(shown)).to_have_js_property("naturalWidth", 320)
    page.locator("#tab-stack").click()
    page.locator("#frames").set_input_files([a, b])
    page.locator("#stack-result:not(.working)").wait_for()
    expect(page.locator("#stack-facts")).to_contain_text("13.0 px from the first")


def test_units_compete_from_left_to_right_as_the_slider_moves(page: Any) -> None:
    choose_task(page, "rotation")
    slider, places = page.locator("#z-angle"), []
    for angle in (-40, 40):
        slider.fill(str(angle))
        page.locator(f'#parameters[data-answered="rotation {angle}"]').wait_for()
        read = "nodes => nodes.map(n => [+n.getAttribute('x'), +n.getAttribute('fill-opacity')])"
        cells = page.locator("#units rect").evaluate_all(read)
        x, strength = np.array(cells).T
        places.append(float((x * (strength - 0.03)).sum() / (strength - 0.03).sum()))
        assert (strength > 0.5).sum() < len(strength) / 3  # some stand out
    assert places[0] + 100 < places[1]  # of 500


def test_a_stack_is_aligned_and_its_path_drawn(page: Any) -> None:
    page.locator("#tab-stack").click()
    walk = [(0, 0), (7, -4), (3, 6), (-8, 2)]
    pixels = photograph("coffee")
    frames = [
        in_format(pixels[90 - y : 250 - y, 120 - x : 320 - x], f"frame{n}.tif")
        for n, (x, y) in enumerate(walk)
    ]
    page.locator("#stack-model").select_option("translation")
    page.locator("#frames").set_input_files(frames[::-1])  # in the order of their names, not of their choice
    page.locator("#stack-result:not(.working)").wait_for()
    drawn = page.locator("#stack-path polyline").last.get_attribute("points")
    np.testing.assert_allclose([[float(v) for v in p.split(",")] for p in drawn.split()], walk, atol=0.1)
    # The third frame, moved back: what both show is the same.
    page.locator("#stack-frame").fill("2")
    read = "n => [...n.getContext('2d').getImageData(20, 20, 120, 100).data]"
    after = np.array(page.locator("#stack-after").evaluate(read)).reshape(100, 120, 4)
    first = pixels[110:210, 140:260]
    assert np.abs(after[..., :3] - first.astype(float)).mean() < 2
    expect(page.locator("#stack-number")).to_have_text("3 of 4")
    page.locator("#frames").set_input_files([frames[0]])
    expect(page.locator("#stack-message")).to_have_text("Choose 2 to 24 frames; these are 1.")
    expect(page.locator("#stack-result")).to_be_hidden()


def test_volumes_are_shown_in_three_planes(watched: Watched, tmp_path: Path) -> None:
    page = watched.page
    page.locator("#tab-volumes").click()
    page.locator("#volume-example").click()
    page.locator("#volumes-result:not(.working)").wait_for()
    expect(page.locator("#volume-facts")).to_contain_text("18.0")
    # Both where they agree is gray; before the alignment it is not.
    read = "n => [...n.getContext('2d').getImageData(16, 16, 32, 32).data]"

    def colored(plane: str) -> float:
        pixels = np.array(page.locator(f"#plane-{plane}").evaluate(read)).reshape(-1, 4)
        return float(np.abs(pixels[:, 0] - pixels[:, 1]).mean())

    after = [colored(axis) for axis in "xyz"]
    page.locator('[name="volume-state"][value="before"]').check(force=True)
    assert max(after) < 8 < 25 < min(colored(axis) for axis in "xyz")
    # The planes are those of the first volume, the head up.
    first = example_pair()[0].values.astype(float)
    low, high = np.quantile(first, [0.005, 0.995])
    shades = np.clip((first - low) / (high - low), 0, 1) * 255
    page.locator('[name="volume-view"][value="first"]').check(force=True)
    planes = {"z": shades[10], "y": shades[::-1, 10], "x": shades[::-1, :, 10]}
    for axis, plane in planes.items():
        slider = page.locator(f"#slice-{axis}")
        slider.fill("9")
        slider.press("ArrowRight")
        expect(page.locator(f"#place-{axis}")).to_have_text("11 of 64")
        shown = page.locator(f"#plane-{axis}").evaluate(read.replace("16, 16, 32, 32", "0, 0, 64, 64"))
        assert np.abs(np.array(shown).reshape(64, 64, 4)[..., 0] - plane).mean() < 2
    # Files of one's own, one of them packed; then one that is none: its reason stands alone.
    files = []
    for name, origin in (("a.nii.gz", 0.0), ("b.nrrd", 3.0)):
        to_mm = np.eye(4)
        to_mm[0, 3] = origin
        save_volume(Volume(first.astype(np.int16), to_mm), tmp_path / name)
        files.append(tmp_path / name)
    page.locator("#volume-a").set_input_files(files[0])
    page.locator("#volume-b").set_input_files(files[1])
    expect(page.locator("#volume-facts")).to_contain_text(re.compile("^shift−3\\.00, .0\\.00, .0\\.00 mm"))
    page.locator("#volume-b").set_input_files(
        {"name": "b.nii", "mimeType": "", "buffer": b"no volume at all"}
    )
    expect(page.locator("#volumes-message")).to_have_text(
        "Second volume: not a volume; NIfTI, MetaImage (.mha) and NRRD are read."
    )
    expect(page.locator("#volumes-result")).to_be_hidden()
    assert "422" in watched.troubles.pop()


def test_thumbnails_are_small(watched: Watched) -> None:
    page = watched.page
    page.locator("#photographs img").last.wait_for()
    urls = [url for url in watched.asked if "/api/thumbnails/" in url]
    assert len(urls) >= 10
    sizes = [len(page.request.get(url).body()) for url in urls]
    assert sum(sizes) < 100_000
    assert page.request.get(urls[0]).headers["cache-control"] == "max-age=86400"


def test_a_click_is_not_lost_while_the_server_is_slow(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.set_default_timeout(60_000)
    held: list[Any] = []
    page.route("**/api/models", lambda route: held.append(route))  # answered only after the click
    page.goto(f"{address}/#use")
    page.locator("#example").click()
    expect(page.locator("#example")).to_be_disabled()
    held[0].continue_()
    page.locator("#result:not(.working)").wait_for()
    page.close()


def test_a_bad_file_is_answered_with_the_reason(watched: Watched) -> None:
    page = watched.page
    page.locator("#tab-use").click()
    page.locator("#file-a").set_input_files(
        {"name": "notes.png", "mimeType": "image/png", "buffer": b"no picture"}
    )
    page.locator("#file-b").set_input_files(png(warped_pair()[1], "b.png"))
    message = page.locator("#use-message")
    expect(message).to_have_text(re.compile(r"^First picture: not an image"))
    expect(message).to_have_attribute("role", "alert")
    expect(page.locator("#result")).to_be_hidden()
    # The browser itself notes every refused request, and a preview that cannot be drawn is no trouble.
    assert len(watched.troubles) == 1
    assert "422" in watched.troubles.pop()


def test_tabs_by_keyboard(page: Any) -> None:
    page.locator("#tab-see").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-use")).to_be_focused()
    expect(page.locator("#tab-use")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#use")).to_be_visible()
    expect(page.locator("#see")).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#stack")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#volumes")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-see")).to_be_focused()
    expect(page.locator("#see")).to_be_visible()
    expect(page.locator("#photographs input").first).to_be_attached()
    page.locator("#stage").focus()
    before = page.locator("#stage .frame").get_attribute("points")
    page.keyboard.press("Shift+ArrowRight")
    expect(page.locator("#stage .frame")).not_to_have_attribute("points", before)


def test_narrow_and_dark(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    page.locator("#photographs input").first.wait_for(state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#tab-use").click()
    page.locator("#example").click()
    page.locator("#result:not(.working)").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_command_for_screenshots(browser: Any, address: str) -> None:
    shot = screenshots.Shot("use", "narrow", width=360, height=600, narrow=True)
    with Image.open(io.BytesIO(screenshots.take(browser, address, shot))) as picture:
        assert picture.size == (720, 1200)
        assert len(set(picture.convert("L").tobytes())) > 50  # there is a photograph in it
