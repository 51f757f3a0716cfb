# %% [markdown]
# # A mosaic of two images
#
# Two overlapping images on one canvas. `canvas="union"` is a grid that holds both, and `canvas()` says where the first
# image lies in it.

# %%
import numpy as np
from PIL import Image

import caunet
from caunet.images import photograph

scene = Image.fromarray(photograph("astronaut.png", rgb=True))
left = scene.crop((20, 40, 320, 380))
right = scene.rotate(7, Image.Resampling.BICUBIC).crop((200, 60, 480, 420))

found = caunet.estimate(left, right, "euclidean")
wide, valid = found.warp(np.asarray(right), canvas="union", fill=255, return_valid=True)
x, y, width, height = found.canvas("union")

mosaic = Image.fromarray(wide)
mosaic.paste(left, (-x, -y))
mosaic  # Two images of an astronaut joined into one
