"""How each method is called: one maker per method, of a function (a, b) -> H on gray bytes (ours: on any bytes).

Settings were chosen on the calibration photographs, in each method's favor: SIFT keeps faint points and ORB dim ones
(their defaults find too few in smooth pictures), ECC may take 200 steps. What a method cannot express it cannot find:
phase correlation only shifts; pystackreg and SimpleITK are affine, as neither has a homography.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from caunet.errors import CaunetError
from caunet.extras import require

__all__ = [
    "Answer",
    "Matrix",
    "Picture",
    "Register",
    "caunet",
    "ecc",
    "ecc_pyramid",
    "kornia",
    "magsac",
    "orb",
    "phase",
    "pystackreg",
    "root_sift",
    "sift",
    "simpleitk",
]

Picture = npt.NDArray[np.uint8]
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Answer:
    """H (3, 3), and how probably it is right, of a method that says so."""

    matrix: Matrix
    confidence: float


Register = Callable[[Picture, Picture], Matrix | Answer | None]


def caunet() -> Register:
    """Ours, with the weights that come with it."""
    from caunet.estimation import Estimator

    estimator = Estimator("projective")

    def register(a: Picture, b: Picture) -> Answer:
        found = estimator(a, b)
        return Answer(np.asarray(found.matrix, np.float64), found.confidence)

    return register


def ecc() -> Register:
    """OpenCV's enhanced correlation coefficient, from the identity."""
    cv2 = require("cv2", "bench", "OpenCV's registration")
    criteria = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 200, 1e-6)

    def register(a: Picture, b: Picture) -> Matrix | None:
        start = np.eye(3, dtype=np.float32)
        # Its template is the first picture: the result takes the template's points to the other's.
        _, H = cv2.findTransformECC(a, b, start, cv2.MOTION_HOMOGRAPHY, criteria, None, 5)
        return np.asarray(H, np.float64)

    return register


def ecc_pyramid() -> Register:
    """The same from coarse to fine, as OpenCV 5 has it."""
    cv2 = require("cv2", "bench", "OpenCV's registration")
    if not hasattr(cv2, "findTransformECCMultiScale"):
        raise CaunetError("OpenCV ECC, pyramid needs OpenCV 5: pip install 'opencv-python-headless>=5'")
    settings = cv2.ECCParameters()
    settings.motionType = cv2.MOTION_HOMOGRAPHY  # the rest as it comes: 4 levels, 50 steps, 1e-6

    def register(a: Picture, b: Picture) -> Matrix | None:
        start = np.eye(3, dtype=np.float32)
        _, H = cv2.findTransformECCMultiScale(a, b, start, settings)
        return np.asarray(H, np.float64)

    return register


def magsac(source: npt.NDArray[Any], target: npt.NDArray[Any]) -> Matrix | None:
    """The homography of matched points (N, 2), some of which are wrong, by OpenCV's MAGSAC++ at one pixel."""
    cv2 = require("cv2", "bench", "OpenCV's registration")
    if len(source) < 4:
        return None
    H, _ = cv2.findHomography(source, target, cv2.USAC_MAGSAC, 1.0, maxIters=10_000, confidence=0.999)
    return None if H is None else np.asarray(H, np.float64)


def _features(detector: Any, norm: int, ratio: float, root: bool = False) -> Register:
    """Key points that are each other's nearest and clearly nearer than the next; their homography by MAGSAC++.

    With ``root``, descriptors are compared by the square roots of their shares.
    """
    cv2 = require("cv2", "bench", "OpenCV's registration")
    matcher = cv2.BFMatcher(norm)

    def register(a: Picture, b: Picture) -> Matrix | None:
        (here, first), (there, second) = (
            detector.detectAndCompute(a, None),
            detector.detectAndCompute(b, None),
        )
        if min(len(here), len(there)) < 4:
            return None
        if root:
            first, second = (np.sqrt(d / np.maximum(d.sum(1, keepdims=True), 1e-6)) for d in (first, second))
        back = {match.queryIdx: match.trainIdx for match in matcher.match(second, first)}
        pairs = [
            (match.queryIdx, match.trainIdx)
            for match, *others in matcher.knnMatch(first, second, k=2)
            if others
            and match.distance < ratio * others[0].distance
            and back[match.trainIdx] == match.queryIdx
        ]
        if len(pairs) < 4:
            return None
        source, target = (
            np.array(p, np.float32) for p in zip(*[(here[i].pt, there[j].pt) for i, j in pairs], strict=True)
        )
        return magsac(source, target)

    return register


def sift(root: bool = False) -> Register:
    """SIFT's key points."""
    cv2 = require("cv2", "bench", "OpenCV's registration")
    # At most 4096 points, the strongest: tens of thousands in a large image take seconds and find no more.
    detector = cv2.SIFT_create(4096, contrastThreshold=0.01, enable_precise_upscale=True)
    return _features(detector, cv2.NORM_L2, 0.8, root)


def root_sift() -> Register:
    """SIFT's key points, compared by the square roots of their descriptors (Arandjelović and Zisserman)."""
    return sift(root=True)


def orb() -> Register:
    """ORB's key points."""
    cv2 = require("cv2", "bench", "OpenCV's registration")
    return _features(cv2.ORB_create(3000, fastThreshold=5), cv2.NORM_HAMMING, 0.8)


def phase() -> Register:
    """The peak of the phase correlation of Hann-windowed pictures."""
    cv2 = require("cv2", "bench", "OpenCV's registration")

    def register(a: Picture, b: Picture) -> Matrix | None:
        window = cv2.createHanningWindow((a.shape[1], a.shape[0]), cv2.CV_64F)
        (x, y), _ = cv2.phaseCorrelate(a.astype(np.float64), b.astype(np.float64), window)
        return np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])

    return register


def kornia() -> Register:
    """Gradient descent on a homography, from coarse to fine."""
    geometry = require("kornia.geometry", "bench", "kornia's ImageRegistrator")
    registrator = geometry.ImageRegistrator(
        "homography", tolerance=1e-6
    )  # its 1e-4 stops before a whole pixel

    def register(a: Picture, b: Picture) -> Matrix | None:
        first, second = (torch.from_numpy(p)[None, None].to(torch.float32) / 255 for p in (a, b))
        # Its model takes the second argument's places to the first's.
        model = registrator.register(second, first).detach().double()
        H = geometry.denormalize_homography(model, b.shape, a.shape, align_corners=False)
        return np.asarray(H[0].numpy(), np.float64)

    return register


def pystackreg() -> Register:
    """TurboReg's affine registration."""
    StackReg = require("pystackreg", "bench", "TurboReg's registration").StackReg

    def register(a: Picture, b: Picture) -> Matrix | None:
        # register(reference, moved) is the matrix that reads the moved picture at the reference's places.
        return np.asarray(StackReg(StackReg.AFFINE).register(a.astype(float), b.astype(float)), np.float64)

    return register


def simpleitk() -> Register:
    """ITK's affine registration by correlation, from coarse to fine."""
    sitk = require("SimpleITK", "bench", "ITK's registration")

    def register(a: Picture, b: Picture) -> Matrix | None:
        method = sitk.ImageRegistrationMethod()
        method.SetMetricAsCorrelation()
        method.SetInterpolator(sitk.sitkLinear)
        method.SetOptimizerAsRegularStepGradientDescent(1.0, 1e-4, 200)
        method.SetOptimizerScalesFromPhysicalShift()
        method.SetShrinkFactorsPerLevel([4, 2, 1])
        method.SetSmoothingSigmasPerLevel([2, 1, 0])
        motion = sitk.AffineTransform(2)
        middle = np.array([(a.shape[1] - 1) / 2, (a.shape[0] - 1) / 2])
        motion.SetCenter(middle.tolist())
        method.SetInitialTransform(motion, inPlace=True)
        method.Execute(*(sitk.GetImageFromArray(p.astype(np.float32)) for p in (a, b)))
        H = np.eye(3)  # fixed points to moving points, about the center
        H[:2, :2] = np.array(motion.GetMatrix()).reshape(2, 2)
        H[:2, 2] = np.array(motion.GetTranslation()) + middle - H[:2, :2] @ middle
        return H

    return register
