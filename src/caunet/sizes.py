"""Sizes in sentences: in the order that arrays and JSON have, and named, so that nobody has to guess.

>>> size_text((200, 300)), size_text((40, 50, 60))
('height 200, width 300', 'depth 40, height 50, width 60')
"""

from collections.abc import Sequence

__all__ = ["size_text"]

_NAMES = ("depth", "height", "width")


def size_text(size: Sequence[int]) -> str:
    """(height, width) or (depth, height, width) in words."""
    names = _NAMES[len(_NAMES) - len(size) :]
    return ", ".join(f"{name} {side}" for name, side in zip(names, size, strict=True))
