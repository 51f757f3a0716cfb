"""The paper's worked example (Section III-B): three contrast association units that see a translation.

    python examples/worked_example.py [--sequences 10000] [--seed 0]

A sequence c_0 ... c_6 of random numbers is cut into a = (c_1 ... c_5) and one of three b, shifted by
z = -1, 0 or 1. Unit k sums the squared differences along the diagonal on which a and b agree if the
translation is its own; the smallest sum wins, and the decoder (-1, 0, 1) reads the winner.
"""

import argparse

import torch
from torch import Tensor

from caunet.functional import contrast_association, winner_take_all

TRANSLATIONS = torch.tensor([-1, 0, 1])


def paper_weights() -> Tensor:
    """W_1, W_2, W_3 of equation (14): ``(3, 5, 5)``, ones below, on and above the diagonal."""
    return torch.stack([torch.diag(torch.ones(5 - abs(k)), k) for k in TRANSLATIONS.tolist()])


def cut(c: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Sequences ``c (N, 7)`` and translations ``z (N,)`` to a, b of equations (8)-(12): ``(N, 5)`` each."""
    first = 1 - z  # b starts at c_2, c_1, c_0 for z = -1, 0, 1
    return c[:, 1:6], c.gather(1, first[:, None] + torch.arange(5))


def infer(a: Tensor, b: Tensor) -> Tensor:
    """R, winner-take-all and g of the paper: ``(N, 5)``, ``(N, 5)`` to z ``(N,)``."""
    winner = winner_take_all(contrast_association(a, b, paper_weights()))
    return (winner @ TRANSLATIONS.to(winner.dtype)).long()


def accuracy(sequences: int, generator: torch.Generator) -> float:
    """The share of random sequences under random translations whose z is inferred."""
    c = torch.rand(sequences, 7, generator=generator)
    z = torch.randint(-1, 2, (sequences,), generator=generator)
    return float((infer(*cut(c, z)) == z).float().mean())


def show(c: Tensor) -> str:
    """The matrices D(a, b_1), D(a, b_2), D(a, b_3) of one sequence ``c (7,)`` and what the units say."""
    a, b = cut(c.expand(3, 7), TRANSLATIONS)
    squared = (a[:, :, None] - b[:, None, :]).square()  # D: (3, 5, 5)
    h = contrast_association(a, b, paper_weights())
    won, z = winner_take_all(h).int().tolist(), infer(a, b).tolist()
    lines = [f"c = {_numbers(c)}", "", "    ".join(f"{f'D(a, b_{k})':>30}" for k in (1, 2, 3))]
    lines += ["    ".join(_numbers(squared[k, i]) for k in range(3)) for i in range(5)]
    lines += ["", "pair         h_1   h_2   h_3    winner-take-all     z"]
    lines += [f"(a, b_{k + 1})  {_numbers(h[k])}    {won[k]!s:15}    {z[k]:2d}" for k in range(3)]
    return "\n".join(lines)


def _numbers(row: Tensor) -> str:
    """Two decimals each, but exact zeros bare, so that the diagonal of agreement stands out."""
    return "".join(f"{value:6.2f}" if value else "     0" for value in row.tolist())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The worked example of the paper, Section III-B.")
    parser.add_argument("--sequences", type=int, default=10_000, help="how many random sequences to try")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    options = parser.parse_args(arguments)
    generator = torch.Generator().manual_seed(options.seed)
    print(show(torch.rand(7, generator=generator)))
    right = accuracy(options.sequences, generator)
    print(f"\n{options.sequences:,} random sequences: {right:.2%} of the translations right")
    return 0 if right == 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
