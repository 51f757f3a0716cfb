# %% [markdown]
# # A steady clip
#
# A camera in a trembling hand: the path of its frames, and what is left of it when a slow motion is allowed.

# %%
import numpy as np
from matplotlib.figure import Figure

import caunet
from caunet.images import photograph

scene = photograph("rocket.jpg")
random = np.random.default_rng(1)
walk = np.stack([np.arange(12) * 4.0, np.arange(12) * 1.0], 1) + random.normal(0, 3, (12, 2))
walk = np.round(walk).astype(int) + 60
frames = np.stack([scene[y : y + 160, 130 + x : 290 + x] for x, y in walk])

found = caunet.align(frames, model="translation", progress=False)
path = found.matrices[:, :2, 2]
smooth = np.stack([np.polyval(np.polyfit(np.arange(12), p, 1), np.arange(12)) for p in path.T], 1)

figure = Figure(figsize=(8, 3.2), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=[1, 1.6])
left.imshow(frames[0], cmap="gray")
left.axis("off")
right.plot(*path.T, "o-", color="0.5", label="as filmed")
right.plot(*smooth.T, color="C2", linewidth=2, label="steady")
right.set(xlabel="x, pixels", ylabel="y, pixels")
right.legend(frameon=False)
figure  # A frame, and its path before and after
