"""How far an answer can be trusted: the probability that its corners are off by less than 1 % of the diagonal.

A logistic regression on the evidence of a registration. Its coefficients come with the package
(weights/confidence.json); benchmarks/calibrate_confidence.py fits them on pairs whose answer is known, and measures
on other photographs whether the probability is right.
"""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Literal

__all__ = ["FEATURES", "SIGNS", "confidence", "doubt", "features", "logistic"]

_RELATED = 0.3  # mean correlation of windows from which images seem to show the same
_DISTINCT = 0.1  # share of windows that must speak against the second-best answer
_DRIFT = 0.005  # of the diagonal, that a larger model would still move the corners

FEATURES = (
    "score",
    "coarse",
    "misfit",
    "moved",
    "uncertainty",
    "inliers",
    "overlap",
    "explained",
    "drift",
    "distinct",
)
"""What the probability is computed from; see :func:`features`."""

SIGNS = (1, 1, -1, -1, -1, 1, 1, 1, -1, 1)
"""Whether more of a feature speaks for the answer (1) or against it (-1)."""


def features(evidence: Mapping[str, float]) -> list[float]:
    """The evidence of a registration as numbers of the order of 1, in the order of :data:`FEATURES`.

    - score, coarse: mean correlation of small windows, in the middle of the pyramid and higher up.
    - misfit: log10 of what the polished correlation lacks to 1.
    - moved: log10 of how far the last step still moved the corners, as a share of the diagonal.
    - uncertainty: log10 of the corners' standard deviation that the residual's noise explains, likewise.
    - inliers: share of the network's motions that agree with the answer.
    - overlap: share of a seen in b.
    - explained: share of the texture that is found where the answer says.
    - drift: log10 of how far a homography would still move the corners, as a share of the diagonal.
    - distinct: log10 of the share of windows that speak against the second-best answer.
    """
    tenth = math.log10
    return [
        evidence["score"],
        evidence["coarse"],
        tenth(max(1 - evidence["correlation"], 1e-5)),
        tenth(max(evidence["moved"], 1e-6)),
        tenth(max(min(evidence["uncertainty"], 1.0), 1e-6)),
        evidence["inliers"],
        evidence["overlap"],
        evidence["explained"],
        tenth(max(evidence["drift"], 3e-4)),
        tenth(max(evidence["distinct"], 0.004)),
    ]


def confidence(evidence: Mapping[str, float]) -> float:
    """The probability that the answer is right; 0 where there was nothing to see.

    >>> confidence({})
    0.0
    """
    return logistic(features(evidence), _fitted()) if evidence else 0.0


def logistic(values: Sequence[float], fitted: Mapping[str, Any]) -> float:
    """The probability of features (in the order of the fit) by a fitted regression: weights, bias, means, scales.

    >>> logistic([2.0], {"weights": [1.0], "bias": 0.0, "means": [2.0], "scales": [1.0]})
    0.5
    """
    centered = [
        (value - mean) / scale
        for value, mean, scale in zip(values, fitted["means"], fitted["scales"], strict=True)
    ]
    logit = fitted["bias"] + sum(w * value for w, value in zip(fitted["weights"], centered, strict=True))
    return 1 / (1 + math.exp(-max(min(logit, 30.0), -30.0)))


def doubt(evidence: Mapping[str, float]) -> Literal["unrelated", "ambiguous", "not this model"]:
    """What speaks most against an answer that is not trusted.

    >>> doubt({"score": 0.9, "drift": 0.001, "distinct": 0.0})
    'ambiguous'
    """
    if not evidence or evidence["score"] < _RELATED:
        return "unrelated"
    if evidence["distinct"] < _DISTINCT:
        return "ambiguous"
    return "not this model" if evidence["drift"] > _DRIFT else "unrelated"


@functools.cache
def _fitted() -> dict[str, Any]:
    text = (resources.files("caunet") / "weights" / "confidence.json").read_text(encoding="utf-8")
    fitted: dict[str, Any] = json.loads(text)
    return fitted
