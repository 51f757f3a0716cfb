"""Volumes made on the spot, and the same ones carried by known motions."""

import numpy as np
import scipy.ndimage as ndi


def scene(size=(44, 48, 40), seed=0, sigma=2.2) -> np.ndarray:
    """A blob with texture inside, float32, about 0 to 1, zero around."""
    rng = np.random.default_rng(seed)
    texture = ndi.gaussian_filter(rng.normal(size=size), sigma)
    texture = 0.5 + texture / (4 * texture.std())
    places = np.stack(np.meshgrid(*(np.linspace(-1.35, 1.35, n) for n in size), indexing="ij"))
    stretched = (places * np.array([1.0, 0.85, 1.15])[:, None, None, None]) ** 2
    body = ndi.gaussian_filter((stretched.sum(0) < 0.8).astype(float), 1.0)
    return (np.clip(texture, 0.05, None) * body).astype(np.float32)


def rounded(size=(44, 48, 40), seed=0) -> np.ndarray:
    """Nearly a ball, faint texture inside: turned any way its outline stays, as that of a brain without a skull."""
    texture = ndi.gaussian_filter(np.random.default_rng(seed).normal(size=size), 2.0)
    places = np.stack(np.meshgrid(*(np.linspace(-1.5, 1.5, n) for n in size), indexing="ij"))
    form = (places * np.array([1.1, 0.95, 1.0])[:, None, None, None]) ** 2
    body = ndi.gaussian_filter((form.sum(0) < 1).astype(float), 1.0)
    return (np.clip(0.8 + 0.25 * texture / texture.std(), 0, 1) * body).astype(np.float32)


def carried(volume: np.ndarray, M: np.ndarray, shape=None) -> np.ndarray:
    """b with b(M p) = a(p), M (4, 4) from voxels (x, y, z) of a to voxels of b; by SciPy's cubic splines."""
    shape = volume.shape if shape is None else shape
    flip = [2, 1, 0]
    back = np.linalg.inv(M)
    return ndi.affine_transform(
        volume, back[:3, :3][flip][:, flip], back[:3, 3][flip], output_shape=shape, order=3, mode="constant"
    ).astype(np.float32)


def turned(degrees: float, axis, shift, center, scale=1.0) -> np.ndarray:
    """(4, 4): a rotation about ``axis`` through ``center``, a scale and a shift."""
    axis = np.array(axis, float) / np.linalg.norm(axis)
    K = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    angle = np.radians(degrees)
    R = (np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K) * scale
    M = np.eye(4)
    M[:3, :3], M[:3, 3] = R, np.array(center) + shift - R @ center
    return M


def middle_of(shape) -> np.ndarray:
    return (np.array(shape[::-1]) - 1) / 2


def mean_distance(A: np.ndarray, B: np.ndarray, shape) -> float:
    """Mean distance in voxels between where two matrices put 27 points in the middle of a volume."""
    lines = [np.linspace(0.25 * n, 0.75 * n, 3) for n in shape[::-1]]
    points = np.stack(np.meshgrid(*lines), -1).reshape(-1, 3)
    homogeneous = np.concatenate([points, np.ones((27, 1))], 1).T
    return float(np.linalg.norm(((A - B) @ homogeneous)[:3], axis=0).mean())
