"""Features and the units that compare them: loop oracle, gradients, gain and offset, files."""

import json
from importlib import resources
from pathlib import Path

import pytest
import torch

from caunet import functional
from caunet.errors import CheckpointError
from caunet.files import sha256
from caunet.matching.matcher import match
from caunet.matching.network import (
    DiagonalContrast,
    MatchNetwork,
    diagonal_contrast,
    load_matcher,
    save_matcher,
    shipped_matcher,
)


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_diagonal_contrast_is_the_loop() -> None:
    a, b, weight = _random(4, 6), _random(5, 6, seed=1), _random(6, seed=2)
    h = diagonal_contrast(a, b, weight)
    for i in range(4):
        for j in range(5):
            mismatch = sum(0.5 * weight[k] * (a[i, k] - b[j, k]) ** 2 for k in range(6))
            assert float(h[i, j]) == pytest.approx(float(mismatch), abs=1e-12)


def test_diagonal_contrast_is_the_papers_unit_with_a_diagonal_matrix() -> None:
    a, b, weight = _random(4, 6), _random(5, 6, seed=1), _random(6, seed=2)
    full = torch.stack(
        [functional.contrast_association(a, row.expand(4, 6), torch.diag(weight)[None])[:, 0] for row in b], 1
    )
    torch.testing.assert_close(diagonal_contrast(a, b, weight), full)


def test_diagonal_contrast_has_the_right_gradients() -> None:
    inputs = [t.requires_grad_() for t in (_random(3, 4), _random(2, 4, seed=1), _random(4, seed=2))]
    assert torch.autograd.gradcheck(diagonal_contrast, inputs)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must have shapes .* got \(2, 3\), \(2, 4\), \(4,\)"):
        diagonal_contrast(torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(4))
    with pytest.raises(ValueError, match=r"patches must have shape \(B, 32, 32\), got \(2, 31, 32\)"):
        MatchNetwork()(torch.zeros(2, 31, 32))


def test_units_say_that_their_weights_are_not_negative() -> None:
    units = DiagonalContrast(3)
    assert [id(p) for p in units.nonnegative_parameters()] == [id(units.weight)]


def test_gain_and_offset_of_a_patch_do_not_matter() -> None:
    network = shipped_matcher()
    patches = _random(6, 32, 32).float()
    with torch.no_grad():
        plain, changed = network(patches), network(0.3 * patches + 0.4)
    torch.testing.assert_close(plain, changed, atol=0.01, rtol=0)
    torch.testing.assert_close(plain.norm(dim=1), torch.ones(6))


def test_fused_network_gives_the_same_features() -> None:
    torch.manual_seed(0)
    network = MatchNetwork()
    for seed in range(3):  # statistics to merge
        network(_random(64, 32, 32, seed=seed).float() ** 2)
    network.eval()
    patches = _random(8, 32, 32, seed=9).float()
    with torch.no_grad():
        torch.testing.assert_close(network.fused()(patches), network(patches), atol=1e-5, rtol=0)
        assert network.fused()(patches[:0]).shape == (0, 128)


def test_file_holds_the_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = MatchNetwork().eval()
    path = tmp_path / "match.safetensors"
    save_matcher(network, path)
    patches = _random(8, 32, 32).float()
    with torch.no_grad():
        torch.testing.assert_close(load_matcher(path)(patches), network(patches), atol=2e-3, rtol=0)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        load_matcher(path)
    with pytest.raises(CheckpointError, match="cannot read"):
        load_matcher(tmp_path / "missing.safetensors")


def test_matches_choose_each_other_as_the_loop_says() -> None:
    network = MatchNetwork().eval()
    a, b = _random(7, 128).float(), _random(9, 128, seed=1).float()
    b[4], b[0] = a[2] + 0.01, a[6] + 0.02
    with torch.no_grad():
        i, j, probability = match(network, a, b)
        h = network.relation(a, b)
        temperature = network.competition.temperature
    expected = {}
    for m in range(7):
        n = min(range(9), key=lambda k: float(h[m, k]))
        if min(range(7), key=lambda k: float(h[k, n])) == m:
            forward = torch.exp(-h[m] / temperature)[n] / torch.exp(-h[m] / temperature).sum()
            backward = torch.exp(-h[:, n] / temperature)[m] / torch.exp(-h[:, n] / temperature).sum()
            if float((forward * backward).sqrt()) > 0.05:
                expected[m, n] = float((forward * backward).sqrt())
    assert (2, 4) in expected
    assert (6, 0) in expected
    found = dict(zip(zip(i.tolist(), j.tolist(), strict=True), probability.tolist(), strict=True))
    assert found == pytest.approx(expected, rel=1e-4)


def test_nothing_matches_nothing() -> None:
    i, j, probability = match(MatchNetwork().eval(), torch.zeros(0, 128), torch.rand(3, 128))
    assert len(i) == len(j) == len(probability) == 0


def test_the_shipped_weights_are_those_of_their_card() -> None:
    folder = resources.files("caunet") / "weights"
    data, card = (folder / "match.safetensors").read_bytes(), json.loads((folder / "match.json").read_text())
    assert card["sha256"] == sha256(data)
    assert card["bytes"] == len(data) < 400_000
    assert card["parameters"] == sum(p.numel() for p in shipped_matcher().parameters())
    assert float(shipped_matcher().relation.weight.detach().min()) >= 0
    assert card["metrics"]["accuracy"] > 0.7
