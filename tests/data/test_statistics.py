"""Statistics of pairs against numbers known beforehand, and against the paper's exhaustive search."""

import json

import numpy as np
import pytest
import torch
from tests.oracles import pairs as oracle

from caunet.baselines import exhaustive_translation
from caunet.cli import main
from caunet.data import PairSource, load_images
from caunet.data.statistics import pair_statistics

TASKS = ("translation", "rotation", "scaling", "affine", "projective")


def noise(count=40):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 32, 32), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("protocol", ["text", "release"])
def test_moments_are_those_of_the_pairs_and_near_those_expected(name, protocol):
    source = PairSource(noise(), name, protocol, per_image=50)
    got = pair_statistics(source)
    x, y, z = (t.double().numpy() for t in source.bytes(0, torch.arange(2000)))
    assert got["pairs"] == 2000
    assert np.allclose(got["z"]["mean"], z.mean(0), rtol=1e-9, atol=1e-12)
    assert np.allclose(got["z"]["variance"], z.var(0), rtol=1e-9)
    for key, patch in (("x", x), ("y", y)):
        assert got["pixels"][key]["mean"] == pytest.approx((patch / 255 - 0.5).mean(), abs=1e-12)
        assert got["pixels"][key]["variance"] == pytest.approx((patch / 255).var(), rel=1e-9)
    deviation = np.sqrt(np.array(got["z"]["expected_variance"]) / 2000)
    assert (np.abs(np.array(got["z"]["mean"]) - got["z"]["expected_mean"]) < 5 * deviation).all()
    assert np.allclose(got["z"]["variance"], got["z"]["expected_variance"], rtol=0.12)


@pytest.mark.parametrize("name", TASKS)
def test_out_of_image_pixels_are_those_the_loops_find(name):
    source = PairSource(noise(10), name, per_image=10)
    z = source.bytes(0, torch.arange(100))[2]
    outside = []
    for one in z.tolist():
        back = np.linalg.inv(oracle.homography(name, one))
        places = [back @ (c - 5, r - 5, 1) for r in range(11) for c in range(11)]
        outside.append([not all(-0.5 <= v / p[2] + 16 <= 31.5 for v in p[:2]) for p in places])
    got = pair_statistics(source)
    assert got["out_of_image_pixels"] == pytest.approx(np.mean(outside))
    assert got["out_of_image_pairs"] == pytest.approx(np.mean(np.any(outside, axis=1)))
    if name in ("translation", "rotation", "scaling"):
        assert got["out_of_image_pixels"] == 0


def test_featureless_patches_are_counted():
    images = noise()
    images[:10] = 77
    got = pair_statistics(PairSource(images, "rotation"))
    assert got["featureless"] == {"x": 0.25, "y": 0.25}


def test_a_limit_spreads_over_all_images():
    images = torch.arange(40, dtype=torch.uint8)[:, None, None].expand(40, 32, 32).contiguous()
    got = pair_statistics(PairSource(images, "rotation", pairs="fresh"), limit=40)
    assert got["pairs"] == 40
    assert got["pixels"]["x"]["mean"] == pytest.approx(19.5 / 255 - 0.5)
    with pytest.raises(ValueError, match="limit"):
        pair_statistics(PairSource(images, "rotation"), limit=0)


def test_exhaustive_search_finds_released_translations():
    """On real photographs nearly every whole shift is found, and none that is unique is missed."""
    source = PairSource(load_images("photos", split="test"), "translation", "release", pairs="fresh")
    x, y, z = source.batch(0, torch.arange(0, len(source), max(1, len(source) // 400)))
    found = exhaustive_translation(x, y).flip(-1)  # rows first
    assert float((found == z).all(1).double().mean()) > 0.97


def test_stats_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "stats.json"
    arguments = [
        "--tasks",
        "rotation",
        "--protocols",
        "text",
        "release",
        "--pairs",
        "200",
        "--out",
        str(path),
    ]
    assert main(["data", "stats", *arguments]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert [(r["task"], r["protocol"], r["pairs"]) for r in rows] == [
        ("rotation", "text", 200),
        ("rotation", "release", 200),
    ]
    assert "rotation" in capsys.readouterr().out
