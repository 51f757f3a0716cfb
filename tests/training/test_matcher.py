"""Training of the matcher: it learns, it resumes to the same bits, pairs are a function of (seed, step)."""

import json
from pathlib import Path

import pytest
import torch

from caunet.matching.network import MatchNetwork, load_matcher
from caunet.matching.pairs import PatchPairs
from caunet.training.matcher import (
    MatcherConfig,
    competition_loss,
    train_matcher,
    triplet_loss,
    validate,
    write_matcher,
)


def _images(count: int = 40) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 1, 8, 8, generator=draw) + 0.2 * torch.rand(count, 3, 8, 8, generator=draw)
    return torch.nn.functional.interpolate(coarse, 32, mode="bicubic").clamp(0, 1.2).mul(210).byte()


def test_pairs_are_a_function_of_seed_and_step() -> None:
    images = _images()
    first, again = PatchPairs(images, 8, seed=1), PatchPairs(images, 8, seed=1)
    first(0)
    for mine, other in zip(first(5), again(5), strict=True):
        assert bool((mine == other).all())
    assert not bool((first(5)[0] == first(6)[0]).all())
    assert not bool((first(5)[0] == PatchPairs(images, 8, seed=2)(5)[0]).all())


def test_pairs_show_the_same_place() -> None:
    a, b = PatchPairs(_images(200), 128, seed=0)(0)

    def flat(patches: torch.Tensor) -> torch.Tensor:
        small = torch.nn.functional.avg_pool2d(patches[:, None], 4).flatten(1)
        return torch.nn.functional.normalize(small - small.mean(1, keepdim=True), dim=1)

    likeness = flat(a) @ flat(b).mT
    assert float(likeness.diagonal().mean()) > 0.3
    assert float(likeness.mean()) < 0.1


def test_loss_is_the_loop() -> None:
    torch.manual_seed(0)
    network = MatchNetwork().eval()
    a, b = torch.rand(4, 32, 32), torch.rand(4, 32, 32)
    with torch.no_grad():
        loss = competition_loss(network, a, b)
        h = network.relation(network(a), network(b))
        total = 0.0
        for i in range(4):
            forward, backward = network.competition(h[i]), network.competition(h[:, i])
            total -= 0.5 * float(forward[i].log() + backward[i].log()) / 4
    assert float(loss) == pytest.approx(total, rel=1e-4)


def test_triplet_loss_is_the_loop() -> None:
    torch.manual_seed(0)
    network = MatchNetwork().eval()
    a, b = torch.rand(4, 32, 32), torch.rand(4, 32, 32)
    with torch.no_grad():
        h = network.relation(network(a), network(b)).tolist()
        total = 0.0
        for i in range(4):
            others = [j for j in range(4) if j != i]
            for nearest in (min(h[i][j] for j in others), min(h[j][i] for j in others)):
                total += max(0.0, 0.5 + h[i][i] - nearest) / 8
        assert float(triplet_loss(network, a, b)) == pytest.approx(total, rel=1e-5)


def test_it_learns_and_resumes_to_the_same_bits(tmp_path: Path) -> None:
    images = _images()
    config = MatcherConfig(updates=8, pairs=16, checkpoint_every=4)
    reports: list[dict[str, float]] = []
    whole = train_matcher(images, images, config, tmp_path / "whole", reports.append)
    assert [report["step"] for report in reports] == [4, 8]

    class Stop(Exception):
        pass

    def stop(_: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        train_matcher(images, images, config, tmp_path / "parts", stop)
    resumed = train_matcher(images, images, config, tmp_path / "parts")
    for name, value in whole.state_dict().items():
        assert bool((value == resumed.state_dict()[name]).all()), name
    assert float(whole.relation.weight.detach().min()) > 0
    assert not bool((whole.relation.weight == 1).all())

    with pytest.raises(ValueError, match=r"seed must stay 0 .* got 1"):
        train_matcher(images, images, MatcherConfig(updates=8, pairs=16, seed=1), tmp_path / "parts")

    path = write_matcher(whole, tmp_path / "whole", "caunet train-matcher")
    assert json.loads(path.with_suffix(".json").read_text())["updates"] == 8
    load_matcher(path)


def test_training_makes_the_true_partner_win(tmp_path: Path) -> None:
    images = _images(100)
    pairs = PatchPairs(images, 32, seed=5)
    torch.manual_seed(0)
    before = validate(MatchNetwork(), pairs)["validation_loss"]
    network = train_matcher(images, images, MatcherConfig(updates=30, pairs=32), tmp_path)
    assert validate(network, pairs)["validation_loss"] < before - 0.2


@pytest.mark.parametrize("wrong", [{"updates": 0}, {"rate": 2.0}, {"pairs": -1}, {"loss": "huber"}])
def test_bad_settings_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        MatcherConfig(**wrong)  # type: ignore[arg-type]


def test_images_must_be_color() -> None:
    with pytest.raises(ValueError, match=r"images must be uint8 \(N, 3, H, W\), got"):
        PatchPairs(torch.zeros(4, 32, 32, dtype=torch.uint8), 4)
