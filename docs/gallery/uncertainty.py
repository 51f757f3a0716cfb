# %% [markdown]
# # How exact, and where
#
# The covariance of an answer, carried to any point. Ellipses hold 39 % of the probability (one standard deviation), drawn
# four hundred times as large.

# %%
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

import caunet
from caunet.images import photograph

scene = photograph("coffee.png") / 255
random = np.random.default_rng(0)
first = scene[100:300, 150:450] + random.normal(0, 0.04, (200, 300))
second = scene[104:304, 143:443] + random.normal(0, 0.04, (200, 300))
found = caunet.estimate(first.clip(0, 1), second.clip(0, 1), "affine")

points = np.stack(np.meshgrid(np.linspace(15, 284, 6), np.linspace(15, 184, 4)), -1).reshape(-1, 2)
figure = Figure(figsize=(7, 4.6), layout="constrained")
axes = figure.add_subplot()
axes.imshow(first, cmap="gray")
for point, covariance in zip(points, found.uncertainty(points), strict=True):
    sizes, directions = np.linalg.eigh(covariance)
    angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
    wide, high = 800 * np.sqrt(sizes[::-1])
    axes.add_patch(Ellipse(point, wide, high, angle=angle, fill=False, color="C1", linewidth=1.5))
axes.axis("off")
figure  # Ellipses of uncertainty on a photograph, small in the middle and larger towards the corners
