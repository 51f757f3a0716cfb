# %% [markdown]
# # Align two images
#
# Two images of the same scene go in; the transformation between them comes out, with the probability that it is right.
# You need `pip install 'caunet[report]'` (the extra brings the photographs used here); everything else is on this page.
#
# ## Two images
#
# Use two photographs of your own: a facade from two places, a page scanned twice, a tile of a microscope and the next one.
# Here the second one is made from the first, so that the right answer is known: seen from another place, darker, noisy.

# %%
import numpy as np
import torch
from PIL import Image

from caunet import geometry
from caunet.images import photograph

color = photograph("coffee.png", rgb=True)  # bytes (400, 600, 3)
first = Image.fromarray(color[60:360, 100:500])  # 400 pixels wide, 300 high

truth = torch.tensor([[1.05, -0.12, -80.0], [0.10, 0.98, -75.0], [2e-4, 1e-4, 1.0]])  # 3 x 3
pixels = torch.from_numpy(color).permute(2, 0, 1) / 255
moved = geometry.warp(pixels, truth, size=(300, 400)).permute(1, 2, 0).numpy()
noise = np.random.default_rng(0).normal(0, 0.02, moved.shape)
second = Image.fromarray(np.uint8(255 * np.clip(0.75 * moved + noise, 0, 1)))
first.save("first.png")
second.save("second.png")

side_by_side = Image.new("RGB", (810, 300), "white")
side_by_side.paste(first, (0, 0))
side_by_side.paste(second, (410, 0))
side_by_side  # The first image and the second one

# %% [markdown]
# ## The answer
#
# `caunet.estimate` takes paths, bytes, arrays, tensors and PIL images.

# %%
import caunet

found = caunet.estimate("first.png", "second.png")
print(found)

# %% [markdown]
# `found.matrix` maps points (x, y) of the first image to points of the second, in pixels.
# `found.confidence` is the probability that the corners are off by less than 1 % of the diagonal, and `found.reason` says how
# it ended.

# %%
print(found.matrix.round(4))
print(found.reason, round(found.confidence, 3))

# %% [markdown]
# How far is it from the truth? The first image is a part of the photograph that begins at (100, 60).

# %%
corners = geometry.corners((300, 400)).double()
right = geometry.compose(truth.double(), geometry.translate(100.0, 60.0).double())
error = geometry.apply(torch.from_numpy(found.matrix), corners) - geometry.apply(right, corners)
print(f"corners off by {error.norm(dim=1).mean():.3f} pixels on average")

# %% [markdown]
# ## The second image on the first
#
# `found.warp` resamples. In the overlay one image is red, the other one cyan: where they agree, it is gray.

# %%
from PIL import ImageOps

aligned = found.warp(second)


def overlay(a: Image.Image, b: Image.Image) -> Image.Image:
    gray = [np.asarray(ImageOps.autocontrast(image.convert("L"), cutoff=1)) for image in (a, b, b)]
    return Image.fromarray(np.stack(gray, axis=-1))


both = Image.new("RGB", (810, 300), "white")
both.paste(overlay(first, second), (0, 0))
both.paste(overlay(first, aligned), (410, 0))
both  # Before and after: red and cyan ghosts become one gray image

# %% [markdown]
# ## How exact?
#
# `found.uncertainty` gives the covariance of any point, in square pixels. At the center it is smallest.

# %%
center, corner = np.sqrt(found.uncertainty([[199.5, 149.5], [0.0, 0.0]])[:, 0, 0])
print(f"x at the center: ±{center:.3f} px, at a corner: ±{corner:.3f} px")

# %% [markdown]
# ## When there is no answer
#
# Two images that have nothing in common get a low confidence, not an error: look at it before you use a matrix.

# %%
nothing = caunet.estimate("first.png", photograph("brick.png"))
print(nothing.reason, round(nothing.confidence, 3))

# %% [markdown]
# ## From a shell
#
# The same, with files:
#
# ```console
# caunet estimate first.png second.png --out aligned.png --overlay overlay.png
# caunet estimate first.png second.png --json --min-confidence 0.9
# ```
#
# The second command prints JSON, and its exit code is 3 if the confidence is lower than that.
#
# ## Next
#
# - Only part of an image counts: [masks](../how-to/masks.md).
# - A shift, a rotation or a scale is all that can have happened: `model="translation"`, `"euclidean"`, `"similarity"`,
#   `"affine"`. The simplest that can hold is the most precise: [motion models](../estimation.md#motion-models).
# - Thousands of pairs: [many pairs](../how-to/many-pairs.md). A film or a stack: [the next tutorial](stack.md).
