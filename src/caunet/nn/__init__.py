"""Relation units and their competitions as modules, each complete in one place, over :mod:`caunet.functional`.

Units are called with the two feature vectors, ``h = units(a, b)``; a competition with ``h`` alone. Both are found by
name, and others can be added: :func:`register_relation`, :func:`register_competition` (docs/own-unit.md).

>>> import torch
>>> units = ContrastAssociation(121, 121, units=300, rank=4)
>>> units
ContrastAssociation(in_a=121, in_b=121, units=300, rank=4)
>>> h = Softmin()(units(torch.zeros(2, 121), torch.ones(2, 121)))
>>> h.shape, [tuple(p.shape) for p in units.nonnegative_parameters()]
(torch.Size([2, 300]), [(1200, 121), (1200, 121)])
>>> list(RELATIONS), list(COMPETITIONS)  # doctest: +NORMALIZE_WHITESPACE
(['bilinear', 'concatenation', 'contrast-association', 'relative-contrast'],
 ['softmin', 'winner-take-all', 'l2', 'softmax', 'none'])
"""

from caunet.nn.bilinear import Bilinear
from caunet.nn.competition import (
    COMPETITIONS,
    Competition,
    L2Norm,
    NoCompetition,
    Softmax,
    Softmin,
    WinnerTakeAll,
    register_competition,
)
from caunet.nn.concatenation import Concatenation
from caunet.nn.contrast_association import ContrastAssociation
from caunet.nn.pair import PairRelation
from caunet.nn.positive import PARAMETRIZATIONS, reparametrize
from caunet.nn.relation import RELATIONS, Relation, UnitView, register_relation
from caunet.nn.relative_contrast import RelativeContrast
from caunet.nn.sparse import SparseRows
from caunet.nn.window import Window

__all__ = [
    "COMPETITIONS",
    "PARAMETRIZATIONS",
    "RELATIONS",
    "Bilinear",
    "Competition",
    "Concatenation",
    "ContrastAssociation",
    "L2Norm",
    "NoCompetition",
    "PairRelation",
    "Relation",
    "RelativeContrast",
    "Softmax",
    "Softmin",
    "SparseRows",
    "UnitView",
    "Window",
    "WinnerTakeAll",
    "register_competition",
    "register_relation",
    "reparametrize",
]
