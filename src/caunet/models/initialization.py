"""First weights of a decoder: what the paper's "uniform distributions" may have been in the library of its time.

>>> decoder = nn.Sequential(nn.Linear(300, 100), nn.PReLU(), nn.Linear(100, 1))
>>> initialize_(decoder, "xavier", torch.Generator().manual_seed(0))
>>> round(decoder[0].weight.std().item(), 2), decoder[0].bias.count_nonzero().item()
(0.07, 0)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["INITIALIZATIONS", "Initialization", "initialize_"]


@dataclass(frozen=True)
class Initialization:
    """Uniform distributions about 0: how far they reach, and what beside the weights is drawn."""

    reach: Callable[[int, int], float]
    """The largest weight, from the numbers of a layer's inputs and outputs."""
    biases: bool = True
    """Biases are drawn like the weights; else they are 0."""
    slopes: bool = False
    """Slopes of PReLUs are drawn like the weights; else they are 1/4."""


INITIALIZATIONS = {
    # nn.Linear's own, in Torch7 as in PyTorch.
    "fan-in": Initialization(lambda inputs, outputs: inputs**-0.5),
    # Of a standard deviation that depends on inputs and outputs, as Torch7's recipes for initialization had them.
    "xavier": Initialization(lambda inputs, outputs: math.sqrt(6 / (inputs + outputs)), biases=False),
    "kaiming": Initialization(lambda inputs, outputs: math.sqrt(12 / (inputs + outputs)), biases=False),
    # One distribution for every number there is.
    "uniform": Initialization(lambda inputs, outputs: 0.08, slopes=True),
}
"""By name: ``fan-in`` (±1/√inputs, the default), ``xavier``, ``kaiming``, ``uniform`` (±0.08)."""


def initialize_(decoder: nn.Sequential, name: str, generator: torch.Generator | None = None) -> None:
    """Draw the weights of ``decoder``, in place, from ``generator`` (``None``: PyTorch's global one)."""
    rule = INITIALIZATIONS[name]

    def draw_(parameter: torch.Tensor, reach: float) -> None:
        if not parameter.is_meta:
            parameter.uniform_(-reach, reach, generator=generator)

    with torch.no_grad():
        for layer in decoder:
            if isinstance(layer, nn.Linear):
                reach = rule.reach(layer.in_features, layer.out_features)
                draw_(layer.weight, reach)
                if layer.bias is not None:
                    draw_(layer.bias, reach) if rule.biases else layer.bias.zero_()
            elif isinstance(layer, nn.PReLU) and rule.slopes:
                draw_(layer.weight, rule.reach(1, 1))
