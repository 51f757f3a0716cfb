"""Unanswerable pairs are unanswerable for the reason given."""

import numpy as np
import pytest
import torch

from caunet import geometry
from caunet.benchmark import blank, out_of_range, repetitive, unrelated_pair

SIDE = 96


def test_unrelated_pictures_correlate_with_nothing() -> None:
    for index in range(6):
        pair = unrelated_pair("calibration", index, side=SIDE)
        assert pair.H is None
        correlation = np.corrcoef(pair.a.flatten(), pair.b.flatten())[0, 1]
        assert abs(correlation) < 0.7
        assert min(pair.a.std(), pair.b.std()) > 0.01


def test_every_blank_pair_has_an_empty_picture() -> None:
    for index in range(8):
        pair = blank("test", index, side=SIDE)
        assert min(pair.a.std(), pair.b.std()) < 0.025
        if index % 4 in (0, 2):
            assert min(len(pair.a.unique()), len(pair.b.unique())) == 1


@pytest.mark.parametrize("index", range(3))
def test_a_pattern_repeats(index: int) -> None:
    pair = repetitive(index, side=SIDE, motion=0.0)
    # H is true ...
    there = geometry.warp(pair.b[None], geometry.invert(pair.H)[None])[0]
    seen = geometry.warp(torch.ones(1, SIDE, SIDE), geometry.invert(pair.H)[None])[0] > 0.99
    assert (there - pair.a)[seen].abs().mean() < 0.03
    # ... and the spectrum of a is a few lines, all of one period: nothing marks the right answer.
    spectrum = (
        np.abs(np.fft.rfft2((pair.a - pair.a.mean()).numpy() * np.hanning(SIDE)[:, None] * np.hanning(SIDE)))
        ** 2
    )
    assert np.sort(spectrum.ravel())[-60:].sum() > 0.95 * spectrum.sum()


def test_out_of_range_is_far() -> None:
    corners = geometry.corners((SIDE, SIDE))
    for index in range(6):
        pair = out_of_range("test", index, side=SIDE)
        away = (geometry.apply(pair.H, corners) - corners).norm(dim=-1).mean()
        assert away > 0.3 * SIDE
        assert min(pair.a.std(), pair.b.std()) > 0.005
        again = out_of_range("test", index, side=SIDE)
        assert torch.equal(pair.a, again.a)
        assert torch.equal(pair.b, again.b)
