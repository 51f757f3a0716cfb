"""How an estimation ended, as one word that programs can compare."""

from typing import Literal, get_args

__all__ = ["REASONS", "Reason"]

Reason = Literal["found", "blank", "unrelated", "ambiguous", "not this model", "out of range"]
"""How an estimation ended.

- ``found``: the answer is probably right (its confidence is 0.5 or more).
- ``blank``: one of the images shows nothing; the matrix is that of no motion.
- ``unrelated``: no answer was found under which the images agree.
- ``ambiguous``: another answer explains the images as well (a pattern that repeats).
- ``not this model``: the images are related, and the motion model cannot express how.
- ``out of range``: the best answer lies outside of the bounds; the matrix is one within them, and not an answer.
"""

REASONS: tuple[Reason, ...] = get_args(Reason)
