"""Registration measured: pairs whose homography is known, other methods, and a table.

>>> from caunet.benchmark import draw_pair
>>> draw_pair("test", "occlusion", 0.1, index=3, side=64).mask.float().mean()  # 80 % of b shows the scene
tensor(0.7969)
"""

from caunet.benchmark.pairs import CONDITIONS, MOTIONS, Pair, draw_pair, make_pair
from caunet.benchmark.photographs import photographs
from caunet.benchmark.unanswerable import blank, out_of_range, repetitive, unrelated_pair

__all__ = [
    "CONDITIONS",
    "MOTIONS",
    "Pair",
    "blank",
    "draw_pair",
    "make_pair",
    "out_of_range",
    "photographs",
    "repetitive",
    "unrelated_pair",
]
