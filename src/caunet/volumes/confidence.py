"""How far an answer for two volumes can be trusted: the probability that it is right, from what speaks for it.

As for images (:mod:`caunet.estimation.confidence`): a logistic regression, whose coefficients come with the package
(weights/confidence3.json). benchmarks/calibrate_volumes.py fits them on volumes that no result is given for, and
measures them on others.
"""

import functools
import json
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from caunet.estimation.confidence import logistic

__all__ = ["FEATURES", "SIGNS", "volume_confidence", "volume_features"]

FEATURES = ("score", "explained", "second", "overlap", "moved", "uncertainty")
"""What the probability is computed from; see :func:`volume_features`."""
SIGNS = (1, 1, 1, 1, -1, -1)
"""Whether more of a feature speaks for the answer (1) or against it (-1)."""


def volume_features(evidence: Mapping[str, float]) -> list[float]:
    """The evidence of a registration as numbers of the order of 1, in the order of :data:`FEATURES`.

    - score: mean correlation of small blocks at the second-finest level.
    - explained: share of the texture in blocks that are found where the answer says.
    - second: mean correlation of small blocks at the third-coarsest level, less where little overlaps.
    - overlap: share of a's texture that b shows.
    - moved: log10 of how far the last step still moved, as a share of the diagonal.
    - uncertainty: log10 of the corners' standard deviation, likewise.
    """
    return [
        evidence["score"],
        evidence["explained"],
        evidence["second"],
        evidence["overlap"],
        math.log10(min(max(evidence["moved"], 1e-6), 1.0)),
        math.log10(min(max(evidence["uncertainty"], 1e-6), 1.0)),
    ]


def volume_confidence(evidence: Mapping[str, float]) -> float:
    """The probability that the answer is right; 0 where there was nothing to see.

    >>> volume_confidence({})
    0.0
    """
    return logistic(volume_features(evidence), _fitted()) if evidence else 0.0


@functools.cache
def _fitted() -> dict[str, Any]:
    text = (resources.files("caunet") / "weights" / "confidence3.json").read_text(encoding="utf-8")
    fitted: dict[str, Any] = json.loads(text)
    return fitted
