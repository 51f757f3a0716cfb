"""Second-best answers: symmetries are found, details decide, and patterns are not trusted."""

from functools import partial

import numpy as np
import pytest
import torch

from caunet.benchmark.misleading import facade
from caunet.benchmark.pairs import draw_pair
from caunet.estimation import Estimator
from caunet.estimation.confidence import confidence, doubt
from caunet.estimation.evidence import Windows
from caunet.estimation.register import register
from caunet.estimation.rivals import advantage, symmetries


def _noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_tiled_image_looks_the_same_one_tile_further() -> None:
    found = [motion for _, motion in symmetries(_noise(12, 16).repeat(8, 6), 3.0) if motion[0, 0] > 0]
    assert found
    for motion in found:
        x, y = motion[:2, 2]
        assert abs(x - 16 * round(x / 16)) < 0.1
        assert abs(y - 12 * round(y / 12)) < 0.1
        assert abs(x) + abs(y) > 3
    # Each shift and its opposite.
    assert {tuple(motion[:2, 2].round()) for motion in found} == {
        tuple(-motion[:2, 2].round()) for motion in found
    }


@pytest.mark.parametrize("across", [True, False])
def test_repetition_along_one_axis_alone_is_found(across: bool) -> None:
    image = _noise(64, 12).repeat(1, 6)
    found = [
        motion[:2, 2] for _, motion in symmetries(image if across else image.mT, 3.0) if motion[0, 0] > 0
    ]
    along, beside = (0, 1) if across else (1, 0)
    assert {12, -12} <= {round(float(shift[along])) for shift in found}
    assert max(abs(float(shift[beside])) for shift in found) < 0.1


def test_the_likeness_of_a_shift_is_the_correlation_of_what_both_show() -> None:
    image = _noise(9, 11).repeat(7, 6) + 0.3 * _noise(63, 66, seed=1)
    for likeness, motion in symmetries(image, 3.0):
        if motion[0, 0] < 0:
            continue
        x, y = (round(v) for v in motion[:2, 2])
        first = image[max(-y, 0) : 63 - max(y, 0), max(-x, 0) : 66 - max(x, 0)]
        second = image[max(y, 0) : 63 - max(-y, 0), max(x, 0) : 66 - max(-x, 0)]
        expected = np.corrcoef(first.flatten(), second.flatten())[0, 1]
        assert likeness == pytest.approx(expected, abs=0.12)


def test_half_a_turn() -> None:
    image = _noise(40, 50)
    image = image + image.flip(0, 1)
    likeness, motion = symmetries(image, 3.0)[0]
    assert likeness > 0.9
    np.testing.assert_allclose(motion, [[-1, 0, 49], [0, -1, 39], [0, 0, 1]], atol=0.1)


def test_what_does_not_repeat_has_no_symmetries() -> None:
    assert symmetries(_noise(64, 64), 3.0) == []
    assert symmetries(torch.full((64, 64), 0.5), 3.0) == []


def test_advantage_counts_windows_that_speak_clearly() -> None:
    answer, rival = _noise(6, 7) * 2 - 1, _noise(6, 7, seed=1) * 2 - 1
    first, second = _noise(6, 7, seed=2), _noise(6, 7, seed=3).round()
    expected = total = 0.0
    for row in range(6):
        for column in range(7):
            weight = min(float(first[row, column]), float(second[row, column]))
            own, other = (max(float(t[row, column]), 0.0) ** 2 for t in (answer, rival))
            clear = [
                1.03 - less > 3 * (1.03 - more) or more - less > 0.35 or (more > 0.15 and less < more / 2)
                for more, less in ((own, other), (other, own))
            ]
            expected += weight * (clear[0] - clear[1])
            total += weight
    found = advantage(Windows(answer, first, 1.0), Windows(rival, second, 1.0))
    assert found == pytest.approx(expected / total, abs=1e-5)
    assert advantage(Windows(answer, first, 1.0), Windows(answer, first, 1.0)) == 0
    assert advantage(Windows(answer, first, 1.0), Windows(rival, torch.zeros(6, 7), 1.0)) == 1
    few = torch.zeros(6, 7)
    few[0, :4] = 1.0  # less than a fifth
    assert advantage(Windows(answer, first, 1.0), Windows(rival, few, 1.0)) == 1


def test_a_facade_is_ambiguous_and_details_decide() -> None:
    estimator = Estimator()
    with torch.inference_mode():
        run = partial(
            register,
            network=estimator.network,
            motion_model=estimator.motion_model,
            matcher=estimator._matcher,
        )
        plain, detailed = (
            [run(pair.a, pair.b).evidence for pair in pairs]
            for pairs in (
                [facade(index, seed=3) for index in (0, 1, 3)],
                [facade(index, details=True, seed=3) for index in (0, 2, 3)],
            )
        )
        photograph = draw_pair("test", "clean", 0.1, 0)
        assert run(photograph.a, photograph.b).evidence["distinct"] > 0.5
    for evidence in plain:
        assert evidence["distinct"] < 0.05
        assert evidence["score"] > 0.8  # each looks right
        assert confidence(evidence) < 0.5
        assert doubt(evidence) == "ambiguous"
    for evidence in detailed:
        assert evidence["distinct"] > 0.15
        assert confidence(evidence) > 0.5
