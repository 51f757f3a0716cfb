# %% [markdown]
# # Two volumes
#
# The same scene in two volumes, the second turned and moved. Both are drawn on top of each other, the first in green and the
# second in magenta: gray where they agree.

# %%
import numpy as np
import torch
from matplotlib.figure import Figure

import caunet
from caunet import geometry
from caunet.data.shapes3 import make

scene = torch.from_numpy(make(5, side=104).astype(np.float32)) / 255
size, start = (64, 64, 64), geometry.translate(-20.0, -20.0, -20.0)
motion = geometry.compose(
    geometry.translate(5.0, -3.0, 4.0), geometry.center(geometry.rotate(18.0, axis=(1, 2, 2)), size)
)
first = geometry.warp(scene[None], start, size)[0]
second = geometry.warp(scene[None], geometry.compose(motion, start), size, mode="cubic")[0]

found = caunet.estimate_volume(first, second)
print(found)

# %%
figure = Figure(figsize=(7.5, 5.2), layout="constrained")
after = found.warp(second)
for row, title, other in zip(figure.subplots(2, 3), ("before", "after"), (second, after), strict=True):
    for axes, plane, index in zip(
        row,
        ("from above", "from the front", "from the side"),
        (32, np.s_[:, 32], np.s_[:, :, 32]),
        strict=True,
    ):
        a, b = first[index].clip(0, 1), other[index].clip(0, 1)
        axes.imshow(np.stack([b, a, b], -1))
        axes.set_title(f"{title}, {plane}")
        axes.axis("off")
figure  # Three planes of two volumes on top of each other, before and after
