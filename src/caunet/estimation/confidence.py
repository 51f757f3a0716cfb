"""How far an answer can be trusted: the probability that its corners are off by less than 1 % of the diagonal.

An answer is right if the images are related as it says, if no other answer says it as well, if the motion model can
express the motion, and if it is precise enough. Good evidence for one of these does not make up for bad evidence for
another, so the probability is a product of four, each a logistic function of the evidence that concerns it. Their
coefficients come with the package (weights/confidence.json); benchmarks/calibrate_confidence.py fits them on pairs
whose answer is known, and measures on other photographs whether the probability is right.
"""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Literal

__all__ = ["FACTORS", "confidence", "doubt", "factors", "features", "logistic"]

_RELATED = 0.3  # mean correlation of windows from which images seem to show the same

FACTORS: dict[str, dict[str, int]] = {
    "related": {"score": 1, "misfit": -1, "inliers": 1, "overlap": 1, "explained": 1},
    "distinct": {"distinct": 1},
    "model": {"drift": -1, "explained": 1},
    "precise": {"uncertainty": -1, "moved": -1},
}
"""What each factor is computed from, and whether more of it speaks for the answer (1) or against it (-1)."""


def features(evidence: Mapping[str, float]) -> dict[str, float]:
    """The evidence of a registration as numbers of the order of 1.

    - score: mean correlation of small windows, in the middle of the pyramid.
    - misfit: log10 of what the polished correlation lacks to 1.
    - inliers: share of the network's motions that agree with the answer.
    - overlap: share of a seen in b.
    - explained: share of the texture that is found where the answer says.
    - distinct: log10 of the share of windows that speak against the second-best answer; half of them are enough.
    - drift: log10 of how far a homography would still move the corners, as a share of the diagonal.
    - uncertainty: log10 of the standard deviation of the corners, likewise.
    - moved: log10 of how far the last step still moved the corners, likewise.
    """
    return {
        "score": evidence["score"],
        "misfit": _log(1 - evidence["correlation"], 1e-4, 1.0),
        "inliers": evidence["inliers"],
        "overlap": evidence["overlap"],
        "explained": evidence["explained"],
        "distinct": _log(evidence["distinct"], 0.01, 0.5),
        "drift": _log(evidence["drift"], 5e-4, 0.1),
        "uncertainty": _log(evidence["uncertainty"], 2e-4, 0.1),
        "moved": _log(evidence["moved"], 1e-4, 0.1),
    }


def _log(value: float, low: float, high: float) -> float:
    """log10 of a value within these limits: beyond them it says no more."""
    return math.log10(min(max(value, low), high))


def factors(evidence: Mapping[str, float]) -> dict[str, float]:
    """The probabilities that the images are related so, that no other answer is as good, and so on; see FACTORS."""
    fitted, values = _fitted(), features(evidence)
    found = {}
    for name, names in FACTORS.items():
        moments = {key: [fitted[key][feature] for feature in names] for key in ("means", "scales")}
        found[name] = logistic([values[feature] for feature in names], {**fitted["factors"][name], **moments})
    return found


def confidence(evidence: Mapping[str, float]) -> float:
    """The probability that the answer is right; 0 where there was nothing to see.

    >>> confidence({})
    0.0
    """
    return math.prod(factors(evidence).values()) if evidence else 0.0


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

    >>> doubt({})
    'unrelated'
    """
    if not evidence or evidence["score"] < _RELATED:
        return "unrelated"
    found = factors(evidence)
    if found["distinct"] <= min(found["model"], found["related"]):
        return "ambiguous"
    return "not this model" if found["model"] <= found["related"] else "unrelated"


@functools.cache
def _fitted() -> dict[str, Any]:
    text = (resources.files("caunet") / "weights" / "confidence.json").read_text(encoding="utf-8")
    fitted: dict[str, Any] = json.loads(text)
    return fitted
