"""Learning rules for networks some of whose weights must stay non-negative.

* :class:`MultiplicativeUpdate`: the paper's rule. :class:`MultiplicativeAdam`: Adam on the logarithms, or
  both in one exponent. :class:`ProjectedAdam`: Adam and projection.
* :class:`HybridOptimizer`: one of these for the non-negative weights and Adam for the rest, as one optimizer.
* :func:`guard`: a warning when an optimizer that does not know about signs steps on such weights.
* :func:`split_parameters`: which weights are which.
"""

from caunet.optim.guard import Guard, guard
from caunet.optim.hybrid import HybridOptimizer
from caunet.optim.nonnegative import MultiplicativeAdam, MultiplicativeUpdate, ProjectedAdam
from caunet.optim.split import split_parameters

__all__ = [
    "Guard",
    "HybridOptimizer",
    "MultiplicativeAdam",
    "MultiplicativeUpdate",
    "ProjectedAdam",
    "guard",
    "split_parameters",
]
