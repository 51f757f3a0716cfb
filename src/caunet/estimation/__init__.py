"""Whole pictures: how are these two related?

>>> import caunet.estimation as estimation
>>> sorted(estimation.__all__)
['DenseRelations', 'Estimate', 'Estimator', 'Field', 'estimate', 'estimate_many']
"""

from caunet.estimation.dense import DenseRelations
from caunet.estimation.estimator import Estimator, estimate, estimate_many
from caunet.estimation.result import Estimate, Field

__all__ = ["DenseRelations", "Estimate", "Estimator", "Field", "estimate", "estimate_many"]
