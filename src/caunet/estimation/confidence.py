"""How far an answer can be trusted: the probability that its corners are off by less than 1 % of the diagonal."""

import math
from collections.abc import Mapping

__all__ = ["confidence"]


def confidence(evidence: Mapping[str, float]) -> float:
    """The probability from what was seen."""
    if not evidence:
        return 0.0
    return 1 / (1 + math.exp(-20 * (evidence["correlation"] - 0.8)))
