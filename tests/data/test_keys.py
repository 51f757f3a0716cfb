"""Keyed random numbers: the published vectors, a plain-integer version, and the laws of what they are for."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import pairs as oracle

from caunet.data import keys

# Known answers of Random123, Philox-4x32 with 10 rounds.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_gives_the_published_vectors(counter, key, words):
    got = keys.philox(tuple(torch.tensor(c) for c in counter), key)
    assert " ".join(f"{int(w):08x}" for w in got) == words
    assert " ".join(f"{w:08x}" for w in oracle.philox(counter, key)) == words


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    index=st.integers(0, 2**62),
    lane=st.integers(0, 300),
    stream=st.integers(0, 4095),
)
def test_uniform_is_the_integer_version(seed, epoch, index, lane, stream):
    got = keys.uniform(seed, epoch, torch.tensor([index]), lane + 1, stream)[0, lane]
    assert float(got) == oracle.uniform(seed, epoch, index, lane, stream)


def test_a_number_does_not_depend_on_its_company():
    index = torch.tensor([5, 2**40, 0, 17])
    many = keys.uniform(3, 2, index, 9, stream=1)
    alone = torch.cat([keys.uniform(3, 2, index[i : i + 1], 4, stream=1) for i in range(4)])
    assert torch.equal(many[:, :4], alone)


def test_uniform_numbers_are_uniform_and_independent():
    n = 40_000
    u = keys.uniform(0, 0, torch.arange(n), 6)
    counts = (u * 50).long().add(50 * torch.arange(6)).flatten().bincount(minlength=300).view(6, 50)
    chi = ((counts - n / 50) ** 2 / (n / 50)).sum(1)
    assert bool((chi < 49 + 5 * math.sqrt(2 * 49)).all())  # mean 49, five deviations
    neighbours = torch.cat([u[:-1], u[1:]], 1)
    others = torch.cat([u, keys.uniform(0, 1, torch.arange(n), 6), keys.uniform(1, 0, torch.arange(n), 6)], 1)
    for table in (neighbours, others):
        correlation = torch.corrcoef(table.T) - torch.eye(table.shape[1])
        assert float(correlation.abs().max()) < 5 / math.sqrt(n)


def test_normal_numbers_have_the_moments_of_a_normal():
    n = 20_000
    g = keys.normal(7, 0, torch.arange(n), 5)
    assert g.shape == (n, 5)
    for power, expected, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert float((g**power).mean() - expected) == pytest.approx(0, abs=5 * math.sqrt(spread / (5 * n)))
    assert float((torch.corrcoef(g.T) - torch.eye(5)).abs().max()) < 5 / math.sqrt(n)


def test_permutations_are_permutations_and_differ_by_epoch():
    first, second = keys.permutation(0, 0, 1000), keys.permutation(0, 1, 1000)
    assert torch.equal(first.sort().values, torch.arange(1000))
    assert int((first == second).sum()) < 12  # one on average
    assert torch.equal(first, keys.permutation(0, 0, 1000))
    start = torch.stack([keys.permutation(0, e, 4)[0] for e in range(400)]).bincount(minlength=4)
    assert bool(((start - 100).abs() < 5 * math.sqrt(75)).all())


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"epoch": 2**32}, "epoch"),
        ({"lanes": 0}, "lanes"),
        ({"stream": 4096}, "stream"),
    ],
)
def test_bad_keys_are_named(arguments, name):
    good = {"seed": 0, "epoch": 0, "index": torch.tensor([0]), "lanes": 1, "stream": 0}
    with pytest.raises(ValueError, match=name):
        keys.uniform(**(good | arguments))


def test_an_index_of_another_type_is_refused():
    with pytest.raises(TypeError, match="index must be an int64"):
        keys.uniform(0, 0, torch.tensor([0.5]), 1)
