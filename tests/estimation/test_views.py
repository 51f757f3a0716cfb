"""Views: what two images have in common, at about the same resolution."""

import numpy as np
import pytest
import torch

from caunet import geometry
from caunet.estimation.views import view_of, whole_view


def _similarity(factor: float, x: float, y: float) -> np.ndarray:
    return np.array([[factor, 0.0, x], [0.0, factor, y], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_parts_are_of_the_same_resolution_and_transforms_go_in_and_out(factor: float) -> None:
    a, b = torch.zeros(480, 640), torch.zeros(480, 640)
    H = _similarity(factor, 320 * (1 - factor) + 10, 240 * (1 - factor) - 5)
    view = view_of(whole_view(a, b), H, scales=True)
    inside = view.inside(H)
    assert inside[0, 0] == pytest.approx(1.0)
    np.testing.assert_allclose(view.outside(inside), H, atol=1e-9)


def test_a_part_holds_what_it_says() -> None:
    rows, columns = torch.meshgrid(torch.arange(300.0), torch.arange(400.0), indexing="ij")
    a = rows * 1000 + columns
    H = _similarity(1.0, -250.0, -120.0)  # b is a crop of a
    view = view_of(whole_view(a, torch.zeros(100, 100)), H, scales=True)
    assert view.a.numel() < a.numel() / 4
    place = geometry.apply(view.from_a, np.array([[300.0, 150.0]]))[0].astype(int)
    assert float(view.a[place[1], place[0]]) == 150 * 1000 + 300


def test_scales_are_kept_where_the_model_has_none() -> None:
    H = _similarity(2.0, -100.0, -100.0)
    view = view_of(whole_view(torch.zeros(200, 200), torch.zeros(200, 200)), H, scales=False)
    assert view.inside(H)[0, 0] == pytest.approx(2.0)


def test_nonsense_leaves_the_images_whole() -> None:
    a = torch.zeros(60, 80)
    behind = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-0.05, 0.0, 1.0]])
    far = _similarity(1.0, 1e5, 0.0)
    for H in (behind, far, _similarity(1e-5, 0.0, 0.0)):
        view = view_of(whole_view(a, a), H, scales=True)
        assert min(*view.a.shape, *view.b.shape) >= 48
    assert whole_view(a, a).a is a
