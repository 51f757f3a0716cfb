# %% [markdown]
# # What counts: a mask
#
# A time stamp stands still while the scene moves. A mask says where the scene is; without it the stamp would be believed.

# %%
import numpy as np
from matplotlib.figure import Figure

import caunet
from caunet.images import photograph

scene = photograph("camera.png")
first, second = scene[100:356, 100:356].copy(), scene[93:349, 112:368].copy()  # moved by (-12, 7)
for image in (first, second):
    image[:, :90] = scene[:256, 400:490]  # the same in both: it does not move
counts = np.ones((256, 256), bool)
counts[:, :90] = False

with_mask = caunet.estimate(first, second, "translation", mask_a=counts, mask_b=counts)
print(with_mask.matrix[:2, 2].round(2), round(with_mask.confidence, 2))

# %%
figure = Figure(figsize=(8, 3), layout="constrained")
for axes, image, title in zip(
    figure.subplots(1, 3),
    (first, second, np.where(counts, first, 128)),
    ("first", "second", "what counts of the first"),
    strict=True,
):
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_title(title)
    axes.axis("off")
figure  # Two images with the same strip at the left, and the mask that leaves it out
