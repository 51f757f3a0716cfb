"""Which places of two images are the same place, and what transformations they agree on.

>>> import caunet.matching as matching
>>> sorted(matching.__all__)
['Described', 'Hypothesis', 'MatchNetwork', 'Matcher', 'Matches', 'Points', 'consensus', 'detect', 'match']
"""

from caunet.matching.consensus import Hypothesis, Matches, consensus
from caunet.matching.matcher import Described, Matcher, match
from caunet.matching.network import MatchNetwork
from caunet.matching.points import Points, detect

__all__ = [
    "Described",
    "Hypothesis",
    "MatchNetwork",
    "Matcher",
    "Matches",
    "Points",
    "consensus",
    "detect",
    "match",
]
