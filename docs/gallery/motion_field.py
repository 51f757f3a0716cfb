# %% [markdown]
# # A field of motions
#
# `DenseRelations` slides a patch network over two whole images: an answer at every place, here the shift of each block
# of an image that was turned.

# %%
import torch
from matplotlib.figure import Figure

import caunet
from caunet import geometry
from caunet.estimation import DenseRelations
from caunet.images import photograph

first = torch.from_numpy(photograph("gravel.png")[:256, :256].copy()).float() / 255
turn = geometry.center(geometry.rotate(1.2), (256, 256))
second = geometry.warp(first[None], turn)[0]

small = [torch.nn.functional.avg_pool2d(image[None], 2)[0] for image in (first, second)]
shift = DenseRelations(caunet.load_pretrained("motion"))(*small, stride=8)[:2].movedim(0, -1).detach()

figure = Figure(figsize=(5.4, 5), layout="constrained")
axes = figure.add_subplot()
axes.imshow(small[0], cmap="gray")
y, x = torch.meshgrid(*(torch.arange(side) * 8 + 5 for side in shift.shape[:2]), indexing="ij")
axes.quiver(x, y, shift[..., 0], shift[..., 1], color="C1", angles="xy", scale_units="xy", scale=0.35)
axes.axis("off")
figure  # Arrows that turn around the center of a bed of gravel
