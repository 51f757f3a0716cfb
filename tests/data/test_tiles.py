"""Tiles against loops over plain Python numbers."""

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caunet.data.tiles import check_options, cut, join, shrink, shuffled


def slow_shrink(gray, factor):
    rows, columns = gray.shape[0] // factor, gray.shape[1] // factor
    mean = np.zeros((rows, columns), np.uint8)
    for y in range(rows):
        for x in range(columns):
            block = gray[y * factor : (y + 1) * factor, x * factor : (x + 1) * factor]
            mean[y, x] = int(sum(map(int, block.ravel())) / factor**2 + 0.5)
    return mean


def slow_cut(gray, tile, stride, scales):
    found = []
    for factor in scales:
        small = slow_shrink(gray, factor)
        for y in range(0, small.shape[0] - tile + 1, stride):
            for x in range(0, small.shape[1] - tile + 1, stride):
                piece = small[y : y + tile, x : x + tile]
                if statistics.pvariance(map(int, piece.ravel())) >= 16:
                    found.append(piece)
    return np.array(found, np.uint8).reshape(-1, tile, tile)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 99),
    height=st.integers(1, 20),
    width=st.integers(1, 20),
    tile=st.integers(1, 6),
    stride=st.integers(1, 7),
    scales=st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True),
    contrast=st.sampled_from([0, 8, 14, 255]),
)
def test_tiles_are_those_of_the_loop(seed, height, width, tile, stride, scales, contrast):
    gray = np.random.default_rng(seed).integers(0, contrast + 1, (height, width), dtype=np.uint8)
    fast = cut(gray, tile=tile, stride=stride, scales=scales)
    np.testing.assert_array_equal(fast, slow_cut(gray, tile, stride, scales))


@settings(deadline=None, max_examples=20)
@given(factor=st.integers(1, 7), seed=st.integers(0, 99))
def test_shrinking_is_the_rounded_mean(factor, seed):
    gray = np.random.default_rng(seed).integers(0, 256, (17, 23), dtype=np.uint8)
    np.testing.assert_array_equal(shrink(gray, factor), slow_shrink(gray, factor))


def test_a_limit_takes_some_of_the_same_tiles():
    gray = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    every = {tile.tobytes() for tile in cut(gray, tile=8, stride=4, scales=(1, 2))}
    some = [tile.tobytes() for tile in cut(gray, tile=8, stride=4, scales=(1, 2), limit=50)]
    assert len(set(some)) == len(some) == 50
    assert set(some) < every


def _splitmix64(count):
    values, state, mask = [], 0, 2**64 - 1
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        values.append(z ^ z >> 31)
    return values


def test_the_shuffle_is_by_splitmix64():
    values = _splitmix64(500)
    assert values[0] == 0xE220A8397B1DCDAF  # the generator's published first output from seed 0
    assert shuffled(500).tolist() == sorted(range(500), key=values.__getitem__)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_validation_begins_between_images_near_nine_tenths(counts):
    groups = [np.full((count, 1, 1), number, np.uint8) for number, count in enumerate(counts)]
    joined, where = join(groups)
    assert np.bincount(joined.ravel()).tolist() == counts
    assert not set(joined[:where].ravel()) & set(joined[where:].ravel())
    borders = np.cumsum(counts)[:-1] if len(counts) > 1 else [sum(counts)]
    assert abs(where - 0.9 * sum(counts)) == min(abs(b - 0.9 * sum(counts)) for b in borders)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tile": 0}, "tile must be a positive integer, got 0"),
        ({"stride": 1.5}, "stride must be a positive integer, got 1.5"),
        ({"limit": -1}, "limit must be a positive integer, got -1"),
        ({"scales": ()}, "scales must be positive integers, at least one"),
        ({"scales": (1, 0)}, "scales must be positive integers"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        check_options(**{"tile": 8, "stride": 4, "scales": (1,), **options})
