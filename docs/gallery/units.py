# %% [markdown]
# # What a unit compares
#
# The rank-one terms of a trained unit's matrix W: which pixels of the first patch (above) it compares with which pixels of
# the second (below).

# %%
from matplotlib.figure import Figure

import caunet
from caunet.data import PairSource, load_images

model = caunet.load_pretrained("can-rotation")
x, y, z = next(PairSource(load_images("photos", split="test"), "rotation").stream(0, 1, batch=1))
unit = int(model.units(x, y)[0].argmax())
view = model.relation.view(unit)

figure = Figure(figsize=(7, 3.8), layout="constrained")
for column, (a, b) in enumerate(zip(view.terms_a, view.terms_b, strict=True)):
    for row, weights in enumerate((a, b)):
        axes = figure.add_subplot(2, 4, 4 * row + column + 1)
        axes.imshow(weights.reshape(11, 11), cmap="magma")
        axes.set(xticks=[], yticks=[])
figure.suptitle(f"unit {unit}, the winner at {z.item():.0f}°")
figure  # Four pairs of weight maps
