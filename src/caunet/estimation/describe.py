"""An estimate in plain words, for people; numbers for programs are in its JSON."""

from collections.abc import Mapping
from typing import Any

__all__ = ["confidence_word", "describe_parameters", "summarise"]

_WORDS = ((0.95, "very high"), (0.8, "high"), (0.5, "fair"), (0.2, "low"), (0.0, "very low"))
_ADVICE = "do not rely on it: the pictures may not show the same thing, or too little of it"


def confidence_word(confidence: float) -> str:
    """very high (from 0.95), high (0.8), fair (0.5), low (0.2) or very low.

    >>> [confidence_word(c) for c in (1.0, 0.9, 0.5, 0.3, 0.0)]
    ['very high', 'high', 'fair', 'low', 'very low']
    """
    return next(word for least, word in _WORDS if confidence >= least)


def describe_parameters(parameters: Mapping[str, float], model: str) -> list[tuple[str, str]]:
    """Names and values in words, as many as the model has; see ``decomposition`` for what they mean.

    >>> found = {"shift_x": 3.0, "shift_y": -2.5, "angle": -0.5, "scale": 1.01}
    >>> describe_parameters(found, "similarity")
    [('shift', '3.00 px right, 2.50 px up'), ('angle', '0.50° counterclockwise'), ('scale', '1.0100')]
    """
    p = parameters
    rows = [("shift", f"{_way(p['shift_x'], 'right', 'left')}, {_way(p['shift_y'], 'down', 'up')}")]
    if model == "translation":
        return rows
    turn = f"{abs(p['angle']):.2f}°"
    if turn != "0.00°":
        turn += " clockwise" if p["angle"] > 0 else " counterclockwise"
    rows.append(("angle", turn))
    if model == "euclidean":
        return rows
    axes = "" if model == "similarity" else f" (x {p['scale_x']:.4f}, y {p['scale_y']:.4f})"
    rows.append(("scale", f"{p['scale']:.4f}{axes}"))
    if model == "similarity":
        return rows
    rows.append(("shear", f"{p['shear']:+.4f}"))
    if model == "projective":
        rows.append(("perspective", f"{p['perspective_x']:+.4f} across, {p['perspective_y']:+.4f} down"))
    return rows


def summarise(data: Mapping[str, Any]) -> str:
    """A few lines from the JSON of an estimate."""
    rows = describe_parameters(data["parameters"], data["model"])
    confidence = data["confidence"]
    word = confidence_word(confidence)
    verdict = f"{confidence:.2f} ({word})"
    if confidence < 0.5:
        verdict += f": {_ADVICE}"
    rows += [
        ("confidence", verdict),
        ("motions", f"{data['inliers']:,} of {data['matches']:,} agree"),
        ("time", f"{data['seconds'] * 1000:.0f} ms"),
    ]
    lines = [f"{data['model']}, from a ({_size(data['size_a'])}) to b ({_size(data['size_b'])}):"]
    lines += [
        "  " + " ".join(f"{0 if abs(value) < 1e-12 else value:14.7g}" for value in row)
        for row in data["matrix"]
    ]
    lines += [f"  {name:<12} {value}" for name, value in rows]
    return "\n".join(lines)


def _way(pixels: float, forward: str, backward: str) -> str:
    return f"{abs(pixels):.2f} px {forward if pixels >= 0 else backward}"


def _size(size: list[int]) -> str:
    return f"{size[1]} x {size[0]}"
