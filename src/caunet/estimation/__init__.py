"""Whole images: how are these two related?

>>> import caunet.estimation as estimation
>>> sorted(estimation.__all__)
['DenseRelations', 'Estimate', 'Estimator', 'Field', 'estimate', 'estimate_many']
"""

from caunet.estimation.estimator import Estimator, estimate
from caunet.estimation.many import estimate_many
from caunet.estimation.result import Estimate, Field
from caunet.models import DenseRelations

__all__ = ["DenseRelations", "Estimate", "Estimator", "Field", "estimate", "estimate_many"]
