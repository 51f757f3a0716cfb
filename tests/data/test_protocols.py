"""Both protocols, pixel by pixel, against whole pictures warped by plain loops."""

import numpy as np
import pytest
import torch
from tests.oracles import pairs as oracle

from caunet import geometry, tasks
from caunet.data import PairSource, protocols
from caunet.data.lookup import Canvas, bicubic, crop, linear, pad, to_bytes

TASKS = ("translation", "rotation", "scaling", "affine", "projective")
BOTH = [(t, p) for t in TASKS for p in ("text", "release")]


def noise(count, height, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, height, width), generator=generator, dtype=torch.uint8)


def close_to_bytes(got, expected):
    """Equal after rounding, but where the exact value is a tie."""
    rounded = np.vectorize(oracle.to_byte)(expected)
    tie = np.abs(expected - np.floor(expected) - 0.5) < 1e-3
    difference = np.abs(got.numpy().astype(int) - rounded)
    return bool((difference[~tie] == 0).all() and (difference <= 1).all())


@pytest.mark.parametrize(("height", "width", "patch"), [(32, 32, 11), (21, 30, 8)])
@pytest.mark.parametrize(("task", "protocol"), [b for b in BOTH if b != ("translation", "release")])
def test_pairs_are_those_of_the_loops(task, protocol, height, width, patch):
    images = noise(6, height, width)
    source = PairSource(images, task, protocol, patch=patch, pairs="fresh", seed=5, per_image=4)
    slow = oracle.text_pair if protocol == "text" else oracle.release_pair
    index = torch.arange(0, 24, 2)
    for i, x, y, z in zip(index.tolist(), *source.bytes(2, index), strict=True):
        first, second = slow(images[i // 4].numpy(), task, z, patch)
        assert (x.numpy() == first).all()
        assert close_to_bytes(y, second)


def test_release_translation_cuts_both_patches_out_of_the_image():
    # Every pixel names its place, so a patch says where it was cut.
    place = torch.arange(1024).view(1, 32, 32)
    images = torch.cat([place // 32, place % 32]).to(torch.uint8)  # image 0: rows, image 1: columns
    source = PairSource(images, "translation", "release", pairs="fresh", per_image=2000)
    index = torch.arange(2000)
    x, y, z = source.bytes(0, index)
    shift = (x.int() - y.int())[:, 0, 0]
    assert torch.equal(shift.float(), z[:, 0])  # the content moves by z rows: y(p + z) = x(p)
    assert torch.equal(y.int() + shift[:, None, None], x.int())
    x, y, z = source.bytes(0, index + 2000)
    assert torch.equal((x.int() - y.int())[:, 0, 0].float(), z[:, 1])
    assert torch.equal(z, z.round())
    counts = (z[:, 1] + 5).long().bincount(minlength=11)
    assert bool(((counts - 2000 / 11).abs() < 5 * (2000 / 11) ** 0.5).all())
    # Where z does not limit it, the first patch takes every place from 0 to 21.
    assert sorted(set(x[z[:, 1] == 0][:, 0, 0].tolist())) == list(range(22))


def test_release_rotation_is_in_whole_degrees():
    source = PairSource(noise(1, 32, 32), "rotation", "release", pairs="fresh", per_image=5000)
    z = source.bytes(0, torch.arange(5000))[2]
    assert sorted(set(z[:, 0].tolist())) == [float(d) for d in range(-45, 46)]


@pytest.mark.parametrize("name", TASKS)
def test_text_parameters_fill_their_ranges(name):
    task = tasks.get(name)
    u = torch.stack([torch.zeros(task.dim), torch.ones(task.dim)]).double()
    z = protocols.get("text", task, (32, 32), 11).parameters(u)
    assert torch.equal(z, torch.tensor([task.low, task.high]))


def test_release_translation_has_rows_first():
    protocol = protocols.get("release", tasks.get("translation"), (32, 32), 11)
    assert torch.equal(protocol.homography(torch.tensor([2.0, -1.0])), geometry.translate(-1.0, 2.0))


@pytest.mark.parametrize("degrees", [0.0, 17.0, 45.0])
def test_the_unlabelled_shift_of_release_is_half_a_pixel_or_none(degrees):
    protocol = protocols.get("release", tasks.get("rotation"), (32, 32), 11)
    z = torch.tensor([[degrees]])
    extent = 32 * (np.cos(np.radians(degrees)) + np.sin(np.radians(degrees)))
    half = 0.5 if int(np.ceil(extent - 1e-9)) % 2 == 0 else 0.0
    # The pixel at the second patch's center shows the point H^-1 (half, half) from the image's center.
    center = geometry.apply(protocol.pull(z)[0], torch.tensor([[5.0, 5.0]], dtype=torch.float64))
    back = geometry.apply(geometry.rotate(-z[0, 0].double()), torch.full((1, 2), half, dtype=torch.float64))
    assert torch.allclose(center, back + 15.5, atol=1e-12)


def test_a_singular_map_shows_nothing_but_zeros():
    protocol = protocols.get("text", tasks.get("affine"), (32, 32), 11)
    pull = protocol.pull(torch.tensor([[-0.5, 0.5, 0.5, -0.5], [0.0, 0.0, 0.0, 0.0]]))
    images = noise(2, 32, 32) | 1
    y = linear(Canvas(pad(images)), pull, 11)
    assert int(y[0].count_nonzero()) == 0
    assert torch.equal(y[1], images[1, 11:22, 11:22].float())


def test_what_lies_behind_the_horizon_is_outside():
    # w = 1 - x / 4 at image column x: columns past 4 lie behind it.
    pull = torch.tensor([[[1.0, 0, 0], [0, 1, 0], [-0.25, 0, 1]]], dtype=torch.float64)
    y = linear(Canvas(pad(torch.full((1, 16, 16), 200, dtype=torch.uint8))), pull, 11)
    assert float(y[0, 0, 3]) == 200  # reads (12, 0)
    assert int(y[0, :, 4:].count_nonzero()) == 0


@pytest.mark.parametrize("read", [linear, bicubic])
@pytest.mark.parametrize("shift", [-40.0, -5.5, -1.0, 0.0, 3.25, 27.0, 60.0])
def test_reading_past_the_edges_is_reading_zeros(read, shift):
    image = noise(1, 9, 12)
    pull = torch.eye(3, dtype=torch.float64)[None].clone()
    pull[0, 0, 2], pull[0, 1, 2] = shift, shift / 2
    weight = oracle.linear_weight if read is linear else oracle.cubic_weight
    expected = [
        [oracle.value_at(image[0].numpy(), c + shift, r + shift / 2, weight) for c in range(7)]
        for r in range(7)
    ]
    assert torch.allclose(read(Canvas(pad(image)), pull, 7)[0], torch.tensor(expected), atol=1e-3)


def test_crops_are_slices():
    images = noise(3, 20, 24)
    corner = torch.tensor([[0, 0], [9, 13], [4, 2]])
    got = crop(Canvas(pad(images)), corner, 11)
    for image, (row, column), patch in zip(images, corner.tolist(), got, strict=True):
        assert torch.equal(patch, image[row : row + 11, column : column + 11])


def test_bytes_round_halves_up():
    values = np.linspace(-2, 258, 2601)
    expected = [oracle.to_byte(v) for v in values]
    assert to_bytes(torch.from_numpy(values)).tolist() == expected


def test_refusals_name_what_was_wrong():
    with pytest.raises(ValueError, match="protocol must be one of text, release, got 'matlab'"):
        protocols.get("matlab", tasks.get("rotation"), (32, 32), 11)
    with pytest.raises(ValueError, match="patch must be 1 to 20"):
        protocols.get("text", tasks.get("rotation"), (20, 32), 21)
    with pytest.raises(ValueError, match="patch must be at most 15"):
        protocols.get("release", tasks.get("translation"), (20, 32), 16)
    with pytest.raises(ValueError, match="horizon"):
        protocols.get("release", tasks.get("projective"), (120, 120), 11)
    other = tasks.Task("other", ("a",), (0.0,), (1.0,), geometry.scale, lambda H: H[..., 0, 0, None])
    with pytest.raises(ValueError, match=r"task must be one of translation, .* for protocol 'release'"):
        protocols.get("release", other, (32, 32), 11)


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
@pytest.mark.parametrize("task", protocols.RELEASE_TASKS)
def test_rows_come_first_where_the_first_number_moves_down(task: str, protocol: str) -> None:
    rule = protocols.get(protocol, tasks.get(task), (32, 32), 11)
    assert rule.rows_first == protocols.rows_first(task, protocol)
    if task == "translation":
        first = rule.homography(torch.tensor([3.0, 0.0]))[:2, 2].tolist()
        assert first == ([0.0, 3.0] if rule.rows_first else [3.0, 0.0])
