# %% [markdown]
# # Pairs of five tasks
#
# What the networks learn from: a patch, and the same patch after a random transformation of each task.

# %%
from matplotlib.figure import Figure

import caunet

images = caunet.load_images("photos")
tasks = ("translation", "rotation", "scaling", "affine", "projective")
figure = Figure(figsize=(8, 3.4), layout="constrained")
for column, task in zip(figure.subplots(2, 5).T, tasks, strict=True):
    source = caunet.PairSource(images, task, patch=17, pairs="fresh", seed=3)
    x, y, z = next(source.stream(0, 1, batch=1))
    for axes, patch in zip(column, (x, y), strict=True):
        axes.imshow(patch[0], cmap="gray")
        axes.set(xticks=[], yticks=[])
    column[0].set_title(task)
figure  # Five patches above, and the same patches transformed below
