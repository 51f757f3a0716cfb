"""Warps of volumes against plain loops, SciPy, SimpleITK and exact voxels."""

import math

import numpy as np
import pytest
import scipy.ndimage
import SimpleITK as sitk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caunet import geometry
from caunet.geometry.sampling import VOLUME_MODES
from tests.geometry.test_warping import noise
from tests.oracles.warping import cubic_kernel, tent_kernel

FEW = settings(deadline=None, max_examples=15)
SITK = {"linear": sitk.sitkLinear, "nearest": sitk.sitkNearestNeighbor}


def some_transform(size: tuple[int, int, int], seed: int = 0, bend: float = 0.0) -> torch.Tensor:
    """A mild but general transform in voxels of a volume of that size, float64; projective with a ``bend``."""
    u = 2 * noise(15, seed=seed, dtype=torch.float64) - 1
    H = torch.eye(4, dtype=torch.float64)
    H[:3, :3] += 0.3 * u[:9].reshape(3, 3)
    H[3, :3] = bend * u[9:12] / max(size)
    return geometry.compose(geometry.translate(*u[12:]), geometry.center(H, size))


def looped(volume: np.ndarray, H: np.ndarray, size, mode: str, fill: float, origin) -> np.ndarray:
    """One voxel, one tap at a time; nothing shared with the package but the oracle's kernels."""

    def voxel(k: int, i: int, j: int) -> float:
        inside = all(0 <= place < side for place, side in zip((k, i, j), volume.shape, strict=True))
        return float(volume[k, i, j]) if inside else fill

    back, result = np.linalg.inv(H), np.empty(size)
    kernel = tent_kernel if mode == "linear" else cubic_kernel
    for place in np.ndindex(*size):
        x, y, z, w = back @ np.array([place[2] + origin[0], place[1] + origin[1], place[0] + origin[2], 1.0])
        if w <= 0:
            result[place] = fill
            continue
        x, y, z = x / w, y / w, z / w
        if mode == "nearest":
            result[place] = voxel(round(z), round(y), round(x))
            continue
        total = 0.0
        for k in range(math.floor(z) - 1, math.floor(z) + 3):
            for i in range(math.floor(y) - 1, math.floor(y) + 3):
                for j in range(math.floor(x) - 1, math.floor(x) + 3):
                    total += kernel(z - k) * kernel(y - i) * kernel(x - j) * voxel(k, i, j)
        result[place] = total
    return result


def clear_of_ties(H: np.ndarray, size) -> np.ndarray:
    """Voxels whose source is over 1e-3 from half way between two voxels, where nearest is a coin toss."""
    z, y, x = np.indices(size)
    source = np.einsum("ij,jkhw->ikhw", np.linalg.inv(H), [x, y, z, 1 + 0 * x])
    return (np.abs(source[:3] / source[3] % 1 - 0.5) > 1e-3).all(0)


@FEW
@given(
    st.integers(0, 2**31),
    st.sampled_from(VOLUME_MODES),
    st.tuples(*[st.integers(1, 5)] * 3),
    st.tuples(*[st.integers(1, 4)] * 3),
    st.tuples(st.integers(-3, 3), st.floats(-3, 3, width=16), st.integers(-3, 3)),
    st.sampled_from([0.0, -0.5]),
)
def test_warp_equals_plain_loops(seed, mode, inside, size, origin, fill):
    volume = noise(1, *inside, seed=seed, dtype=torch.float64)
    H = some_transform(inside, seed, bend=0.2)
    got = geometry.warp(volume, H, size, mode, fill, origin=origin)[0].numpy()
    expected = looped(volume[0].numpy(), H.numpy(), size, mode, fill, origin)
    moved = geometry.compose(geometry.translate(*(-torch.tensor(origin, dtype=torch.float64))), H)
    keep = clear_of_ties(moved.numpy(), size) if mode == "nearest" else np.ones(size, bool)
    np.testing.assert_allclose(got[keep], expected[keep], atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_warp_agrees_with_scipy_and_simpleitk(mode, dtype):
    size = (31, 37, 29)
    volume, H = noise(*size, dtype=dtype), some_transform(size, 3)
    ours = geometry.warp(volume[None], H.to(dtype), mode=mode, fill=0.3)[0].numpy()
    back = np.linalg.inv(H.numpy())
    flip = [2, 1, 0]  # SciPy's points are (z, y, x)
    theirs = scipy.ndimage.affine_transform(
        volume.numpy(), back[:3, :3][flip][:, flip], back[:3, 3][flip], order=int(mode == "linear"),
        mode="grid-constant", cval=0.3,
    )  # fmt: skip
    keep = clear_of_ties(H.numpy(), size) if mode == "nearest" else np.ones(size, bool)
    np.testing.assert_allclose(ours[keep], theirs[keep], atol=1e-12 if dtype == torch.float64 else 1e-4)
    transform = sitk.AffineTransform(back[:3, :3].reshape(-1).tolist(), back[:3, 3].tolist())
    image = sitk.GetImageFromArray(volume.numpy())
    itk = sitk.GetArrayFromImage(sitk.Resample(image, image, transform, SITK[mode], 0.3))
    # ITK gives border voxels for half a voxel outside instead of mixing with the fill: compared within.
    z, y, x = np.indices(size)
    source = np.einsum("ij,jkhw->ikhw", back, [x, y, z, 1 + 0 * x])[:3]
    sides = np.array([29, 37, 31])[:, None, None, None]
    keep &= ((source > 0) & (source < sides - 1)).all(0)
    assert keep.mean() > 0.5
    np.testing.assert_allclose(ours[keep], itk[keep], atol=1e-4)


def test_cubic_in_space_is_bicubic_in_each_plane():
    """A volume that moves within its slices is a batch of images, and bicubic is compared with OpenCV and kornia."""
    volume = noise(1, 4, 9, 8, dtype=torch.float64)
    H2 = geometry.compose(
        geometry.translate(0.3, -0.7).double(), geometry.center(geometry.rotate(20.0), (9, 8))
    )
    for axes in ([0, 1, 3], [0, 2, 3], [1, 2, 3]):
        H = torch.eye(4, dtype=torch.float64)
        H[np.ix_(axes, axes)] = H2
        still = ({0, 1, 2} - set(axes)).pop()
        turned = volume.movedim(1, 3 - still)  # the four slices along the axis that stands still
        got = geometry.warp(turned, H, mode="cubic").movedim(3 - still, 1)
        flat = geometry.warp(volume[0], H2, mode="bicubic")
        torch.testing.assert_close(got[0], flat, atol=1e-12, rtol=0)


@pytest.mark.parametrize("mode", VOLUME_MODES)
@pytest.mark.parametrize("size", [(1, 1, 1), (1, 1, 5), (4, 3, 2), (9, 11, 10)])
def test_identity_and_whole_shifts_are_exact(mode, size):
    volume = noise(2, *size)
    assert torch.equal(geometry.warp(volume, -3 * torch.eye(4), mode=mode, fill=0.7), volume)
    shifted = geometry.warp(volume, geometry.translate(2.0, -1.0, 3.0), mode=mode, origin=(2, -1, 3))
    assert torch.equal(shifted, volume)


@pytest.mark.parametrize("mode", VOLUME_MODES)
def test_batches_channels_and_an_index_have_the_same_bits(mode):
    volumes = noise(3, 2, 5, 6, 4)
    H = torch.stack([some_transform((5, 6, 4), k, 0.1) for k in range(3)]).float()
    whole = geometry.warp(volumes, H, size=(4, 4, 4), mode=mode)
    for k in range(3):
        for c in range(2):
            alone = geometry.warp(volumes[k : k + 1, c], H[k], size=(4, 4, 4), mode=mode)
            assert torch.equal(alone[0], whole[k, c])
    picked = geometry.warp(volumes, H[[2, 0]], size=(4, 4, 4), mode=mode, index=torch.tensor([2, 0]))
    assert torch.equal(picked, whole[[2, 0]])


@pytest.mark.parametrize("mode", VOLUME_MODES)
def test_gradients_of_a_warp(mode):
    volumes = noise(2, 3, 4, 3, dtype=torch.float64).requires_grad_()
    H = torch.stack([some_transform((3, 4, 3), k, 0.1) for k in (3, 4)]).requires_grad_()

    def run(volumes, H):
        return geometry.warp(volumes, H, size=(2, 3, 3), mode=mode, fill=0.3, origin=(0, 0.25, 0.5))

    assert torch.autograd.gradcheck(run, (volumes, H), atol=1e-5)


def test_bad_modes_are_named():
    with pytest.raises(ValueError, match="mode must be one of linear, cubic, nearest, got 'bilinear'"):
        geometry.warp(torch.zeros(1, 2, 2, 2), torch.eye(4), mode="bilinear")
