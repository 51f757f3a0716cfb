"""How far an answer can be trusted: the probability that its corners are off by less than 1 % of the diagonal.

A logistic regression on the evidence of a registration. Its coefficients come with the package
(weights/confidence.json); benchmarks/calibrate_confidence.py fits them on pairs whose answer is known, and measures
on other photographs whether the probability is right.
"""

import functools
import json
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

__all__ = ["FEATURES", "confidence", "features"]

FEATURES = (
    "score",
    "alike",
    "coarse",
    "misfit",
    "moved",
    "uncertainty",
    "repetition",
    "inliers",
    "overlap",
    "windows",
    "distortion",
)
"""What the probability is computed from; see :func:`features`."""


def features(evidence: Mapping[str, float]) -> list[float]:
    """The evidence of a registration as numbers of the order of 1, in the order of :data:`FEATURES`.

    - score, coarse: mean correlation of small windows, in the middle of the pyramid and higher up.
    - alike: share of windows that correlate by more than 0.7.
    - misfit: log10 of what the polished correlation lacks to 1.
    - moved: log10 of how far the last step still moved the corners, as a share of the diagonal.
    - uncertainty: log10 of the corners' standard deviation that the residual's noise explains, likewise.
    - repetition: how well the image correlates with itself some pixels away.
    - inliers: share of the network's motions that agree with the answer.
    - overlap: share of a seen in b. windows: share of windows that show something.
    - distortion: logarithm of the largest stretch over the smallest.
    """
    tenth = math.log10
    return [
        evidence["score"],
        evidence["alike"],
        evidence["coarse"],
        tenth(max(1 - evidence["correlation"], 1e-5)),
        tenth(max(evidence["moved"], 1e-6)),
        tenth(max(min(evidence["uncertainty"], 1.0), 1e-6)),
        evidence["repetition"],
        evidence["inliers"],
        evidence["overlap"],
        evidence["windows"],
        evidence["distortion"],
    ]


def confidence(evidence: Mapping[str, float]) -> float:
    """The probability that the answer is right; 0 where there was nothing to see.

    >>> confidence({})
    0.0
    """
    if not evidence:
        return 0.0
    fitted = _fitted()
    centered = [
        (value - mean) / scale
        for value, mean, scale in zip(features(evidence), fitted["means"], fitted["scales"], strict=True)
    ]
    logit = fitted["bias"] + sum(w * value for w, value in zip(fitted["weights"], centered, strict=True))
    return 1 / (1 + math.exp(-max(min(logit, 30.0), -30.0)))


@functools.cache
def _fitted() -> dict[str, Any]:
    text = (resources.files("caunet") / "weights" / "confidence.json").read_text(encoding="utf-8")
    fitted: dict[str, Any] = json.loads(text)
    return fitted
