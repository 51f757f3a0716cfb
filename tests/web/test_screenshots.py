"""What becomes of screenshots before they are saved, and what is said where there is no browser."""

import io

import numpy as np
import pytest
from PIL import Image
from tools import browser, screenshots


def test_few_colors_keep_the_exact_ones_and_stay_near() -> None:
    rng = np.random.default_rng(0)
    smooth = np.linspace(0, 255, 120)[:, None, None] * np.array([1.0, 0.5, 0.2])
    pixels = np.clip(smooth + rng.normal(0, 3, (120, 160, 3)), 0, 255).astype(np.uint8)
    pixels[:2, :2] = (37, 99, 176)  # a few pixels only, but they stand for a network
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    small = Image.open(io.BytesIO(screenshots._small(file.getvalue(), ["rgb(37, 99, 176)"])))
    assert small.mode == "P"
    back = np.asarray(small.convert("RGB")).astype(float)
    assert (back[:2, :2] == (37, 99, 176)).all()
    assert np.abs(back - pixels).mean() < 6


def test_without_chromium_it_says_what_to_install(monkeypatch, capsys, tmp_path) -> None:
    pytest.importorskip("playwright")
    monkeypatch.setattr(browser, "chromium", lambda: None)
    assert screenshots.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == "caunet: this needs Chromium; on Debian run: apt-get install chromium\n"
