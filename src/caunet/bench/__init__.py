"""Registration, measured: pairs whose homography is known, other methods, and a table.

>>> from caunet.bench import draw_pair
>>> draw_pair("test", "occlusion", 0.1, index=3, side=64).mask.float().mean()  # 80 % of b shows the scene
tensor(0.7969)
"""

from caunet.bench.hopeless import blank, out_of_range, repetitive, unrelated_pair
from caunet.bench.pairs import CONDITIONS, MOTIONS, Pair, draw_pair, make_pair
from caunet.bench.photographs import photographs

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
