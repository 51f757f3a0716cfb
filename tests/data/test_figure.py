"""The sample figure: the pairs it claims to show, from the command line too."""

import numpy as np
import pytest
import torch
from PIL import Image

from caunet.cli import main
from caunet.data import PairSource, figure


def noise(count=20):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 32, 32), generator=generator, dtype=torch.uint8)


def test_the_drawn_patches_are_those_of_the_pairs(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(figure, "_show", lambda axis, patch: shown.append(patch))
    source = PairSource(noise(), "affine", pairs="fresh")
    index = figure.draw_samples(source, tmp_path / "a.png", columns=4)
    x, y, _ = source.bytes(0, index)
    assert np.array_equal(np.stack(shown), torch.cat([x, y]).numpy())
    assert len(set((index // 10).tolist())) == 4


@pytest.mark.parametrize(
    ("name", "protocol"), [("translation", "release"), ("rotation", "text"), ("projective", "text")]
)
def test_a_figure_shows_the_patches_in_their_grays(tmp_path, name, protocol):
    images = torch.full((6, 32, 32), 90, dtype=torch.uint8)
    path = tmp_path / "sample.png"
    figure.draw_samples(PairSource(images, name, protocol, pairs="fresh"), path, columns=6)
    with Image.open(path) as file:
        picture = np.asarray(file.convert("L"))
    # Patches of one gray fill a good part of the page.
    assert (abs(picture.astype(int) - 90) <= 1).mean() > 0.25
    assert (picture == 255).mean() > 0.2
    assert picture[:, 0].min() == 255  # nothing is cut off at the edges
    assert picture[-1].min() == picture[0].min() == 255


def test_the_same_seed_chooses_the_same_pairs():
    first, again = (PairSource(noise(), "rotation", pairs="fresh", seed=3) for _ in range(2))
    other = PairSource(noise(), "rotation", pairs="fresh", seed=4)
    assert torch.equal(figure.choose(first, 8), figure.choose(again, 8))
    assert not torch.equal(figure.choose(first, 8), figure.choose(other, 8))


def test_refusals(tmp_path):
    source = PairSource(noise(), "rotation", pairs="fresh")
    with pytest.raises(
        ValueError, match=r"out must be a file name ending in \.png, \.svg or \.pdf, got '.*a\.jpg'"
    ):
        figure.draw_samples(source, tmp_path / "a.jpg")
    with pytest.raises(ValueError, match="columns must be 1 to 20"):
        figure.draw_samples(source, tmp_path / "a.png", columns=21)
    assert list(tmp_path.iterdir()) == []


def test_show_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "sample.png"
    assert main(["data", "show", "--task", "translation", "--protocol", "release", "--out", str(path)]) == 0
    with Image.open(path) as picture:
        assert picture.size[0] > 800
    assert capsys.readouterr().out.strip() == str(path)
    assert main(["data", "show", "--task", "rotatoin", "--out", str(path)]) == 2
    assert "did you mean 'rotation'" in capsys.readouterr().err
