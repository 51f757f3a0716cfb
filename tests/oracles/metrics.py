"""Errors of one sample in plain Python, as the paper writes them."""

import math
from collections.abc import Sequence

Matrix = Sequence[Sequence[float]]


def carry(H: Matrix, p: tuple[float, float]) -> list[float]:
    return [row[0] * p[0] + row[1] * p[1] + row[2] for row in H]


def parameter(z_hat: Sequence[float], z: Sequence[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(z_hat, z, strict=True)) / len(z)


def transformation(H_hat: Matrix, H: Matrix) -> float:
    above = below = 0.0
    for p in [(0, 0), (1, 0), (1, 1), (0, 1)]:
        q, q_hat = carry(H, p), carry(H_hat, p)
        above += math.dist(q, q_hat)
        below += math.hypot(*q)
    return above / below


def corner(H_hat: Matrix, H: Matrix, side: int) -> float:
    r = (side - 1) / 2
    total = 0.0
    for p in [(-r, -r), (r, -r), (r, r), (-r, r)]:
        q, q_hat = carry(H, p), carry(H_hat, p)
        if q[2] == 0 or q_hat[2] == 0:
            return math.inf
        total += math.dist((q[0] / q[2], q[1] / q[2]), (q_hat[0] / q_hat[2], q_hat[1] / q_hat[2]))
    return total / 4
