"""How many CPU threads a training uses, unless it is told."""

import os

from caunet.models import RelationNetwork

__all__ = ["choose_threads"]

# Weights times pairs in a batch. Below it an update takes well under a millisecond, and waking threads costs as much.
_SMALL = 5_000_000


def choose_threads(asked: int | None, model: RelationNetwork, batch: int, device: str) -> int | None:
    """``asked`` if it is given; one for a small network on the CPU; else None, which leaves what torch has.

    ``OMP_NUM_THREADS`` is an answer, too: where it is set, nothing is chosen.

    >>> from caunet.models import create_model
    >>> choose_threads(3, create_model("can", "rotation"), 100, "cpu")
    3
    >>> print(choose_threads(None, create_model("can", "rotation", units=12), 20, "cuda"))
    None
    """
    if asked is not None:
        if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
            raise ValueError(f"threads must be a whole number of at least 1, got {asked!r}")
        return asked
    if not device.startswith("cpu") or os.environ.get("OMP_NUM_THREADS"):
        return None
    return 1 if model.parameter_count() * batch < _SMALL else None
