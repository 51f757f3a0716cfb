"""Detection: where blobs are known, what turning and enlarging does, and OpenCV's own points."""

import math

import pytest
import torch

from caunet.matching.points import detect, dominant_angle, extrema, patches


def _blobs(size: int = 160, count: int = 14) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """An image of Gaussian blobs: the image, their centers (N, 2) and deviations (N,)."""
    draw = torch.Generator().manual_seed(3)
    line = torch.arange(float(size))
    image = torch.full((size, size), 0.4)
    places, sizes = [], []
    while len(places) < count:
        x, y = (24 + torch.rand(2, generator=draw) * (size - 48)).tolist()
        if any(math.hypot(x - p, y - q) < 30 for p, q in places):
            continue
        sigma = 2.0 + 3.0 * float(torch.rand(1, generator=draw))
        sign = 1.0 if len(places) % 2 else -1.0
        image += 0.3 * sign * torch.exp(-((line - x) ** 2 + (line[:, None] - y) ** 2) / (2 * sigma**2))
        places.append((x, y))
        sizes.append(sigma)
    return image, torch.tensor(places), torch.tensor(sizes)


def _scene(size: int = 192) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    scene = torch.zeros(size, size)
    for cells in (6, 12, 24, 48):
        coarse = torch.rand(1, 1, cells, cells, generator=draw)
        scene += torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic")[0, 0] / 4
    return scene.clamp(0, 1)


def test_blobs_are_found_where_and_as_large_as_they_are() -> None:
    image, places, sizes = _blobs()
    points, _ = detect(image, 100)
    distance = (points.xy[None] - places[:, None]).norm(dim=2)
    nearest = distance.argmin(1)
    assert float(distance.amin(1).max()) < 0.3
    # A blob of deviation s is strongest where the Gaussian of the difference has about s.
    torch.testing.assert_close(
        (points.sigma[nearest] / sizes).log(), torch.zeros(len(sizes)), atol=0.25, rtol=0
    )


def test_points_turn_with_the_image() -> None:
    image = _scene()
    first, _ = detect(image, 300)
    second, _ = detect(torch.rot90(image), 300)  # (x, y) goes to (y, side - 1 - x)
    moved = torch.stack([first.xy[:, 1], image.shape[1] - 1 - first.xy[:, 0]], 1)
    distance = (moved[:, None] - second.xy[None]).norm(dim=2) + 100 * (
        first.sigma[:, None] / second.sigma[None]
    ).log().abs().gt(0.1)
    best, index = distance.min(1)
    found = best < 0.2
    assert float(found.float().mean()) > 0.9
    turned = (first.angle - math.pi / 2 - second.angle[index] + math.pi) % (2 * math.pi) - math.pi
    assert float((turned[found].abs() < 0.05).float().mean()) > 0.9


def test_patches_of_turned_images_are_the_same() -> None:
    image = _scene()
    first, octaves = detect(image, 100)
    turned = [torch.rot90(octave) for octave in octaves]  # 192 halves evenly
    xy = torch.stack([first.xy[:, 1], image.shape[1] - 1 - first.xy[:, 0]], 1)
    second = first._replace(xy=xy, angle=first.angle - math.pi / 2)
    a, b = patches(octaves, first, 32, 6.0), patches(turned, second, 32, 6.0)
    inside = (first.xy - 96).abs().amax(1) + 9 * first.sigma < 96
    assert int(inside.sum()) > 10
    torch.testing.assert_close(a[inside], b[inside], atol=1e-3, rtol=0)


def test_gain_and_offset_leave_points_where_they_are() -> None:
    image = _scene()
    first, _ = detect(image, 40)
    second, _ = detect(0.6 * image + 0.3, 40)
    distance = (first.xy[:, None] - second.xy[None]).norm(dim=2).amin(1)
    assert float((distance < 0.05).float().mean()) > 0.9


def test_points_are_spread_over_the_image() -> None:
    image = _scene()
    image[:, :96] = 0.5 + 0.2 * (image[:, :96] - 0.5)  # the left half is faint
    points, _ = detect(image, 60)
    left = float((points.xy[:, 0] < 96).float().mean())
    assert 0.25 < left < 0.75


def test_blank_and_tiny_images_have_no_points() -> None:
    for size in ((64, 64), (5, 7), (1, 1)):
        points, octaves = detect(torch.full(size, 0.5), 10)
        assert len(points.xy) == len(points.angle) == 0
        assert patches(octaves, points, 32, 6.0).shape == (0, 32, 32)


def test_a_batch_gives_what_single_images_give() -> None:
    images = torch.stack([_scene(64), _scene(64).mT.contiguous(), 1 - _scene(64)])
    which, xy, sigma, _ = extrema(images, 0.5, 4)
    for k in range(3):
        _, alone, size, _ = extrema(images[k : k + 1], 0.5, 4)
        torch.testing.assert_close(xy[which == k], alone)
        torch.testing.assert_close(sigma[which == k], size)


def test_dominant_angle_follows_the_gradient() -> None:
    line = torch.arange(20.0) - 9.5
    angles = torch.linspace(-3.0, 3.0, 13)
    ramps = angles.cos()[:, None, None] * line + angles.sin()[:, None, None] * line[:, None]
    turned = (dominant_angle(ramps) - angles + math.pi) % (2 * math.pi) - math.pi
    assert float(turned.abs().max()) < 0.01


def test_most_points_are_opencvs_too() -> None:
    cv2 = pytest.importorskip("cv2")
    image = _scene()
    points, _ = detect(image, 60)
    found = cv2.SIFT_create(contrastThreshold=0.01).detect((image * 255).round().byte().numpy())
    theirs = torch.tensor([[p.pt[0], p.pt[1], p.size / 2] for p in found])
    near = (points.xy[:, None] - theirs[None, :, :2]).norm(dim=2) < 0.5 * points.sigma[:, None]
    alike = (points.sigma[:, None] / theirs[None, :, 2]).log().abs() < 0.3
    assert float((near & alike).any(1).float().mean()) > 0.6
