"""Homographies against closed forms and NumPy; warps against loops, OpenCV, kornia and exact pixels."""

import gc
import math

import cv2
import kornia
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caunet import geometry, tasks
from caunet.geometry.sampling import MODES
from tests.oracles import warping as oracle

FEW = settings(deadline=None, max_examples=30)
CV = {"bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC, "nearest": cv2.INTER_NEAREST}
seeds = st.integers(0, 2**31)


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def some_homography(size: tuple[int, int], seed: int = 0) -> torch.Tensor:
    """A mild but general H in pixels of an image of that size, in float64: all eight entries differ."""
    u = 2 * noise(8, seed=seed, dtype=torch.float64) - 1
    z = u[:6] * torch.tensor([0.3, 0.3, 0.3, 0.3, 0.3, 0.3]) / torch.tensor([1, 1, 1, 1, *[max(size)] * 2])
    return geometry.compose(geometry.translate(*u[6:]), geometry.center(geometry.projective(z), size))


# -- homographies ------------------------------------------------------------------------------------------


def test_builders_are_the_papers_matrices():
    angle = math.radians(30)
    c, s = math.cos(angle), math.sin(angle)
    z = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=torch.float64)
    cases = [
        (geometry.translate(2, 3), [[1, 0, 2], [0, 1, 3], [0, 0, 1]]),
        (geometry.rotate(30), [[c, -s, 0], [s, c, 0], [0, 0, 1]]),
        (geometry.scale(2, 3), [[2, 0, 0], [0, 3, 0], [0, 0, 1]]),
        (geometry.scale(2), [[2, 0, 0], [0, 2, 0], [0, 0, 1]]),
        (geometry.affine(z[:4]), [[1.1, 0.2, 0], [0.3, 1.4, 0], [0, 0, 1]]),
        (geometry.projective(z), [[1.1, 0.2, 0], [0.3, 1.4, 0], [0.5, 0.6, 1]]),
    ]
    for got, expected in cases:
        torch.testing.assert_close(got, torch.tensor(expected, dtype=got.dtype))


def test_builders_broadcast_and_keep_the_dtype():
    H = geometry.translate(torch.arange(3, dtype=torch.float64), 1.0)
    assert H.shape == (3, 3, 3)
    assert H.dtype == torch.float64
    assert H[:, :2, 2].tolist() == [[0, 1], [1, 1], [2, 1]]
    assert geometry.scale(torch.ones(2, 1), torch.ones(5)).shape == (2, 5, 3, 3)


def test_a_quarter_turn_takes_right_to_down():
    p = geometry.apply(geometry.rotate(90), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    torch.testing.assert_close(p, torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))


@FEW
@given(seeds)
def test_compose_invert_and_apply_agree_with_numpy(seed):
    A, B = some_homography((9, 7), seed), some_homography((9, 7), seed + 1)
    points = 6 * noise(5, 2, seed=seed, dtype=torch.float64)
    np.testing.assert_allclose(geometry.compose(A, B), A.numpy() @ B.numpy(), atol=1e-12)
    np.testing.assert_allclose(geometry.invert(A), np.linalg.inv(A.numpy()), atol=1e-10)
    q = np.array([A.numpy() @ [*p, 1.0] for p in points.numpy()])
    np.testing.assert_allclose(geometry.apply(A, points), q[:, :2] / q[:, 2:], atol=1e-10)
    there_and_back = geometry.apply(geometry.compose(A, geometry.invert(A)), points)
    torch.testing.assert_close(there_and_back, points, atol=1e-9, rtol=0)
    torch.testing.assert_close(geometry.normalize(-3 * A), A / A[2, 2])


def test_apply_broadcasts_homographies_over_points():
    H = torch.stack([geometry.translate(1.0, 0.0), geometry.scale(2.0)])
    p = torch.tensor([[3.0, 5.0]])
    assert geometry.apply(H, p).tolist() == [[[4, 5]], [[6, 10]]]
    assert geometry.apply(H[0], p.expand(4, 1, 2)).shape == (4, 1, 2)


def test_center_keeps_the_middle_of_the_patch_where_it_is():
    H = geometry.center(geometry.rotate(37.0), (11, 5), origin=(10, 20))
    middle = torch.tensor([[12.0, 25.0]])
    torch.testing.assert_close(geometry.apply(H, middle), middle)
    torch.testing.assert_close(
        geometry.apply(H, middle + 1), middle + geometry.apply(geometry.rotate(37.0), torch.ones(1, 2))
    )


def test_gradients_of_homographies():
    z = noise(2, 6, dtype=torch.float64).mul(0.1).requires_grad_()

    def all_of_it(z):
        H = geometry.center(geometry.compose(geometry.projective(z), geometry.rotate(z[:, 0])), (5, 7))
        return geometry.apply(geometry.normalize(geometry.invert(H)), z.new_ones(2, 3, 2))

    assert torch.autograd.gradcheck(all_of_it, (z,))


# -- exact pixels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [(1, 1), (1, 5), (3, 2), (32, 32), (17, 530)])
def test_identity_is_exact(mode, dtype, size):
    image = noise(2, *size, dtype=dtype)
    for multiple in (1.0, -3.0):
        assert torch.equal(geometry.warp(image, multiple * torch.eye(3), mode=mode, fill=0.7), image)
    assert torch.equal(geometry.warp(image, geometry.center(geometry.rotate(0.0), size), mode=mode), image)


@FEW
@given(
    st.sampled_from(MODES), st.integers(1, 9), st.integers(1, 9), st.integers(-12, 12), st.integers(-12, 12)
)
def test_integer_shifts_are_exact(mode, height, width, dx, dy):
    image = noise(height, width)
    expected = torch.full((height, width), 0.3)
    for i in range(height):
        for j in range(width):
            if 0 <= i - dy < height and 0 <= j - dx < width:
                expected[i, j] = image[i - dy, j - dx]
    got = geometry.warp(image[None], geometry.translate(dx, dy), mode=mode, fill=0.3)
    assert torch.equal(got[0], expected)


def test_integer_shifts_are_exact_far_away():
    image = noise(1, 4, 4)
    H = geometry.translate(30000.0, -7000.0)
    assert torch.equal(geometry.warp(image, H, origin=(30000, -7000)), image)


@FEW
@given(seeds, st.integers(2, 12), st.integers(2, 12))
def test_a_warped_dot_is_where_H_says(seed, height, width):
    """The first image's dot at p has its weight in y spread around H p; here H moves by part of a pixel."""
    u = noise(4, seed=seed, dtype=torch.float64)
    dot = (u[:2] * torch.tensor([width, height])).floor()
    image = torch.zeros(1, height, width, dtype=torch.float64)
    image[0, int(dot[1]), int(dot[0])] = 1
    H = geometry.translate(*(8 * u[2:] - 4))
    y = geometry.warp(image, H, size=(height + 10, width + 10), origin=(-5, -5))[0]
    rows, columns = torch.meshgrid(torch.arange(height + 10) - 5, torch.arange(width + 10) - 5, indexing="ij")
    centroid = torch.stack([(y * columns).sum(), (y * rows).sum()]) / y.sum()
    torch.testing.assert_close(centroid, geometry.apply(H, dot[None])[0], atol=1e-9, rtol=0)


@FEW
@given(seeds, st.sampled_from(["rotation", "scaling", "affine", "projective"]))
def test_a_warped_blob_is_where_H_says(seed, name):
    """For any H: the brightest pixel of a smooth bump lies within a pixel of H p."""
    task = tasks.get(name)
    z = 0.5 * (task.sample(1, torch.Generator().manual_seed(seed)) + task.parameters(torch.eye(3)))
    H = geometry.center(task.homography(z), (33, 33))
    p = 12 + 8 * noise(1, 2, seed=seed)
    rows, columns = torch.meshgrid(torch.arange(33.0), torch.arange(33.0), indexing="ij")
    bump = torch.exp(-((columns - p[0, 0]) ** 2 + (rows - p[0, 1]) ** 2) / 8)
    y = geometry.warp(bump[None], H, size=(81, 81), origin=(-24, -24), mode="bicubic")[0]
    peak = torch.tensor([int(y.argmax()) % 81 - 24, int(y.argmax()) // 81 - 24], dtype=torch.float32)
    assert (peak - geometry.apply(H[0], p)[0]).abs().max() < 1


# -- against others ----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    seeds,
    st.sampled_from(MODES),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(-4, 4), st.floats(-4, 4, width=16)),
    st.sampled_from([0.0, -0.5, 2.0]),
)
def test_warp_equals_plain_loops(seed, mode, inside, size, origin, fill):
    image = noise(1, *inside, seed=seed, dtype=torch.float64)
    H = some_homography(inside, seed)[None]
    expected = oracle.warp(image[0].numpy(), H[0].numpy(), size, mode, fill, origin)
    got = geometry.warp(image, H, size, mode, fill, origin=origin)
    keep = clear_of_ties(H, size, origin) if mode == "nearest" else np.ones(size, bool)
    np.testing.assert_allclose(got[0].numpy()[keep], expected[keep], atol=1e-9)


def clear_of_ties(H: torch.Tensor, size: tuple[int, int], origin: tuple[float, float] = (0, 0)) -> np.ndarray:
    """Pixels whose source is over 1e-3 from half way between two pixels, where nearest is a coin toss."""
    rows, columns = np.indices(size)
    x, y, w = np.einsum(
        "ij,jhw->ihw", np.linalg.inv(H[0]), [columns + origin[0], rows + origin[1], 1 + 0 * rows]
    )
    return (np.abs(x / w % 1 - 0.5) > 1e-3) & (np.abs(y / w % 1 - 0.5) > 1e-3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("side", [1, 2, 3, 11, 32, 77, 256, 512])
def test_warp_agrees_with_opencv_and_kornia(mode, side):
    """White noise, the hardest image: within 5e-4 of its range (OpenCV 5 has no 1/32-pixel grid)."""
    size = (side, max(1, side - 5))
    image, H = noise(*size), some_homography(size)
    keep = clear_of_ties(H[None], size) if mode == "nearest" else np.ones(size, bool)
    ours = geometry.warp(image[None], H.float(), mode=mode, fill=0.3)[0].numpy()
    theirs = cv2.warpPerspective(
        image.numpy(), H.float().numpy(), size[::-1], flags=CV[mode],
        borderMode=cv2.BORDER_CONSTANT, borderValue=0.3,
    )  # fmt: skip
    np.testing.assert_allclose(ours[keep], theirs[keep], atol=5e-4)
    if min(size) > 1:  # kornia normalises by (side - 1)
        ours = geometry.warp(image[None], H.float(), mode=mode)[0].numpy()
        theirs = kornia.geometry.warp_perspective(
            image.double()[None, None], H[None], size, mode=mode, align_corners=True
        )[0, 0].numpy()
        np.testing.assert_allclose(ours[keep], theirs[keep], atol=5e-4)


def test_pixels_behind_the_horizon_are_fill():
    """With w = 1 - x/4 the first image ends at x = 4; what would come from beyond is fill, not a mirror."""
    H = torch.tensor([[1.0, 0, 0], [0, 1, 0], [-0.25, 0, 1]])
    image = torch.ones(1, 3, 8)
    image[..., :3] = 2
    got = geometry.warp(image, H, size=(3, 60), origin=(-40, 0))
    expected = oracle.warp(image[0].numpy(), H.numpy(), (3, 60), "bilinear", 0.0, (-40, 0))
    # The centre of this image (x = 3.5) is in front: sources beyond x = 4 would land at negative x'.
    np.testing.assert_allclose(got[0], expected, atol=1e-5)
    assert (got[..., :40] == 0).all()
    assert torch.equal(geometry.warp(image, -H, size=(3, 60), origin=(-40, 0)), got)
    # Only the first image's corner (0, 0) is carried to (0, 0), and it is behind the horizon of this one.
    corner = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 0, -2]])
    assert geometry.apply(corner, torch.zeros(1, 2)).tolist() == [[0, 0]]
    assert geometry.warp(image, corner, size=(1, 1), fill=0.25).item() == 0.25


# -- batches, crops, dtypes, gradients -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_warp_has_the_same_bits_in_every_batch(mode):
    task = tasks.get("projective")
    images, z = noise(37, 12, 12), task.sample(37, torch.Generator().manual_seed(1))
    H = geometry.center(task.homography(z), (12, 12))
    whole = geometry.warp(images, H, mode=mode)
    for cut in (slice(0, 1), slice(5, 12), slice(20, 37)):
        alone = geometry.center(task.homography(z[cut]), (12, 12))
        assert torch.equal(geometry.warp(images[cut], alone, mode=mode), whole[cut])
        assert torch.equal(geometry.warp(images, H[cut], mode=mode, index=torch.arange(37)[cut]), whole[cut])


@pytest.mark.parametrize("mode", MODES)
def test_a_crop_is_that_part_of_the_whole(mode):
    image = noise(1, 20, 24, dtype=torch.float64)
    H = some_homography((20, 24))[None]
    whole = geometry.warp(image, H, mode=mode)
    crop = geometry.warp(image, H, size=(5, 6), mode=mode, origin=(7, 3))
    torch.testing.assert_close(crop, whole[:, 3:8, 7:13], atol=1e-12, rtol=0)
    moved = geometry.compose(geometry.translate(-7.0, -3.0).double(), H)
    torch.testing.assert_close(geometry.warp(image, moved, size=(5, 6), mode=mode), crop, atol=1e-12, rtol=0)


@pytest.mark.parametrize("mode", MODES)
def test_channels_are_warped_alike_and_bytes_as_numbers(mode):
    images = (noise(2, 3, 9, 8) * 255).to(torch.uint8)
    H = torch.stack([some_homography((9, 8), k) for k in (1, 2)]).float()
    got = geometry.warp(images, H, size=(4, 5), mode=mode)
    assert got.dtype == torch.float32
    for c in range(3):
        assert torch.equal(got[:, c], geometry.warp(images[:, c].float(), H, size=(4, 5), mode=mode))


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_a_warp(mode):
    images = noise(2, 2, 4, 5, dtype=torch.float64).requires_grad_()
    H = torch.stack([some_homography((4, 5), k) for k in (3, 4)]).requires_grad_()

    def run(images, H):
        return geometry.warp(images, H, size=(5, 4), mode=mode, fill=0.3, origin=(-1, 0.25))

    assert torch.autograd.gradcheck(run, (images, H), atol=1e-5)


def test_gradients_are_finite_behind_the_horizon():
    H = torch.tensor([[1.0, 0, 0], [0, 1, 0], [-0.25, 0, 1]], requires_grad=True)
    geometry.warp(torch.ones(1, 3, 8), H, size=(3, 60), origin=(-40, 0)).sum().backward()
    assert H.grad is not None
    assert H.grad.isfinite().all()


def test_a_compiled_warp_is_the_warp():
    images, H = noise(3, 8, 8), torch.stack([some_homography((8, 8), k) for k in range(3)]).float()
    compiled = torch.compile(geometry.warp, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images, H), geometry.warp(images, H))


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_singular_and_non_finite_homographies_are_refused_by_name(dtype):
    images, H = noise(4, 5, 5), torch.eye(3, dtype=dtype).repeat(4, 1, 1)
    u = noise(3, 2, seed=5, dtype=dtype)
    singular = [torch.zeros(3, 3), torch.ones(3, 3), torch.diag(torch.tensor([1.0, 0, 1])), u @ u.T]
    for bad in singular:
        H[2] = bad
        for act in (lambda: geometry.warp(images, H), lambda: geometry.invert(H)):
            with pytest.raises(ValueError, match=r"H\[2\] is singular"):
                act()
    H[1, 0, 2] = math.nan
    with pytest.raises(ValueError, match=r"H\[1\] is not finite"):
        geometry.warp(images, H)
    with pytest.raises(ValueError, match=r"H\[0, 1\] is not finite"):
        geometry.check(H.reshape(2, 2, 3, 3))


@pytest.mark.parametrize("multiple", [1e-9, 1.0, 1e9])
def test_odd_but_invertible_homographies_are_accepted(multiple):
    for H in (
        geometry.translate(1e6, -1e6),
        geometry.scale(1e-3, 1e3),
        geometry.affine(-0.49 * torch.ones(4)),
    ):
        geometry.check(multiple * H)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(4, 4)}, "images must be"),
        ({"H": torch.eye(3).expand(3, 3, 3)}, r"H must have shape \(2, 3, 3\)"),
        ({"H": torch.eye(4)}, r"images must be .*depth, height, width\) for H \(\.\.\., 4, 4\)"),
        ({"H": torch.eye(5)}, r"H must have shape \(\.\.\., 3, 3\)"),
        ({"origin": (0, 0, 0)}, "origin must have 2 coordinates"),
        ({"mode": "cubic"}, "mode must be one of bilinear, bicubic, nearest, got 'cubic'"),
        ({"size": (0, 4)}, "size must be"),
        ({"fill": math.inf}, "fill must be a finite number"),
    ],
)
def test_bad_arguments_of_warp_are_named(change, message):
    arguments = {"images": torch.zeros(2, 4, 4), "H": torch.eye(3)} | change
    with pytest.raises(ValueError, match=message):
        geometry.warp(**arguments)


def test_bad_arguments_of_homographies_are_named():
    with pytest.raises(TypeError, match="H must be a floating tensor"):
        geometry.invert(torch.eye(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="at least one"):
        geometry.compose()
    with pytest.raises(ValueError, match=r"z must have shape \(\.\.\., 4\)"):
        geometry.affine(torch.zeros(3))
    with pytest.raises(ValueError, match=r"points must have shape \(\.\.\., 2\)"):
        geometry.apply(torch.eye(3), torch.zeros(3))
    with pytest.raises(ValueError, match="cannot be normalized"):
        geometry.normalize(torch.tensor([[0.0, 0, 1], [0, 1, 0], [1, 0, 0]]))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
def test_what_a_warp_needed_is_free_at_once(mode: str) -> None:
    """A cycle of references would keep every frame of a stack until the collector happens to come by."""
    image = torch.rand(1, 1, 40, 40, generator=torch.Generator().manual_seed(0))
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        geometry.warp(image, torch.eye(3)[None], mode=mode)
        gc.collect()
        left = [thing for thing in gc.garbage if type(thing) is torch.Tensor]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert left == []
