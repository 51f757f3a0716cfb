"""PairSource as torch's own tools take it: DataLoader, workers, indexing."""

import pytest
import torch
from torch.utils.data import DataLoader, Subset

from caunet.data import PairSource


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(0, 256, (7, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def _rows(x: torch.Tensor, z: torch.Tensor) -> set[tuple[float, ...]]:
    return {tuple(row) for row in torch.cat([x.flatten(1), z], 1).tolist()}


@pytest.mark.parametrize("pairs", ["fixed", "fresh"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_has_every_pair_once_whoever_makes_it(
    images: torch.Tensor, pairs: str, workers: int
) -> None:
    source = PairSource(images, "rotation", pairs=pairs, per_image=9)
    source.set_epoch(3)
    x, y, z = (
        torch.cat(parts) for parts in zip(*DataLoader(source, batch_size=8, num_workers=workers), strict=True)
    )
    assert x.shape == y.shape == (63, 11, 11)
    whole = source.batch(3, torch.arange(63))
    assert _rows(y, z) == _rows(whole.y, whole.z)
    assert len(_rows(y, z)) == 63


def test_another_epoch_has_another_order_and_fresh_pairs_other_values(images: torch.Tensor) -> None:
    source = PairSource(images, "rotation", pairs="fresh", per_image=2)
    first = torch.stack([pair.z for pair in source])
    again = torch.stack([pair.z for pair in source])
    source.set_epoch(1)
    second = torch.stack([pair.z for pair in source])
    assert torch.equal(first, again)
    assert not set(first.flatten().tolist()) & set(second.flatten().tolist())
    with pytest.raises(ValueError, match="epoch must be 0 or more, got -1"):
        source.set_epoch(-1)


def test_fixed_pairs_can_be_indexed_and_fresh_ones_say_why_not(images: torch.Tensor) -> None:
    source = PairSource(images, "translation", per_image=2)
    whole = source.batch(0, torch.arange(14))
    assert torch.equal(source[5].y, whole.y[5])
    assert torch.equal(source[-1].z, whole.z[13])
    ((_, y, _),) = DataLoader(Subset(source, [4, 2]), batch_size=2)
    assert torch.equal(y, whole.y[[4, 2]])
    with pytest.raises(IndexError, match="within 14 pairs, got 14"):
        source[14]
    with pytest.raises(TypeError, match="pairs must be 'fixed' to be indexed"):
        PairSource(images, "translation", pairs="fresh")[0]
