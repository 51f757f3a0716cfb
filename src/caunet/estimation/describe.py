"""An estimate in plain words, for people; numbers for programs are in its JSON."""

from collections.abc import Mapping
from typing import Any

from caunet.estimation.motion_models import motion_model_class
from caunet.sizes import size_text

__all__ = ["confidence_line", "confidence_word", "summarize"]

_WORDS = ((0.95, "very high"), (0.8, "high"), (0.5, "fair"), (0.2, "low"), (0.0, "very low"))
_ADVICE = {
    "found": "the images may not show the same thing, or too little of it",
    "unrelated": "the images may not show the same thing, or too little of it",
    "blank": "one of the images shows nothing",
    "ambiguous": "another answer explains the images as well",
    "not this model": "the images are related, but not by this motion model",
    "out of range": "the best answer lies outside of the bounds, and is not given",
}


def confidence_word(confidence: float) -> str:
    """very high (from 0.95), high (0.8), fair (0.5), low (0.2) or very low.

    >>> [confidence_word(c) for c in (1.0, 0.9, 0.5, 0.3, 0.0)]
    ['very high', 'high', 'fair', 'low', 'very low']
    """
    return next(word for least, word in _WORDS if confidence >= least)


def confidence_line(confidence: float, reason: str | None) -> str:
    """The confidence, its word and, where it is low, why.

    >>> confidence_line(0.1, "blank")
    '0.10 (very low): do not rely on it: one of the images shows nothing'
    """
    verdict = f"{confidence:.2f} ({confidence_word(confidence)})"
    if confidence < 0.5:
        verdict += f": do not rely on it: {_ADVICE[reason or 'unrelated']}"
    return verdict


def summarize(data: Mapping[str, Any]) -> str:
    """A few lines from the JSON of an estimate."""
    rows = motion_model_class(data["model"]).describe(data["parameters"])
    rows += [
        ("confidence", confidence_line(data["confidence"], data.get("reason", "unrelated"))),
        *_explained(data.get("explained")),
        ("motions", f"{data['inliers']:,} of {data['matches']:,} agree"),
        ("time", f"{data['seconds'] * 1000:.0f} ms"),
    ]
    lines = [f"{data['model']}, from a ({size_text(data['size_a'])}) to b ({size_text(data['size_b'])}):"]
    lines += [
        "  " + " ".join(f"{0 if abs(value) < 1e-12 else value:14.7g}" for value in row)
        for row in data["matrix"]
    ]
    lines += [f"  {name:<12} {value}" for name, value in rows]
    return "\n".join(lines)


def _explained(share: float | None) -> list[tuple[str, str]]:
    """Said only where much is left: a scene with depth, something that covers it."""
    return [] if share is None or share > 0.9 else [("explained", f"{100 * share:.0f} % of the image")]
