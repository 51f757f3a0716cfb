# %% [markdown]
# # CAUs in your own network
#
# Contrast association units are a layer like any other: they take two feature vectors and say, unit by unit, how badly
# each relation fits. Here they go between a convolutional network of your own and a decoder, and then you write a unit.
#
# ## A layer
#
# `h_k = ½ Σ_ij W_kij (a_i - b_j)²`, with weights that are never negative. Small h: the relation fits.

# %%
import torch
from torch import nn

import caunet

units = caunet.nn.ContrastAssociation(in_a=64, in_b=64, units=32, rank=4)
h = units(torch.rand(5, 64), torch.rand(5, 64))
print(h.shape, bool((h >= 0).all()))

# %% [markdown]
# ## A network around it
#
# Features from a convolution, units that compare them, a competition, a decoder. The task: by how much was a sequence
# shifted to the right, 0 to 7 places around?

# %%
torch.manual_seed(0)


class Shift(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten())
        self.units = caunet.nn.ContrastAssociation(32, 32, units=24, rank=None)
        self.competition = caunet.nn.Softmin(0.1)
        self.decoder = nn.Linear(24, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a, b = self.features(x[:, None]), self.features(y[:, None])
        return self.decoder(self.competition(self.units(a, b)))


def pairs(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.rand(count, 16)
    shift = torch.randint(0, 8, (count,))
    place = (torch.arange(16) - shift[:, None]) % 16
    return x, x.gather(1, place), shift


model = Shift()

# %% [markdown]
# ## Two kinds of weights, one optimizer
#
# `split_parameters` finds which weights must stay non-negative; `HybridOptimizer.for_model` gives them the multiplicative
# rule and everything else Adam. Any module that contains CAUs will do.

# %%
optimizer = caunet.HybridOptimizer.for_model(model, lr=0.05, free_lr=0.005)
history = []
for _ in range(600):
    x, y, shift = pairs(128)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x, y), shift)
    loss.backward()
    optimizer.step()
    history.append(loss.item())
x, y, shift = pairs(2000)
right = (model(x, y).argmax(1) == shift).float().mean().item()
print(f"{right:.1%} of new pairs right; smallest weight {model.units.weight.min():.1g}, never negative")

# %%
from matplotlib.figure import Figure

figure = Figure(figsize=(9, 2.8), layout="constrained")
curve, *views = figure.subplots(1, 4)
curve.semilogy(history, color="0.4")
curve.set(xlabel="updates", title="loss")
responses = model.competition(model.units(*(model.features(t[:, None]) for t in (x, y)))).detach()
for axes, k in zip(views, (0, 3, 6), strict=True):
    unit = int(responses[shift == k].mean(0).argmax())
    axes.imshow(model.units.weight[unit].detach(), cmap="Greys")
    axes.set(title=f"W of the unit for shift {k}", xticks=[], yticks=[])
figure  # The loss, and the weight matrices of three units: each has learned the diagonal of its shift

# %% [markdown]
# The weights lie on the diagonals of one shift: that is where a and b agree if it is the right one.
#
# ## A unit of your own
#
# A unit is one class. This one takes absolute instead of squared differences; the package needs no more than `forward`
# to train, save and export it.

# %%


@caunet.nn.register_relation("absolute-difference")
class AbsoluteDifference(caunet.nn.PairRelation):
    """h_k = sum_ij W_kij |a_i - b_j|."""

    spec_options = frozenset({"units", "parametrization"})
    nonnegative_weights = True
    smallest_wins = True
    default_competition = "softmin"

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        differences = (a.unsqueeze(-1) - b.unsqueeze(-2)).abs()
        return differences.flatten(-2) @ self.weight.flatten(1).T


from caunet.models import register_model

register_model("adn", relation="absolute-difference", units=20, about="absolute difference network")
print(caunet.create_model("adn", "rotation"))

# %% [markdown]
# Put `import caunet`, `import torch` and these lines (but for the last) into a file `my_units.py`, and the command line knows
# them ([names on the command line](../how-to/plugins.md)):
#
# ```console
# caunet train --import my_units --model adn --task rotation --profile quick --updates 2000 --out runs/adn
# caunet evaluate --import my_units runs/adn
# ```
#
# ## Next
#
# - What else a unit can say about itself: [a unit of your own](../own-unit.md).
# - The rule that learns non-negative weights: [learning rule](../learning-rule.md).
